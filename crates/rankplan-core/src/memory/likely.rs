//! What a component is measured to need, between its bounds.
//!
//! A likely value has the parts of the bounds. Each is calculated as a framework allocates it, and weighted with a number that was
//! fitted to measured runs: [`Fit`] has one set of them for each framework. All settings that decide are known here; whoever asks
//! states a usual value for those that a config leaves out.
//!
//! Counted is what the allocator of a framework holds at its peak (PyTorch: `max_memory_allocated`), as the logs of trainers print
//! it. [`room`] is what a card needs for that: contexts, buffers of collectives and lost blocks come on top.

use super::engine::{Engine, Kind, Usage};
use super::model::{Model, Shape};
use super::numbers::{
    ADAPTERS, ASLEEP, AVERAGE, BUCKET, BUFFERS, CHUNK_LOGIT, DEEPSPEED, EIGHT_BITS, ENGINE_STEPS, FILLED, FOUR_BITS,
    FSDP, FUSED_CHUNK, Fit, GROUP_ASLEEP, LARGE_CARD, LIBRARIES, LIVE, LLM_STEPS, LOGIT_IN_PLACE, LONGEST_STEP,
    LONGEST_WHOLE, LOST, MEGATRON, MOST_OF_GENERATED, NARROW_LOGIT, PADDED, QUANTIZED, REPACKED, SAMPLED, SCORES,
    SELECTIVE, SEQUENCES, SERVER_STEPS, SHORT, SPARE, STEP, USUAL_LENGTH, USUAL_STEP,
};
use super::phases::Sleep;
use super::training::{Framework, Optimizer, Recompute, Training};
use super::{Belongs, Likely, LikelyPart};

/// What has to be free on a card for so many bytes of an allocator.
pub fn room(allocated: f64) -> f64 {
    (1.0 + LOST) * allocated + BUFFERS
}

type Parts = Vec<LikelyPart>;

fn sum(parts: &Parts) -> f64 {
    parts.iter().map(|part| part.size).sum()
}

fn part(name: &'static str, belongs: Belongs, size: f64) -> LikelyPart {
    LikelyPart { name, belongs, size }
}

fn state(name: &'static str, size: f64) -> LikelyPart {
    part(name, Belongs::State, size)
}

/// What passes over a pipeline stage have in common: the model, the units that are gathered, and the part of the activations of
/// layers of attention that this model's layers have.
struct Pass<'a> {
    shape: &'a Shape,
    stage: f64,
    gathered: f64,
    times: f64,
}

impl Training {
    fn fit(&self) -> Fit {
        match self.framework {
            Framework::Megatron => MEGATRON,
            Framework::DeepSpeed => DEEPSPEED,
            Framework::Fsdp | Framework::Forward => FSDP,
        }
    }

    /// What a slot of a pipeline stage is measured to need, at the moment that needs the most.
    ///
    /// A step has three moments: the backward pass of a micro-batch, the forward pass that only computes probabilities, whose
    /// micro-batches may be larger, and the update of the weights.
    pub fn likely(&self, model: &Model, stage: f64) -> Likely {
        let (model, times) = &model.with_layers_of_attention();
        let mut states = self.likely_states(model, stage);
        for part in &mut states {
            part.size *= times;
        }
        let (Some(shape), Some(tokens)) = (model.known(), self.tokens) else {
            return Likely { parts: states, complete: false };
        };
        let pass = Pass { shape, stage, gathered: self.likely_gathered(shape, model), times: times.min(1.0) };
        let moments = match self.framework {
            Framework::Forward => vec![self.scoring(states, &pass, tokens)],
            _ => {
                let trained = self.trained_tokens.unwrap_or(tokens);
                let mut moments = vec![self.backward(states.clone(), &pass, trained)];
                if trained < tokens {
                    moments.push(self.scoring(states.clone(), &pass, tokens));
                }
                if self.optimizer_in_step {
                    moments.push(states);
                }
                moments
            }
        };
        let parts = moments.into_iter().max_by(|one, other| sum(one).total_cmp(&sum(other))).unwrap_or_default();
        Likely { parts, complete: true }
    }

    /// The parts of a backward pass over so many tokens.
    fn backward(&self, mut parts: Parts, pass: &Pass<'_>, tokens: f64) -> Parts {
        if self.optimizer_in_step {
            parts.retain(|part| part.belongs != Belongs::Update);
        }
        let tokens = self.filled(tokens);
        let logits = if self.is_last(pass.stage) { self.likely_logits(pass.shape, tokens) } else { 0.0 };
        let step = [
            part("gathered", Belongs::Pass, pass.gathered),
            part("activations", Belongs::Pass, pass.times * tokens * self.likely_activations(pass.shape, pass.stage)),
            part("logits", Belongs::Pass, logits),
        ];
        let gradients =
            parts.iter().filter(|part| part.belongs == Belongs::Gradients).map(|part| part.size).sum::<f64>();
        // With one micro-batch, PyTorch frees the gradients before they are computed again.
        if self.micro_batches == Some(1.0) && matches!(self.framework, Framework::Fsdp) {
            let held = step.iter().map(|part| part.size).sum::<f64>();
            parts.retain(|part| part.belongs != Belongs::Gradients || held < gradients);
            if held < gradients {
                return parts;
            }
        }
        parts.extend(step);
        parts
    }

    /// The parts of a forward pass without a backward pass: what a layer reads is gone before there are logits.
    fn scoring(&self, mut parts: Parts, pass: &Pass<'_>, tokens: f64) -> Parts {
        parts.retain(|part| part.belongs != Belongs::Update);
        // What loads its optimizer for a step has no gradients here, either; others than Megatron free them after a step.
        if self.optimizer_in_step || self.framework != Framework::Megatron {
            parts.retain(|part| part.belongs != Belongs::Gradients);
        }
        let tokens = self.filled(tokens);
        let layer = pass.times * tokens * self.likely_largest_layer(pass.shape, pass.stage);
        // Without a gradient to replace them, the copy that the temperature divides is beside the logits here, too.
        let copies = if self.logits_in_place && !self.fused_logits && self.logits_chunk.is_none() { 1.0 } else { 2.0 };
        let logits = if self.is_last(pass.stage) { self.likely_logits(pass.shape, tokens) / copies } else { 0.0 };
        let (name, largest) = if logits > layer { ("logits", logits) } else { ("activations", layer) };
        parts.extend([part("gathered", Belongs::Pass, pass.gathered), part(name, Belongs::Pass, largest)]);
        parts
    }

    fn is_last(&self, stage: f64) -> bool {
        stage >= self.stages.pp - 1.0
    }

    /// Tokens of a rank's micro-batch of so many at most: the longest sequence is rare among many.
    fn filled(&self, most: f64) -> f64 {
        let tokens = most / self.cp;
        if self.fixed_length {
            return tokens;
        }
        let part = match self.length {
            Some(length) if length > 0.0 && most >= length => {
                let others = most / length - 1.0;
                AVERAGE + (1.0 - AVERAGE) * (-others / SEQUENCES).exp()
            }
            _ => FILLED,
        };
        tokens * part
    }

    /// Weights, gradients and the optimizer of a rank: the parts of the lower bound, with what a framework does by itself.
    fn likely_states(&self, model: &Model, stage: f64) -> Parts {
        let usual = Training {
            weight: if self.weight < 2.0 { 2.0 } else { self.weight },
            gradient: self.gradient.or((self.framework == Framework::Megatron).then_some(4.0)),
            zero: self.zero.or(Some(2)),
            distributed: self.distributed.or(Some(true)),
            // DeepSpeed's weights follow the optimizer only with a switch of their own (`offload_param`).
            weights_on_host: false,
            ..*self
        };
        let bounds = usual.parts(model, stage);
        let of = |name: &str| bounds.iter().find(|part| part.name == name).map(|part| part.bounds);
        let lower = |name: &str| of(name).map_or(0.0, |bounds| bounds.lower);
        let weights = lower("weights");
        if self.framework == Framework::Forward {
            return vec![state("weights", weights)];
        }
        if self.lora {
            let stored = if self.weight >= 4.0 { 2.0 } else { 1.0 };
            return vec![state("weights", stored * weights), state("optimizer", ADAPTERS * weights)];
        }
        let mut parts = vec![
            state("weights", weights),
            part("gradients", Belongs::Gradients, lower("gradients")),
            part("optimizer", self.optimizer_belongs(), self.likely_optimizer(lower("optimizer"), lower("gradients"))),
        ];
        if let Some(copies) = of("copies at the step").filter(|copies| copies.upper.is_finite()) {
            let size = self.fit().copies * (1.0 - self.on_host) * copies.upper;
            parts.push(part("copies at the step", Belongs::Update, size));
        }
        parts
    }

    fn optimizer_belongs(&self) -> Belongs {
        if self.optimizer_in_step { Belongs::Update } else { Belongs::State }
    }

    /// The optimizer, of which the lower bound may know less.
    fn likely_optimizer(&self, lower: f64, gradients: f64) -> f64 {
        match (self.optimizer, self.framework) {
            (Optimizer::Adam, _) => lower,
            // 32-bit moments, and the lower half of 32-bit weights: 10 bytes, of which the bound knows 6
            (Optimizer::PrecisionAware, _) => lower * 10.0 / 6.0,
            (Optimizer::Other, Framework::Megatron) => lower * 1.5,
            // two moments of 8 bits, which are as large as a gradient of 16
            (Optimizer::Other, _) => lower.max(gradients * (1.0 - self.on_host)),
        }
    }

    fn likely_gathered(&self, shape: &Shape, model: &Model) -> f64 {
        let ends = shape.embedding() * if shape.tied { 1.0 } else { 2.0 };
        match self.framework {
            // Nothing is gathered from one slot, nor converted to 16 bits.
            Framework::Fsdp if self.shards() <= 1.0 && self.weight <= 2.0 => 0.0,
            // two units in 16 bits, or one with its gradients
            Framework::Fsdp => 4.0 * (shape.largest_layer() + ends) / self.tp,
            Framework::Forward if self.shard.is_some() => 4.0 * shape.largest_layer() / self.tp,
            Framework::DeepSpeed => LIVE.min(2.0 * model.params().0),
            _ => 0.0,
        }
    }

    /// Bytes of activations for a token of a rank.
    fn likely_activations(&self, shape: &Shape, stage: f64) -> f64 {
        let [_, layers] = self.stages.layers(shape, stage);
        let largest = self.likely_largest_layer(shape, stage);
        let (dense, expert) = self.likely_layers(shape);
        let all = (layers.dense * dense + layers.expert * expert) * self.in_flight(stage);
        match self.recompute {
            Some(Recompute::Full) => {
                2.0 * layers.layers * shape.hidden / self.split() * self.in_flight(stage) + largest
            }
            Some(Recompute::Selective) => SELECTIVE * all,
            _ => all,
        }
    }

    /// Bytes that a layer without experts stores of a token, and one with experts.
    fn likely_layers(&self, shape: &Shape) -> (f64, f64) {
        let eight_bits = self.framework == Framework::Megatron && self.weight < 2.0;
        let stored = self.fit().stored * if eight_bits { EIGHT_BITS } else { 1.0 };
        (stored * self.likely_layer(shape, true), stored * self.likely_layer(shape, false))
    }

    fn likely_largest_layer(&self, shape: &Shape, stage: f64) -> f64 {
        let [_, layers] = self.stages.layers(shape, stage);
        let (dense, expert) = self.likely_layers(shape);
        if layers.expert > 0.0 { dense.max(expert) } else { dense }
    }

    /// Among how many ranks the tokens of a layer's input are divided.
    fn split(&self) -> f64 {
        let divided = self.framework == Framework::Megatron && self.sequence_parallel != Some(false);
        if divided { self.tp } else { 1.0 }
    }

    /// Bytes of a layer for a token that its backward pass reads: inputs of norms and matrices, and of what is multiplied.
    fn likely_layer(&self, shape: &Shape, dense: bool) -> f64 {
        let (h, tp, split) = (shape.hidden, self.tp, self.split());
        let (qkv, out) = shape.attention(tp);
        let latent = shape.latent.map_or(0.0, |latent| 2.0 * (latent.query_rank + latent.rank + latent.rotary));
        let scores = if self.unfused { SCORES * shape.heads / tp * self.length.unwrap_or(0.0) } else { 0.0 };
        let wide = if shape.gated { 6.0 } else { 4.0 };
        let ffn = match shape.experts.filter(|_| !dense) {
            None => wide * shape.ffn / tp,
            Some(experts) => {
                let narrow = if self.etp < split { split } else { 1.0 };
                let routed = experts.top_k * (4.0 * h / split + wide * experts.ffn / self.etp / narrow);
                routed + wide * experts.shared_ffn / tp
            }
        };
        8.0 * h / split + 2.0 * (qkv + out) + latent + scores + ffn
    }

    fn likely_logits(&self, shape: &Shape, tokens: f64) -> f64 {
        // A critic has a scalar head.
        if shape.scored {
            return 0.0;
        }
        let whole = self.fit().logit * tokens;
        let chunk = |most: f64| CHUNK_LOGIT * tokens.min(most);
        let bytes = match self.logits_chunk {
            _ if self.fused_logits => chunk(FUSED_CHUNK / 2.0),
            None if self.logits_in_place => LOGIT_IN_PLACE * tokens,
            Some(most) => NARROW_LOGIT * tokens + chunk(most),
            None => whole,
        };
        bytes.min(whole) * shape.vocab / self.tp
    }
}

impl Engine {
    fn likely_share(&self) -> f64 {
        self.share.unwrap_or(self.kind.usual_share())
    }

    /// The weights of a rank, between their bounds: of a quantized checkpoint, some layers keep 16 bits.
    ///
    /// Of a checkpoint of 8 bits, attention and both ends likely keep 16 bits; of one of 4 bits with experts, all but these do.
    fn likely_weights(&self, model: &Model) -> f64 {
        let (model, times) = &model.with_layers_of_attention();
        times * self.likely_weights_of(model)
    }

    fn likely_weights_of(&self, model: &Model) -> f64 {
        let weights = self.weights(model);
        let Some(shape) = model.known() else { return weights.lower };
        let (low, high) = self.weight;
        if (0.5..1.0).contains(&low) && shape.experts.is_some() {
            return self.fullest_weights(model, shape, low, FOUR_BITS).min(weights.upper);
        }
        if (1.0..2.0).contains(&low) {
            let fullest = self.fullest_weights(model, shape, low, FOUR_BITS);
            return PADDED * fullest.min(QUANTIZED * weights.lower);
        }
        let most = weights.upper / REPACKED;
        PADDED
            * if low < 2.0 || high < 2.0 {
                f64::midpoint(weights.lower, most).min(QUANTIZED * weights.lower)
            } else {
                most
            }
    }

    /// The most tokens and requests of a step: stated, or those that an engine takes by default.
    ///
    /// By default, a step of vLLM has no more tokens than its requests at full length, and no more requests than tokens. If it
    /// is not known how the engine is built, its version may be one that reads a request whole, up to `LONGEST_WHOLE`.
    fn usual_step(&self, card: f64) -> (f64, f64) {
        if self.kind != Kind::Vllm {
            let (tokens, sequences) = USUAL_STEP;
            let batch = self.served().unwrap_or(tokens).clamp(tokens, LONGEST_STEP);
            return (self.batch.unwrap_or(batch), self.sequences.unwrap_or(sequences));
        }
        let steps = match self.usage {
            Some(Usage::Engine) => ENGINE_STEPS,
            Some(Usage::Llm) => LLM_STEPS,
            Some(Usage::Server) | None => SERVER_STEPS,
        };
        let is_large = card >= LARGE_CARD && !self.on_a100;
        let (mut tokens, requests) = if is_large { steps.large } else { steps.other };
        if self.usage.is_none() {
            tokens = self.served().unwrap_or(tokens).clamp(tokens, LONGEST_WHOLE);
        }
        let most = self.sequences.unwrap_or(requests) * self.served().unwrap_or(f64::INFINITY);
        let batch = self.batch.unwrap_or(tokens.min(most));
        (batch, self.sequences.unwrap_or(requests.min(batch)))
    }

    fn likely_step(&self, model: &Model, card: f64) -> f64 {
        let (batch, sequences) = self.usual_step(card);
        let step = Engine { batch: Some(batch), sequences: Some(sequences), ..*self };
        let Some(needed) = step.step(&model.with_layers_of_attention().0) else { return LIBRARIES };
        let activations = STEP * needed.activations;
        LIBRARIES
            + match self.kind {
                // The layers have returned when requests are sampled.
                Kind::Vllm => activations.max(SAMPLED * needed.logits),
                _ => activations + STEP * MOST_OF_GENERATED * needed.logits,
            }
    }

    /// What a rank is measured to need on a card of so many bytes, and whether the engine likely starts (`None`: it is close).
    pub fn likely(&self, model: &Model, card: f64) -> (Likely, Option<bool>) {
        let (weights, step, share) = (self.likely_weights(model), self.likely_step(model, card), self.likely_share());
        let cache = match (self.cache_size, self.kind) {
            (Some(size), _) => size,
            (None, Kind::Vllm) => share * card - weights - step,
            (None, Kind::Sglang) => share * card - weights,
            (None, Kind::TrtLlm) => share * (card - weights - step),
        };
        let token = model.shape.as_ref().map_or(0.0, |shape| self.cache_of_token(shape));
        let left = cache - token * self.served().unwrap_or(USUAL_LENGTH);
        let starts =
            if left >= SPARE || self.cache_size.is_some() { Some(true) } else { (left < -SHORT).then_some(false) };
        let parts =
            vec![state("weights", weights), state("cache", cache.max(0.0)), part("activations", Belongs::Pass, step)];
        (Likely { parts, complete: model.with_layers_of_attention().0.known().is_some() }, starts)
    }
}

/// What a component is measured to leave while it sleeps; `grouped`: in tensor or expert groups, whose engines keep buffers.
///
/// A trainer keeps its states, but frees the gradients of FSDP and DeepSpeed after a step. If nothing is stated, it sleeps.
pub fn asleep(parts: &[LikelyPart], sleep: Option<Sleep>, training: Option<Framework>, grouped: bool) -> f64 {
    if sleep != Some(Sleep::None) {
        return if grouped && training.is_none() { GROUP_ASLEEP } else { ASLEEP };
    }
    let stays = |part: &&LikelyPart| match training {
        None => true,
        Some(Framework::Megatron) => !part.belongs.ends_with_a_step(),
        Some(_) => !part.belongs.ends_with_a_step() && part.belongs != Belongs::Gradients,
    };
    ASLEEP + parts.iter().filter(stays).map(|part| part.size).sum::<f64>()
}

/// What both are measured to need while weights go from a trainer to an engine on the same accelerator.
pub fn switch(trainer: &Likely, engine: &Likely, sleep: Option<Sleep>) -> Likely {
    let of =
        |likely: &Likely, name: &str| likely.parts.iter().find(|part| part.name == name).map_or(0.0, |part| part.size);
    let stays = if sleep == Some(Sleep::None) { of(trainer, "gradients") + of(trainer, "optimizer") } else { 0.0 };
    let parts = vec![
        state("trainer's weights", of(trainer, "weights")),
        state("trainer's other states", stays),
        state("engine's weights", of(engine, "weights")),
        part("bucket", Belongs::Pass, BUCKET),
    ];
    Likely { parts, complete: true }
}
