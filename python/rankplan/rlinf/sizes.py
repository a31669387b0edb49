"""The parallel sizes of RLinf's roles, from their sections of a config, and whether they divide the accelerators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from rankplan.errors import Diagnostic, KeyPath
from rankplan.frozen import frozen
from rankplan.parallel import ENGINE_ORDER, MEGATRON, NO_SIZES, ORDER, Parallel
from rankplan.plans.rules import component_names
from rankplan.read.section import Reading
from rankplan.read.text.reader import Reader, misspelt_key
from rankplan.read.text.sizes import Sizes
from rankplan.rlinf import faults
from rankplan.words import counted, misspelt, path_text

TRAINING = {name: keys[0] for name, keys in MEGATRON.items()}
"""Keys of a model that is trained."""

FORWARD = {"tp": TRAINING["tp"], "pp": TRAINING["pp"]}
"""Keys of a model that only computes log probabilities or values."""

ENGINE = {"tp": "tensor_parallel_size", "pp": "pipeline_parallel_size"}
"""Keys of an inference engine."""

_KEYS = {*TRAINING.values(), *ENGINE.values()}

_WORDS = {"tp": "tensor", "cp": "context", "pp": "pipeline", "ep": "expert", "etp": "expert-tensor"}


@frozen(slots=False)
class RoleSizes:
    """The sizes of a role and the keys that they come from."""

    parallel: Parallel = field(default_factory=Parallel)
    paths: Mapping[str, KeyPath] = field(default_factory=dict)

    @property
    def dense(self) -> int:
        """Accelerators of a replica of the model without its experts."""
        return self.parallel.dense

    def undivided(self, what: str, count: int) -> tuple[KeyPath | None, Diagnostic] | None:
        """Return the fault of a kind of replica whose size does not divide ``count`` accelerators.

        Its path is that of the size that breaks.
        """
        name = self.parallel.breaking(count)
        if name is None:
            return None
        names, product = ("tp", "cp", "pp"), self.dense
        if count % product == 0:
            names, product = ("etp", "ep", "pp"), self.parallel.expert
        has, sizes = counted(count, "accelerator"), self.text(*names)
        message = f"{what} has {has}, which is not a multiple of {product} ({sizes})"
        if names[0] == "etp" and "etp" not in self.paths:
            message += "; the expert-tensor size is the tensor size unless it is given, as in Megatron"
            name = "ep" if name == "etp" else name
        size = getattr(self.parallel, name)
        fitting = _nearest(count, size, product // size)
        help = f"set the {_WORDS[name]} size to {fitting}, or " if fitting else ""
        below = count // product * product
        help += f"use {' or '.join(f'{value:,}' for value in (below, below + product) if value)} accelerators"
        return self.paths.get(name), Diagnostic("parallel-not-divisible", message, help)

    def text(self, *names: str) -> str:
        """Return the sizes above 1 among these as messages show them: ``tensor 4 x pipeline 2``."""
        shown = [f"{_WORDS[name]} {value}" for name in names if (value := getattr(self.parallel, name)) > 1]
        return " x ".join(shown) or f"{_WORDS[names[0]]} 1"


def _nearest(count: int, size: int, others: int) -> str:
    """Return the nearest sizes below and above this one that divide the accelerators together with the others."""
    if count % others:
        return ""
    rest = count // others
    below = next((value for value in range(min(size - 1, rest), 0, -1) if rest % value == 0), None)
    above = next((value for value in range(size + 1, min(2 * size, rest) + 1) if rest % value == 0), None)
    return " or ".join(str(value) for value in (below, above) if value)


def states(reader: Reader, path: KeyPath) -> bool:
    """Return whether the config has a value at a path."""
    return reader.value(reader.section_at(path[:-1]), path[-1], path[:-1]) is not None


def sizes_at(reader: Reader, path: KeyPath, keys: Mapping[str, str], **defaults: int) -> RoleSizes | None:
    """Return the sizes in the mapping at a path of the config, ``None`` if it is missing. A size defaults to 1.

    An expert-tensor size defaults to the tensor size, as in Megatron, if there is an expert size.
    """
    if not states(reader, path):
        return None
    mapping = reader.section_at(path)
    found: dict[str, Any] = dict(defaults)
    paths: dict[str, KeyPath] = {}
    for name, key in keys.items():
        if key in mapping.keys():  # noqa: SIM118  # `in` is false for an OmegaConf key whose value is ???
            before, paths[name] = len(reader.faults), (*path, key)
            value = reader.value(mapping, key, path)
            if len(reader.faults) == before:
                found[name] = reader.number(value, paths[name], 1) or 1
    for key in map(str, mapping):
        if key not in _KEYS and (near := misspelt(key, keys.values())) is not None:
            reader.add_once((*path, key), misspelt_key(key, near))  # two roles may have one section
    if "ep" in paths:
        found.setdefault("etp", found.get("tp", 1))
    return RoleSizes(Parallel(**found, order=ENGINE_ORDER if keys is ENGINE else ORDER), paths)


def located(reader: Reader, parallel: Parallel, path: KeyPath, keys: Mapping[str, str]) -> Sizes:
    """Return the sizes of a component at the place of their section, with the path that each has there."""
    return Sizes(parallel, reader.where(path), keys={kind: (*path, key) for kind, key in keys.items()}, path=path)


def stated_sizes(reading: Reading, path: KeyPath, keys: Mapping[str, str]) -> Parallel | None:
    """Return the sizes at a path of the config, ``None`` if none is stated there."""
    probe = reading.fork()  # sections belong to the trainer: only sizes can have faults
    if all(probe.value(probe.section_at(path), key, path) is None for key in keys.values()):
        return None
    before = len(reading.faults)
    sizes = sizes_at(reading, path, keys)
    return None if sizes is None or len(reading.faults) > before else sizes.parallel


def reject_conflicts(reading: Reading) -> None:
    """Record entries of ``component_placement`` whose ``parallel`` contradicts the sections of their components."""
    for key, entry in reading.section.component_placement.items():
        stated = NO_SIZES if entry.parallel is None else entry.parallel.value()
        for name in component_names(key) if stated.stated else ():
            for path, keys in (((name, "model"), TRAINING), ((name,), ENGINE)):
                probe = reading.fork()  # their own faults are recorded elsewhere
                sizes = sizes_at(probe, path, keys)
                if sizes is None or len(probe.faults) > len(reading.faults):
                    continue
                for kind, place in sizes.paths.items():
                    here, there = getattr(stated, kind), getattr(sizes.parallel, kind)
                    if here != there:
                        fault = faults.different_sizes(name, kind, here, path_text(place), there)
                        reading.add(("component_placement", key, "parallel"), fault)


def missing_section(path: KeyPath, role: str, config: Mapping[Any, Any] | None) -> Diagnostic:
    """Return the fault of a role without its section."""
    message = f"`{path_text(path)}` is missing: the sizes of `{role}` are unknown"
    if config is None:
        help = "pass the whole config, not only its `cluster` section"
    elif "defaults" in config:
        from rankplan.read.text.hydra import compose

        help = compose(config)
    else:
        help = f"add `{path_text(path)}:`; a size that it leaves out is 1"
    return Diagnostic("missing-key", message, help)
