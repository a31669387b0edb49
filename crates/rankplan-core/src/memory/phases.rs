//! Sleeping parts, the switch from training to generation, and the host.

use super::model::Model;
use super::numbers::{BUCKET, FRAGMENTS, OFFLOADING, STORE};
use super::training::{Framework, Training};
use super::{Belongs, Bounds, Part, around, total};

/// What a component leaves on an accelerator while another one has its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sleep {
    /// Everything.
    None,
    /// Its parts go to the host.
    Host,
    /// Its parts are dropped.
    Free,
}

/// The memory of a trainer while it sleeps: one that empties its allocator keeps nothing of a step.
pub fn trainer_asleep(model: &Model, training: &Training, stage: f64, sleep: Option<Sleep>) -> Bounds {
    let mut parts = training.between_steps(model, stage);
    let lower = asleep(&parts, sleep).lower;
    if training.empties_cache {
        parts.retain(|part| !part.belongs.ends_with_a_step());
    }
    Bounds::new(lower, total(&parts).upper)
}

/// The memory of a component with these parts while it sleeps.
///
/// No bound but its own parts holds for a sleeper: engines left 0.8 to 7.2 GiB, and NeMo-RL measured a policy that left 25. A trainer
/// that stays may free its gradients after a step (FSDP, `zero_grad`), and has no activations then.
pub fn asleep(parts: &[Part], sleep: Option<Sleep>) -> Bounds {
    let awake = total(parts);
    if sleep != Some(Sleep::None) {
        return Bounds::up_to(awake.upper);
    }
    let freed = parts.iter().filter(|part| part.belongs == Belongs::Gradients || part.belongs.ends_with_a_step());
    let lower = awake.lower - freed.map(|part| part.bounds.lower).sum::<f64>();
    Bounds::new(lower.max(0.0), awake.upper)
}

/// The parts while weights go from a trainer to an engine on the same accelerator.
///
/// Both weights are there, with a gathered tensor and a bucket. The trainer's parts are those between steps. A trainer may stream
/// its weights from the host, and then holds none. A trainer that never sleeps keeps all its states. `slots` are those of the
/// trainer, and those of an engine.
pub fn switch(model: &Model, trainer: &[Part], engine: &[Part], sleep: Option<Sleep>, slots: (f64, f64)) -> Vec<Part> {
    let of = |parts: &[Part], name: &str| -> Bounds {
        parts.iter().filter(|part| part.name == name).fold(Bounds::ZERO, |sum, part| sum + part.bounds)
    };
    let weights = of(trainer, "weights");
    let kept = of(trainer, "gradients") + of(trainer, "optimizer");
    let states = match sleep {
        Some(Sleep::None) => [weights, Bounds::new(of(trainer, "optimizer").lower, kept.upper)],
        _ => [
            Bounds::up_to(weights.upper),
            Bounds::up_to(if sleep.is_none() { kept.upper } else { of(trainer, "gradients").upper }),
        ],
    };
    let gathered = model.shape.map_or(f64::INFINITY, |shape| 2.0 * shape.embedding());
    let mut parts = vec![
        Part { name: "trainer's weights", belongs: Belongs::State, bounds: states[0] },
        Part { name: "trainer's other states", belongs: Belongs::State, bounds: states[1] },
        Part { name: "engine's weights", belongs: Belongs::State, bounds: of(engine, "weights") },
        Part::pass("gathered", 0.0, gathered),
        Part::pass("bucket", 0.0, BUCKET),
        Part::state("graphs", 0.0, of(engine, "graphs").upper),
    ];
    parts.push(Part::new("fragments", Belongs::Allocator, 0.0, FRAGMENTS * total(&parts).upper));
    // The trainer and the engine have a context, buffers and workspaces each.
    for (of_trainer, of_engine) in around(slots.0).into_iter().zip(around(slots.1)) {
        let both = of_trainer.bounds.upper + of_engine.bounds.upper;
        parts.push(Part::new(of_trainer.name, of_trainer.belongs, 0.0, both));
    }
    parts
}

/// The memory that a rank of a trainer takes of its node: the optimizer's part that stays there, and what sleeps there.
///
/// A rank keeps its part of what the framework divides: 8 bytes of a parameter for weights and gradients, 16 for the
/// optimizer and its copies. What surely sleeps there are weights and optimizer, as they are on the accelerator at least.
pub fn host_of_trainer(model: &Model, training: &Training, stage: f64, sleep: Option<Sleep>) -> Bounds {
    let [least, most] = model.stage(&training.stages, stage);
    let divisor = (training.slots / training.stages.pp).max(1.0);
    let stays = 8.0 * training.on_host * least.total() / divisor;
    let sleeps = if sleep == Some(Sleep::Host) { training.sleeping(model, stage) } else { 0.0 };
    let is_there = matches!(sleep, Some(Sleep::Host) | None) || training.on_host > 0.0;
    let weights = if is_there { 8.0 } else { 4.0 };
    let copies = if is_there && training.framework != Framework::Forward { 16.0 } else { 0.0 };
    let (of_weights, of_optimizer) = training.host_shards(model, divisor);
    Bounds::new(stays + sleeps, OFFLOADING * most.total() * (weights / of_weights + copies / of_optimizer))
}

/// The memory that a rank of an engine takes of its node while it sleeps.
pub fn host_of_engine(weights: Bounds, sleep: Option<Sleep>) -> Bounds {
    match sleep {
        Some(Sleep::Host) => weights,
        Some(_) => Bounds::ZERO,
        None => Bounds::up_to(weights.upper),
    }
}

/// What a node has besides: the object store.
pub fn host_of_node() -> Bounds {
    Bounds::up_to(STORE)
}
