"""RLinf: a ``cluster`` section with ``component_placement`` and node groups, which is rankplan's own language too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rankplan.config.section import Config, read_config
from rankplan.inventory import Inventory
from rankplan.placement import ComponentPlacement
from rankplan.plan import Plan

_ASSUMED = 8


def recognised(config: Mapping[Any, Any]) -> bool:
    """Whether a config has a ``cluster`` section."""
    return "cluster" in config


def plan(config: Config, inventory: Inventory, isolate_accelerator: bool = True) -> Plan:
    """Return the plan of a config on an inventory. Raises `PlacementError` with every fault."""
    return ComponentPlacement(config, inventory).plan(isolate_accelerator)


def assumed_inventory(config: Config) -> Inventory:
    """Return an inventory of ``num_nodes`` nodes with 8 accelerators each."""
    return Inventory.uniform(read_config(config).section.num_nodes, _ASSUMED)


def shares(config: Config, planned: Plan) -> dict[str, float | None]:
    """Return that nothing is reserved: components share freely, as RLinf has it."""
    return dict.fromkeys(planned)
