//! How much memory a slot of a component needs: a lower and an upper bound in bytes for each part.
//!
//! A lower bound is what a run cannot do without; an upper bound is stated only where everything that could come on top is
//! known, and infinite otherwise. What is not stated takes its cheapest reading below and its dearest above. Bounds are whole
//! bytes, so that a phase is the exact sum of its parts.
//!
//! | file | content |
//! |---|---|
//! | [`numbers`] | every constant, with its source or what it was fitted to |
//! | [`model`] | the sizes of a model; the parameters of a pipeline stage |
//! | [`training`] | states, activations and logits of a trainer, or of a model that only computes |
//! | [`engine`] | weights and cache of an inference engine |
//! | [`phases`] | sleeping parts, the switch from training to generation, and the host |
//! | [`likely`] | the value between the bounds that such a component is measured to need |

pub mod engine;
pub mod likely;
pub mod model;
pub mod numbers;
pub mod phases;
pub mod training;

use std::ops::Add;

/// Bytes of a GiB.
pub const GIB: f64 = (1u64 << 30) as f64;

/// A lower and an upper bound in bytes; no upper bound is infinite.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// At least these bytes.
    pub lower: f64,
    /// At most these bytes.
    pub upper: f64,
}

impl Bounds {
    /// Nothing.
    pub const ZERO: Bounds = Bounds { lower: 0.0, upper: 0.0 };

    /// Bounds in whole bytes; the upper one is never below the lower one.
    pub fn new(lower: f64, upper: f64) -> Self {
        let lower = lower.max(0.0).floor();
        Bounds { lower, upper: if upper.is_nan() { f64::INFINITY } else { upper.max(lower).ceil() } }
    }

    /// Anything up to these bytes.
    pub fn up_to(upper: f64) -> Self {
        Bounds::new(0.0, upper)
    }
}

impl Add for Bounds {
    type Output = Bounds;

    fn add(self, other: Bounds) -> Bounds {
        Bounds { lower: self.lower + other.lower, upper: self.upper + other.upper }
    }
}

/// What a part belongs to, which decides when it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Belongs {
    /// What a component has while it is awake: weights, moments of an optimizer, the cache of an engine.
    State,
    /// Gradients, which some frameworks free after a step.
    Gradients,
    /// What layers compute with: activations, logits, gathered units. Gone after a pass.
    Pass,
    /// The update of the weights. Gone after a step.
    Update,
    /// The allocator of a framework: workspaces, and blocks that are lost.
    Allocator,
    /// The process itself, which no allocator counts: contexts, buffers of collectives.
    Process,
}

impl Belongs {
    /// The word for it in Python.
    pub fn word(self) -> &'static str {
        match self {
            Belongs::State => "state",
            Belongs::Gradients => "gradients",
            Belongs::Pass => "pass",
            Belongs::Update => "update",
            Belongs::Allocator => "allocator",
            Belongs::Process => "process",
        }
    }

    /// Whether it is gone once a step is over.
    pub fn ends_with_a_step(self) -> bool {
        matches!(self, Belongs::Pass | Belongs::Update)
    }
}

/// A named part of the memory of a slot.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Part {
    /// What it is: `weights`, `optimizer`, `activations`.
    pub name: &'static str,
    /// What it belongs to.
    pub belongs: Belongs,
    /// How large it is.
    pub bounds: Bounds,
}

impl Part {
    pub(crate) fn new(name: &'static str, belongs: Belongs, lower: f64, upper: f64) -> Part {
        Part { name, belongs, bounds: Bounds::new(lower, upper) }
    }

    pub(crate) fn state(name: &'static str, lower: f64, upper: f64) -> Part {
        Part::new(name, Belongs::State, lower, upper)
    }

    pub(crate) fn pass(name: &'static str, lower: f64, upper: f64) -> Part {
        Part::new(name, Belongs::Pass, lower, upper)
    }
}

/// A named part of what a component is measured to need.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LikelyPart {
    /// What it is.
    pub name: &'static str,
    /// What it belongs to.
    pub belongs: Belongs,
    /// How many bytes it has.
    pub size: f64,
}

/// What a component is measured to need, by part, in bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Likely {
    /// What each part needs.
    pub parts: Vec<LikelyPart>,
    /// Whether these are all parts: activations are missing if the tokens of a micro-batch or the layers are unknown.
    pub complete: bool,
}

/// The sum of parts.
pub fn total(parts: &[Part]) -> Bounds {
    parts.iter().fold(Bounds::ZERO, |sum, part| sum + part.bounds)
}

/// What a process holds besides its own tensors: its context, communication buffers, and workspaces of libraries.
///
/// A component of one slot has no group of its own.
pub(crate) fn around(slots: f64) -> [Part; 3] {
    let communication = if slots > 1.0 { numbers::COMMUNICATION } else { numbers::COMMUNICATION_ALONE };
    [
        Part::new("context", Belongs::Process, 0.0, numbers::CONTEXT),
        Part::new("communication", Belongs::Process, 0.0, communication),
        Part::new("workspaces", Belongs::Allocator, 0.0, numbers::WORKSPACES),
    ]
}
