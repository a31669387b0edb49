"""The parallel sizes of the roles that verl trains or computes, with a process per accelerator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from rankplan import Parallel
from rankplan.sdk import Config, Key, Sizes
from rankplan.trainers.verl import keys
from rankplan.trainers.verl.programs import chosen_engine, usual_engine

TRAINED = ("actor", "ref", "critic")
"""The roles with a process per accelerator."""

_SECTIONS = {"megatron": "megatron", "torchtitan": "torchtitan", "veomni": "veomni", "mlite": "engine"}
"""The section of each engine that does not train with FSDP."""

_SIZES: dict[str, Mapping[str, Key[int | None]]] = {
    "megatron": keys.MEGATRON,
    "torchtitan": keys.TORCHTITAN,
    "veomni": keys.VEOMNI,
    "mlite": keys.MEGATRON_LITE,
}
"""The sizes in these sections."""


class Training(NamedTuple):
    """The engine of a role with a process per accelerator, and its parallel sizes."""

    engine: str
    sizes: Sizes


def read_training(config: Config, role: str, gpus: int, program_engine: str | None = None) -> Training:
    """Return the engine and the sizes of the role in a section, on so many accelerators.

    The reference model has the actor's unless its own are stated. ``program_engine`` is the engine of the program's own
    config.
    """
    sections = [role]
    if role.rpartition(".")[2] == "ref":
        sections.append(f"{role.removesuffix('ref')}actor")
    engine = _engine(config, sections, program_engine)
    for section in sections:
        sizes = _sizes(config.under(section), engine, gpus)
        if sizes.parallel.stated:
            return Training(engine, sizes)
    return Training(engine, Sizes(where=config.under(role).place))


def _engine(config: Config, sections: list[str], program_engine: str | None) -> str:
    """Return the engine that one of the sections of a role states, else that of the whole config.

    Keys of an engine's section exist only in a config of this engine: Hydra rejects others.
    """
    for section in sections:
        stated = config.under(section)[keys.STRATEGY] or chosen_engine(config, section)
        if stated:
            return stated
    usual = config[keys.MODEL_ENGINE] or program_engine or usual_engine(config)
    if usual:
        return str(usual)
    for engine, inner in _SECTIONS.items():
        if any(config.under(f"{section}.{inner}").section for section in sections):
            return engine
    return "fsdp"


def _sizes(role: Config, engine: str, gpus: int) -> Sizes:
    """Return the sizes that a section states for an engine."""
    if engine in _SECTIONS:
        section = role.inner(_SECTIONS[engine])
        sizes = section.parallel(_SIZES[engine])
        if engine != "veomni":
            return sizes
        sizes = replace(sizes, parallel=replace(sizes.parallel, etp=1))
        return _sharded(section, sizes, keys.VEOMNI_FSDP_SIZE, gpus)
    if engine == "fsdp_turbo":
        ulysses = _ulysses(role, keys.TURBO_ULYSSES, keys.FSDP_ULYSSES, keys.ULYSSES)
        return _sharded(role, ulysses, keys.TURBO_SIZE, gpus)
    return _sharded(role, _ulysses(role, keys.FSDP_ULYSSES, keys.ULYSSES), keys.FSDP_SIZE, gpus)


def _ulysses(role: Config, *places: Key[int]) -> Sizes:
    """Return the sequence size, which is at the first of these keys with a value."""
    key = next(filter(role.stated, places), places[-1])
    size = role[key]
    if size == 1:
        return Sizes(where=role.place)
    return Sizes(Parallel(cp=size), role.place, {"cp": role.where(key)}, {"cp": role.path(key)})


def _sharded(section: Config, sizes: Sizes, key: Key[int], gpus: int) -> Sizes:
    """Return sizes with the shard groups of FSDP: so many consecutive accelerators, all of them below 1.

    Follows verl's ``create_device_mesh``.
    """
    size = section[key]
    context = sizes.parallel.cp
    if not 0 < size < gpus or size % context:
        return sizes
    return replace(
        sizes,
        parallel=replace(sizes.parallel, fsdp=size // context),
        places={**sizes.places, "fsdp": section.where(key)},
        keys={**sizes.keys, "fsdp": section.path(key)},
    )
