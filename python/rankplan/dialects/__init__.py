"""The ways of writing a placement. Each becomes a `Plan` like any other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from rankplan.config.section import Config
from rankplan.dialects import rlinf, roll, slime
from rankplan.inventory import Inventory
from rankplan.plan import Plan


class Dialect(Protocol):
    """What a dialect can do; its module is one."""

    def recognised(self, config: Mapping[Any, Any]) -> bool:
        """Whether a config is written in it, as far as its keys tell."""

    def plan(self, config: Config, inventory: Inventory, isolate_accelerator: bool = True) -> Plan:
        """Return the plan of a config; raises `PlacementError` with every fault."""

    def assumed_inventory(self, config: Config) -> Inventory:
        """Return what a config may be meant for, where nobody says what there is; raises `PlacementError`."""

    def shares(self, config: Config, planned: Plan) -> dict[str, float | None]:
        """Return what each component reserves of its accelerators at launch; ``None`` for nothing."""

    def written(self, planned: Plan) -> tuple[dict[str, Any], dict[str, str]]:
        """Return a config that places what the dialect can say, and why the other components are not in it."""


DIALECTS: dict[str, Dialect] = {"rlinf": rlinf, "slime": slime, "roll": roll}
"""By name. The first one that recognises a config has it; RLinf's has all that no other does."""


def dialect_of(config: Mapping[Any, Any]) -> Dialect:
    """Return the dialect that a config is written in, as its keys tell."""
    return next((dialect for dialect in DIALECTS.values() if dialect.recognised(config)), rlinf)
