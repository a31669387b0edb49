"""A table of the resources that nodes lack, with their holders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import ray
from ray.util.placement_group import placement_group_table

from rankplan.runtime.ray.faults import plain
from rankplan.runtime.ray.internals import available_resources

Amounts: TypeAlias = Mapping[str, Mapping[str, float]]
"""Amount of each resource, by Ray's id of the node."""

_MOST_ROWS = 20


def shortage(needs: Mapping[str, tuple[int, Mapping[str, float]]], refused: int, before: Amounts) -> str:
    """Return a table of the needed, available and held resources of nodes that have too little.

    ``needs`` has the rank of a node and the amounts needed there, by Ray's id of the node. ``refused`` is the rank of
    the node that Ray refused, ``before`` the available resources before that.
    """
    total, available, holders = total_resources(), available_resources(), _holders()
    rows: list[tuple[str, ...]] = [("node", "resource", "needed", "available", "total", "held by")]
    for node_id, (rank, needed) in needs.items():
        if node_id not in total or node_id not in available:
            rows.append((str(rank), "all", "", "", "", "the node has left the cluster"))
            continue
        found: list[tuple[float, float, tuple[str, ...]]] = []
        for name, amount in needed.items():
            there, free = total[node_id].get(name, 0.0), available[node_id].get(name, 0.0)
            held = {who: amounts[name] for who, amounts in holders.get(node_id, {}).items() if name in amounts}
            if rank == refused:
                # Ray counts a group that it failed to place as taken until something else changes on the node
                free = max(free, min(before.get(node_id, {}).get(name, 0.0), there - sum(held.values())))
            held["others"] = round(there - free - sum(held.values()), 4)
            most = sorted((item for item in held.items() if item[1] > 0), key=lambda item: -item[1])
            who = ", ".join(f"{count:g} by {name}" for name, count in most)
            found.append((amount, free, (str(rank), name, f"{amount:g}", f"{free:g}", f"{there:g}", who)))
        short = [row for amount, free, row in found if amount > free]
        if rank == refused and not short:
            *row, who = found[0][2]
            short = [(*row, f"{who} (only parts are available, or the node is down)".strip())]
        rows += short
    return _table(rows)


def total_resources() -> Amounts:
    """Return the resources of the live nodes."""
    return {entry["NodeID"]: entry["Resources"] for entry in ray.nodes() if entry["Alive"]}


def _holders() -> dict[str, dict[str, dict[str, float]]]:
    """Return the resources that placement groups hold, by Ray's id of the node, name of the group and resource.

    The groups of other programs may have any name.
    """
    holders: dict[str, dict[str, dict[str, float]]] = {}
    for group_id, entry in placement_group_table().items():
        for bundle, node_id in entry["bundles_to_node_id"].items() if entry["state"] == "CREATED" else ():
            who = plain(entry["name"]) or f"placement group {group_id[:8]}"
            held = holders.setdefault(node_id, {}).setdefault(who, {})
            for resource, amount in entry["bundles"][bundle].items():
                held[resource] = held.get(resource, 0) + amount
    return holders


def _table(rows: Sequence[Sequence[str]]) -> str:
    shown = rows[: 1 + _MOST_ROWS]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in shown]
    more = [f"and {len(rows) - len(shown)} more rows"] if len(rows) > len(shown) else []
    return "\n".join(f"  {line}" for line in [*lines, *more])
