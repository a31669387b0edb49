"""What the dialects share: a config that is read key by key, and its faults with their places."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from typing import Any

from rankplan._core import Placements
from rankplan.config.faults import RESOLVE, KeyPath, unresolved
from rankplan.config.load import load_config, placed
from rankplan.config.models import ACCELERATOR, WHOLE_NODE, as_int
from rankplan.config.section import Config, not_a_mapping, unreadable
from rankplan.errors import Diagnostic, PlacementError, refusal
from rankplan.inventory import Inventory
from rankplan.words import nearest, shown

ASSUMED = 8
"""Accelerators a node where neither the config nor anybody else says how many."""


class Reader:
    """A config, the faults that were found in it, and the way from a path in it to a place in its file.

    Raises `PlacementError` when the config is no mapping, ``OSError`` when its file cannot be read.
    """

    def __init__(self, config: Config) -> None:
        self.config: Any = load_config(config) if isinstance(config, (str, os.PathLike)) else config
        self.faults: list[Diagnostic] = []
        if not isinstance(self.config, Mapping):
            raise PlacementError([not_a_mapping("the config", self.config, "write keys and values")])

    def add(self, path: KeyPath, diagnostic: Diagnostic) -> None:
        """Take note of a fault."""
        self.faults.append(placed(self.config, path, diagnostic))

    def add_all(self, path: KeyPath, error: PlacementError) -> None:
        """Take note of everything that something else found in the value at a path."""
        for diagnostic in error.diagnostics:
            self.add(path, diagnostic)

    def finish(self) -> None:
        """Raise `PlacementError` with every fault, in the order of the file; do nothing without any."""
        if self.faults:
            raise refusal(sorted(self.faults, key=lambda fault: (fault.line or 0, fault.column or 0)))

    def value(self, mapping: Mapping[Any, Any], key: Any, path: KeyPath) -> Any:
        """Return a value, or ``None`` where there is none; one that its config library cannot give is a fault."""
        try:
            keys = mapping.keys()  # OmegaConf has a key whose value is ???, and denies it when it is asked itself
            return mapping[key] if key in keys else None
        except Exception as error:
            self.add((*path, str(key)), unreadable(key, error))
            return None

    def mapping(self, mapping: Mapping[Any, Any], key: Any, path: KeyPath) -> Mapping[Any, Any]:
        """Return a mapping, empty where there is none; one that is no mapping is a fault."""
        value = self.value(mapping, key, path)
        if value is None or isinstance(value, Mapping):
            return value or {}
        help = RESOLVE if unresolved(value) else "write keys and values"
        self.add((*path, str(key)), not_a_mapping(f"`{key}`", value, help))
        return {}

    def number(self, value: Any, path: KeyPath, least: int) -> int | None:
        """Return a whole number, or ``None`` after it was taken note of that it is none, or too small."""
        number = as_int(value)
        if number is None or number < least:
            message = f"`{path[-1]}` is {shown(value)}; it must be a whole number of {least} or more"
            help = RESOLVE if unresolved(value) else f"write a number such as {max(least, 1)}"
            if isinstance(value, str) and re.fullmatch("[0-9]{1,20}", value):
                help = "write it without quotes"
            self.add(path, Diagnostic("invalid-value", message, help))
            return None
        return number

    def refuse_misspelt(self, key: str, known: Collection[str], path: KeyPath, what: str) -> bool:
        """Take note of a key that is nearly one of those known and not given, and return whether it is."""
        if (near := misspelt(key, known)) is None:
            return False
        fault = Diagnostic("unknown-key", f"`{path[-1]}` is not one of {what}", f"did you mean `{near}`?")
        self.add(path, fault)
        return True

    def assumed(self, num_nodes: int, accelerators: int) -> Inventory:
        """Return an inventory of this size; raises `PlacementError` with every fault when there is none so large."""
        try:
            return Inventory.uniform(num_nodes, accelerators)
        except PlacementError as error:
            self.add_all((), error)
            raise refusal(self.faults) from None

    def lacks_accelerators(self, inventory: Inventory, path: KeyPath) -> bool:
        """Return whether no node has an accelerator, and take note of it then."""
        if inventory.core.accelerators():
            return False
        help = "use nodes that have some; --nodes 2x8 is two nodes with eight each"
        self.add(path, Diagnostic("no-resources", "the cluster has no accelerators", help))
        return True


def misspelt(key: str, known: Collection[str]) -> str | None:
    """Return the known key that this is a slip of the finger of; what is less alike may be a trainer's own."""
    # By the length alone first, in a tenth of the time: most keys of a config have nothing to do with these.
    alike = [name for name in known if min(len(key), len(name)) > 0.8 * max(len(key), len(name))]
    return nearest(key, alike, 0.9) if alike else None


def resource_lists(inventory: Inventory, rows: Placements) -> list[list[int]]:
    """Return the resources of each process: accelerators counted node by node over the cluster, or its node.

    Raises ``ValueError`` for processes with anything else, a robot say.
    """
    kinds = {row.resource_type for row in rows}
    if kinds == {WHOLE_NODE}:
        return [[row.cluster_node_rank] for row in rows]
    if kinds != {ACCELERATOR}:
        raise ValueError(f"{' and '.join(sorted(kinds))} of a node group is not carried over")
    firsts = inventory.first_accelerators
    return [[firsts[node] + index for node, index in row.devices] for row in rows]
