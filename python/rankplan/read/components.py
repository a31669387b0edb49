"""From a config to components: what every dialect needs between its reader, an inventory and a plan."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import accumulate
from operator import mul
from typing import Any

from rankplan._core import MAX_NODES
from rankplan.errors import Diagnostic, Faults, PlacementError, Where
from rankplan.nodes.inventory import Inventory
from rankplan.parallel import SIZE
from rankplan.plans.component import Component
from rankplan.plans.memory_settings import MemorySettings
from rankplan.read.text.reader import LARGEST, Reader
from rankplan.read.text.sizes import Sizes

ASSUMED = 8
"""Accelerators per node if neither the config nor an inventory says how many."""


def lacks_accelerators(faults: Faults, inventory: Inventory, where: Where) -> bool:
    """Record a fault at a place if no node has an accelerator, and return whether that is so."""
    if inventory.core.accelerators():
        return False
    faults.add(where, _no_accelerators())
    return True


def assumed(reader: Reader, num_nodes: int, accelerators: int) -> Inventory:
    """Return an inventory of this size; raises `PlacementError` with every fault if it is too large."""
    reader, total = reader.fork(), num_nodes * accelerators
    if num_nodes <= MAX_NODES and total > 2 * LARGEST:
        reader.add((), _too_many_accelerators(total))
        raise reader.refusal()
    try:
        return Inventory.uniform(num_nodes, accelerators)
    except PlacementError as error:
        reader.add_all((), error)
        raise reader.refusal() from None


def _no_accelerators() -> Diagnostic:
    help = "use nodes with accelerators; --nodes 2x8 means two nodes with eight each"
    return Diagnostic("no-resources", "the cluster has no accelerators", help)


def _too_many_accelerators(total: int) -> Diagnostic:
    message = f"the config needs {total:,} accelerators; at most {2 * LARGEST:,} can be planned"
    return Diagnostic("too-many-processes", message, "use fewer nodes, or fewer accelerators per node")


def sized(component: Component, sizes: Sizes, faults: Faults) -> Component:
    """Return a component with parallel sizes; it is a fault if they do not fit.

    The fault is at the size that breaks: the first by which the number of slots cannot be divided further.
    """
    try:
        return component.with_settings(parallel=sizes.parallel)
    except PlacementError as error:
        for found in error.diagnostics:
            stated = [(kind, int(size)) for kind, size in re.findall(SIZE, found.message) if size]
            products = accumulate((size for _, size in stated), mul)
            breaks = next((index for index, each in enumerate(products) if component.slots % each), 0)
            kinds = [kind for kind, _ in (*stated[breaks:], *stated[:breaks])]
            if "etp" in kinds and "etp" not in sizes.places and "tp" in sizes.places:
                found = replace(found, message=f"{found.message}; etp is tp unless it is given, as in Megatron")
            faults.add(sizes.place(kinds), found)
        return component


def with_memory(
    component: Component, read: Callable[[str, Mapping[str, Any]], MemorySettings | None], facts: Mapping[str, Any]
) -> Component:
    """Return a component with the memory that a config tells, unless it has one.

    ``read`` gets its name, and what its plan and its dialect know of it: ``facts``, and its slots and context ranks.
    """
    if component.memory is not None:
        return component
    memory = read(component.name, _KnownFacts(component, facts))
    return component if memory is None else component.with_settings(memory=memory)


class _KnownFacts(Mapping[str, Any]):
    """What a plan and a dialect know of a component. Its slots are counted only if they are read."""

    def __init__(self, component: Component, of_dialect: Mapping[str, Any]) -> None:
        self._component = component
        self._of_dialect = of_dialect

    def __getitem__(self, name: str) -> Any:
        if name in self._of_dialect:
            return self._of_dialect[name]
        if name == "slots":
            return self._component.slots
        if name == "cp":
            return self._component.parallel.cp
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter({"slots": None, "cp": None, **self._of_dialect})

    def __len__(self) -> int:
        return len(set(self))
