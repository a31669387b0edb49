"""The parallel sizes of RLinf's roles, from their sections of a config, and whether they divide the accelerators."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any, TypeAlias

from rankplan.dialects.keys.config import Config
from rankplan.dialects.keys.key import Key
from rankplan.errors import Diagnostic, KeyPath
from rankplan.frozen import frozen
from rankplan.parallel import Parallel
from rankplan.plans.rules import component_names
from rankplan.read.text.reader import misspelt_key, number_fault
from rankplan.read.text.sizes import Sizes
from rankplan.rlinf import faults
from rankplan.rlinf.keys import COMPONENTS, ENGINE, PARALLEL, TRAINING
from rankplan.rlinf.section import Section
from rankplan.words import as_int, counted, misspelt, path_text

SizeKeys: TypeAlias = Mapping[str, Key[int | None]]
"""The keys of parallel sizes, by kind."""

_NAMES = {key.name for key in (*TRAINING.values(), *ENGINE.values())}

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
        breaking = self.parallel.breaking(count)
        if breaking is None:
            return None
        breaks_dense = count % self.dense > 0
        kinds = ("tp", "cp", "pp") if breaks_dense else ("etp", "ep", "pp")
        replica = self.dense if breaks_dense else self.parallel.expert
        message = f"{what} has {counted(count, 'accelerator')}, which is not a multiple of {replica} "
        message += f"({self.text(*kinds)})"
        if not breaks_dense and "etp" not in self.paths:
            message += "; the expert-tensor size is the tensor size unless it is given, as in Megatron"
            breaking = "ep" if breaking == "etp" else breaking
        help = self._fitting_help(breaking, count, replica)
        return self.paths.get(breaking), Diagnostic("parallel-not-divisible", message, help)

    def _fitting_help(self, breaking: str, count: int, replica: int) -> str:
        """Return the help to change the size that breaks, or the number of accelerators."""
        size = getattr(self.parallel, breaking)
        sizes = _nearest(count, size, replica // size)
        change = f"set the {_WORDS[breaking]} size to {sizes}, or " if sizes else ""
        below = count // replica * replica
        numbers = [below, below + replica] if below else [replica]
        return f"{change}use {' or '.join(f'{number:,}' for number in numbers)} accelerators"

    def text(self, *names: str) -> str:
        """Return the sizes above 1 among these as messages show them: ``tensor 4 x pipeline 2``."""
        shown = [f"{_WORDS[name]} {value}" for name in names if (value := getattr(self.parallel, name)) > 1]
        return " x ".join(shown) or f"{_WORDS[names[0]]} 1"


def _nearest(count: int, size: int, others: int) -> str:
    """Return the nearest sizes below and above this one that divide the accelerators together with the others."""
    if count % others:
        return ""
    groups = count // others
    below = next((value for value in range(min(size - 1, groups), 0, -1) if groups % value == 0), None)
    above = next((value for value in range(size + 1, min(2 * size, groups) + 1) if groups % value == 0), None)
    return " or ".join(str(value) for value in (below, above) if value)


def sizes_at(section: Config, keys: SizeKeys, **defaults: int) -> RoleSizes | None:
    """Return the sizes in a section of the config, ``None`` if it is missing. A size defaults to 1.

    An expert-tensor size defaults to the tensor size, as in Megatron, if there is an expert size.
    """
    if not section.exists:
        return None
    sizes: dict[str, Any] = dict(defaults)
    paths: dict[str, KeyPath] = {}
    names = section.section.keys()
    for kind, key in keys.items():
        if key.name in names:
            path = paths[kind] = section.path_at(key.path)
            before = len(section.faults)
            value = section.at(path)
            if len(section.faults) == before:
                sizes[kind] = _size(section, value, path)
    for name in map(str, names):
        near = None if name in _NAMES else misspelt(name, [key.name for key in keys.values()])
        if near is not None:
            section.reject_once(
                (*section.section_path, name), misspelt_key(name, near)
            )  # two roles may have one section
    if "ep" in paths:
        sizes.setdefault("etp", sizes.get("tp", 1))
    return RoleSizes(Parallel(**sizes, order=Parallel.ENGINE_ORDER if keys is ENGINE else Parallel.ORDER), paths)


def _size(section: Config, value: Any, path: KeyPath) -> int:
    """Return a size, or 1 for an invalid one, which is recorded; a key without a value is invalid."""
    fault = number_fault(value, path, 1)
    if fault is None:
        return as_int(value) or 1
    section.reject(path, fault)
    return 1


def located(section: Config, parallel: Parallel, keys: SizeKeys) -> Sizes:
    """Return the sizes of a component at the place of their section, with the path that each has there."""
    paths = {kind: section.path_at(key.path) for kind, key in keys.items()}
    return Sizes(parallel, section.place, keys=paths, path=section.section_path)


def stated_sizes(section: Config, keys: SizeKeys) -> Parallel | None:
    """Return the sizes in a section of the config, ``None`` if none is stated there."""
    probe = section.fork()  # sections belong to the trainer: only sizes can have faults
    if all(probe.at(probe.path_at(key.path)) is None for key in keys.values()):
        return None
    before = len(section.faults)
    sizes = sizes_at(section, keys)
    return None if sizes is None or len(section.faults) > before else sizes.parallel


def reject_conflicts(section: Section) -> None:
    """Record entries of ``component_placement`` whose ``parallel`` contradicts the sections of their components."""
    for key, entry in section.entries.items():
        for name in component_names(key) if entry.parallel.stated else ():
            for own_section, keys in sections_of(section.config.fork(), name):  # faults are recorded elsewhere
                before = len(own_section.faults)
                sizes = sizes_at(own_section, keys)
                if sizes is not None and len(own_section.faults) == before:
                    for conflict in _conflicts(name, entry.parallel, sizes):
                        section.reject((COMPONENTS.name, key, PARALLEL.name), conflict)


def _conflicts(name: str, stated: Parallel, sizes: RoleSizes) -> Iterator[Diagnostic]:
    """Yield a fault for each size that differs from that of a component's own section."""
    for kind, path in sizes.paths.items():
        size, other = getattr(stated, kind), getattr(sizes.parallel, kind)
        if size != other:
            yield faults.different_sizes(name, kind, size, path_text(path), other)


def sections_of(config: Config, name: str) -> Iterator[tuple[Config, SizeKeys]]:
    """Yield the sections that may have the sizes of a component, with the keys of the sizes there."""
    yield config.under((name, "model")), TRAINING
    yield config.under((name,)), ENGINE


def missing_section(path: KeyPath, role: str, section: Section) -> Diagnostic:
    """Return the fault of a role without its section."""
    message = f"`{path_text(path)}` is missing: the sizes of `{role}` are unknown"
    if "defaults" in section.config.section:
        from rankplan.read.text.hydra import compose

        help = compose(section.config.section)
    else:
        help = f"add `{path_text(path)}:`; a size that it leaves out is 1"
    return Diagnostic("missing-key", message, help)
