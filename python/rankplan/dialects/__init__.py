"""The config dialects. Each plans into an ordinary `Plan`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from rankplan.config.text.faults import KeyPath
from rankplan.config.text.reader import Reader
from rankplan.dialects import areal, nemo_rl, openrlhf, roll, skyrl, slime, verl
from rankplan.dialects.keys import TABLES
from rankplan.dialects.rlinf import dialect as rlinf
from rankplan.errors import Diagnostic
from rankplan.nodes.inventory import Inventory
from rankplan.plans.plan import Plan
from rankplan.words import path_text


class Dialect(Protocol):
    """The functions of a dialect's module. A config that was read can be passed in place of the config."""

    def recognised(self, config: Mapping[Any, Any]) -> bool:
        """Return whether a config is written in this dialect, as far as its keys tell."""

    def read(self, config: Any) -> Reader:
        """Read and validate a config, once. Raises `PlacementError` if it is not a mapping."""

    def plan(self, config: Any, inventory: Inventory, *, isolate_accelerator: bool = True) -> Plan:
        """Return the plan of a config. Raises `PlacementError` with every fault."""

    def assumed_inventory(self, config: Any) -> Inventory:
        """Return the inventory that a config is probably meant for. Raises `PlacementError`."""


class Writing(Dialect, Protocol):
    """A dialect that can be written, too."""

    def written(self, planned: Plan) -> tuple[dict[str, Any], dict[str, str]]:
        """Return a config for the components that the dialect can express, and why it cannot express the others."""


WRITERS: dict[str, Writing] = {"rlinf": rlinf, "verl": verl, "slime": slime, "roll": roll}
"""Dialects that `convert` writes."""

DIALECTS: dict[str, Dialect] = {
    "nemo_rl": nemo_rl,
    "areal": areal,
    "skyrl": skyrl,
    **WRITERS,
    "openrlhf": openrlhf,
}
"""By name. The first one that recognises a config is used; the default is RLinf's."""


_TELLING = {"rlinf": [("cluster", "component_placement")]} | {name: table.alone for name, table in TABLES.items()}
"""Keys that only configs of one dialect have."""


def mixed(config: Mapping[Any, Any]) -> list[tuple[KeyPath, Diagnostic]]:
    """Return the faults of a config whose keys are of several dialects: each key of another one, with its path."""
    chosen = dialect_of(config)
    name = next(name for name, dialect in DIALECTS.items() if dialect is chosen)
    found: list[tuple[KeyPath, Diagnostic]] = []
    for other, paths in _TELLING.items():
        for path in paths if other != name else ():
            here: Any = config
            for key in path:
                here = here.get(key) if isinstance(here, Mapping) else None
            if here is not None:
                message = f"`{path_text(path)}` is a key of {other}, but the config has keys of {name}"
                help = f"remove it, or choose with --dialect {other} or --dialect {name}"
                found.append((path, Diagnostic("unknown-key", message, help)))
    return found


def dialect_of(config: Mapping[Any, Any]) -> Dialect:
    """Return the dialect of a config, detected from its keys."""
    return next((dialect for dialect in DIALECTS.values() if dialect.recognised(config)), rlinf)
