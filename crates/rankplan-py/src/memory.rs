//! Bounds of memory, as plain numbers.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use rankplan_core::memory::{Bounds, Likely, LikelyPart, Part, engine, likely, model, numbers, phases, training};

/// Name, what it belongs to, lower and upper bound in bytes; no upper bound is infinite.
type Parts = Vec<(&'static str, &'static str, f64, f64)>;
/// Name, what it belongs to, and bytes.
type LikelyParts = Vec<(&'static str, &'static str, f64)>;
type Pair = (f64, f64);

#[derive(FromPyObject)]
struct Latent {
    query_rank: f64,
    rank: f64,
    plain: f64,
    rotary: f64,
    value: f64,
}

#[derive(FromPyObject)]
struct Experts {
    count: f64,
    top_k: f64,
    ffn: f64,
    shared_ffn: f64,
    dense_layers: f64,
    every: f64,
    offset: f64,
}

#[derive(FromPyObject)]
struct Shape {
    layers: f64,
    hidden: f64,
    heads: f64,
    kv_heads: f64,
    head_dim: f64,
    ffn: f64,
    gated: bool,
    vocab: f64,
    tied: bool,
    scored: bool,
    qkv_bias: bool,
    qk_norm: bool,
    cached_layers: f64,
    positions: f64,
    experts: Option<Experts>,
    latent: Option<Latent>,
}

/// A model: an object with these attributes.
#[derive(FromPyObject)]
pub struct Model {
    stated: Option<Pair>,
    shape: Option<Shape>,
}

impl Model {
    fn core(self) -> model::Model {
        let shape = self.shape.map(|shape| model::Shape {
            layers: shape.layers,
            hidden: shape.hidden,
            heads: shape.heads,
            kv_heads: shape.kv_heads,
            head_dim: shape.head_dim,
            ffn: shape.ffn,
            gated: shape.gated,
            vocab: shape.vocab,
            tied: shape.tied,
            scored: shape.scored,
            qkv_bias: shape.qkv_bias,
            qk_norm: shape.qk_norm,
            cached_layers: shape.cached_layers,
            positions: shape.positions,
            experts: shape.experts.map(|experts| model::Experts {
                count: experts.count,
                top_k: experts.top_k,
                ffn: experts.ffn,
                shared_ffn: experts.shared_ffn,
                dense_layers: experts.dense_layers,
                every: experts.every,
                offset: experts.offset,
            }),
            latent: shape.latent.map(|Latent { query_rank, rank, plain, rotary, value }| model::Latent {
                query_rank,
                rank,
                plain,
                rotary,
                value,
            }),
        });
        model::Model { stated: self.stated, shape }
    }
}

/// A trainer: an object with these attributes.
#[derive(FromPyObject)]
pub struct Training {
    framework: String,
    slots: f64,
    tp: f64,
    cp: f64,
    pp: f64,
    chunks: f64,
    ep: f64,
    etp: f64,
    first_layers: Option<f64>,
    last_layers: Option<f64>,
    shard: Option<f64>,
    zero: Option<u8>,
    weight: f64,
    gradient: Option<f64>,
    optimizer: String,
    on_host: f64,
    weights_on_host: bool,
    distributed: Option<bool>,
    sequence_parallel: Option<bool>,
    recompute: Option<String>,
    tokens: Option<f64>,
    trained_tokens: Option<f64>,
    optimizer_in_step: bool,
    length: Option<f64>,
    fixed_length: bool,
    unfused: bool,
    whole_gradients: bool,
    micro_batches: Option<f64>,
    lora: bool,
    wide_logits: bool,
    fused_logits: bool,
    logits_in_place: bool,
    logits_chunk: Option<f64>,
    empties_cache: bool,
    sleep: Option<String>,
}

impl Training {
    fn core(&self) -> PyResult<training::Training> {
        use training::{Framework, Optimizer, Recompute};
        Ok(training::Training {
            framework: match &*self.framework {
                "megatron" => Framework::Megatron,
                "fsdp" => Framework::Fsdp,
                "deepspeed" => Framework::DeepSpeed,
                "forward" => Framework::Forward,
                other => return Err(unknown("framework", other)),
            },
            slots: self.slots,
            tp: self.tp,
            cp: self.cp,
            stages: model::Stages { pp: self.pp, first: self.first_layers, last: self.last_layers },
            chunks: self.chunks,
            ep: self.ep,
            etp: self.etp,
            shard: self.shard,
            zero: self.zero,
            weight: self.weight,
            gradient: self.gradient,
            optimizer: match &*self.optimizer {
                "adam" => Optimizer::Adam,
                "adam-precision-aware" => Optimizer::PrecisionAware,
                _ => Optimizer::Other,
            },
            on_host: self.on_host,
            weights_on_host: self.weights_on_host,
            distributed: self.distributed,
            sequence_parallel: self.sequence_parallel,
            recompute: match self.recompute.as_deref() {
                None => None,
                Some("none") => Some(Recompute::None),
                Some("selective") => Some(Recompute::Selective),
                Some("full") => Some(Recompute::Full),
                Some(other) => return Err(unknown("recompute", other)),
            },
            tokens: self.tokens,
            trained_tokens: self.trained_tokens,
            optimizer_in_step: self.optimizer_in_step,
            length: self.length,
            fixed_length: self.fixed_length,
            unfused: self.unfused,
            whole_gradients: self.whole_gradients,
            micro_batches: self.micro_batches,
            lora: self.lora,
            wide_logits: self.wide_logits,
            fused_logits: self.fused_logits,
            logits_in_place: self.logits_in_place,
            logits_chunk: self.logits_chunk,
            empties_cache: self.empties_cache,
        })
    }
}

/// An engine: an object with these attributes.
#[derive(FromPyObject)]
pub struct Engine {
    kind: String,
    tp: f64,
    pp: f64,
    ep: f64,
    share: Option<f64>,
    length: Option<f64>,
    longest: Option<f64>,
    weight: Pair,
    cache: f64,
    sequences: Option<f64>,
    batch: Option<f64>,
    graphs: bool,
    cache_size: Option<f64>,
    usage: Option<String>,
    on_a100: bool,
    sleep: Option<String>,
}

impl Engine {
    fn core(&self) -> PyResult<engine::Engine> {
        Ok(engine::Engine {
            kind: kind(&self.kind)?,
            tp: self.tp,
            pp: self.pp,
            ep: self.ep,
            share: self.share,
            length: self.length,
            longest: self.longest,
            weight: self.weight,
            cache: self.cache,
            sequences: self.sequences,
            batch: self.batch,
            graphs: self.graphs,
            cache_size: self.cache_size,
            usage: usage(self.usage.as_deref())?,
            on_a100: self.on_a100,
        })
    }
}

fn usage(word: Option<&str>) -> PyResult<Option<engine::Usage>> {
    match word {
        None => Ok(None),
        Some("llm") => Ok(Some(engine::Usage::Llm)),
        Some("server") => Ok(Some(engine::Usage::Server)),
        Some("engine") => Ok(Some(engine::Usage::Engine)),
        Some(other) => Err(unknown("usage", other)),
    }
}

fn kind(engine: &str) -> PyResult<engine::Kind> {
    match engine {
        "vllm" => Ok(engine::Kind::Vllm),
        "sglang" => Ok(engine::Kind::Sglang),
        "trtllm" => Ok(engine::Kind::TrtLlm),
        other => Err(unknown("engine", other)),
    }
}

fn unknown(what: &str, value: &str) -> PyErr {
    PyValueError::new_err(format!("unknown {what} '{value}'"))
}

fn sleep(word: Option<&str>) -> PyResult<Option<phases::Sleep>> {
    match word {
        None => Ok(None),
        Some("none") => Ok(Some(phases::Sleep::None)),
        Some("host") => Ok(Some(phases::Sleep::Host)),
        Some("free") => Ok(Some(phases::Sleep::Free)),
        Some(other) => Err(unknown("sleep", other)),
    }
}

fn pair(bounds: Bounds) -> Pair {
    (bounds.lower, bounds.upper)
}

fn plain(parts: &[Part]) -> Parts {
    parts.iter().map(|part| (part.name, part.belongs.word(), part.bounds.lower, part.bounds.upper)).collect()
}

fn plain_likely(parts: &[LikelyPart]) -> LikelyParts {
    parts.iter().map(|part| (part.name, part.belongs.word(), part.size)).collect()
}

/// Return the number of parameters of a model, at least and at most.
#[pyfunction]
pub fn model_params(model: Model) -> Pair {
    model.core().params()
}

/// Return, by pipeline stage, the parts of a slot, what it leaves while it sleeps, and what it takes of its node's memory.
///
/// Raises `ValueError` for an unknown word.
#[pyfunction]
pub fn training_memory(py: Python<'_>, model: Model, training: Training) -> PyResult<Vec<(Parts, Pair, Pair)>> {
    let (model, settings, sleep) = (model.core(), training.core()?, sleep(training.sleep.as_deref())?);
    let stages = settings.stages.pp.max(1.0) as u32;
    Ok(py.detach(|| {
        let stage = |stage| {
            let parts = settings.parts(&model, stage);
            let asleep = phases::trainer_asleep(&model, &settings, stage, sleep);
            let host = phases::host_of_trainer(&model, &settings, stage, sleep);
            (plain(&parts), pair(asleep), pair(host))
        };
        (0..stages).map(f64::from).map(stage).collect()
    }))
}

/// What is known of an engine: the parts of a rank, what it leaves while it sleeps, what it takes of its node's memory, the
/// bytes of its cache for a token, the tokens that the cache holds, and whether it starts (`None`: uncertain).
type EngineFacts = (Parts, Pair, Pair, f64, Pair, Option<bool>);

/// Return what is known of an engine on cards of so many bytes. Raises `ValueError` for an unknown word.
#[pyfunction]
pub fn engine_memory(model: Model, engine: Engine, card: f64) -> PyResult<EngineFacts> {
    let (model, settings, sleep) = (model.core(), engine.core()?, sleep(engine.sleep.as_deref())?);
    let parts = settings.parts(&model, card);
    let asleep = phases::asleep(&parts, sleep);
    let host = phases::host_of_engine(settings.weights(&model), sleep);
    let token = model.shape.as_ref().map_or(0.0, |shape| settings.cache_of_token(shape));
    let tokens = pair(settings.tokens(&model, card));
    Ok((plain(&parts), pair(asleep), pair(host), token, tokens, settings.starts(&model, card)))
}

/// Return, by pipeline stage of the trainer, the parts while weights go to an engine on the same accelerator.
///
/// Raises `ValueError` for an unknown word.
#[pyfunction]
pub fn switch_memory(model: Model, training: Training, engine: Engine, card: f64) -> PyResult<Vec<Parts>> {
    let (model, trainer, engine) = (model.core(), training.core()?, engine.core()?);
    let sleep = sleep(training.sleep.as_deref())?;
    let awake = engine.parts(&model, card);
    let stages = (0..trainer.stages.pp.max(1.0) as u32).map(f64::from);
    let slots = (trainer.slots, engine.slots());
    let stage = |stage| plain(&phases::switch(&model, &trainer.between_steps(&model, stage), &awake, sleep, slots));
    Ok(stages.map(stage).collect())
}

/// What each part is measured to need, whether these are all parts, and what is left while it sleeps.
type LikelyFacts = (LikelyParts, bool, f64);

/// Return, by pipeline stage, what a trainer is measured to need between its bounds. Raises `ValueError` for an unknown word.
#[pyfunction]
pub fn training_likely(model: Model, training: Training) -> PyResult<Vec<LikelyFacts>> {
    let (model, settings, sleep) = (model.core(), training.core()?, sleep(training.sleep.as_deref())?);
    let stages = (0..settings.stages.pp.max(1.0) as u32).map(f64::from);
    let stage = |stage| {
        let Likely { parts, complete } = settings.likely(&model, stage);
        let asleep = likely::asleep(&parts, sleep, Some(settings.framework), settings.tp > 1.0);
        (plain_likely(&parts), complete, asleep)
    };
    Ok(stages.map(stage).collect())
}

/// Return what an engine is measured to need on cards of so many bytes, and whether it likely starts (`None`: it is close).
///
/// Raises `ValueError` for an unknown word.
#[pyfunction]
pub fn engine_likely(model: Model, engine: Engine, card: f64) -> PyResult<(LikelyFacts, Option<bool>)> {
    let (model, settings, sleep) = (model.core(), engine.core()?, sleep(engine.sleep.as_deref())?);
    let (Likely { parts, complete }, starts) = settings.likely(&model, card);
    let asleep = likely::asleep(&parts, sleep, None, settings.expert_ranks() > 1.0);
    Ok(((plain_likely(&parts), complete, asleep), starts))
}

/// Return, by pipeline stage, what is measured while weights go from a trainer to an engine on the same accelerator.
///
/// Raises `ValueError` for an unknown word.
#[pyfunction]
pub fn switch_likely(model: Model, training: Training, engine: Engine, card: f64) -> PyResult<Vec<LikelyParts>> {
    let (model, trainer, engine) = (model.core(), training.core()?, engine.core()?);
    let sleep = sleep(training.sleep.as_deref())?;
    let (served, _) = engine.likely(&model, card);
    let stages = (0..trainer.stages.pp.max(1.0) as u32).map(f64::from);
    let stage = |stage| plain_likely(&likely::switch(&trainer.likely(&model, stage), &served, sleep).parts);
    Ok(stages.map(stage).collect())
}

/// Return the bytes that have to be free on a card for so many bytes of the allocator of a framework.
#[pyfunction]
pub fn likely_room(allocated: f64) -> f64 {
    likely::room(allocated)
}

/// What a node has besides the memory of its ranks, in bytes: the object store.
#[pyfunction]
pub fn host_store() -> Pair {
    pair(phases::host_of_node())
}

/// Part of its nominal memory that a card offers at least.
pub const USABLE: f64 = numbers::USABLE;

/// The bucket in which weights are sent, in bytes.
pub const BUCKET: u64 = numbers::BUCKET as u64;
pub const FUSED_CHUNK: u64 = numbers::FUSED_CHUNK as u64;
pub const USUAL_LENGTH: u64 = numbers::USUAL_LENGTH as u64;

/// Return the share that an engine takes if none is stated. Raises `ValueError` for an unknown word.
#[pyfunction]
pub fn usual_share(engine: &str) -> PyResult<f64> {
    Ok(kind(engine)?.usual_share())
}
