"""Who holds what on which node, and what is missing: read from the placement groups of the whole cluster.

Ray does not tell which accelerators a placement group holds, so the group's name says which ones it is meant for: every
driver on the cluster can read there what is taken, and of what.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import ray
from ray._private.state import available_resources_per_node
from ray.util.placement_group import placement_group_table

from rankplan._core import RankSet
from rankplan.runtime.shares import UNIT, Demand, amount

_PREFIX, _FILLER = "rankplan", "rankplan-filler"
_MOST_ROWS = 20
_ROUNDING = 10  # units that Ray's own sums may be off by


@dataclass(frozen=True, slots=True)
class Holder:
    """A placement group that has something on a node: who, and how much of what.

    ``shares`` (by local index) is known of rankplan's own. What fills accelerators while others are reserved is there
    only ``briefly``.
    """

    who: str
    totals: Mapping[str, int]
    shares: Mapping[int, int]
    briefly: bool


def node_holders(besides: Iterable[str] = ()) -> dict[str, list[Holder]]:
    """Return what placement groups hold on each node, but for these groups (by Ray's id)."""
    holders: dict[str, list[Holder]] = {}
    for group_id, entry in placement_group_table().items():
        if entry["state"] != "CREATED" or group_id in besides:
            continue
        who, indices = _owner(entry["name"], group_id)
        nodes: dict[str, tuple[dict[str, int], dict[int, int]]] = {}
        for bundle, node_id in entry["bundles_to_node_id"].items():
            totals, shares = nodes.setdefault(node_id, ({}, {}))
            for resource, held in entry["bundles"][bundle].items():
                totals[resource] = totals.get(resource, 0) + round(held * UNIT)
                if bundle < len(indices):
                    shares[indices[bundle]] = round(held * UNIT)
        for node_id, found in nodes.items():
            holders.setdefault(node_id, []).append(Holder(who, *found, entry["name"].startswith(_FILLER)))
    return holders


def group_name(component: str, indices: Iterable[int]) -> str:
    """Return a new name for a placement group of a component that is meant for these accelerators of its node."""
    return f"{_PREFIX}:{RankSet(indices)}:{uuid.uuid4().hex[:8]}:{component}"


def filler_name(component: str) -> str:
    """Return a new name for a placement group that fills accelerators while a component is reserved."""
    return f"{_FILLER}:{uuid.uuid4().hex[:8]}:{component}"


def _owner(name: str, group_id: str) -> tuple[str, list[int]]:
    """Return whose placement group it is, and the accelerators that rankplan's own is meant for."""
    parts = name.split(":", 3)
    if len(parts) < 4 or parts[0] != _PREFIX:
        return (f"placement group {name or group_id[:8]}", [])
    here = group_id.endswith(ray.get_runtime_context().get_job_id())
    return (parts[3] if here else f"{parts[3]} of another driver", list(RankSet(parts[1])) if parts[1] else [])


class Short(Exception):
    """Some nodes have not enough; ``rows`` are the lines of the table."""

    def __init__(self, demands: Sequence[Demand], rows: Sequence[Sequence[str]]) -> None:
        super().__init__(demands)
        self.demands, self.rows = demands, rows

    def table(self) -> str:
        head = ("node", "resource", "needed", "present", "taken")
        shown = [head, *self.rows[:_MOST_ROWS]]
        widths = [max(len(row[column]) for row in shown) for column in range(len(head))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in shown]
        more = [f"and {len(self.rows) - _MOST_ROWS} more rows"] if len(self.rows) > _MOST_ROWS else []
        return "\n".join(f"  {line.rstrip()}" for line in [*lines, *more])


def check_shares(demands: Sequence[Demand], holders: Mapping[str, Sequence[Holder]]) -> None:
    """Raise ``Short`` when an accelerator is taken by others of rankplan's, which Ray does not see for each."""
    short, rows = [], []
    for demand in demands:
        folded: dict[tuple[str, str], list[int]] = {}
        for index, needed in sorted(demand.shares.items()):
            takers = [
                (holder.who, holder.shares[index])
                for holder in holders.get(demand.node_id, ())
                if index in holder.shares
            ]
            if needed + sum(taken for _, taken in takers) > UNIT:
                folded.setdefault((amount(needed), _taken(takers)), []).append(index)
        if folded:
            short.append(demand)
        for (needed_text, taken_text), indices in folded.items():
            what = f"accelerator{'s' if len(indices) > 1 else ''} {RankSet(indices)}"
            rows.append((str(demand.node_rank), what, needed_text, "1", taken_text))
    if short:
        raise Short(short, rows)


def in_pieces(waiting: Sequence[Demand], more: str = "") -> Short:
    """Return what is missing where enough is free on a node, but not on so many of its accelerators."""
    why = f"enough is free, but in pieces{more}"
    return Short(waiting, [(str(demand.node_rank), "all", "", "", why) for demand in waiting])


def shortage(waiting: Sequence[Demand], holders: Mapping[str, Sequence[Holder]]) -> tuple[Short, bool]:
    """Return what is missing where, in Ray's own count of whole nodes; and whether it is sure that some is.

    It is sure where a node has too little beside what placement groups hold; the rest of what is taken may come back.
    """
    present = {entry["NodeID"]: entry["Resources"] for entry in ray.nodes() if entry["Alive"]}
    free = available_resources_per_node()
    short: list[Demand] = []
    rows: list[tuple[str, ...]] = []
    sure = False
    for demand in waiting:
        node, node_id = str(demand.node_rank), demand.node_id
        before = len(rows)
        if node_id not in present:
            rows.append((node, "all", "", "0", "the node has left the cluster"))
            sure = True
        for resource, needed in demand.totals().items() if node_id in present else ():
            there = round(present[node_id].get(resource, 0) * UNIT)
            left = round(free.get(node_id, {}).get(resource, 0) * UNIT)
            staying = [holder for holder in holders.get(node_id, ()) if not holder.briefly]
            takers = [(holder.who, holder.totals.get(resource, 0)) for holder in staying]
            held = sum(taken for _, taken in takers)
            takers.append(("others", there - left - held))
            if needed > left:
                sure = sure or needed > there - held
                rows.append((node, resource, amount(needed), amount(there), _taken(takers)))
        if len(rows) > before:
            short.append(demand)
    return Short(short, rows), sure


def on_its_way(demands: Sequence[Demand]) -> bool:
    """Whether some accelerators are taken in Ray's count that no placement group holds: given back, or others' own."""
    holders = node_holders()
    present = {entry["NodeID"]: entry["Resources"] for entry in ray.nodes() if entry["Alive"]}
    free = available_resources_per_node()
    for demand in demands:
        resource, node_id = str(demand.resource), demand.node_id
        there, left = (round(count.get(node_id, {}).get(resource, 0) * UNIT) for count in (present, free))
        held = sum(holder.totals.get(resource, 0) for holder in holders.get(node_id, ()))
        if there - held - left > _ROUNDING:
            return True
    return False


def _taken(takers: Iterable[tuple[str, int]]) -> str:
    amounts: dict[str, int] = {}
    for who, taken in takers:
        amounts[who] = amounts.get(who, 0) + taken
    most_first = sorted(amounts.items(), key=lambda taker: (-taker[1], taker[0]))
    return ", ".join(f"{amount(taken)} by {who}" for who, taken in most_first if taken > 0) or "0"
