"""The same plan in another dialect, as far as that dialect can say it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from operator import eq
from typing import Any

from rankplan._core import Placement, Placements
from rankplan.config.models import WHOLE_NODE
from rankplan.dialects import DIALECTS, dialect_of
from rankplan.errors import Diagnostic, PlacementError
from rankplan.inventory import Inventory
from rankplan.plan import Plan


@dataclass(frozen=True, slots=True)
class Conversion:
    """A config in another dialect, and why parts of the plan are not in it."""

    config: dict[str, Any]
    missing: tuple[str, ...]


def convert(planned: Plan, to: str) -> Conversion:
    """Write a plan in the dialect ``to`` (``rlinf``, ``roll``, ``slime``).

    What was written is planned again, and only what comes out the same is kept. Node groups are not carried over.
    Raises ``ValueError`` for a dialect that is not there.
    """
    if to not in DIALECTS:
        raise ValueError(f"{to!r} is no dialect; they are {', '.join(DIALECTS)}")
    bare = Inventory.from_dict(planned.inventory.to_dict())
    wanted, reasons, config = dict(planned), dict[str, str](), dict[str, Any]()
    while wanted:
        config, unsaid = DIALECTS[to].written(Plan(planned.inventory, wanted))
        said = {name: rows for name, rows in wanted.items() if name not in unsaid}
        different = _different(said, to, config, bare) if said else {}
        reasons |= unsaid | different
        wanted = {name: rows for name, rows in said.items() if name not in different}
        if not different:
            break
    missing = [f"{name}: {reasons[name]}" for name in planned if name in reasons]
    return Conversion(config if wanted else {}, tuple(_lost(planned) + missing))


def _different(said: Mapping[str, Placements], to: str, config: Any, inventory: Inventory) -> dict[str, str]:
    """Return the components that the config does not place as they are, and why."""
    isolate = all(rows.isolate_accelerator for rows in said.values())
    try:
        if dialect_of(config) is not DIALECTS[to]:
            raise PlacementError([Diagnostic("invalid-value", "its name is a key of another dialect")])
        again = DIALECTS[to].plan(config, inventory, isolate)
    except PlacementError as error:
        if len(said) == 1:
            return dict.fromkeys(said, error.message)
        alone = [DIALECTS[to].written(Plan(inventory, {name: rows})) for name, rows in said.items()]
        faults = [
            _different({name: said[name]}, to, one, inventory) for name, (one, _) in zip(said, alone, strict=True)
        ]
        found = {name: why for fault in faults for name, why in fault.items()}
        return found or dict.fromkeys(said, error.message)
    elsewhere = [name for name, rows in said.items() if name not in again or not _same(rows, again[name])]
    return dict.fromkeys(elsewhere, f"{to} would place it elsewhere")


def _same(rows: Placements, others: Placements) -> bool:
    return len(rows) == len(others) and all(map(eq, map(_place, rows), map(_place, others)))


def _place(row: Placement) -> tuple[int, list[tuple[int, int]], list[str], bool]:
    """Return what a row says, but for the node group that the node was selected through."""
    by_node = row.resource_type == WHOLE_NODE
    return row.cluster_node_rank, row.devices, row.visible_accelerators, by_node


def _lost(planned: Plan) -> list[str]:
    """Return what a cluster section gives to processes beside their place."""
    section = planned.inventory.section
    groups = {group.label: group for group in section.node_groups} if section else {}
    lost = []
    for name, rows in planned.items():
        labels = dict.fromkeys(row.node_group_label for row in rows)
        for label in labels:
            if label in groups and groups[label].env_configs:
                lost.append(f"{name}: node group `{label}`, with its variables and interpreters")
    return lost
