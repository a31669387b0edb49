//! What a component states about its memory.

use crate::ids::MAX_PROCESSES;
use crate::read::names::Names;
use crate::read::place::{Fault, Place};
use crate::read::reader::{RESOLVE, Reader, bytes, must_be, not_a_size, unresolved, whole_number};
use crate::read::record::{Read, Record};
use crate::read::table::{Absent, Field, Kind, Table};
use crate::read::value::Value;

const FRAMEWORKS: &[&str] = &["megatron", "fsdp", "deepspeed"];
const ENGINES: &[&str] = &["vllm", "sglang", "trtllm"];
const PRECISIONS: &[&str] = &["fp32", "bf16", "fp16", "fp8", "fp4"];
const OPTIMIZERS: &[&str] = &["adam", "adam-precision-aware", "adam-8bit", "sgd", "muon"];
const RECOMPUTE: &[&str] = &["none", "selective", "full"];
const SLEEP: &[&str] = &["none", "host", "free"];
const USAGES: &[&str] = &["llm", "server", "engine"];
/// The words of `memory_binding`, whose earlier name was `memory`.
const BINDINGS: [&str; 3] = ["none", "preferred", "bind"];
/// Tokens, sequences, layers or chunks.
const COUNT: Kind = Kind::Count { least: 1, most: 1_000_000_000 };
const ONE_KIND: &str = "write one of training: megatron, forward: true, engine: vllm, or resident: 17 GiB";

/// The fields of `memory`.
pub static MEMORY: Table = Table {
    called: Some(("`memory`", ONE_KIND)),
    groups: &[
        &[
            optional("training", Kind::Word(FRAMEWORKS), "It trains, in this framework."),
            Field::new(
                "forward",
                Kind::Own(forward),
                "It only computes: a reference or a reward model; true, or its framework.",
            ),
            optional("engine", Kind::Word(ENGINES), "It serves, with this engine."),
            optional(
                "resident",
                Kind::Own(resident),
                "Measured: what it keeps on each accelerator, also by the number of them.",
            ),
            optional("model", Kind::Own(model), "Name of a model, or the path of its config.json."),
            optional(
                "params",
                Kind::Real { least: 0, above: true, most: 1_000_000_000_000_000 },
                "Number of parameters, in place of a model.",
            ),
            optional(
                "precision",
                Kind::Word(PRECISIONS),
                "Of the weights (trainers: bf16; engines: as in the checkpoint).",
            ),
            Field::new(
                "undivided",
                Kind::Switch,
                "Sizes that `parallel` leaves out are 1, as in a trainer, rather than unknown.",
            ),
            optional(
                "sleep",
                Kind::Word(SLEEP),
                "Where it goes while others have their turn: nowhere (none), to the host, or away.",
            ),
            optional("length", COUNT, "Tokens of the longest sequence."),
            optional("tokens", COUNT, "The most tokens in a micro-batch, or an engine's step."),
            optional(
                "target_tokens",
                COUNT,
                "Tokens that a micro-batch is filled up to, if a longer sequence may be one of its own.",
            ),
            optional(
                "unread",
                Kind::Name,
                "Keys of the trainer with small effects that are not counted: the bounds say nothing.",
            ),
            // trainers, and models that only compute
            optional("micro_batch", COUNT, "Sequences in a micro-batch."),
            Field::new(
                "optimizer_on_host",
                Kind::Real { least: 0, above: false, most: 1 },
                "Fraction of the optimizer (FSDP: of all states) that stays on the host.",
            ),
        ],
        &[
            optional(
                "shards",
                Kind::Count { least: 1, most: MAX_PROCESSES as i64 },
                "FSDP: slots that share the states, where `fsdp` of `parallel` does not tell.",
            ),
            // trainers
            optional(
                "trained_tokens",
                COUNT,
                "Tokens in a micro-batch with a backward pass, if those of a forward pass may be more.",
            ),
            Field::new(
                "optimizer_in_step",
                Kind::Switch,
                "The optimizer is on the accelerator only while it updates the weights.",
            ),
            optional("gradients", Kind::Word(&["fp32", "bf16"]), "Of the gradients."),
            Field::new("optimizer", Kind::Word(OPTIMIZERS), "The optimizer."),
            optional("distributed_optimizer", Kind::Switch, "Megatron: data ranks divide the optimizer."),
            optional("sequence_parallel", Kind::Switch, "Megatron: tensor groups divide norms too."),
            optional(
                "recompute",
                Kind::Word(RECOMPUTE),
                "Activations that are computed again: none, selective, or full.",
            ),
            Field::new(
                "whole_gradients",
                Kind::Switch,
                "FSDP: gradients stay whole until the last micro-batch of a step.",
            ),
            Field::new("wide_logits", Kind::Switch, "Megatron: logits have several copies of 32 bits."),
            Field::new("fused_logits", Kind::Switch, "Logits are computed in chunks, and never whole."),
            Field::new("logits_in_place", Kind::Switch, "FSDP: logits keep 16 bits, and their gradient replaces them."),
            optional("logits_chunk", COUNT, "Tokens of a chunk of logits in 32 bits; the others keep 16."),
            Field::new("empties_cache", Kind::Switch, "It empties its allocator before others have their turn."),
            Field::new(
                "shares_process",
                Kind::Switch,
                "It runs in one process with the components beside it that say so, too.",
            ),
            optional("zero_stage", Kind::Count { least: 0, most: 3 }, "DeepSpeed: its stage."),
            optional("lora", COUNT, "Rank of the adapters; the model itself is frozen."),
            optional("first_layers", COUNT, "Layers of the first pipeline stage."),
            optional("last_layers", COUNT, "Layers of the last pipeline stage."),
            Field::new("chunks", COUNT, "Model chunks of a pipeline rank (virtual stages)."),
            // engines
            optional(
                "share",
                Kind::Real { least: 0, above: true, most: 1 },
                "Its share of an accelerator: gpu_memory_utilization, mem_fraction_static.",
            ),
            Field::new("cache_precision", Kind::Word(PRECISIONS), "Of the cache."),
            optional("graphs", Kind::Switch, "Whether it captures graphs (false: enforce_eager)."),
            optional("sequences", COUNT, "The most requests at once."),
            Field::new(
                "uncertain_wake",
                Kind::Switch,
                "Its version decides whether it wakes up beside a sleeping trainer.",
            ),
            optional(
                "usage",
                Kind::Word(USAGES),
                "vLLM: built as LLM, server or AsyncLLM, which decides its usual steps.",
            ),
            optional("cache_size", Kind::Bytes, "vLLM: its cache, whatever its share: kv_cache_memory_bytes."),
        ],
    ],
    check: None,
};

const fn optional(name: &'static str, kind: Kind, about: &'static str) -> Field {
    Field::new(name, kind, about).absent(Absent::Null)
}

/// The settings of a component; its model is kept as written. `None` after faults.
pub fn read_memory(reader: &mut Reader<'_>, value: &Value, at: &Place<'_>) -> Option<Record> {
    if let Value::Text(word) = value
        && BINDINGS.contains(&word.as_str())
    {
        let help = format!("write `memory_binding: {word}`");
        reader.add(at, must_be("`memory`", value, "a mapping", &help));
        return None;
    }
    reader.record(value, at, &MEMORY)
}

/// True for a model that only computes, or its framework.
fn forward(value: &Value, at: &Place<'_>, _names: Option<&Names>) -> Result<Read, Vec<Fault>> {
    match value {
        Value::Bool(on) => Ok(Read::Bool(*on)),
        Value::Text(framework) if FRAMEWORKS.contains(&framework.as_str()) => Ok(Read::Text(framework.clone())),
        _ => {
            let allowed = format!("true, or one of {}", FRAMEWORKS.join(", "));
            Err(vec![Fault::at(at, must_be("`forward`", value, &allowed, "write `forward: true`"))])
        }
    }
}

/// The name of a model, the path of its `config.json`, or its sizes.
fn model(value: &Value, at: &Place<'_>, _names: Option<&Names>) -> Result<Read, Vec<Fault>> {
    if matches!(value, Value::Text(_) | Value::Map(_)) && !unresolved(value) {
        return Ok(Read::Plain(value.clone()));
    }
    let named = "write a name such as Qwen/Qwen3-8B, or the path of a config.json";
    let help = if unresolved(value) { RESOLVE } else { named };
    Err(vec![Fault::at(at, must_be("`model`", value, "the name of a model", help))])
}

/// Bytes, or bytes by the number of accelerators.
fn resident(value: &Value, at: &Place<'_>, _names: Option<&Names>) -> Result<Read, Vec<Fault>> {
    let size = |value: &Value| bytes(value).ok_or_else(|| vec![Fault::at(at, not_a_size(&at.named(), value))]);
    let pairs = match value {
        Value::Map(pairs) if pairs.is_empty() => return size(&Value::Null).map(Read::Int),
        Value::Map(pairs) => pairs,
        _ => return size(value).map(Read::Int),
    };
    let mut sizes: Vec<(Read, Read)> = Vec::with_capacity(pairs.len());
    for (accelerators, value) in pairs.iter() {
        let count = whole_number(accelerators).filter(|count| (1..=i64::from(MAX_PROCESSES)).contains(count));
        let Some(count) = count else {
            let help = "write {8: 17 GiB, 16: 9 GiB}";
            let fault = must_be(&at.named(), accelerators, "a number of accelerators", help);
            return Err(vec![Fault::at(at, fault)]);
        };
        let size = Read::Int(size(value)?);
        match sizes.iter_mut().find(|(known, _)| *known == Read::Int(count)) {
            Some((_, known)) => *known = size,
            None => sizes.push((Read::Int(count), size)),
        }
    }
    Ok(Read::Map(sizes))
}
