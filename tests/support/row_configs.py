"""Published rows (``memory_rows``, ``memory_reports``) as configs: what a user would write for them."""

from __future__ import annotations

from typing import Any, NamedTuple

Row = dict[str, Any]

FRAMEWORKS = {"megatron-fsdp": "fsdp"}
PRECISIONS = {"nvfp4": "fp4", "fp8": "fp8"}


class Asked(NamedTuple):
    """A config, and the size of the cluster that it is asked for."""

    config: dict[str, Any]
    nodes: str


def hugging_face(facts: Row) -> Row:
    """Return the facts of a model as the keys of a `config.json`."""
    if "hidden_size" in facts:
        return facts
    values = {
        "num_hidden_layers": facts["layers"],
        "hidden_size": facts["hidden"],
        "num_attention_heads": facts["heads"],
        "num_key_value_heads": facts["kv_heads"],
        "head_dim": facts["head_dim"],
        "intermediate_size": facts["ffn"],
        "vocab_size": facts["vocab"],
        "tie_word_embeddings": facts["tied"],
        "model_type": "llama",
    }
    experts, latent = facts.get("moe"), facts.get("mla")
    if experts:
        values |= {"num_experts_per_tok": experts["top_k"], "moe_intermediate_size": experts["ffn"]}
        if latent:
            values |= {"model_type": "deepseek_v2", "n_routed_experts": experts["experts"]}
            values |= {"n_shared_experts": experts["shared_ffn"] // experts["ffn"]}
            values |= {"first_k_dense_replace": experts.get("dense_layers", 0)}
        else:
            values |= {"model_type": "qwen2_moe", "num_experts": experts["experts"]}
            values |= {"shared_expert_intermediate_size": experts["shared_ffn"]}
    if latent:
        values |= {
            "q_lora_rank": latent["q_lora_rank"],
            "kv_lora_rank": latent["kv_lora_rank"],
            "qk_nope_head_dim": latent["qk_nope"],
            "qk_rope_head_dim": latent["qk_rope"],
            "v_head_dim": latent["v"],
        }
    return values


def _model(row: Row) -> Row:
    model = row["model"]
    if isinstance(model, str):
        return {"model": model}
    if not {"layers", "hidden_size"} & model.keys():
        return {"params": model["params"]}
    return {"model": hugging_face(model)}


def trainer_of(row: Row) -> Row:
    """Return the ``memory`` of the trainer of a row."""
    train = row["train"]
    framework = FRAMEWORKS.get(train["framework"], train["framework"])
    memory = {"training": framework, "undivided": True, **_model(row)}
    if train.get("precision") in ("fp32", "fp16", "bf16"):
        memory["precision"] = train["precision"]
    if train.get("fp8"):
        memory["precision"] = "fp4" if "fp4" in train["fp8"] else "fp8"
    keys = {"recompute": "recompute", "lora": "lora", "zero": "zero_stage", "seq": "length", "max_tokens": "tokens"}
    if framework == "megatron":
        keys |= {name: name for name in ("first_layers", "last_layers", "distributed_optimizer", "sequence_parallel")}
        if train.get("grads_in_fp32"):
            memory["gradients"] = "fp32"
        if train.get("precision_aware"):
            memory["optimizer"] = "adam-precision-aware"
    memory |= {key: train[name] for name, key in keys.items() if train.get(name) is not None}
    if train.get("optimizer"):
        memory["optimizer"] = "adam-8bit"
    if (train.get("vpp") or 1) > 1 and train.get("pp", 1) > 1:
        memory["chunks"] = train["vpp"]
    if "tokens" not in memory and train.get("micro_batch") and train.get("seq"):
        memory["micro_batch"] = train["micro_batch"]
    host = train.get("optimizer_cpu_fraction") or 0.0
    if train.get("optimizer_offload") and framework == "deepspeed":
        host = 1.0
    if host:
        memory["optimizer_on_host"] = host
    if row.get("colocated"):
        memory["sleep"] = "host"
    return memory


def engine_of(row: Row) -> Row:
    """Return the ``memory`` of the engine of a row."""
    engine = row["engine"]
    memory = {"engine": engine["name"], "undivided": True, **_model(row)}
    keys = {"utilization": "share", "max_len": "length"}
    memory |= {key: engine[name] for name, key in keys.items() if engine.get(name) is not None}
    if engine.get("weights") in PRECISIONS:
        memory["precision"] = PRECISIONS[engine["weights"]]
    if engine.get("kv") == "fp8":
        memory["cache_precision"] = "fp8"
    if engine["name"] == "vllm" and "verl" in row.get("source", ""):
        memory |= {"tokens": 8192, "sequences": 256}  # of its rollout.yaml
    if row.get("colocated"):
        memory["sleep"] = "host"
    return memory


def _sizes(facts: Row, *names: str) -> Row:
    sizes = {name: facts[name] for name in names if (facts.get(name) or 1) > 1}
    return {"parallel": sizes} if sizes else {}


def asked(row: Row) -> Asked:
    """Return a row as a config. An engine beside a trainer that it does not share is behind it."""
    train, engine = row.get("train"), row.get("engine")
    components: dict[str, Any] = {}
    last = 0
    if train:
        last = train["accelerators"]
        placement = f"0-{last - 1}"
        sizes = _sizes(train, "tp", "cp", "pp", "ep", "etp")
        components["actor"] = {"placement": placement, "memory": trainer_of(row), **sizes}
        for other in row.get("also_resident", ()):
            if other.get("kept_on") == "host":
                continue
            memory = {"forward": True, "undivided": True, **_model(row)}
            components[other["role"]] = {
                "placement": placement,
                "memory": trainer_of(row) if other["role"] == "critic" else memory,
            }
    if engine:
        count = engine.get("accelerators") or engine.get("tp", 1) * engine.get("pp", 1)
        first = last if train and not row.get("colocated") else 0
        last = max(last, first + count)
        placement = f"{first}-{first + count - 1}"
        components["rollout"] = {"placement": placement, "memory": engine_of(row), **_sizes(engine, "tp", "pp", "ep")}
    each = row["gpus_per_node"]
    nodes = max(row["nodes"], -(-last // each))
    section = {"num_nodes": nodes, "accelerator_memory": f"{row['card']['gib']} GiB"}
    return Asked({"cluster": section | {"component_placement": components}}, f"{nodes}x{each}")
