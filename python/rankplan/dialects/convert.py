"""The same plan in another dialect, as far as that dialect can say it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rankplan._core import Placement, Placements
from rankplan.dialects import DIALECTS
from rankplan.errors import PlacementError
from rankplan.inventory import Inventory
from rankplan.plan import Plan


@dataclass(frozen=True, slots=True)
class Conversion:
    """A config in another dialect, and why parts of the plan are not in it."""

    config: dict[str, Any]
    missing: tuple[str, ...]


def convert(planned: Plan, to: str) -> Conversion:
    """Write a plan in the dialect ``to`` (``rlinf``, ``roll``, ``slime``).

    Each component is planned again as it was written, and kept only where it comes out the same.
    """
    bare = Inventory.from_dict(planned.inventory.to_dict())
    sayable, missing = {}, list(_lost(planned))
    for name, rows in planned.items():
        if (why := _unsaid(Plan(planned.inventory, {name: rows}), to, bare)) is None:
            sayable[name] = rows
        else:
            missing.append(f"{name}: {why}")
    if not sayable:
        return Conversion({}, tuple(missing))
    config, together = DIALECTS[to].written(Plan(planned.inventory, sayable))
    missing += [f"{name}: {why}" for name, why in together.items()]
    return Conversion(config, tuple(missing))


def _unsaid(component: Plan, to: str, inventory: Inventory) -> str | None:
    """Return why a plan of one component cannot be said, or ``None`` when it comes out the same."""
    config, unsaid = DIALECTS[to].written(component)
    ((name, rows),) = component.items()
    if name in unsaid:
        return unsaid[name]
    try:
        again = DIALECTS[to].plan(config, inventory, rows.isolate_accelerator)
    except PlacementError as error:
        return error.message
    return None if name in again and _same(rows, again[name]) else f"{to} would place it elsewhere"


def _same(rows: Placements, others: Placements) -> bool:
    return len(rows) == len(others) and all(map(_equal, rows, others))


def _equal(row: Placement, other: Placement) -> bool:
    """Whether two rows say the same, but for the node group that the node was selected through."""
    mine = (row.cluster_node_rank, row.devices, row.visible_accelerators, row.resource_type == "node")
    return mine == (other.cluster_node_rank, other.devices, other.visible_accelerators, other.resource_type == "node")


def _lost(planned: Plan) -> list[str]:
    """Return what a cluster section gives to processes beside their place."""
    section = planned.inventory.section
    groups = {group.label: group for group in section.node_groups} if section else {}
    lost = []
    for name, rows in planned.items():
        labels = dict.fromkeys(row.node_group_label for row in rows)
        for label in labels:
            if label in groups and groups[label].env_configs:
                lost.append(f"{name}: the variables and interpreters of node group `{label}`")
    return lost
