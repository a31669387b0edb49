"""rankplan's answers in the shape of the oracle's: rows as dicts, a rejection as ``oracle.Refused`` with all codes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from rankplan import ComponentPlacement, Inventory, Placement, PlacementError

from support import oracle

T = TypeVar("T")


def as_dicts(rows: Iterable[Placement]) -> list[oracle.Row]:
    return [{field: getattr(row, field) for field in oracle.FIELDS} for row in rows]


def refusing(ask: Callable[[], T]) -> T:
    """Return rankplan's answer, with its exception converted to the oracle's."""
    try:
        return ask()
    except PlacementError as refused:
        raise oracle.Refused(*(fault.code for fault in refused.diagnostics)) from refused


def plan(cluster: dict[str, Any], inventory: dict[str, Any], isolate: bool = True) -> dict[str, list[oracle.Row]]:
    """Plan like ``oracle.plan``, through the public interface."""

    def ask() -> dict[str, list[oracle.Row]]:
        placement = ComponentPlacement({"cluster": cluster}, Inventory.from_dict(inventory))
        planned = placement.plan(isolate_accelerator=isolate)
        return {name: as_dicts(planned[name]) for name in placement.components}

    return refusing(ask)


def outcome(planner: Callable[..., T], *arguments: Any) -> T | list[str]:
    """Return what the planner returns, or the sorted codes of its faults: equal outcomes are equal answers."""
    try:
        return planner(*arguments)
    except oracle.Refused as refused:
        return sorted(refused.codes)
