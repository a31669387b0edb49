"""What the values of a trainer's keys mean as settings of ``memory``: the ``convert`` of rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, NamedTuple

from rankplan._core import FUSED_CHUNK, WEIGHT_BUCKET
from rankplan.dialects.keys.key import Key
from rankplan.hardware.cards import SMALLEST_SIZE
from rankplan.memory.settings import ENGINES, FRAMEWORKS


class Unread(Enum):
    """Markers in place of a value."""

    RUN_TIME = "a value that only the run knows"
    EFFECT = "a value whose effect on the memory is unknown"
    SMALL = "a value whose effect on the memory is small, but not counted"


EFFECT, RUN_TIME, SMALL = Unread.EFFECT, Unread.RUN_TIME, Unread.SMALL


class Foreign(NamedTuple):
    """The kind of a component without a language model: the task of its job, and the type of its model if stated.

    ``key`` is the one that tells so.
    """

    key: Key[Any]
    task: str
    model: str | None = None


_LARGEST_BUCKET = WEIGHT_BUCKET >> 20
"""Megabytes of a bucket of weights that the bounds count."""
_ADAM = {"adam", "adamw", "torch.optim.adamw", "torch.optim.adam", "fusedadam"}
_SHORT = {
    name: short
    for short, names in (
        ("fp32", "fp32 float32 float 32 32-true"),
        ("bf16", "bf16 bfloat16 bf16-mixed"),
        ("fp16", "fp16 float16 half 16 16-mixed"),
    )
    for name in names.split()
}
_SHAPE = {
    "num_hidden_layers",
    "num_layers",
    "hidden_size",
    "intermediate_size",
    "ffn_hidden_size",
    "num_attention_heads",
    "num_key_value_heads",
    "num_query_groups",
    "vocab_size",
    "num_experts",
    "num_moe_experts",
    "n_routed_experts",
    "moe_intermediate_size",
}


def unset(*values: Any) -> Any:
    """Return `EFFECT` if a value is set."""
    return EFFECT if any(is_set(value) for value in values) else None


def small(*values: Any) -> Any:
    """Return `SMALL` if a value is set."""
    return SMALL if any(is_set(value) for value in values) else None


def is_set(value: Any) -> bool:
    """Return whether a value switches something on."""
    return str(value).lower() not in ("none", "false", "0", "0.0", "", "[]", "{}", "auto", "disabled")


def reshaped(*values: Any) -> Any:
    """Return `EFFECT` if values of the model's own config change its layers."""
    overrides = (value for value in values if isinstance(value, Mapping))
    return EFFECT if any(not _SHAPE.isdisjoint(keys) for keys in overrides) else None


def always(setting: Any) -> Callable[..., Any]:
    """Return a function that returns a setting, whatever the values are."""
    return lambda *values: setting


def precision(name: Any, *fp8: Any) -> Any:
    """Return the precision of trained weights; 8 bits, in whatever way, are the least."""
    if any(is_set(value) for value in fp8):
        return "fp8"
    return None if name is None else _SHORT.get(str(name).lower(), EFFECT)


def served(quantized: Any, *types: Any) -> Any:
    """Return the precision of an engine's weights; other types than 32 bits may be those of a checkpoint of 8."""
    if is_set(quantized):
        return "fp8" if str(quantized).lower() == "fp8" else EFFECT
    return "fp32" if any(_SHORT.get(str(name).lower()) == "fp32" for name in types) else None


def cached(*types: Any) -> Any:
    """Return the precision of the cache."""
    name = next((str(name).lower() for name in types if is_set(name)), None)
    if name is None:
        return None
    return "fp8" if name.startswith("fp8") else _SHORT.get(name, EFFECT)


def optimizer(name: Any, *aware: Any) -> str:
    """Return the optimizer: of others than Adam, only the lower bound is known."""
    if str(name).lower() not in _ADAM:
        return "sgd"
    return "adam-precision-aware" if any(is_set(value) for value in aware) else "adam"


def torch_optimizer(name: Any, module: Any = None) -> str:
    """Return the optimizer of a class; another module may keep less than torch's."""
    return optimizer(name) if str(module or "torch.optim") == "torch.optim" else "sgd"


def trains(framework: Any) -> Any:
    """Return the kind of a trainer; ``None`` for a framework that no setting states."""
    return {"training": framework} if framework in FRAMEWORKS else None


def computes(framework: Any) -> Any:
    """Return the kind of a model that only computes."""
    return {"forward": framework} if framework in FRAMEWORKS else None


def serves(engine: Any) -> Any:
    """Return the kind of an engine."""
    return {"engine": engine} if engine in ENGINES else None


def offloaded(offload: Any, fraction: Any) -> Any:
    """Return the part of Megatron's optimizer that stays on the host."""
    if not offload:
        return None
    return EFFECT if fraction is None else float(fraction)


def whole(offload: Any) -> float | None:
    """Return 1 for all states on the host."""
    return 1.0 if offload else None


def resharded(reshard: Any) -> Any:
    """Return `EFFECT` if FSDP keeps what it has gathered until the backward pass."""
    return None if reshard is None or reshard is True else EFFECT


def computed_wide(name: Any) -> Any:
    """Return `EFFECT` if FSDP computes in 32 bits: gathered units and activations are twice as large."""
    return EFFECT if _SHORT.get(str(name).lower()) == "fp32" else None


def large_bucket(megabytes: Any) -> Any:
    """Return `SMALL` for buckets of weights that are larger than the bound of the switch counts (2 GiB)."""
    return SMALL if megabytes is not None and megabytes > _LARGEST_BUCKET else None


def large_chunk(fused: Any, tokens: int | None) -> Any:
    """Return `SMALL` for fused logits that are undivided, or in larger chunks than the bounds count."""
    return SMALL if fused and (tokens is None or tokens > FUSED_CHUNK) else None


def several(size: Any) -> Any:
    """Return `EFFECT` for a size above 1."""
    return EFFECT if size is not None and size > 1 else None


def shards(size: int | None, slots: int) -> int | None:
    """Return how many slots share the states, unless all do: 1 is a copy on each of them (``create_device_mesh``)."""
    return size if size is not None and size < slots else None


def cache_size(size: float | None) -> int | None:
    """Return the bytes of the cache that a config states instead of a share."""
    return None if size is None or size < SMALLEST_SIZE else int(size)


def gradients(wide: Any, *narrow: Any) -> str | None:
    """Return 32 bits, unless something may make gradients smaller."""
    return "fp32" if wide is True and not any(is_set(value) for value in narrow) else None


def checkpointed(enabled: Any) -> str | None:
    """Return whether every layer is computed again."""
    if enabled is None:
        return None
    return "full" if enabled else "none"


MOST_RECOMPUTED = 2
"""Layers that the bounds compute again at once."""


def granularity(name: Any, method: Any, layers: int | None = None, enabled: Any = None) -> Any:
    """Return what Megatron computes again, ``None`` for something between all layers and none.

    With the method ``block`` that is the number of ``layers``; with ``uniform``, all of them, so many at once.
    """
    if enabled is False:
        return "none"
    word = str(name).lower()
    if word != "full":
        return "selective" if word == "selective" else None
    if method == "block":
        return layers
    return "full" if (layers or 1) <= MOST_RECOMPUTED else None


def asleep(*offloads: Any) -> str | None:
    """Return whether everything goes to the host, or nothing does."""
    if None in offloads:
        return None
    if all(offloads):
        return "host"
    return None if any(offloads) else "none"


def adapters(rank: Any, *enabled: Any) -> Any:
    """Return the rank of adapters, unless they are switched off."""
    return rank if rank and all(enabled) else None


def added(*sizes: Any) -> int | None:
    """Return the sum of sizes, if all are known."""
    return None if None in sizes else sum(sizes)


def micro_batch(by_tokens: Any, tokens: int | None, batch: int | None, length: int | None) -> int | None:
    """Return the most tokens of a micro-batch: stated, or sequences of full length."""
    if by_tokens:
        return tokens
    return None if batch is None or length is None else batch * length


def captured(eager: Any) -> bool | None:
    """Return whether vLLM may capture graphs: not with ``enforce_eager``."""
    return None if eager is None else not eager


def step(chunk: int | None, batch: int | None, length: int | None) -> int | None:
    """Return the most tokens in a step of SGLang: those of a chunk, else of a batch, or of one longer request.

    SGLang: ``PrefillAdder`` of `managers/schedule_policy.py`.
    """
    return chunk or most(batch, length)


def most(*sizes: int | None) -> int | None:
    """Return the largest size, if all are known."""
    known_sizes = [size for size in sizes if size is not None]
    return max(known_sizes) if len(known_sizes) == len(sizes) else None
