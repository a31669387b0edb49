//! Sizes of parallel groups, and the groups themselves as arithmetic progressions.
//!
//! A component has slots `0..n` (see [`crate::groups::slots`]). In the order `tp-cp-ep-dp-pp`, slot
//! `t + tp * (c + cp * (d + dp * p))` has the coordinates `t`, `c`, `d`, `p`; experts divide the same slots into `etp`, `ep`,
//! `edp` and `pp`. The slots that differ in one coordinate only are a group: its first slot, a step, and a size.
//!
//! Megatron-LM: `parallel_state.RankGenerator.get_ranks`, once for attention and once for experts.

use std::fmt;

use crate::diagnostic::{Code, Diagnostic};
use crate::ids::MAX_PROCESSES;

/// A kind of group, documented by the thing that the slots of such a group divide among themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The tensors of a layer.
    Tp,
    /// The tokens of a sequence.
    Cp,
    /// The samples of a batch.
    Dp,
    /// The parameters, among some of the slots with the same samples of a batch.
    Fsdp,
    /// Nothing: the copies of the parameters that are divided by `fsdp`.
    Replica,
    /// The layers of a model.
    Pp,
    /// The tensors of an expert.
    Etp,
    /// The experts of a layer.
    Ep,
    /// The samples of a batch, for slots with the same experts; without experts, as `dp`.
    Edp,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Kind; 9] =
        [Kind::Tp, Kind::Cp, Kind::Dp, Kind::Fsdp, Kind::Replica, Kind::Pp, Kind::Etp, Kind::Ep, Kind::Edp];

    /// The name in configs and coordinates: `tp`.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Tp => "tp",
            Kind::Cp => "cp",
            Kind::Dp => "dp",
            Kind::Fsdp => "fsdp",
            Kind::Replica => "replica",
            Kind::Pp => "pp",
            Kind::Etp => "etp",
            Kind::Ep => "ep",
            Kind::Edp => "edp",
        }
    }

    /// The word in messages: `tensor`.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Tp => "tensor",
            Kind::Cp => "context",
            Kind::Dp => "data",
            Kind::Fsdp => "shard",
            Kind::Replica => "replica",
            Kind::Pp => "pipeline",
            Kind::Etp => "expert-tensor",
            Kind::Ep => "expert",
            Kind::Edp => "expert-data",
        }
    }

    /// The kind with a name.
    pub fn named(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// The order in which slots change their coordinates, fastest first. `etp` has the place of `tp`, `edp` that of `dp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Order([Kind; 5]);

impl Order {
    /// Megatron-LM: the default `order` of `parallel_state.initialize_model_parallel`.
    pub const DEFAULT: Order = Order([Kind::Tp, Kind::Cp, Kind::Ep, Kind::Dp, Kind::Pp]);

    /// Read an order such as `tp-cp-ep-dp-pp`.
    ///
    /// # Errors
    /// `invalid-value` unless each of the five names appears once.
    pub fn parse(text: &str) -> Result<Self, Diagnostic> {
        let kinds: Vec<_> = text.split('-').filter_map(Kind::named).collect();
        let complete = Order::DEFAULT.0.iter().all(|kind| kinds.contains(kind)) && text.split('-').count() == 5;
        match <[Kind; 5]>::try_from(kinds) {
            Ok(kinds) if complete => Ok(Order(kinds)),
            _ => {
                let message = "an order names each of tp, cp, ep, dp and pp once, fastest first";
                Err(Diagnostic::new(Code::InvalidValue, message).help(format!("write {}, for example", Order::DEFAULT)))
            }
        }
    }

    /// The kinds, fastest first.
    pub fn kinds(self) -> [Kind; 5] {
        self.0
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, rest @ ..] = self.0;
        f.write_str(first.name())?;
        rest.iter().try_for_each(|kind| write!(f, "-{}", kind.name()))
    }
}

/// The sizes of the parallel groups of a component, and the order of its slots. Sizes are 1 or more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Parallel {
    /// Tensor.
    pub tp: u32,
    /// Context.
    pub cp: u32,
    /// Expert.
    pub ep: u32,
    /// Expert-tensor.
    pub etp: u32,
    /// Pipeline.
    pub pp: u32,
    /// Data, if it is stated: it follows from the others and the number of slots.
    pub dp: Option<u32>,
    /// Shards of the parameters in a data group.
    pub fsdp: u32,
    /// The order of the slots.
    pub order: Order,
}

impl Default for Parallel {
    fn default() -> Self {
        Parallel { tp: 1, cp: 1, ep: 1, etp: 1, pp: 1, dp: None, fsdp: 1, order: Order::DEFAULT }
    }
}

impl Parallel {
    /// The size of a stated kind; 1 for a derived one.
    pub fn size(&self, kind: Kind) -> u32 {
        match kind {
            Kind::Tp => self.tp,
            Kind::Cp => self.cp,
            Kind::Ep => self.ep,
            Kind::Etp => self.etp,
            Kind::Pp => self.pp,
            Kind::Fsdp => self.fsdp,
            Kind::Dp => self.dp.unwrap_or(1),
            Kind::Replica | Kind::Edp => 1,
        }
    }

    /// Refuse sizes of 0, and of more than a component can have processes.
    ///
    /// # Errors
    /// `invalid-value`.
    pub fn check(&self) -> Result<(), Diagnostic> {
        let wrong = |&kind: &Kind| !(1..=MAX_PROCESSES).contains(&self.size(kind));
        let Some(kind) = Kind::ALL.into_iter().find(wrong) else { return Ok(()) };
        let message = format!("{} is {}; it must be 1 to {MAX_PROCESSES}", kind.name(), self.size(kind));
        Err(Diagnostic::new(Code::InvalidValue, message).help("use 1 or more"))
    }

    /// Whether experts are divided.
    pub fn has_experts(&self) -> bool {
        self.ep > 1 || self.etp > 1
    }
}

/// Slots `first`, `first + step`, and so on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Progression {
    /// The first slot.
    pub first: u32,
    /// The distance to the next slot.
    pub step: u32,
    /// How many slots.
    pub count: u32,
}

impl Progression {
    /// The slots.
    pub fn slots(self) -> impl ExactSizeIterator<Item = u32> {
        (0..self.count).map(move |index| self.first + index * self.step)
    }

    /// The last slot.
    pub fn last(self) -> u32 {
        self.first + (self.count - 1) * self.step
    }
}

/// The groups of one kind: each slot is in one of them. Nothing is stored per group.
///
/// Consecutive slots form blocks of `step * size`; group `j` of a block starts at its `j`-th slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Groups {
    slots: u32,
    step: u32,
    size: u32,
}

impl Groups {
    /// The groups of `slots` slots; `step * size` must divide their number. Groups of one slot are equal, whatever the step.
    pub(crate) fn new(slots: u32, step: u32, size: u32) -> Self {
        Groups { slots, step: if size > 1 { step } else { 1 }, size }
    }

    /// How many groups there are.
    pub fn len(self) -> u32 {
        self.slots / self.size
    }

    /// Whether there is no group.
    pub fn is_empty(self) -> bool {
        self.slots == 0
    }

    /// The number of slots of a group.
    pub fn size(self) -> u32 {
        self.size
    }

    /// The distance between two slots of a group.
    pub fn step(self) -> u32 {
        self.step
    }

    /// The number of slots of a block.
    pub fn block(self) -> u32 {
        self.step * self.size
    }

    /// The group at an index.
    pub fn get(self, index: u32) -> Option<Progression> {
        let first = || index / self.step * self.block() + index % self.step;
        (index < self.len()).then(|| Progression { first: first(), step: self.step, count: self.size })
    }

    /// The index of the group of a slot.
    pub fn index_of(self, slot: u32) -> u32 {
        slot / self.block() * self.step + slot % self.step
    }

    /// The position of a slot in its group.
    pub fn position(self, slot: u32) -> u32 {
        slot / self.step % self.size
    }

    /// How many groups start before a slot.
    pub(crate) fn starting_before(self, slot: u32) -> u32 {
        slot / self.block() * self.step + (slot % self.block()).min(self.step)
    }
}
