//! States, activations and logits of a trainer, and of a model that only computes.
//!
//! Megatron: `theoretical_memory_usage.py` (Megatron-LM) and `theoretical_memory_utils.py` (Megatron-Bridge: experts, context
//! ranks); activations: arXiv 2205.05198, table 2. DeepSpeed: `estimate_zero2_model_states_mem_needs`, `estimate_zero3_...`.

use super::model::{Counts, Model, Shape, Stages};
use super::numbers::{
    FOREACH, FRAGMENTS, FUSED_CHUNK, FUSED_SPLIT, IMBALANCE, MOST_ADAPTERS, MOST_OF_CHUNK, MOST_OF_LOGIT,
    MOST_OF_NARROW_LOGIT, MOST_OF_WIDE_LOGIT, VOCABULARY_UNIT,
};
use super::{Belongs, Part, around, total};

/// How the states of a trainer are divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framework {
    /// Tensors and layers are divided; with a distributed optimizer its states are too.
    Megatron,
    /// All states are divided by the shard group, and gathered unit by unit.
    Fsdp,
    /// By the stage of ZeRO.
    DeepSpeed,
    /// Weights only.
    Forward,
}

/// What an optimizer keeps of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Optimizer {
    /// Two moments and 32-bit weights.
    Adam,
    /// Megatron's precision-aware Adam, whose types are unknown.
    PrecisionAware,
    /// Any other: only a lower bound.
    Other,
}

/// What is computed again in the backward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recompute {
    /// Nothing.
    None,
    /// Parts of a layer.
    Selective,
    /// Layers.
    Full,
}

/// The settings of a trainer. `None`: not stated.
#[derive(Clone, Copy, Debug)]
pub struct Training {
    /// How its states are divided.
    pub framework: Framework,
    /// Slots of the component.
    pub slots: f64,
    /// Size of a tensor group.
    pub tp: f64,
    /// Size of a context group.
    pub cp: f64,
    /// Layers by pipeline stage.
    pub stages: Stages,
    /// Model chunks of a rank.
    pub chunks: f64,
    /// Size of an expert group.
    pub ep: f64,
    /// Size of the tensor group of an expert.
    pub etp: f64,
    /// Slots that shard the states, or the weights of a model that only computes (FSDP).
    pub shard: Option<f64>,
    /// Stage of ZeRO.
    pub zero: Option<u8>,
    /// Bytes of a weight: 4, 2, 1 or 0.5.
    pub weight: f64,
    /// Bytes of a gradient.
    pub gradient: Option<f64>,
    /// The optimizer.
    pub optimizer: Optimizer,
    /// Fraction of the optimizer on the host, 0 to 1.
    pub on_host: f64,
    /// Whether the weights are on the host too (DeepSpeed's stage 3).
    pub weights_on_host: bool,
    /// Whether the data ranks divide the optimizer (Megatron).
    pub distributed: Option<bool>,
    /// Whether tensor groups divide the tokens where they divide nothing else.
    pub sequence_parallel: Option<bool>,
    /// What is computed again.
    pub recompute: Option<Recompute>,
    /// Tokens of a micro-batch.
    pub tokens: Option<f64>,
    /// Tokens of a micro-batch with a backward pass, if those of a forward pass may be more.
    pub trained_tokens: Option<f64>,
    /// Whether the optimizer is on the accelerator only while it updates the weights.
    pub optimizer_in_step: bool,
    /// Tokens of a sequence.
    pub length: Option<f64>,
    /// Whether each micro-batch has all its tokens.
    pub fixed_length: bool,
    /// Whether scores of attention are stored.
    pub unfused: bool,
    /// Whether gradients stay whole until the last micro-batch of a step (FSDP without synchronisation).
    pub whole_gradients: bool,
    /// Micro-batches of a step.
    pub micro_batches: Option<f64>,
    /// Whether only adapters are trained.
    pub lora: bool,
    /// Whether logits have several copies of 32 bits (Megatron; others may always).
    pub wide_logits: bool,
    /// Whether logits are computed in chunks, and never whole.
    pub fused_logits: bool,
    /// Whether logits keep 16 bits, and their gradient replaces them.
    pub logits_in_place: bool,
    /// Tokens of a chunk of logits in 32 bits; the others keep 16.
    pub logits_chunk: Option<f64>,
    /// Whether the allocator is emptied before another component has its turn.
    pub empties_cache: bool,
}

impl Training {
    fn data(&self) -> f64 {
        (self.slots / (self.tp * self.stages.pp)).max(1.0)
    }

    fn expert_data(&self) -> f64 {
        (self.slots / (self.etp * self.ep * self.stages.pp)).max(1.0)
    }

    /// The parts of a slot of a pipeline stage.
    pub fn parts(&self, model: &Model, stage: f64) -> Vec<Part> {
        let [least, most] = model.stage(&self.stages, stage);
        let most = self.padded(model, most);
        let mut parts = match self.framework {
            Framework::Megatron => self.megatron(model, least, most),
            Framework::Fsdp => self.fsdp(model, least, most),
            Framework::DeepSpeed => self.deepspeed(model, least, most),
            Framework::Forward => self.forward(model, least, most),
        };
        parts.push(self.activations(model, stage));
        parts.push(self.logits(model, stage));
        parts.extend(self.step_of_adam(most, &parts));
        parts.push(Part::new("fragments", Belongs::Allocator, 0.0, FRAGMENTS * total(&parts).upper));
        parts.extend(around(self.slots));
        parts
    }

    /// The parts between steps, as others on the accelerator find them.
    ///
    /// Gradients are whole only until the last micro-batch. An allocator that is not emptied may keep their blocks.
    pub fn between_steps(&self, model: &Model, stage: f64) -> Vec<Part> {
        Training { whole_gradients: self.whole_gradients && !self.empties_cache, ..*self }.parts(model, stage)
    }

    /// What the step of PyTorch's Adam allocates beyond what a pass over the layers has left free.
    ///
    /// Of 16-bit weights, the bound of the optimizer has room for it.
    fn step_of_adam(&self, most: Counts, parts: &[Part]) -> Option<Part> {
        if self.framework != Framework::Fsdp || self.lora || self.weight < 4.0 {
            return None;
        }
        let pass = parts.iter().filter(|part| part.belongs == Belongs::Pass).map(|part| part.bounds.upper).sum::<f64>();
        let copies = FOREACH * (1.0 - self.on_host) * self.most_of_shard(most) - pass;
        Some(Part::new("copies at the step", Belongs::Update, 0.0, copies.max(0.0)))
    }

    /// The most parameters of a slot of FSDP.
    fn most_of_shard(&self, most: Counts) -> f64 {
        ((most.divided + most.experts) / self.tp + most.copied) / self.shards()
    }

    /// The parameters with a padded vocabulary.
    fn padded(&self, model: &Model, counts: Counts) -> Counts {
        let padding = VOCABULARY_UNIT * self.tp * 2.0;
        let hidden = model.known().map_or(0.0, |shape| shape.hidden);
        Counts { divided: counts.divided + padding * hidden, ..counts }
    }

    /// Parameters of a rank at least: dense ones and experts. Where the split is unknown, the larger divisor counts.
    fn least(&self, model: &Model, counts: Counts) -> (f64, f64) {
        let experts = self.ep * self.etp;
        if model.known().is_none() {
            return (counts.total() / self.tp.max(experts), 0.0);
        }
        ((counts.divided + counts.copied) / self.tp, counts.experts / experts)
    }

    fn most(&self, model: &Model, counts: Counts) -> (f64, f64) {
        let experts = self.ep * self.etp;
        if model.known().is_none() {
            return (counts.total(), 0.0);
        }
        (counts.divided / self.tp + counts.copied, counts.experts / experts)
    }

    /// Bytes of the optimizer for a parameter, at least and at most.
    fn optimizer(&self) -> (f64, f64) {
        match self.optimizer {
            Optimizer::Adam => (12.0, 12.0),
            // Weights of 16 bits, and moments of 8.
            Optimizer::PrecisionAware => (4.0, 12.0),
            Optimizer::Other => (4.0, f64::INFINITY),
        }
    }

    fn megatron(&self, model: &Model, least: Counts, most: Counts) -> Vec<Part> {
        let ((dense, expert), (most_dense, most_expert)) = (self.least(model, least), self.most(model, most));
        let (all, most_all) = (dense + expert, most_dense + most_expert);
        let weights =
            Part::state("weights", self.weight * all, if self.weight < 2.0 { 4.0 } else { self.weight } * most_all);
        if self.lora {
            return vec![
                weights,
                Part::new("gradients", Belongs::Gradients, 0.0, MOST_ADAPTERS * 4.0 * most_all),
                Part::state("optimizer", 0.0, MOST_ADAPTERS * 14.0 * most_all),
            ];
        }
        let (dp, edp) = (self.data(), self.expert_data());
        // Where the split into experts is unknown, the larger divisor counts below.
        let (low_dp, high_dp) = if model.known().is_none() { (dp.max(edp), 1.0) } else { (dp, dp) };
        let (low, high) = self.optimizer();
        let left = 1.0 - self.on_host;
        let shard = if self.distributed == Some(false) { all } else { dense / low_dp + expert / edp };
        let most_shard = most_dense / high_dp + most_expert / edp;
        let undivided = if self.distributed == Some(true) { most_shard } else { most_all };
        vec![
            weights,
            Part::new("gradients", Belongs::Gradients, self.gradient.unwrap_or(2.0).min(4.0) * all, 4.0 * most_all),
            Part::state("optimizer", low * left * shard, times(high, left * undivided)),
            Part::new("copies at the step", Belongs::Update, 0.0, 4.0 * most_shard + 2.0 * most_all),
        ]
    }

    /// The slots that shard states: those stated, else all data ranks.
    pub(super) fn shards(&self) -> f64 {
        self.shard.unwrap_or(self.data()).max(1.0)
    }

    fn fsdp(&self, model: &Model, least: Counts, most: Counts) -> Vec<Part> {
        let shards = self.shards();
        let each = least.total() / (self.tp * shards);
        let most_each = self.most_of_shard(most);
        let left = 1.0 - self.on_host;
        let whole = (most.divided + most.experts) / self.tp + most.copied;
        let most_gradients = 4.0 * if self.whole_gradients { whole } else { most_each };
        let bytes = if self.weight >= 4.0 { 4.0 } else { 2.0 };
        let mut parts = if self.lora {
            vec![
                Part::state("weights", self.weight.min(2.0) * left * each, 4.0 * most_each),
                Part::new("gradients", Belongs::Gradients, 0.0, MOST_ADAPTERS * 4.0 * most_each),
                Part::state("optimizer", 0.0, MOST_ADAPTERS * 14.0 * most_each),
            ]
        } else {
            let (low, high) = match self.optimizer {
                Optimizer::Other => (0.0, f64::INFINITY),
                // Adam's moments have the type of the weights; smaller weights may have a copy of 32 bits besides.
                _ => (2.0 * bytes, if bytes >= 4.0 { 8.0 } else { 12.0 }),
            };
            vec![
                Part::state("weights", bytes * left * each, 4.0 * most_each),
                Part::new("gradients", Belongs::Gradients, bytes * left * each, most_gradients),
                Part::state("optimizer", low * left * each, times(high, left * most_each)),
            ]
        };
        parts.push(Part::pass("gathered", 0.0, self.gathered(model)));
        parts
    }

    /// Two gathered units of FSDP and their gradients, at most.
    fn gathered(&self, model: &Model) -> f64 {
        model.known().map_or(f64::INFINITY, |shape| {
            8.0 * (shape.largest_layer() + shape.embedding() * if shape.tied { 1.0 } else { 2.0 }) / self.tp
        })
    }

    fn deepspeed(&self, model: &Model, least: Counts, most: Counts) -> Vec<Part> {
        let shards = self.shards();
        let least = least.total() / self.tp;
        let most = (most.divided + most.experts) / self.tp + most.copied;
        let left = 1.0 - self.on_host;
        let (low, high) = (self.zero.unwrap_or(3), self.zero.unwrap_or(0));
        let divided = |by: bool, of: f64| if by { of / shards } else { of };
        let weights = if self.weights_on_host && low == 3 { 0.0 } else { 2.0 * divided(low == 3, least) };
        let largest = model.known().map_or(f64::INFINITY, Shape::largest_layer);
        let mut parts = vec![Part::state("weights", weights, 2.0 * divided(high == 3, most))];
        if self.lora {
            parts.push(Part::new("gradients", Belongs::Gradients, 0.0, MOST_ADAPTERS * 4.0 * most));
            parts.push(Part::state("optimizer", 0.0, MOST_ADAPTERS * 14.0 * most));
        } else {
            let (bytes, upper) = match self.optimizer {
                Optimizer::Other => (0.0, f64::INFINITY),
                _ => (12.0, 12.0),
            };
            parts.push(Part::new(
                "gradients",
                Belongs::Gradients,
                2.0 * left * least / shards,
                4.0 * divided(high == 3, most),
            ));
            let optimizer = left * divided(high > 0, most);
            parts.push(Part::state("optimizer", bytes * left * least / shards, times(upper, optimizer)));
            parts.push(Part::new("copies at the step", Belongs::Update, 0.0, 4.0 * divided(high > 0, most)));
        }
        parts.push(Part::pass("gathered", 0.0, 4.0 * largest));
        parts
    }

    fn forward(&self, model: &Model, least: Counts, most: Counts) -> Vec<Part> {
        let ((dense, expert), (most_dense, most_expert)) = (self.least(model, least), self.most(model, most));
        let shards = self.shard.unwrap_or(1.0).max(1.0);
        let lower = self.weight * (dense + expert) * (1.0 - self.on_host) / shards;
        let gathered = self.shard.map_or(0.0, |_| self.gathered(model));
        vec![
            Part::state("weights", lower, 4.0 * (most_dense + most_expert) / shards),
            Part::pass("gathered", 0.0, gathered),
        ]
    }

    /// Bytes of a rank's weights and optimizer on the accelerator, at least: what goes to the host where it sleeps.
    pub(super) fn sleeping(&self, model: &Model, stage: f64) -> f64 {
        let states =
            self.parts(model, stage).into_iter().filter(|part| part.name == "weights" || part.name == "optimizer");
        states.map(|part| part.bounds.lower).sum()
    }

    /// Among how many of the ranks of a stage at least weights and gradients are divided, and the optimizer.
    pub(super) fn host_shards(&self, model: &Model, ranks: f64) -> (f64, f64) {
        let has_dense_layers_only = model.known().is_some_and(|shape| shape.experts.is_none());
        let groups = if has_dense_layers_only { self.tp } else { self.tp.min(self.ep * self.etp) };
        let tp = groups.max(1.0).min(ranks);
        match self.framework {
            Framework::Megatron if self.distributed == Some(true) => (tp, ranks.max(tp)),
            Framework::Megatron => (tp, tp),
            Framework::Fsdp => {
                let divided = (self.tp * self.shards()).min(ranks);
                (divided, divided)
            }
            Framework::DeepSpeed => {
                let divided = (self.tp * self.shards()).min(ranks);
                let of = |stage| if self.zero.is_some_and(|zero| zero >= stage) { divided } else { tp };
                (of(3), of(1))
            }
            Framework::Forward => {
                let divided = (tp * self.shard.unwrap_or(1.0).max(1.0)).min(ranks);
                (divided, divided)
            }
        }
    }

    /// Tokens of a micro-batch on a rank.
    fn here(&self) -> Option<f64> {
        self.tokens.map(|tokens| tokens / self.cp)
    }

    fn activations(&self, model: &Model, stage: f64) -> Part {
        let (Some(shape), Some(tokens)) = (model.known(), self.here()) else {
            return Part::pass("activations", 0.0, f64::INFINITY);
        };
        let [least, most] = self.stages.layers(shape, stage);
        let kept = self.fixed_length && self.recompute == Some(Recompute::None) && self.framework != Framework::Forward;
        let lower = if kept {
            let (qkv, out) = shape.attention(1.0);
            let base = 2.0 * shape.hidden + qkv + out;
            let shared = shape.experts.map_or(0.0, |experts| experts.shared_ffn);
            let elements = least.dense * (base + 2.0 * shape.ffn) + least.expert * (base + 2.0 * shared);
            tokens * self.weight.min(2.0) * elements / self.tp
        } else {
            0.0
        };
        let (dense, expert) = (self.layer(shape, true), self.layer(shape, false));
        let largest = dense.max(expert) * tokens;
        if self.framework == Framework::Forward {
            return Part::pass("activations", 0.0, 2.0 * largest);
        }
        let stored = match self.recompute {
            Some(Recompute::Full) => most.layers * 2.0 * shape.hidden,
            _ => most.dense * dense + most.expert * expert,
        };
        let whole = if self.recompute == Some(Recompute::Full) { 2.0 * largest } else { 0.0 };
        Part::pass("activations", lower, stored * tokens * self.in_flight(stage) + whole)
    }

    /// Bytes that a layer stores of a token, at most.
    fn layer(&self, shape: &Shape, dense: bool) -> f64 {
        let (h, tp) = (shape.hidden, self.tp);
        let (qkv, out) = shape.attention(tp);
        let divisor = if self.sequence_parallel == Some(true) { tp } else { 1.0 };
        let latent = shape.latent.map_or(0.0, |latent| 4.0 * (latent.query_rank + latent.rank + latent.rotary));
        let scores = if self.unfused {
            self.length.map_or(f64::INFINITY, |length| 9.0 * shape.heads / tp * length)
        } else {
            0.0
        };
        let wide = if shape.gated { 8.0 } else { 6.0 };
        let ffn = match shape.experts.filter(|_| !dense) {
            None => wide * shape.ffn / tp,
            Some(experts) => {
                // With sequence parallelism a rank routes its part of the tokens; the tensor group of an expert gathers
                // them again and divides its width.
                let routed = experts.top_k * self.ep.clamp(1.0, IMBALANCE) * 2.0;
                let each = (4.0 * h * self.etp.min(divisor) + 4.0 * experts.ffn) / divisor;
                wide * experts.shared_ffn / tp + routed * each
            }
        };
        14.0 * h / divisor + 2.0 * (2.0 * qkv + out) + latent + scores + ffn + 2.0 * h
    }

    /// How many micro-batches of a stage are stored at once, at most.
    pub(super) fn in_flight(&self, stage: f64) -> f64 {
        let (pp, chunks) = (self.stages.pp, self.chunks);
        let warm_up =
            if chunks > 1.0 { ((pp - stage - 1.0) * 2.0 + (chunks - 1.0) * pp + 2.0) / chunks } else { pp - stage };
        warm_up.min(self.micro_batches.unwrap_or(f64::INFINITY)).max(1.0)
    }

    fn logits(&self, model: &Model, stage: f64) -> Part {
        if stage < self.stages.pp - 1.0 {
            return Part::pass("logits", 0.0, 0.0);
        }
        let (Some(shape), Some(tokens)) = (model.known(), self.here()) else {
            return Part::pass("logits", 0.0, f64::INFINITY);
        };
        let kept = self.fixed_length && self.framework != Framework::Forward && !self.fused_logits;
        let lower = if kept { 2.0 * tokens * shape.vocab / self.tp } else { 0.0 };
        let padded = shape.vocab / self.tp + VOCABULARY_UNIT;
        let chunk = |most: f64| MOST_OF_CHUNK * tokens.min(most) * padded;
        let is_wide = self.wide_logits || matches!(self.framework, Framework::Fsdp | Framework::DeepSpeed);
        let whole = if is_wide { MOST_OF_WIDE_LOGIT } else { MOST_OF_LOGIT } * tokens * padded;
        let upper = match self.logits_chunk {
            // With the gradient of the output layer, of one chunk and of all.
            _ if self.fused_logits => {
                2.0 * tokens * FUSED_SPLIT + chunk(FUSED_CHUNK) + 8.0 * shape.embedding() / self.tp
            }
            Some(most) => (MOST_OF_NARROW_LOGIT * tokens * padded + chunk(most)).min(whole),
            None => whole,
        };
        Part::pass("logits", lower, upper)
    }
}

/// A product in which nothing of something without a bound is nothing.
fn times(bytes: f64, count: f64) -> f64 {
    if count == 0.0 { 0.0 } else { bytes * count }
}
