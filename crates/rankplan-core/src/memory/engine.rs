//! Weights and cache of an inference engine.
//!
//! `share` means different things. vLLM: of the whole card, for everything of the engine. SGLang: of what was free before, for
//! weights and cache. TensorRT-LLM: of what the weights leave, for the cache.

use super::model::{Model, Shape, Stages};
use super::numbers::{
    FourBits, GRAPHS, MOST_FOUR_BITS, MOST_IN_STEP, MOST_OF_GENERATED, MOST_OF_SAMPLED, REPACKED, SGLANG_SHARE, SHARE,
    USABLE,
};
use super::{Belongs, Bounds, Part, around};

/// Whose engine it is, which decides what its share means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// vLLM.
    Vllm,
    /// SGLang.
    Sglang,
    /// TensorRT-LLM.
    TrtLlm,
}

impl Kind {
    /// The share that an engine takes if none is stated.
    pub fn usual_share(self) -> f64 {
        match self {
            Kind::Vllm | Kind::TrtLlm => SHARE,
            Kind::Sglang => SGLANG_SHARE,
        }
    }
}

/// How a trainer builds an engine of vLLM, which decides the steps that it takes by default (vLLM: `UsageContext`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usage {
    /// As its class `LLM`.
    Llm,
    /// As its server.
    Server,
    /// As an `AsyncLLM` or `LLMEngine`.
    Engine,
}

/// What a step of an engine has besides weights and cache.
pub(super) struct Step {
    /// Bytes of activations, at most.
    pub activations: f64,
    /// The number of logits.
    pub logits: f64,
}

/// The settings of an engine. `None`: not stated.
#[derive(Clone, Copy, Debug)]
pub struct Engine {
    /// Whose it is.
    pub kind: Kind,
    /// Size of a tensor group.
    pub tp: f64,
    /// Pipeline stages.
    pub pp: f64,
    /// Size of an expert group.
    pub ep: f64,
    /// Its share of an accelerator's memory.
    pub share: Option<f64>,
    /// Tokens of the longest request.
    pub length: Option<f64>,
    /// Tokens of the longest sequence of its model, which it serves if no length is stated.
    pub longest: Option<f64>,
    /// Bytes of a weight, at least and at most.
    pub weight: (f64, f64),
    /// Bytes of an element of the cache.
    pub cache: f64,
    /// The most requests at once.
    pub sequences: Option<f64>,
    /// The most tokens in a step.
    pub batch: Option<f64>,
    /// Whether it may capture graphs.
    pub graphs: bool,
    /// Bytes of the cache, whatever its share (vLLM).
    pub cache_size: Option<f64>,
    /// How it is built (vLLM).
    pub usage: Option<Usage>,
    /// Whether its cards are A100s, on which steps of vLLM are no larger than on small cards.
    pub on_a100: bool,
}

impl Engine {
    /// Tokens of the longest request that it serves, if they are known: stated, or those of its model.
    pub(super) fn served(&self) -> Option<f64> {
        self.length.or(self.longest)
    }

    /// Its processes: experts may be divided among more of them than the tensors of a layer.
    pub fn slots(&self) -> f64 {
        self.expert_ranks() * self.pp
    }

    /// The ranks that divide the experts of a layer: with expert parallelism, a group of its own, also where the tensor
    /// group is one rank.
    pub fn expert_ranks(&self) -> f64 {
        self.tp.max(self.ep)
    }

    /// The weights of a rank.
    pub fn weights(&self, model: &Model) -> Bounds {
        let (low, high) = self.weight;
        let experts = self.expert_ranks();
        let Some(shape) = model.known() else {
            let (least, most) = model.params();
            return Bounds::new(low * least / self.slots(), REPACKED * high.max(2.0) * most);
        };
        let stages = Stages { pp: self.pp, first: None, last: None };
        let whole = model.stage(&Stages { pp: 1.0, ..stages }, 0.0)[0];
        let lower = low * ((whole.divided + whole.copied) / self.tp + whole.experts / experts) / self.pp;
        Bounds::new(lower, REPACKED * self.fullest_weights(model, shape, high, MOST_FOUR_BITS))
    }

    /// The weights of the fullest rank, whose experts have so many bytes a weight; both ends and attention keep 16 bits.
    ///
    /// With less than 8 bits, scales come on top, and experts are padded.
    pub(super) fn fullest_weights(&self, model: &Model, shape: &Shape, size: f64, four_bits: FourBits) -> f64 {
        let stages = Stages { pp: self.pp, first: None, last: None };
        let (stored, expert) = match size {
            ..1.0 => (size + four_bits.scale, self.padded_expert(shape, size, four_bits)),
            _ => (size, size),
        };
        let fullest = [0.0, self.pp - 1.0].map(|stage| {
            let [_, most] = model.stage(&stages, stage);
            let layers = stages.layers(shape, stage)[1].layers;
            let copies = layers * 2.0 * shape.hidden * shape.head_dim * (1.0 - (shape.kv_heads / self.tp).min(1.0));
            // Embeddings, norms and routers keep 16 bits; a quantized checkpoint may keep attention and both ends, too.
            let attention = layers * shape.attention_size() / self.tp;
            let ends = 2.0 * shape.layer(true).divided / self.tp;
            let wide = (2.0 * shape.embedding() / self.tp + most.copied + attention + ends).min(most.total());
            let copies = if shape.latent.is_some() { 0.0 } else { copies };
            stored * (most.divided / self.tp + most.copied + copies)
                + expert * most.experts / self.expert_ranks()
                + (2.0 - stored).max(0.0) * wide
        });
        fullest[0].max(fullest[1])
    }

    /// Bytes of a weight of an expert with its scale and the padding of its sizes; no more than with 16 bits.
    fn padded_expert(&self, shape: &Shape, size: f64, four_bits: FourBits) -> f64 {
        let ffn = shape.experts.map_or(four_bits.ffn, |experts| experts.ffn);
        let divided_by = if self.ep > 1.0 || !four_bits.pads_shards { 1.0 } else { self.tp };
        let padding = |size: f64, unit: f64| (size / unit).ceil() * unit / size;
        let padded = padding(shape.hidden, four_bits.hidden) * padding(ffn / divided_by, four_bits.ffn);
        (padded * (size + four_bits.scale)).min(2.0)
    }

    /// Bytes of the cache for a token on a rank.
    pub fn cache_of_token(&self, shape: &Shape) -> f64 {
        let elements = match shape.latent {
            Some(latent) => latent.rank + latent.rotary,
            None => 2.0 * (shape.kv_heads / self.tp).max(shape.kv_heads.min(1.0)) * shape.head_dim,
        };
        shape.cached_layers * elements * self.cache / self.pp
    }

    /// Bytes of the cache for a request of full length, which an engine needs to start.
    fn request(&self, model: &Model) -> f64 {
        let token = model.shape.as_ref().map_or(0.0, |shape| self.cache_of_token(shape));
        token * self.length.unwrap_or(0.0)
    }

    /// The parts of a rank on a card of so many bytes.
    pub fn parts(&self, model: &Model, card: f64) -> Vec<Part> {
        let weights = self.weights(model);
        let request = self.request(model).floor();
        let share = self.share.unwrap_or(1.0) * card;
        let least = self.cache_size.unwrap_or(request);
        let most = if self.cache_size.is_some() {
            least
        } else if model.known().is_none() {
            f64::INFINITY
        } else if self.kind == Kind::TrtLlm {
            self.share.unwrap_or(1.0) * card
        } else {
            share - weights.upper
        };
        let mut parts = vec![
            Part { name: "weights", belongs: Belongs::State, bounds: weights },
            Part::state("cache", least, most.max(least)),
            Part::state("graphs", 0.0, self.graphs()),
        ];
        if !self.is_within_share() {
            parts.push(Part::pass("activations", 0.0, self.activations(model)));
            parts.extend(around(self.slots()));
        }
        parts
    }

    /// Whether weights, activations and cache together take no more than its share.
    fn is_within_share(&self) -> bool {
        self.kind == Kind::Vllm && self.cache_size.is_none()
    }

    /// Whether the engine cannot start: weights and one request exceed its share, or one request its cache.
    ///
    /// Only vLLM's share refuses.
    pub fn refuses(&self, model: &Model, card: f64) -> bool {
        if let Some(size) = self.cache_size {
            return self.request(model) > size;
        }
        let needs = self.weights(model).lower + self.request(model);
        self.kind == Kind::Vllm && self.share.is_some_and(|share| needs > share * card)
    }

    /// Whether the engine starts with its share: `None` if that is uncertain.
    ///
    /// It surely does where weights and a step at most leave room for one request, each of whose layers may be cached
    /// whole. If no length is known, nothing is certain of vLLM; other engines start with room for a token.
    pub fn starts(&self, model: &Model, card: f64) -> Option<bool> {
        if self.refuses(model, card) {
            return Some(false);
        }
        let length = match self.served() {
            None if self.kind == Kind::Vllm => return None,
            length => length.unwrap_or(1.0).max(1.0),
        };
        let (tokens, sequences) = MOST_IN_STEP;
        let usual = Engine {
            batch: Some(self.batch.unwrap_or(tokens.max(length))),
            sequences: Some(self.sequences.unwrap_or(sequences)),
            ..*self
        };
        let whole = model.shape.map(|shape| Shape { cached_layers: shape.layers, ..shape });
        let room = usual.tokens(&Model { shape: whole, ..*model }, card).lower;
        (model.known().is_some() && room >= length).then_some(true)
    }

    /// Bytes of graphs, at most.
    fn graphs(&self) -> f64 {
        if self.graphs { GRAPHS } else { 0.0 }
    }

    /// Bytes of a step's activations and logits, at most: no bound unless its tokens and requests have one.
    fn activations(&self, model: &Model) -> f64 {
        let logit = if self.kind == Kind::Vllm { MOST_OF_SAMPLED } else { MOST_OF_GENERATED };
        self.step(model).map_or(f64::INFINITY, |step| step.activations + logit * step.logits)
    }

    /// What a step has, if its tokens and requests are bounded.
    pub(super) fn step(&self, model: &Model) -> Option<Step> {
        let (shape, tokens, sequences) = (model.known()?, self.batch?, self.sequences?);
        let (qkv, out) = shape.attention(self.tp);
        let dense = 3.0 * shape.ffn / self.tp;
        let routed = shape.experts.map_or(0.0, |experts| {
            experts.top_k * (2.0 * shape.hidden + 3.0 * experts.ffn) + 3.0 * experts.shared_ffn / self.tp
        });
        let elements = 8.0 * shape.hidden + 2.0 * (qkv + out) + dense.max(routed);
        Some(Step { activations: 2.0 * tokens * elements, logits: sequences * shape.vocab })
    }

    /// Tokens that the cache of an engine holds on cards of so many bytes.
    pub fn tokens(&self, model: &Model, card: f64) -> Bounds {
        let token = model.shape.as_ref().map_or(0.0, |shape| self.cache_of_token(shape));
        if token == 0.0 {
            return Bounds::up_to(f64::INFINITY);
        }
        if let Some(size) = self.cache_size {
            return Bounds::new((size / token).floor(), (size / token).floor());
        }
        let weights = self.weights(model);
        let others: f64 = around(self.slots()).iter().map(|part| part.bounds.upper).sum();
        let taken = others + self.activations(model) + self.graphs();
        let (low, high) = (self.share.unwrap_or(0.0), self.share.unwrap_or(1.0));
        let (least, most) = match self.kind {
            Kind::TrtLlm => (low * (USABLE * card - weights.upper - taken), high * (card - weights.lower)),
            _ => (low * USABLE * card - weights.upper - taken, high * card - weights.lower),
        };
        Bounds::new((least / token).floor(), (most / token).max(0.0).floor())
    }
}
