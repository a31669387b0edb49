"""The sizes of verl's engines and of its training."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from rankplan.dialects.placing.engines import Engine, engine_sizes
from rankplan.errors import Diagnostic, KeyPath
from rankplan.parallel import MEGATRON, NO_SIZES, Parallel
from rankplan.read.text.overrides import CHOICES
from rankplan.read.text.reader import Reader

KEYS = {"tp": "tensor_model_parallel_size", "dp": "data_parallel_size", "pp": "pipeline_model_parallel_size"}
"""The keys of an engine's sizes."""
ENGINE_SECTIONS = {"rollout": "rollout", "reward": "rollout", "teacher": "inference"}
"""The workers of verl's draft that are engines, and the section of their sizes inside their ``config_key``."""
CONFIG_NAME: KeyPath = ("hydra", "job", "config_name")
"""The config that the command line chooses: its defaults are Megatron's, or those of an asynchronous trainer."""

_FSDP = ("ppo_trainer", "fully_async_ppo_trainer", "one_step_off_ppo_trainer")
"""verl's own configs with FSDP."""
OWN_CONFIGS = {*_FSDP, *(name.replace("trainer", "megatron_trainer") for name in _FSDP)}
"""The configs of verl itself, whose defaults are known."""
_TENSOR = 2
"""verl's ``RolloutConfig.tensor_model_parallel_size``."""
_NAMES = {"tp": "tensor", "cp": "context", "ep": "expert", "pp": "pipeline"}
_ULYSSES = "ulysses_sequence_parallel_size"
_TURBO = ("fsdp_config", "turbo_config", "distributed")

_SECTIONS: dict[str, tuple[str, Mapping[str, Collection[str]]]] = {
    "megatron": ("megatron", MEGATRON),
    "torchtitan": ("torchtitan", {kind: (f"{name}_parallel_size",) for kind, name in _NAMES.items()}),
    "veomni": ("veomni", {"cp": ("ulysses_parallel_size",), "ep": ("expert_parallel_size",)}),
    "mlite": ("engine", {kind: (kind,) for kind in MEGATRON}),
}
"""The section of each engine that does not train with FSDP, and the keys of its sizes."""


def engine_at(reader: Reader, path: KeyPath) -> Engine:
    """Return the engine that the sizes in a section make; a tensor size that is not given is 2, as in verl.

    Follows verl's ``LLMServerManager._initialize_llm_servers``.
    """
    sizes = {name: reader.size((*path, key), _TENSOR if name == "tp" else 1) for name, key in KEYS.items()}
    tp, dp, pp = sizes.values()
    total = tp * dp * pp
    if reader.switch((*path, "disaggregation", "enabled")):
        return _disaggregated(reader, (*path, "disaggregation"), tp)
    given = {name: (*path, key) for name, key in KEYS.items() if reader.at((*path, key)) is not None}
    reader.size_keys[path] = given
    reader.size_names[path] = {name: (*path, key) for name, key in KEYS.items()}
    keys = " x ".join(f"{KEYS[name]} {size}" for name, size in sizes.items() if size > 1 or name == "tp")
    if "tp" not in given:
        keys = keys.replace(f"{KEYS['tp']} {tp}", f"verl's default {KEYS['tp']} {tp}; the file does not set it")
    largest = max(sizes, key=lambda name: (sizes[name], name == "tp"))
    experts = reader.size((*path, "expert_parallel_size"), 1)
    if experts not in (1, tp * dp) and reader.at((*path, "name")) != "trtllm":
        message = f"`expert_parallel_size` is {experts}; verl accepts 1, or tensor size x data size, which is {tp * dp}"
        fault = Diagnostic("invalid-value", message, f"use 1 or {tp * dp}")
        reader.add_once((*path, "expert_parallel_size"), fault)
    parallel = engine_sizes(tp, pp, experts if experts == tp * dp else 1)
    return Engine(total, keys, parallel, (*path, KEYS[largest]), path)


def _disaggregated(reader: Reader, path: KeyPath, tp: int) -> Engine:
    """Return an engine with other processes for the prefill."""
    replicas = reader.size((*path, "decode_replicas"), 1)
    decode = replicas * reader.size((*path, "decode_tensor_model_parallel_size"), tp)
    prefill = reader.size((*path, "prefill_replicas"), 1)
    keys = f"prefill {prefill} x {tp} + decode {decode}"
    return Engine(prefill * tp + decode, keys, NO_SIZES, path, path)


def training_at(reader: Reader, role: KeyPath, world: int, default: str | None) -> tuple[Parallel, KeyPath]:
    """Return the parallel sizes of a training role with ``world`` accelerators, and the path of its sizes.

    The reference model has the actor's sizes unless its own are given. ``default`` is the engine of the program's own
    config.
    """
    engine = engine_name(reader, role, default)
    for path in _sources(role):
        parallel, where = _training(reader, path, engine, world)
        if parallel.stated:
            return parallel, where
    return NO_SIZES, role


def engine_name(reader: Reader, role: KeyPath, default: str | None) -> str:
    """Return the engine of a training role; ``default`` is that of the program's own config."""
    paths = _sources(role)
    own = next(filter(None, (engine_of(reader, path) for path in paths)), None)
    return own or str(reader.at(("model_engine",)) or default or _own_engine(reader, paths))


def _sources(role: KeyPath) -> list[KeyPath]:
    """Return the sections with the sizes of a role: the reference model takes the actor's, unless it has its own."""
    return [role, (*role[:-1], "actor")] if role[-1] == "ref" else [role]


def engine_of(reader: Reader, role: KeyPath) -> str | None:
    """Return the engine that a role states: its strategy, or the file that the command line chooses for it."""
    group = f"{role[-1]}@{'.'.join(map(str, role))}"
    if strategy := reader.at((*role, "strategy")):
        return str(strategy)
    return str(reader.at((*CHOICES, group)) or "").removesuffix(f"_{role[-1]}") or None


def _own_engine(reader: Reader, roles: list[KeyPath]) -> str:
    """Return the engine of a config whose defaults are not read.

    Keys of an engine's section exist only in a config of this engine: Hydra rejects others. verl's own configs say it
    in their names.
    """
    name = str(reader.at(CONFIG_NAME) or "").removesuffix(".yaml")
    if "megatron" in name:
        return "megatron"
    if name in _FSDP or (not name and reader.program.startswith("verl.")):
        return "fsdp"
    sections = [engine for engine, (key, _) in _SECTIONS.items() for role in roles if reader.section_at((*role, key))]
    return next(iter(sections), "fsdp")


def _training(reader: Reader, role: KeyPath, engine: str, world: int) -> tuple[Parallel, KeyPath]:
    if engine in _SECTIONS:
        section, keys = _SECTIONS[engine]
        where: KeyPath = (*role, section)
        sizes = reader.sizes(where, keys)
        if engine != "veomni":
            return sizes, where
        return _sharded(reader, replace(sizes, etp=1), (*where, "fsdp_size"), where, world), where
    ulysses: list[KeyPath] = [(*role, "fsdp_config", _ULYSSES), (*role, _ULYSSES)]
    shards: KeyPath = (*role, "fsdp_config", "fsdp_size")
    if engine == "fsdp_turbo":
        ulysses.insert(0, (*role, *_TURBO, "ulysses_parallel_size"))
        shards = (*role, *_TURBO, "fully_shard_parallel_size")
    path = next((path for path in ulysses if reader.at(path) is not None), ulysses[-1])
    size = reader.size(path, 1)
    reader.size_keys[role] = {"cp": path} if size > 1 else {}
    return _sharded(reader, Parallel(cp=size) if size > 1 else NO_SIZES, shards, role, world), role


def _sharded(reader: Reader, sizes: Parallel, path: KeyPath, where: KeyPath, world: int) -> Parallel:
    """Return sizes with the shard groups of FSDP: ``fsdp_size`` consecutive accelerators, all of them below 1.

    Follows verl's ``create_device_mesh``.
    """
    value = reader.at(path)
    size = reader.size(path, -1, -1) if value is not None else -1
    if not 0 < size < world or size % sizes.cp:
        return sizes
    reader.size_keys.setdefault(where, {})["fsdp"] = path
    return replace(sizes, fsdp=size // sizes.cp)
