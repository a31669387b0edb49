//! Sizes and slots to a layout: every kind of group, or why the sizes do not fit the slots.

use crate::diagnostic::{Code, Diagnostic};
use crate::groups::parallel::{Groups, Kind, Parallel};
use crate::groups::slots::Slots;
use crate::words::{either, plural};

/// The groups of a component and the coordinates of its slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    parallel: Parallel,
    slots: u32,
    /// By kind.
    groups: [Groups; Kind::ALL.len()],
}

impl Layout {
    /// The groups of these sizes.
    ///
    /// # Errors
    /// `invalid-value` for a size of 0, or an order that gives a slot two pipeline stages; `parallel-not-divisible`;
    /// `parallel-idle`.
    pub fn new(parallel: &Parallel, slots: &Slots) -> Result<Self, Vec<Diagnostic>> {
        parallel.check().map_err(|fault| vec![fault])?;
        let faults = misfits(parallel, slots);
        if !faults.is_empty() {
            return Err(faults);
        }
        let layout = Layout::unchecked(parallel, slots.len());
        let [attention, experts] = [false, true].map(|experts| layout.step(Kind::Pp, experts));
        if parallel.pp > 1 && parallel.has_experts() && attention != experts {
            return Err(vec![two_stages(parallel)]);
        }
        Ok(layout)
    }

    fn unchecked(parallel: &Parallel, slots: u32) -> Self {
        let Parallel { tp, cp, ep, etp, pp, fsdp, .. } = *parallel;
        let [dp, edp] = [tp * cp * pp, etp * ep * pp].map(|model| (slots / model).max(1));
        let sizes = [tp, cp, dp, fsdp, (dp / fsdp).max(1), pp, etp, ep, edp];
        let mut layout = Layout { parallel: *parallel, slots, groups: sizes.map(|size| Groups::new(slots, 1, size)) };
        for kind in Kind::ALL {
            let step = match kind {
                Kind::Fsdp => layout.step(Kind::Dp, false),
                Kind::Replica => layout.step(Kind::Dp, false) * fsdp,
                _ => layout.step(kind, matches!(kind, Kind::Etp | Kind::Ep | Kind::Edp)),
            };
            layout.groups[kind as usize] = Groups::new(slots, step, layout.size(kind));
        }
        if !parallel.has_experts() {
            // The expert layout of another order than pp-last would mix pipeline stages.
            layout.groups[Kind::Edp as usize] = layout.groups(Kind::Dp);
        }
        layout
    }

    /// The distance between slots that differ by one in a coordinate: the product of the sizes of the faster kinds.
    fn step(&self, kind: Kind, experts: bool) -> u32 {
        let ordered = self.parallel.order.kinds().into_iter().filter_map(|kind| member(kind, experts));
        ordered.take_while(|&faster| faster != kind).map(|faster| self.size(faster)).product()
    }

    /// How many slots there are.
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// The sizes that the layout was made for.
    pub fn parallel(&self) -> &Parallel {
        &self.parallel
    }

    /// The groups of a kind.
    pub fn groups(&self, kind: Kind) -> Groups {
        self.groups[kind as usize]
    }

    /// The size of the groups of a kind.
    pub fn size(&self, kind: Kind) -> u32 {
        self.groups(kind).size()
    }

    /// The kinds that have a coordinate: those with groups of two or more slots, and data.
    pub fn kinds(&self) -> impl Iterator<Item = Kind> {
        Kind::ALL.into_iter().filter(|&kind| match kind {
            Kind::Dp => true,
            Kind::Replica => self.parallel.fsdp > 1 && self.size(kind) > 1,
            Kind::Edp => self.parallel.has_experts() && self.size(kind) > 1,
            _ => self.size(kind) > 1,
        })
    }

    /// The coordinates of a slot: for each of [`Layout::kinds`], its position in its group.
    pub fn coordinates(&self, slot: u32) -> impl Iterator<Item = (Kind, u32)> {
        self.kinds().map(move |kind| (kind, self.groups(kind).position(slot)))
    }

    /// The dimensions of a mesh of all slots with their sizes, slowest first. `fsdp` and `replica` take the place of `dp` if
    /// parameters are sharded.
    pub fn mesh(&self) -> Vec<(Kind, u32)> {
        let sharded = self.parallel.fsdp > 1;
        let mut dimensions = Vec::new();
        for kind in self.parallel.order.kinds() {
            match kind {
                Kind::Ep => {}
                Kind::Dp if sharded => dimensions.extend([Kind::Fsdp, Kind::Replica]),
                _ => dimensions.push(kind),
            }
        }
        let whole = |&kind: &Kind| kind == Kind::Dp || self.size(kind) > 1;
        dimensions.into_iter().rev().filter(whole).map(|kind| (kind, self.size(kind))).collect()
    }
}

/// The kind that has this place of the order, for attention or for experts.
fn member(ordered: Kind, experts: bool) -> Option<Kind> {
    match (ordered, experts) {
        (Kind::Ep, false) | (Kind::Cp, true) => None,
        (Kind::Tp, true) => Some(Kind::Etp),
        (Kind::Dp, true) => Some(Kind::Edp),
        (kind, _) => Some(kind),
    }
}

const MODEL: [Kind; 3] = [Kind::Tp, Kind::Cp, Kind::Pp];
const EXPERT_MODEL: [Kind; 3] = [Kind::Etp, Kind::Ep, Kind::Pp];

/// Why the sizes do not fit the slots.
fn misfits(parallel: &Parallel, slots: &Slots) -> Vec<Diagnostic> {
    let total = u64::from(slots.len());
    let model = product(parallel, &MODEL);
    let fits = |each: u64| each.is_multiple_of(model) || model.is_multiple_of(each);
    let mut faults = Vec::new();
    let uneven = slots.per_process().into_iter().find(|&each| !fits(each.into()));
    match (uneven, parallel.dp) {
        (Some(each), _) => faults.push(idle_in_process(parallel, model, each.into(), slots)),
        (None, Some(dp)) => faults.extend(stated(parallel, model, dp, slots)),
        (None, None) if !total.is_multiple_of(model) => faults.push(not_divisible(parallel, &MODEL, slots)),
        _ => {}
    }
    if parallel.has_experts() && !total.is_multiple_of(product(parallel, &EXPERT_MODEL)) {
        faults.push(not_divisible(parallel, &EXPERT_MODEL, slots));
    }
    if faults.is_empty() && !total.is_multiple_of(model.saturating_mul(parallel.fsdp.into())) {
        faults.push(not_divisible(parallel, &[Kind::Tp, Kind::Cp, Kind::Pp, Kind::Fsdp], slots));
    }
    faults
}

fn product(parallel: &Parallel, kinds: &[Kind]) -> u64 {
    kinds.iter().fold(1, |product: u64, &kind| product.saturating_mul(parallel.size(kind).into()))
}

/// `tp 8`, `tp 8 x pp 2`.
fn sizes(parallel: &Parallel, kinds: &[Kind]) -> String {
    let stated = kinds.iter().filter(|&&kind| parallel.size(kind) > 1);
    stated.map(|&kind| format!("{} {}", kind.name(), parallel.size(kind))).collect::<Vec<_>>().join(" x ")
}

fn not_divisible(parallel: &Parallel, kinds: &[Kind], slots: &Slots) -> Diagnostic {
    let (total, each) = (u64::from(slots.len()), product(parallel, kinds));
    let mut several = sizes(parallel, kinds);
    if several.contains(" x ") {
        several = format!("{several} = {each}");
    }
    let below = total / each * each;
    let mut choices = vec![choice("", [Some(below), below.checked_add(each)], &slots.noun(2))];
    for &kind in kinds.iter().filter(|&&kind| parallel.size(kind) > 1) {
        let others = product(parallel, &kinds.iter().copied().filter(|&other| other != kind).collect::<Vec<_>>());
        if total.is_multiple_of(others) {
            let near = nearest_divisors(total / others, parallel.size(kind).into());
            choices.push(choice(kind.name(), near, ""));
        }
    }
    let verb = is_or_are(total);
    let message = format!("{total} {} {verb} not a multiple of {several}", slots.noun(slots.len()));
    Diagnostic::new(Code::ParallelNotDivisible, message).help(help(choices))
}

/// The fault of a stated data size that differs from the derived one.
fn stated(parallel: &Parallel, model: u64, dp: u32, slots: &Slots) -> Option<Diagnostic> {
    let total = u64::from(slots.len());
    let needed = model.saturating_mul(dp.into());
    let several = sizes(parallel, &[Kind::Dp, Kind::Tp, Kind::Cp, Kind::Pp]);
    let several = if several.is_empty() { "dp 1".to_owned() } else { several };
    let derived = total.is_multiple_of(model).then(|| total / model);
    let choices = vec![
        choice("dp", [derived, None], ""),
        choice("", [Some(needed), None], &slots.noun(if needed == 1 { 1 } else { 2 })),
    ];
    let nouns = slots.noun(2);
    let fault = if needed > total {
        let message = format!("{several} needs {needed} {nouns}, but the component has {total}");
        Diagnostic::new(Code::ParallelNotDivisible, message)
    } else {
        let idle = total - needed;
        let message = format!("{several} uses {needed} of {total} {nouns}; {idle} {} idle", is_or_are(idle));
        Diagnostic::new(Code::ParallelIdle, message)
    };
    (needed != total).then(|| fault.help(help(choices)))
}

/// The fault of processes whose devices the sizes do not fill: `each` is their number in a process.
fn idle_in_process(parallel: &Parallel, model: u64, each: u64, slots: &Slots) -> Diagnostic {
    let several = sizes(parallel, &MODEL);
    let message = if model < each {
        let idle = each % model;
        let groups = each / model;
        let noun = plural(groups.min(2) as u32, "group");
        format!("a process of {each} devices holds {groups} {noun} of {several}; {idle} {} idle", is_or_are(idle))
    } else {
        let idle = each - model % each;
        format!("a group of {several} does not fill processes of {each} devices; {idle} {} idle", is_or_are(idle))
    };
    let fits = |a: u64, b: u64| a > 0 && b > 0 && (a.is_multiple_of(b) || b.is_multiple_of(a));
    let mut choices = Vec::new();
    for &kind in MODEL.iter().filter(|&&kind| parallel.size(kind) > 1) {
        let size = u64::from(parallel.size(kind));
        let near = nearest(size, each.max(size), |size_now| fits((model / size).saturating_mul(size_now), each));
        choices.push(choice(kind.name(), near, ""));
    }
    let near = nearest(each, model.min(1 << 20), |devices| fits(devices, model));
    choices.push(choice("", near, &format!("{} per process", slots.noun(2))));
    Diagnostic::new(Code::ParallelIdle, message).help(help(choices))
}

fn two_stages(parallel: &Parallel) -> Diagnostic {
    let message = format!(
        "the order {} gives slots one pipeline stage for attention ({}) and another for experts ({})",
        parallel.order,
        sizes(parallel, &MODEL),
        sizes(parallel, &EXPERT_MODEL)
    );
    Diagnostic::new(Code::InvalidValue, message).help("use an order that ends in pp")
}

fn is_or_are(count: u64) -> &'static str {
    if count == 1 { "is" } else { "are" }
}

/// `tp 3 or 6`, `8 or 16 devices`; empty without a number.
fn choice(name: &str, numbers: [Option<u64>; 2], noun: &str) -> String {
    let numbers = either(numbers.into_iter().flatten());
    if numbers.is_empty() { numbers } else { format!("{name} {numbers} {noun}").trim().to_owned() }
}

fn help(choices: Vec<String>) -> String {
    let choices = choices.into_iter().filter(|choice| !choice.is_empty());
    format!("use {}", choices.collect::<Vec<_>>().join(", or "))
}

/// The nearest divisors of a number, below and above another one.
fn nearest_divisors(number: u64, size: u64) -> [Option<u64>; 2] {
    let divisors = (1..=number.isqrt()).filter(|&divisor| number.is_multiple_of(divisor));
    divisors.flat_map(|divisor| [divisor, number / divisor]).fold([None, None], |[below, above], divisor| {
        if divisor < size {
            [below.max(Some(divisor)), above]
        } else {
            [below, Some(above.map_or(divisor, |best: u64| best.min(divisor)))]
        }
    })
}

/// The nearest numbers that fit, below a number and above it, at most `reach` above.
fn nearest(number: u64, reach: u64, fits: impl Fn(u64) -> bool) -> [Option<u64>; 2] {
    [(1..number).rev().find(|&n| fits(n)), (number + 1..=number.saturating_add(reach)).find(|&n| fits(n))]
}
