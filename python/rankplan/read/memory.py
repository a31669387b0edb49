"""What a component keeps in memory, and what decides how much: the key ``memory`` of an entry."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rankplan._core import MAX_PROCESSES
from rankplan.hardware.policies import MEMORY_POLICIES
from rankplan.memory.settings import ENGINES, FRAMEWORKS, OPTIMIZERS, PRECISIONS, RECOMPUTE, SLEEP, USAGES
from rankplan.plans.faults import ONE_KIND
from rankplan.plans.memory_settings import LARGEST_COUNT, MemorySettings, unfit
from rankplan.plans.shape import LARGEST
from rankplan.read.record import Field, Record, one_of
from rankplan.read.simple import model_of, size_in, switch, whole_number, word
from rankplan.read.text.invalid import EXPECTED, THIS, Invalid, invalid, unlike
from rankplan.words import must_be
from rankplan.words import whole_number as as_whole

_MODEL = {"type": "string", "examples": ["Qwen/Qwen3-8B", "/models/mine/config.json"]}
_CACHE = {"type": ["string", "integer"], "examples": ["20 GiB"]}
_RESIDENT = {"type": ["string", "integer", "object"], "examples": ["17 GiB", {"8": "17 GiB", "16": "9 GiB"}]}


def _number(*, above: float | None = None, least: float | None = None, most: float) -> Callable[[Any], float]:
    """Return the function that reads a number in these bounds, which may be a text: YAML 1.1 reads 7e9 as one."""

    def read(value: Any) -> float:
        if isinstance(value, bool) or (isinstance(value, str) and not _is_number(value)):
            raise invalid(unlike(THIS, value, "a number", "write a number"))
        if not isinstance(value, (int, float, str)):
            raise invalid(must_be(THIS, value, *EXPECTED["float"]))
        try:
            number = float(value)
        except OverflowError:
            number = float("inf")
        if number - number != 0:
            raise invalid(must_be(THIS, value, "a number below 1e308", "write a number such as 1"))
        if above is not None and number <= above:
            raise invalid(must_be(THIS, value, f"more than {above}", f"use more than {above}"))
        if least is not None and number < least:
            raise invalid(must_be(THIS, value, f"{least} or more", f"use {least} or more"))
        if number > most:
            raise invalid(must_be(THIS, value, f"{most} or less", f"use {most} or less"))
        return number

    return read


def _is_number(text: str) -> bool:
    try:
        return "_" not in text and float(text) == float(text)
    except ValueError:
        return False


def _forward(value: Any) -> bool | str:
    if isinstance(value, bool):
        return value
    if value not in FRAMEWORKS:
        allowed = f"true, or one of {', '.join(FRAMEWORKS)}"
        raise invalid(must_be("`forward`", value, allowed, "write `forward: true`"))
    return str(value)


def _resident(value: Any) -> int | dict[int, int]:
    if not isinstance(value, Mapping):
        return size_in(value)
    sizes: dict[int, int] = {}
    for accelerators, size in value.items():
        count = as_whole(accelerators)
        if count is None or not 1 <= count <= MAX_PROCESSES:
            raise invalid(must_be(THIS, accelerators, "a number of accelerators", "write {8: 17 GiB, 16: 9 GiB}"))
        sizes[count] = size_in(size)
    return sizes or size_in(None)


def _words(key: str, allowed: tuple[str, ...], description: str, default: str | None = None) -> Field:
    if default is None:
        return Field(word(key, allowed), description, one_of(allowed), optional=True)
    return Field(word(key, allowed), description, one_of(allowed, default=default))


_COUNT = {"type": "integer", "minimum": 1, "maximum": LARGEST_COUNT}
_read_count = whole_number(1, LARGEST_COUNT)


def _count(description: str) -> Field:
    return Field(_read_count, description, _COUNT, optional=True)


def _switch(description: str) -> Field:
    return Field(switch, description, {"type": "boolean", "default": False})


def _known_switch(description: str) -> Field:
    """Return the field of a switch whose default is unknown."""
    return Field(switch, description, {"type": "boolean"}, optional=True)


def _read_keys(value: Any) -> str:
    """Return a text that is not empty."""
    if not isinstance(value, str) or not value:
        raise invalid(must_be(THIS, value, "a text", "write the keys of the trainer, with a comma between"))
    return value


MEMORY = Record(
    "MemoryEntry",
    "What a component keeps in memory, and what decides how much.",
    {
        "training": _words("training", FRAMEWORKS, "It trains, in this framework."),
        "forward": Field(
            _forward,
            "It only computes: a reference or a reward model; true, or its framework.",
            {"enum": [True, False, *FRAMEWORKS], "default": False},
        ),
        "engine": _words("engine", ENGINES, "It serves, with this engine."),
        "resident": Field(
            _resident,
            "Measured: what it keeps on each accelerator, also by the number of them.",
            _RESIDENT,
            optional=True,
        ),
        "model": Field(model_of, "Name of a model, or the path of its config.json.", _MODEL, optional=True),
        "params": Field(
            _number(above=0, most=LARGEST),
            "Number of parameters, in place of a model.",
            {"type": "number", "exclusiveMinimum": 0, "maximum": LARGEST},
            optional=True,
        ),
        "precision": _words(
            "precision", tuple(PRECISIONS), "Of the weights (trainers: bf16; engines: as in the checkpoint)."
        ),
        "undivided": _switch("Sizes that `parallel` leaves out are 1, as in a trainer, rather than unknown."),
        "sleep": _words(
            "sleep", SLEEP, "Where it goes while others have their turn: nowhere (none), to the host, or away."
        ),
        "length": _count("Tokens of the longest sequence."),
        "tokens": _count("The most tokens in a micro-batch, or an engine's step."),
        "target_tokens": _count(
            "Tokens that a micro-batch is filled up to, if a longer sequence may be one of its own."
        ),
        "unread": Field(
            _read_keys,
            "Keys of the trainer with small effects that are not counted: the bounds say nothing.",
            {"type": "string", "minLength": 1},
            optional=True,
        ),
        # trainers, and models that only compute
        "micro_batch": _count("Sequences in a micro-batch."),
        "optimizer_on_host": Field(
            _number(least=0, most=1),
            "Fraction of the optimizer (FSDP: of all states) that stays on the host.",
            {"type": "number", "minimum": 0, "maximum": 1, "default": 0.0},
        ),
        "shards": Field(
            whole_number(1, MAX_PROCESSES),
            "FSDP: slots that share the states, where `fsdp` of `parallel` does not tell.",
            {"type": "integer", "minimum": 1, "maximum": MAX_PROCESSES},
            optional=True,
        ),
        # trainers
        "trained_tokens": _count(
            "Tokens in a micro-batch with a backward pass, if those of a forward pass may be more."
        ),
        "optimizer_in_step": _switch("The optimizer is on the accelerator only while it updates the weights."),
        "gradients": _words("gradients", ("fp32", "bf16"), "Of the gradients."),
        "optimizer": _words("optimizer", OPTIMIZERS, "The optimizer.", "adam"),
        "distributed_optimizer": _known_switch("Megatron: data ranks divide the optimizer."),
        "sequence_parallel": _known_switch("Megatron: tensor groups divide norms too."),
        "recompute": _words("recompute", RECOMPUTE, "Activations that are computed again: none, selective, or full."),
        "whole_gradients": _switch("FSDP: gradients stay whole until the last micro-batch of a step."),
        "wide_logits": _switch("Megatron: logits have several copies of 32 bits."),
        "fused_logits": _switch("Logits are computed in chunks, and never whole."),
        "logits_in_place": _switch("FSDP: logits keep 16 bits, and their gradient replaces them."),
        "logits_chunk": _count("Tokens of a chunk of logits in 32 bits; the others keep 16."),
        "empties_cache": _switch("It empties its allocator before others have their turn."),
        "shares_process": _switch("It runs in one process with the components beside it that say so, too."),
        "zero_stage": Field(
            whole_number(0, 3), "DeepSpeed: its stage.", {"type": "integer", "minimum": 0, "maximum": 3}, optional=True
        ),
        "lora": _count("Rank of the adapters; the model itself is frozen."),
        "first_layers": _count("Layers of the first pipeline stage."),
        "last_layers": _count("Layers of the last pipeline stage."),
        "chunks": Field(_read_count, "Model chunks of a pipeline rank (virtual stages).", {**_COUNT, "default": 1}),
        # engines
        "share": Field(
            _number(above=0, most=1),
            "Its share of an accelerator: gpu_memory_utilization, mem_fraction_static.",
            {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
            optional=True,
        ),
        "cache_precision": _words("cache_precision", tuple(PRECISIONS), "Of the cache.", "bf16"),
        "graphs": _known_switch("Whether it captures graphs (false: enforce_eager)."),
        "sequences": _count("The most requests at once."),
        "uncertain_wake": _switch("Its version decides whether it wakes up beside a sleeping trainer."),
        "usage": _words("usage", USAGES, "vLLM: built as LLM, server or AsyncLLM, which decides its usual steps."),
        "cache_size": Field(
            size_in, "vLLM: its cache, whatever its share: kv_cache_memory_bytes.", _CACHE, optional=True
        ),
    },
)


def read_memory(stated: Any) -> MemorySettings:
    """Return what a component keeps in memory. Raises `Invalid`."""
    if not isinstance(stated, Mapping):
        help = f"write `memory_binding: {stated}`" if stated in MEMORY_POLICIES else ONE_KIND
        raise invalid(must_be("`memory`", stated, "a mapping", help))
    values = MEMORY.read(stated)
    settings = MemorySettings(**values)
    for path, fault in unfit(values, settings):
        raise Invalid([(path, fault)])
    return settings
