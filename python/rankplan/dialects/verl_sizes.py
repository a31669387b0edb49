"""verl's keys of parallel sizes: of training by its engine (Megatron, FSDP, VeOmni, TorchTitan), and of inference."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rankplan.config.text.faults import KeyPath
from rankplan.config.text.reader import Reader
from rankplan.dialects.pools import engine_sizes
from rankplan.errors import Diagnostic
from rankplan.parallel import MEGATRON, NO_SIZES, Parallel

_TITAN = {
    "tp": ("tensor_parallel_size",),
    "cp": ("context_parallel_size",),
    "ep": ("expert_parallel_size",),
    "pp": ("pipeline_parallel_size",),
}
_VEOMNI = {"cp": ("ulysses_parallel_size",), "ep": ("expert_parallel_size",)}
_KEYS = {"tp": "tensor_model_parallel_size", "dp": "data_parallel_size", "pp": "pipeline_model_parallel_size"}


CONFIG_NAME: KeyPath = ("hydra", "job", "config_name")
"""The config that the command line chooses: its defaults are Megatron's, or those of an asynchronous trainer."""


@dataclass(frozen=True, slots=True)
class Engine:
    """An inference engine: its number of accelerators, the keys that give it, and its sizes.

    ``path`` is the path of the largest size, ``where`` that of the section.
    """

    size: int
    keys: str
    parallel: Parallel
    path: KeyPath
    where: KeyPath


def engine_at(reader: Reader, path: KeyPath) -> Engine:
    """Return the engine that the sizes in a section make; a tensor size that is not given is 2, as in verl."""
    sizes = {name: reader.size((*path, key), 2 if name == "tp" else 1) for name, key in _KEYS.items()}
    tp, dp, pp = sizes.values()
    experts = reader.size((*path, "expert_parallel_size"), 1)
    total = tp * dp * pp
    keys = " x ".join(f"{_KEYS[name]} {size}" for name, size in sizes.items() if size > 1 or name == "tp")
    largest = max(sizes, key=lambda name: (sizes[name], name == "tp"))
    if reader.switch((*path, "disaggregation", "enabled")):
        inner = (*path, "disaggregation")
        decode = reader.size((*inner, "decode_replicas"), 1) * reader.size(
            (*inner, "decode_tensor_model_parallel_size"), tp
        )
        prefill = reader.size((*inner, "prefill_replicas"), 1)
        keys = f"prefill {prefill} x {tp} + decode {decode}"
        return Engine(prefill * tp + decode, keys, NO_SIZES, inner, inner)
    if experts not in (1, tp * dp) and reader.at((*path, "name")) != "trtllm":
        message = f"`expert_parallel_size` is {experts}; verl accepts 1, or tensor size x data size, which is {tp * dp}"
        fault = Diagnostic("invalid-value", message, f"use 1 or {tp * dp}")
        reader.add_once((*path, "expert_parallel_size"), fault)
    parallel = engine_sizes(tp, pp, experts if experts == tp * dp else 1)
    return Engine(total, keys, parallel, (*path, _KEYS[largest]), path)


def training_at(reader: Reader, role: KeyPath, world: int) -> tuple[Parallel, KeyPath]:
    """Return the parallel sizes of a training role with ``world`` accelerators, and the path of its sizes.

    The reference model has the actor's sizes unless its own are given.
    """
    default = "megatron" if "megatron" in str(reader.at(CONFIG_NAME)) else "fsdp"
    engine = str(reader.at((*role, "strategy")) or reader.at(("model_engine",)) or default)
    if role[-1] == "ref" and reader.at((*role, "strategy")) is None:
        engine = str(reader.at((*role[:-1], "actor", "strategy")) or engine)
    paths = [role, (*role[:-1], "actor")] if role[-1] == "ref" else [role]
    for path in paths:
        parallel, where = _training(reader, path, engine, world)
        if parallel.stated:
            return parallel, where
    return NO_SIZES, role


def _training(reader: Reader, role: KeyPath, engine: str, world: int) -> tuple[Parallel, KeyPath]:
    if engine == "megatron":
        return reader.sizes((*role, "megatron"), MEGATRON), (*role, "megatron")
    if engine == "torchtitan":
        return reader.sizes((*role, "torchtitan"), _TITAN), (*role, "torchtitan")
    if engine == "veomni":
        where: KeyPath = (*role, "veomni")
        sizes = reader.sizes(where, _VEOMNI)
        return _sharded(reader, replace(sizes, etp=1), (*where, "fsdp_size"), world), where
    where = (*role, "fsdp_config")
    ulysses = reader.size((*role, "ulysses_sequence_parallel_size"), 1)
    ulysses = reader.size((*where, "ulysses_sequence_parallel_size"), ulysses)
    sizes = Parallel(cp=ulysses) if ulysses > 1 else NO_SIZES
    path: KeyPath = (*role, "ulysses_sequence_parallel_size") if ulysses > 1 else (*where, "fsdp_size")
    return _sharded(reader, sizes, (*where, "fsdp_size"), world), path


def _sharded(reader: Reader, sizes: Parallel, path: KeyPath, world: int) -> Parallel:
    """Return sizes with the shard groups of FSDP: ``fsdp_size`` consecutive accelerators, all of them below 1.

    Follows verl's ``create_device_mesh``.
    """
    value = reader.at(path)
    size = reader.size(path, -1, -1) if value is not None else -1
    if not 0 < size < world or size % sizes.cp:
        return sizes
    return replace(sizes, fsdp=size // sizes.cp)
