"""What prime-rl's keys say about memory (559b447: `configs/trainer.py`, `configs/inference.py`, `trainer/model.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rankplan.sdk import EFFECT, Key, Role, anything, fact, number, setting, share
from rankplan.trainers.prime_rl import keys
from rankplan.trainers.prime_rl.sections import is_on

_LENGTH = 2048
_RANK = 16
_PRECISIONS = {"float32": "fp32", "bfloat16": "bf16"}

_SEQUENCE = keys.size("trainer.model.seq_len", default=_LENGTH, fallbacks=("seq_len",))


def _recompute(section: Any, is_off: Any) -> str | None:
    """Return what the trainer computes again: every layer, unless the section says otherwise."""
    if is_off:
        return "none"
    if isinstance(section, Mapping) and (section.get("mode", "full") != "full" or section.get("freq", 1) != 1):
        return None
    return "full"


def _adapters(section: Any) -> int | None:
    """Return the rank of the adapters, ``None`` without any."""
    if not is_on(section):
        return None
    rank = section.get("rank", _RANK) if isinstance(section, Mapping) else _RANK
    return rank if isinstance(rank, int) else _RANK


def _effect(*values: Any) -> Any:
    """Return `EFFECT` if any value is set: no setting states what it does."""
    return EFFECT if any(is_on(value) for value in values) else None


def _offloaded(_section: Any, is_off: Any) -> Any:
    """Return `EFFECT` if activations go to the host, as they do by default: no setting states what it does."""
    return None if is_off else EFFECT


def _shards(slots: int, copies: int) -> int | None:
    """Return how many slots share a copy of the weights, ``None`` for all."""
    return slots // copies if copies > 1 else None


def _served(quantization: Any, dtype: Any) -> Any:
    """Return the precision of the weights of a server; other types than 32 bits may be those of the checkpoint."""
    if is_on(quantization):
        return "fp8" if str(quantization).startswith("fp8") else EFFECT
    return "fp32" if dtype == "float32" else None


def _cached(dtype: Any) -> Any:
    """Return the precision of the cache."""
    if not is_on(dtype) or dtype == "auto":
        return None
    return "fp8" if str(dtype).startswith("fp8") else _PRECISIONS.get(str(dtype), EFFECT)


def _any(*names: str) -> list[Key[Any]]:
    return [anything(name) for name in names]


_VLLM = "inference.vllm"
_SERVER = (
    setting("share", share(f"{_VLLM}.gpu_memory_utilization", default=0.9)),
    setting("length", keys.size(f"{_VLLM}.max_model_len")),
    setting("sequences", keys.size(f"{_VLLM}.max_num_seqs")),
    setting("tokens", keys.size(f"{_VLLM}.max_num_batched_tokens")),
    setting("usage", by=lambda: "server"),
    setting(
        "cache_size", number(f"{_VLLM}.kv_cache_memory_bytes"), by=lambda size: None if size is None else int(size)
    ),
    setting(
        "graphs",
        keys.switch(f"{_VLLM}.enforce_eager", default=None),
        by=lambda eager: None if eager is None else not eager,
    ),
    setting("precision", keys.text(f"{_VLLM}.quantization"), keys.text(f"{_VLLM}.dtype"), by=_served),
    setting("cache_precision", keys.text(f"{_VLLM}.kv_cache_dtype"), by=_cached),
    setting(
        "",
        keys.LORA,
        *_any(
            "inference.kv_cache_offload",
            f"{_VLLM}.cpu_offload_gb",
            f"{_VLLM}.hf_overrides",
            f"{_VLLM}.speculative_config",
            f"{_VLLM}.num_gpu_blocks_override",
            f"{_VLLM}.decode_context_parallel_size",
        ),
        by=_effect,
    ),
)
_KIND_OF_SERVER = setting("engine", by=lambda: {"engine": "vllm"})
_MODEL_OF_SERVER = setting("model", keys.text(f"{_VLLM}.model", fallbacks=("model.name",)))


def _servers(component: str, *own: str) -> Role:
    """Return the role of servers; ``own`` are keys with further arguments of vLLM for these servers only."""
    settings = (*_SERVER, setting("", *_any(*own), by=_effect)) if own else _SERVER
    return Role({component: "inference"}, _KIND_OF_SERVER, _MODEL_OF_SERVER, settings)


ROLES = (
    Role(
        {"trainer": "trainer"},
        setting("training", by=lambda: {"training": "fsdp"}),
        setting("model", keys.MODEL),
        (
            setting("length", _SEQUENCE),
            setting("tokens", _SEQUENCE),  # the orchestrator packs samples up to this length
            setting(
                "precision",
                keys.text("trainer.model.optimization_dtype", default="float32"),
                by=lambda dtype: _PRECISIONS.get(dtype, EFFECT),
            ),
            setting(
                "optimizer",
                keys.text("trainer.optim.type", default="adamw"),
                by=lambda name: "adam" if name == "adamw" else "sgd",  # of others, only the lower bound is known
            ),
            setting(
                "optimizer_on_host",
                keys.switch("trainer.model.optim_cpu_offload", default=True),
                by=lambda offload: 1.0 if offload else None,
            ),
            setting("recompute", keys.CHECKPOINTING, fact("keeps_activations"), by=_recompute),
            setting("shards", fact("slots"), fact("copies"), by=_shards),
            setting("lora", keys.LORA, by=_adapters),
            setting("", keys.OFFLOADING, fact("offloads_none"), by=_offloaded),
            setting(
                "",
                keys.switch("trainer.model.reshard_after_forward", default=True),
                by=lambda reshard: None if reshard else EFFECT,
            ),
            setting(
                "",
                *_any(
                    "trainer.model.fsdp_cpu_offload",
                    "trainer.model.full_offload",
                    "trainer.model.quantization",
                    "trainer.model.vlm",
                    "trainer.model.debug.num_layers",
                    "model.vlm",
                ),
                by=_effect,
            ),
        ),
    ),
    _servers("inference"),
    _servers("prefill", "inference.deployment.prefill_vllm_overrides"),
    _servers("decode", "inference.deployment.decode_vllm_overrides"),
)
