"""What the dialects share: configs read key by key, and parallel sizes."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from typing import Any, ClassVar, Self

from rankplan.config.section import Config
from rankplan.config.text.document import plain_scalar
from rankplan.config.text.faults import KeyPath
from rankplan.config.text.load import load_config
from rankplan.config.text.reader import Reader, not_a_mapping
from rankplan.errors import Diagnostic, PlacementError
from rankplan.nodes.inventory import Inventory
from rankplan.parallel import NO_SIZES, ORDER, Parallel
from rankplan.words import misspelt, shown


class KeyReader(Reader):
    """A config that is read key by key.

    Raises `PlacementError` if the config is not a mapping, ``OSError`` if its file cannot be read.
    """

    def __init__(self, config: Config) -> None:
        content = load_config(config) if isinstance(config, (str, os.PathLike)) else config
        if not isinstance(content, Mapping):
            raise PlacementError([not_a_mapping("the config", content, "write keys and values")])
        super().__init__(content)

    @classmethod
    def of(cls, config: Config | KeyReader) -> Self:
        """Return a config that is already read, else read it."""
        return config if isinstance(config, cls) else cls(config)  # type: ignore[arg-type]  # of no other dialect

    def for_inventory(self, inventory: Inventory) -> Self:
        """Return a reader for one plan. Raises `PlacementError` for a faulty config, or nodes without accelerators."""
        reading = self.fork()
        if reading.faults or reading.lacks_accelerators(inventory, ()):
            raise reading.refusal()
        return reading

    def reject_misspelt(self, key: str, known: Collection[str], path: KeyPath) -> bool:
        """Record a fault if a key looks like a typo of one of these, and return whether it does."""
        if (near := misspelt(key, known)) is None:
            return False
        self.add(path, Diagnostic("unknown-key", f"unknown key `{path[-1]}`", f"did you mean `{near}`?"))
        return True

    def assumed(self, num_nodes: int, accelerators: int) -> Inventory:
        """Return an inventory of this size; raises `PlacementError` with every fault if it is too large."""
        try:
            return Inventory.uniform(num_nodes, accelerators)
        except PlacementError as error:
            self.add_all((), error)
            raise self.refusal() from None

    def lacks_accelerators(self, inventory: Inventory, path: KeyPath) -> bool:
        """Record a fault if no node has an accelerator, and return whether that is so."""
        if inventory.core.accelerators():
            return False
        help = "use nodes with accelerators; --nodes 2x8 means two nodes with eight each"
        self.add(path, Diagnostic("no-resources", "the cluster has no accelerators", help))
        return True


_SELECTION = re.compile(r"\$\{(?:oc\.select:)?([A-Za-z_][\w.]*)(?:,([^{}]*))?\}")
_DEEPEST = 20
_LARGEST = 2**20
"""The largest size: more is a typo, and would fill the memory before a check could say so."""


class SizeReader(KeyReader):
    """A config of nested sections, with sizes at paths in it.

    ``known`` has the keys of each section that matter; a typo of one, or of the name of such a section, is a fault. An
    interpolation of another value of the config (``${trainer.nnodes}``, ``${oc.select:trainer.nnodes,1}``) is resolved.
    """

    known: ClassVar[Mapping[KeyPath, Collection[str]]] = {}

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        known: dict[KeyPath, set[str]] = {}
        for path, keys in self.known.items():
            known.setdefault(path, set()).update(keys)
            for depth, name in enumerate(path):
                known.setdefault(path[:depth], set()).add(str(name))
        for path, names in known.items():
            for key in self.section(path):
                if key not in names:
                    self.reject_misspelt(str(key), sorted(names), (*path, str(key)))

    def section(self, path: KeyPath) -> Mapping[Any, Any]:
        """Return the mapping at a path, empty if it is missing; a value of another type is a fault, recorded once."""
        here: Mapping[Any, Any] = self.content
        for depth, key in enumerate(path):
            before = len(self.faults)
            here = self.mapping(here, key, path[:depth])
            if len(self.faults) > before and self.faults[-1] in self.faults[:before]:
                self.faults.pop()
                self._positions.pop()
        return here

    def at(self, path: KeyPath) -> Any:
        """Return the value at a path, ``None`` if it is missing."""
        return self._resolved(self.value(self.section(path[:-1]), path[-1], path[:-1]))

    def _resolved(self, value: Any, depth: int = 0) -> Any:
        found = _SELECTION.fullmatch(value) if isinstance(value, str) else None
        if found is None or depth > _DEEPEST:
            return value
        here: Any = self.content
        for key in found[1].split("."):
            here = here.get(key) if isinstance(here, Mapping) else None
        if here is None:
            return plain_scalar(found[2].strip()) if found[2] is not None else value
        return self._resolved(here, depth + 1)

    def size(self, path: KeyPath, default: int, least: int = 1) -> int:
        """Return the number at a path; the default if it is missing or invalid, which is recorded."""
        value = self.at(path)
        number = default if value is None else self.number(value, path, least)
        if number is not None and number > _LARGEST:
            message = f"`{path[-1]}` is {shown(value)}; it must be {_LARGEST:,} or less"
            self.add_in_config(path, Diagnostic("invalid-value", message, f"use {_LARGEST:,} or less"))
            return default
        return default if number is None else number

    def assumed(self, num_nodes: int, accelerators: int) -> Inventory:
        """Return an inventory of this size; raises `PlacementError` with every fault if it is too large."""
        if num_nodes * accelerators > 2 * _LARGEST:
            message = (
                f"the config needs {num_nodes * accelerators:,} accelerators; at most {2 * _LARGEST:,} can be planned"
            )
            self.add((), Diagnostic("too-many-processes", message, "use fewer nodes, or fewer accelerators per node"))
            raise self.refusal()
        return super().assumed(num_nodes, accelerators)

    def switch(self, path: KeyPath, default: bool = False) -> bool:
        """Return the boolean at a path; the default if it is missing or invalid, which is recorded."""
        value = self.at(path)
        if isinstance(value, bool) or value is None:
            return default if value is None else value
        message = f"`{path[-1]}` is {shown(value)}; it must be true or false"
        self.add_in_config(path, Diagnostic("invalid-value", message, "write true or false"))
        return default

    def sizes(self, path: KeyPath, keys: Mapping[str, Collection[str]], order: str = ORDER) -> Parallel:
        """Return the parallel sizes in a section; none if any is invalid, which is recorded."""
        section = {key: self._resolved(value) for key, value in self.section(path).items()}
        return sizes_in(self, section, keys, path, order) or NO_SIZES


MEGATRON = {
    "tp": ("tensor_model_parallel_size",),
    "cp": ("context_parallel_size",),
    "ep": ("expert_model_parallel_size",),
    "etp": ("expert_tensor_parallel_size",),
    "pp": ("pipeline_model_parallel_size",),
}
"""Megatron's keys of parallel sizes."""


def sizes_in(
    reader: KeyReader,
    mapping: Mapping[Any, Any],
    keys: Mapping[str, Collection[str]],
    path: KeyPath,
    order: str = ORDER,
) -> Parallel | None:
    """Return the parallel sizes in a mapping; ``keys`` are the keys of each. Record faults and return ``None``.

    As in Megatron, experts are divided like other tensors unless an expert-tensor size is given.
    """
    sizes: dict[str, int] = {}
    before = len(reader.faults)
    for name, names in keys.items():
        for key in names:
            if (value := reader.value(mapping, key, path)) is not None:
                sizes[name] = reader.number(value, (*path, key), 1) or 1
    if len(reader.faults) > before:
        return None
    if sizes.get("ep", 1) > 1:
        sizes.setdefault("etp", sizes.get("tp", 1))
    return Parallel(**sizes, order=order)
