"""Published runs, measured peaks and misfits (``memory_rows``), and what the calculation says about each."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from rankplan._core import USABLE_MEMORY, engine_memory, switch_memory, training_memory
from rankplan.memory.settings import GIB, PRECISIONS, Engine, Training
from rankplan.plans.model import Model
from rankplan.plans.shape import Experts, Latent, Shape

LIMITS = {"vllm": (1024, 16_384), "sglang": (4096, 16_384), "trtllm": (2048, 8192)}
"""The most requests and tokens in a step that an engine takes by default (vLLM: ``EngineArgs.get_batch_defaults``;
SGLang: ``init_memory_pool``, ``chunked_prefill_size``; TensorRT-LLM: ``max_batch_size``, ``max_num_tokens``)."""


@dataclass(frozen=True)
class Verdict:
    """The bounds of the fullest phase in bytes, and the answer."""

    lower: float
    upper: float
    answer: str


def model_of(row: dict[str, Any]) -> Model:
    """Return the model of a row: a name, facts, or a number of parameters."""
    facts = row["model"]
    if isinstance(facts, str):
        return Model.of(facts)
    if "layers" not in facts:
        return Model.sized(facts["params"])
    kept = {key: facts[key] for key in ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab", "tied")}
    moe, mla = facts.get("moe"), facts.get("mla")
    experts = Experts(moe["experts"], moe["top_k"], moe["ffn"], moe["shared_ffn"]) if moe else None
    latent = (
        Latent(mla["q_lora_rank"] or 0, *(mla[key] for key in ("kv_lora_rank", "qk_nope", "qk_rope", "v")))
        if mla
        else None
    )
    bias = bool(facts.get("qkv_bias") or facts.get("bias"))
    shape = Shape(
        **kept,
        cached_layers=facts["layers"],
        gated=facts.get("gated", True),
        qkv_bias=bias,
        positions=facts.get("learned_positions") or 0,
        experts=experts,
        latent=latent,
    )
    return Model(row["id"], shape)


def training_of(row: dict[str, Any]) -> Training:
    """Return the trainer of a row."""
    train = row["train"]
    given = train.get
    framework = {"megatron-fsdp": "fsdp"}.get(train["framework"], train["framework"])
    seq, batch, most = given("seq"), given("micro_batch"), given("max_tokens")
    tokens = most or (seq * batch if seq and batch else None)
    optimizer = "adam-8bit" if given("optimizer") else "adam"
    if given("precision_aware", False) is not False and framework == "megatron" and optimizer == "adam":
        optimizer = "adam-precision-aware"
    fp8 = given("fp8")
    host = float(given("optimizer_cpu_fraction") or 0.0)
    if framework == "deepspeed" and given("optimizer_offload"):
        host = 1.0
    return Training(
        framework=framework,
        slots=train["accelerators"],
        tp=given("tp", 1),
        cp=given("cp", 1),
        pp=given("pp", 1),
        chunks=given("vpp") or 1,
        ep=given("ep") or 1,
        etp=given("etp") or 1,
        first_layers=given("first_layers"),
        last_layers=given("last_layers"),
        zero=given("zero"),
        weight=(0.5 if "fp4" in fp8 else 1.0) if fp8 else PRECISIONS.get(given("precision", "bf16"), 2.0),
        gradient=4.0 if given("grads_in_fp32") else None,
        optimizer=optimizer,
        on_host=host,
        weights_on_host=framework == "deepspeed" and bool(given("param_offload")),
        distributed=given("distributed_optimizer"),
        sequence_parallel=given("sequence_parallel"),
        recompute=given("recompute"),
        tokens=tokens,
        length=seq,
        fixed_length=bool(given("fixed_length")),
        unfused=given("attention") == "unfused" or given("transformer_impl") == "local",
        micro_batches=given("micro_batches"),
        lora=bool(given("lora")),
        sleep="host" if row.get("colocated") else None,
    )


def engine_of(row: dict[str, Any]) -> Engine | None:
    """Return the engine of a row, if it is of a kind that is calculated."""
    engine = row.get("engine")
    if not engine or engine["name"] == "megatron":
        return None
    given = engine.get
    weight = PRECISIONS[given("weights", "bf16")]
    sequences, tokens = LIMITS[engine["name"]]
    return Engine(
        kind=engine["name"],
        tp=given("tp", 1),
        pp=given("pp", 1),
        ep=given("ep") or 1,
        share=given("utilization"),
        length=given("max_len"),
        weight=(weight, weight),
        cache=1.0 if given("kv") == "fp8" else 2.0,
        sequences=sequences,
        batch=given("max_batched_tokens") or tokens,
        sleep="host" if row.get("colocated") else None,
    )


def _sum(parts: list[tuple[str, str, float, float]]) -> tuple[float, float]:
    return sum(lower for _, _, lower, _ in parts), sum(upper for _, _, _, upper in parts)


def peak(row: dict[str, Any]) -> tuple[float, float]:
    """Return the bounds of what the allocator of the last rank counts."""
    parts = training_memory(model_of(row), training_of(row))[-1][0]
    return _sum([part for part in parts if part[1] != "process" and part[0] != "fragments"])


def judge(row: dict[str, Any]) -> Verdict:
    """Return what the calculation says about the configuration of a row on its card."""
    model, card = model_of(row), row["card"]["gib"] * GIB
    training = training_of(row) if row.get("train") else None
    engine = engine_of(row)
    served = engine_memory(model, engine, card) if engine else None
    stages = training_memory(model, training) if training else []
    together = bool(row.get("colocated")) and served is not None and training is not None
    uncalculated = bool(row.get("engine")) and engine is None and row.get("colocated")
    phases = []
    for index, (parts, asleep, _) in enumerate(stages):
        lower, upper = _sum(parts)
        upper *= 1 + sum(other.get("kept_on") != "host" for other in row.get("also_resident", ()))
        if together and served is not None and engine is not None and training is not None:
            phases.append((lower + served[1][0], upper + served[1][1]))
            low, high = _sum(served[0])
            phases.append((low + asleep[0], high + asleep[1]))
            phases.append(_sum(switch_memory(model, training, engine, card)[index]))
        else:
            phases.append((lower, math.inf if uncalculated else upper))
    if served and not together:
        phases.append(_sum(served[0]))
    lower, upper = max(low for low, _ in phases), max(high for _, high in phases)
    if lower > card or (served and served[5] is False):
        return Verdict(lower, upper, "refused")
    starts = served is None or served[5] is True
    return Verdict(lower, upper, "fits" if starts and upper <= USABLE_MEMORY * card else "unknown")
