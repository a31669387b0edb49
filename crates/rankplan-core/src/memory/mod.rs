//! How much memory a slot of a component needs: a lower and an upper bound in bytes for each part.
//!
//! A lower bound is what a run cannot do without; an upper bound is stated only where everything that could come on top is
//! known, and infinite otherwise. What is not stated takes its cheapest reading below and its dearest above. Bounds are whole
//! bytes, so that a phase is the exact sum of its parts.
//!
//! | file | content |
//! |---|---|
//! | [`model`] | the sizes of a model; the parameters of a pipeline stage |
//! | [`training`] | states, activations and logits of a trainer, or of a model that only computes |
//! | [`engine`] | weights and cache of an inference engine |
//! | [`phases`] | sleeping parts, the switch from training to generation, and the host |
//! | [`likely`] | the value between the bounds that such a component is measured to need |

pub mod engine;
pub mod likely;
pub mod model;
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

/// A named part of the memory of a slot.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Part {
    /// What it is: `weights`, `optimizer`, `activations`.
    pub name: &'static str,
    /// How large it is.
    pub bounds: Bounds,
}

pub(crate) fn part(name: &'static str, lower: f64, upper: f64) -> Part {
    Part { name, bounds: Bounds::new(lower, upper) }
}

/// What a component is measured to need, by part, in bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Likely {
    /// What each part needs.
    pub parts: Vec<(&'static str, f64)>,
    /// Whether these are all parts: activations are missing if the tokens of a micro-batch or the layers are unknown.
    pub complete: bool,
}

/// The sum of parts.
pub fn total(parts: &[Part]) -> Bounds {
    parts.iter().fold(Bounds::ZERO, |sum, part| sum + part.bounds)
}

/// What a process holds besides its own tensors: its context, communication buffers, and workspaces of libraries.
pub(crate) fn around() -> [Part; 3] {
    [part("context", 0.0, GIB), part("communication", 0.0, 4.0 * GIB), part("workspaces", 0.0, 1.5 * GIB)]
}
