//! The sizes of a model, and the parameters of a pipeline stage.

use super::numbers::MOST_OF_MODEL;

/// Latent attention (DeepSeek-V2): the ranks of its projections, and the parts of a head.
#[derive(Clone, Copy, Debug)]
pub struct Latent {
    /// Rank of the queries; 0 if they are projected directly.
    pub query_rank: f64,
    /// Rank of keys and values, which the cache holds.
    pub rank: f64,
    /// Elements of a key head without position.
    pub plain: f64,
    /// Elements of a key head with position, which the cache holds too.
    pub rotary: f64,
    /// Elements of a value head.
    pub value: f64,
}

/// The experts of the layers that have some: of those behind the first dense ones, every so many.
#[derive(Clone, Copy, Debug)]
pub struct Experts {
    /// Number of experts of a layer.
    pub count: f64,
    /// Experts of a token.
    pub top_k: f64,
    /// Width of an expert.
    pub ffn: f64,
    /// Width of all shared experts together.
    pub shared_ffn: f64,
    /// The first layers, which have no experts.
    pub dense_layers: f64,
    /// Of the others, one of so many layers has experts; 1: each.
    pub every: f64,
    /// The index of a layer with experts, modulo `every`.
    pub offset: f64,
}

impl Experts {
    /// How many of the first layers have experts.
    fn among_first(&self, layers: f64) -> f64 {
        let start = self.dense_layers;
        let first = start + (self.offset - start).rem_euclid(self.every);
        if layers <= first { 0.0 } else { ((layers - first - 1.0) / self.every).floor() + 1.0 }
    }

    /// How many of so many layers from a start have experts, at least and at most, if the start is one of a range.
    ///
    /// Where the start moves, a periodic pattern adds or loses one layer besides what both ends of the range tell.
    fn among(&self, layers: f64, (early, late): (f64, f64)) -> (f64, f64) {
        let [first, last] = [early, late].map(|start| self.among_first(start + layers) - self.among_first(start));
        let slack = f64::from(u8::from(early < late));
        ((first.min(last) - slack).max(0.0), (first.max(last) + slack).min(layers))
    }
}

/// The layers of a model.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Number of layers.
    pub layers: f64,
    /// Hidden size.
    pub hidden: f64,
    /// Attention heads.
    pub heads: f64,
    /// Heads of keys and values.
    pub kv_heads: f64,
    /// Elements of a head.
    pub head_dim: f64,
    /// Width of a dense layer.
    pub ffn: f64,
    /// Whether a dense layer has a gate.
    pub gated: bool,
    /// Tokens of the vocabulary.
    pub vocab: f64,
    /// Whether the embedding is the output layer too.
    pub tied: bool,
    /// Whether it scores sequences: it may have a scalar head in place of the output layer.
    pub scored: bool,
    /// Whether queries, keys and values have a bias.
    pub qkv_bias: bool,
    /// Whether queries and keys are normalized.
    pub qk_norm: bool,
    /// Layers whose cache grows with the whole sequence.
    pub cached_layers: f64,
    /// Learned embeddings of positions.
    pub positions: f64,
    /// Experts, if it has any.
    pub experts: Option<Experts>,
    /// Latent attention, if it has any.
    pub latent: Option<Latent>,
}

/// What is known of a model.
#[derive(Clone, Copy, Debug)]
pub struct Model {
    /// Bounds of the number of parameters, if it is stated rather than counted.
    pub stated: Option<(f64, f64)>,
    /// Its layers; with `stated`, some are of kinds that are not counted.
    pub shape: Option<Shape>,
}

/// Parameters by how they are divided.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Divided by the tensor group.
    pub divided: f64,
    /// Copied to every rank of the tensor group.
    pub copied: f64,
    /// Of experts.
    pub experts: f64,
}

impl Counts {
    fn plus(self, other: Counts, times: f64) -> Counts {
        Counts {
            divided: self.divided + other.divided * times,
            copied: self.copied + other.copied * times,
            experts: self.experts + other.experts * times,
        }
    }

    /// All of them.
    pub fn total(self) -> f64 {
        self.divided + self.copied + self.experts
    }
}

/// Which bound is counted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bound {
    Least,
    Most,
}

/// How layers are divided into pipeline stages.
#[derive(Clone, Copy, Debug)]
pub struct Stages {
    /// Number of stages.
    pub pp: f64,
    /// Layers of the first stage, if they are stated.
    pub first: Option<f64>,
    /// Layers of the last stage, if they are stated.
    pub last: Option<f64>,
}

/// The layers of a stage, at least or at most: all, those without experts and those with them.
///
/// Where a stage may start at several layers, the last two need not add up.
#[derive(Clone, Copy, Debug)]
pub struct StageLayers {
    /// All layers of the stage.
    pub layers: f64,
    /// Those without experts.
    pub dense: f64,
    /// Those with experts.
    pub expert: f64,
}

impl Stages {
    /// The least and the most layers of a stage, and of them the least and the most before it.
    fn range(&self, layers: f64, stage: f64) -> [(f64, f64); 2] {
        let stated = f64::from(u8::from(self.first.is_some())) + f64::from(u8::from(self.last.is_some()));
        let left = (layers - self.first.unwrap_or(0.0) - self.last.unwrap_or(0.0)).max(0.0);
        let middle = left / (self.pp - stated).max(1.0);
        let (floor, ceil) = (middle.floor(), middle.ceil());
        let here = match (stage == 0.0, stage == self.pp - 1.0, self.first, self.last) {
            (true, _, Some(first), _) => (first, first),
            (_, true, _, Some(last)) => (last, last),
            _ => (floor, ceil),
        };
        let before = |each: f64| match self.first {
            Some(first) if stage > 0.0 => first + each * (stage - 1.0),
            _ => each * stage,
        };
        [here, (before(floor), before(ceil))]
    }

    /// The layers of a stage at least, and at most.
    pub fn layers(&self, shape: &Shape, stage: f64) -> [StageLayers; 2] {
        let [(least, most), (early, late)] = self.range(shape.layers, stage);
        if let Some(experts) = shape.experts.filter(|experts| experts.every > 1.0) {
            let [low, high] = [least, most].map(|layers| (layers, experts.among(layers, (early, late))));
            let (fewest, most_experts) = (low.1.0.min(high.1.0), low.1.1.max(high.1.1));
            return [
                StageLayers { layers: least, dense: (least - low.1.1).max(0.0), expert: fewest },
                StageLayers { layers: most, dense: most - high.1.0, expert: most_experts },
            ];
        }
        let dense = shape.experts.map_or(f64::INFINITY, |experts| experts.dense_layers);
        let of = |layers: f64, start: f64| {
            let dense = (dense - start).clamp(0.0, layers);
            StageLayers { layers, dense, expert: layers - dense }
        };
        [of(least, early), of(most, late)]
    }
}

impl Shape {
    /// Elements of queries, keys and values together, and of the output of attention, for a token.
    pub fn attention(&self, tp: f64) -> (f64, f64) {
        match self.latent {
            Some(Latent { plain, rotary, value, .. }) => {
                (self.heads * (2.0 * (plain + rotary) + value) / tp, self.heads * value / tp)
            }
            None => {
                let kv = (self.kv_heads / tp).max(self.kv_heads.min(1.0));
                ((self.heads / tp + 2.0 * kv) * self.head_dim, self.heads * self.head_dim / tp)
            }
        }
    }

    fn attention_counts(&self) -> Counts {
        let h = self.hidden;
        let norms = 2.0 * h;
        if let Some(Latent { query_rank: q, rank, plain, rotary, value }) = self.latent {
            let head = plain + rotary;
            let queries = if q > 0.0 { q * self.heads * head } else { h * self.heads * head };
            return Counts {
                divided: queries + rank * self.heads * (plain + value) + self.heads * value * h,
                copied: norms + if q > 0.0 { h * q + q } else { 0.0 } + h * (rank + rotary) + rank,
                experts: 0.0,
            };
        }
        let (queries, keys) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        let bias = if self.qkv_bias { queries + 2.0 * keys } else { 0.0 };
        let norm = if self.qk_norm { 2.0 * self.head_dim } else { 0.0 };
        Counts { divided: h * (2.0 * queries + 2.0 * keys) + bias, copied: norms + norm, experts: 0.0 }
    }

    /// The divided parameters of attention in a layer.
    pub fn attention_size(&self) -> f64 {
        self.attention_counts().divided
    }

    /// The parameters of a layer, dense or with experts.
    pub fn layer(&self, dense: bool) -> Counts {
        let h = self.hidden;
        let attention = self.attention_counts();
        match self.experts.filter(|_| !dense) {
            None => {
                let ffn = if self.gated { 3.0 } else { 2.0 } * h * self.ffn;
                attention.plus(Counts { divided: ffn, ..Counts::default() }, 1.0)
            }
            Some(Experts { count, ffn, shared_ffn, .. }) => {
                let matrices = if self.gated { 3.0 } else { 2.0 } * h;
                let (shared, router) = (matrices * shared_ffn, h * count);
                attention.plus(Counts { divided: shared, copied: router, experts: count * matrices * ffn }, 1.0)
            }
        }
    }

    /// The parameters of one embedding.
    pub fn embedding(&self) -> f64 {
        self.vocab * self.hidden
    }

    /// The parameters of the largest layer.
    pub fn largest_layer(&self) -> f64 {
        self.layer(true).total().max(self.layer(false).total())
    }

    /// The parameters of a stage with these layers, at least or at most.
    fn counts(&self, StageLayers { dense, expert, .. }: StageLayers, pp: f64, stage: f64, bound: Bound) -> Counts {
        let (first, last) = (stage == 0.0, stage == pp - 1.0);
        let mut counts = Counts::default().plus(self.layer(true), dense).plus(self.layer(false), expert);
        if first {
            counts.divided += self.embedding();
            counts.copied += self.positions * self.hidden;
        }
        if last {
            counts.copied += self.hidden;
            if (!self.tied || pp > 1.0) && !(self.scored && bound == Bound::Least) {
                counts.divided += self.embedding();
            }
        }
        counts
    }
}

impl Model {
    /// The number of parameters, at least and at most.
    pub fn params(&self) -> (f64, f64) {
        self.stated.unwrap_or_else(|| {
            let whole = Stages { pp: 1.0, first: None, last: None };
            self.shape.map_or((0.0, f64::INFINITY), |shape| {
                let layers = whole.layers(&shape, 0.0)[0];
                let total = |bound| shape.counts(layers, 1.0, 0.0, bound).total();
                (total(Bound::Least), total(Bound::Most))
            })
        })
    }

    /// The layers, if all of them are of known kinds.
    pub fn known(&self) -> Option<&Shape> {
        self.shape.as_ref().filter(|_| self.stated.is_none())
    }

    /// The model with all of its layers taken for layers of attention, and how many times their parameters it likely has.
    ///
    /// Layers of other kinds (state spaces, linear attention) are about as large, and read about as much. Of a model whose stated
    /// bounds say little about its size, nothing changes.
    pub fn with_layers_of_attention(&self) -> (Model, f64) {
        let (Some((least, most)), Some(_)) = (self.stated, self.shape) else {
            return (*self, 1.0);
        };
        let counted = Model { stated: None, ..*self };
        let layers = counted.params().0;
        if most.is_finite() {
            return (counted, f64::midpoint(least, most) / layers);
        }
        // Without a bound above, those of a vision tower come on top, for example.
        if least >= MOST_OF_MODEL * layers { (counted, (least / layers).max(1.0)) } else { (*self, 1.0) }
    }

    /// The parameters of a pipeline stage, at least and at most.
    ///
    /// Of a model whose layers are unknown, a stage has the average: no more can be said of the fullest one.
    pub fn stage(&self, stages: &Stages, stage: f64) -> [Counts; 2] {
        match self.known() {
            Some(shape) => {
                let [least, most] = stages.layers(shape, stage);
                [(least, Bound::Least), (most, Bound::Most)]
                    .map(|(layers, bound)| shape.counts(layers, stages.pp, stage, bound))
            }
            None => {
                let (least, most) = self.params();
                let most = if stages.pp > 1.0 { f64::INFINITY } else { most };
                [least / stages.pp, most].map(|divided| Counts { divided, ..Counts::default() })
            }
        }
    }
}
