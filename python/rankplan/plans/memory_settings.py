"""What a component states about its memory, as plain data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from rankplan.errors import Diagnostic, KeyPath, PlacementError
from rankplan.frozen import frozen
from rankplan.plans import faults
from rankplan.plans.model import Model

KINDS = ("training", "forward", "engine", "resident")
"""A component states one of these: what it uses its memory for."""

_MODEL = {"model", "params", "undivided", "precision", "sleep", "length", "tokens", "unread"}
_SERVES = {"share", "cache_precision", "sequences", "graphs", "cache_size", "uncertain_wake", "usage"}
_COMPUTES = {*_MODEL, "target_tokens", "micro_batch", "optimizer_on_host", "shards"}
_COMPUTES |= {"wide_logits", "fused_logits", "logits_in_place", "logits_chunk", "empties_cache", "shares_process"}

FITTING = {
    "resident": {"resident", "sleep"},
    "engine": {"engine", *_MODEL, *_SERVES},
    "forward": {"forward", "zero_stage", *_COMPUTES},
    "training": {"training", *_COMPUTES, "gradients", "optimizer", "distributed_optimizer", "sequence_parallel"}
    | {"recompute", "zero_stage", "lora", "first_layers", "last_layers", "chunks", "whole_gradients"}
    | {"trained_tokens", "optimizer_in_step"},
}
"""The keys that say something about each kind."""

_FRAMEWORK = {
    "zero_stage": "deepspeed",
    **dict.fromkeys(("whole_gradients", "shards"), "fsdp"),
    **dict.fromkeys(("cache_size", "usage"), "vllm"),
    **dict.fromkeys(("distributed_optimizer", "sequence_parallel", "first_layers", "last_layers"), "megatron"),
}
"""The framework of the keys that only one of them has."""

COUNTS: tuple[str, ...] = ("length", "tokens", "target_tokens", "trained_tokens", "logits_chunk", "micro_batch", "lora")
COUNTS += ("first_layers", "last_layers", "chunks", "sequences")
"""Settings that are whole numbers from 1 to ``LARGEST_COUNT``."""

LARGEST_COUNT = 10**9
"""The most tokens, sequences, layers or chunks that can be stated."""


@frozen(kw_only=True)
class MemorySettings:
    """What a component keeps in memory, and what decides how much: the key ``memory`` after it was read.

    ``None`` is not stated. A component trains in a framework (``training``), only computes (``forward``: true, or its
    framework), serves with an engine (``engine``), or keeps a measured number of bytes on each accelerator
    (``resident``, also by the number of accelerators). ``params`` takes the place of a ``model``. ``undivided``:
    parallel sizes that are left out are 1, as in a trainer, rather than unknown. ``sleep`` is where it goes while
    others have their turn: ``none``, ``host`` or ``free``. ``length``, ``tokens`` and ``sequences`` count tokens of the
    longest sequence, tokens of a micro-batch or a step, and requests at once; ``target_tokens`` are those that a
    micro-batch is filled up to, where a longer sequence may be one of its own, and ``trained_tokens`` those of one with
    a backward pass, where a forward pass may have more. ``wide_logits``: logits have several copies of 32 bits.
    ``fused_logits``: they are computed in chunks, and never whole; ``logits_in_place``: they keep 16 bits, and their
    gradient replaces them; ``logits_chunk``: only so many tokens have some in 32 bits at once. ``empties_cache``: it
    empties its allocator before others have their turn. ``shares_process``: it runs in one process with the components
    beside it that say so, too. ``uncertain_wake``: the version of an engine decides whether it wakes up beside a
    sleeping trainer. ``usage``: how vLLM is built. ``unread`` names keys with small effects that are not counted: then
    no bound is known. ``share`` and ``optimizer_on_host`` are fractions. `rankplan schema` describes every key.
    """

    training: str | None = None
    forward: bool | str = False
    engine: str | None = None
    resident: int | dict[int, int] | None = None
    model: Model | None = None
    params: float | None = None
    precision: str | None = None
    undivided: bool = False
    sleep: str | None = None
    length: int | None = None
    tokens: int | None = None
    # trainers, and models that only compute
    target_tokens: int | None = None
    unread: str | None = None
    micro_batch: int | None = None
    optimizer_on_host: float = 0.0
    shards: int | None = None
    wide_logits: bool = False
    fused_logits: bool = False
    logits_in_place: bool = False
    logits_chunk: int | None = None
    empties_cache: bool = False
    shares_process: bool = False
    # trainers
    trained_tokens: int | None = None
    optimizer_in_step: bool = False
    gradients: str | None = None
    optimizer: str = "adam"
    distributed_optimizer: bool | None = None
    sequence_parallel: bool | None = None
    recompute: str | None = None
    whole_gradients: bool = False
    zero_stage: int | None = None
    lora: int | None = None
    first_layers: int | None = None
    last_layers: int | None = None
    chunks: int = 1
    # engines
    share: float | None = None
    cache_precision: str = "bf16"
    graphs: bool | None = None
    sequences: int | None = None
    cache_size: int | None = None
    usage: str | None = None
    uncertain_wake: bool = False

    @property
    def kind(self) -> str:
        """One of ``KINDS``."""
        return next(kind for kind in KINDS if getattr(self, kind))

    def ends_fault(self, model: Model | None) -> Diagnostic | None:
        """Return the fault of a first and a last pipeline stage that have more layers than a model."""
        layers = None if model is None else model.layers
        ends = (self.first_layers or 0) + (self.last_layers or 0)
        if layers is None or ends <= layers:
            return None
        message = f"the first and the last stage have {ends} layers, but the model has {layers}"
        return Diagnostic("invalid-value", message, "lower first_layers or last_layers")

    def stated(self) -> Iterator[tuple[str, Any]]:
        """Yield the settings that differ from the defaults, with their values."""
        for field in fields(self):
            value = getattr(self, field.name)
            if value != field.default:
                yield field.name, value

    def plain(self) -> dict[str, Any]:
        """Return the stated settings as values of JSON."""
        values = dict(self.stated())
        if self.model is not None:
            values["model"] = self.model.plain()
        if isinstance(self.resident, dict):
            values["resident"] = {str(accelerators): size for accelerators, size in self.resident.items()}
        return values

    def written(self) -> dict[str, Any]:
        """Return the settings as a config states them, with the name of a model that the table has."""
        values = self.plain()
        if self.model is not None and self.model.named:
            values["model"] = self.model.name
        return values


Fault = tuple[KeyPath, Diagnostic]
"""A fault, and its path within the settings."""


def settings_of(values: Mapping[str, Any]) -> tuple[MemorySettings | None, list[Fault]]:
    """Return the settings of values that the core has read one by one, or the faults of their combination."""
    model, found = _model(values.get("model"))
    if found:
        return None, found
    settings = MemorySettings(**{**values, "model": model})
    found = unfit(values, settings)
    return (None, found) if found else (settings, [])


def _model(source: Any) -> tuple[Model | None, list[Fault]]:
    """Return the model that is stated, if any is."""
    if source is None:
        return None, []
    try:
        return Model.of(source), []
    except PlacementError as error:
        return None, [(("model",), fault) for fault in error.diagnostics]


def unfit(stated: Mapping[str, Any], settings: MemorySettings) -> list[Fault]:
    """Return the first fault of settings that do not go together; ``stated`` are those that a user writes."""
    kinds = [kind for kind in KINDS if getattr(settings, kind)]
    if len(kinds) != 1:
        return [((), faults.no_kind_of_memory(kinds))]
    kind = kinds[0]
    framework = getattr(settings, kind)
    for key in sorted(stated):
        if stated[key] in (None, False):
            continue
        if key not in FITTING[kind]:
            return [((key,), faults.idle_setting(key, kind, KINDS))]
        own = _FRAMEWORK.get(key)
        if own is not None and framework not in (own, True):
            return [((key,), faults.setting_of_another(key, kind, framework, own))]
    for first, second in (("model", "params"), ("tokens", "micro_batch")):
        if getattr(settings, first) is not None and getattr(settings, second) is not None:
            return [((second,), faults.both_stated(first, second))]
    ends = settings.ends_fault(settings.model)
    return [] if ends is None else [((), ends)]
