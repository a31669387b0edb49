"""Jobs of engines on a small network, for growing and shrinking."""

from __future__ import annotations

from typing import Any

import rankplan
from rankplan import Inventory, Plan

LEVELS = ("block", "nvlink")
PAGE = [("b0", "a")] * 4 + [("b0", "b")] * 3 + [("b1", "c")] * 4 + [("b1", "d")] * 2


def cluster(labels: list[tuple[str, str]]) -> Inventory:
    """Return nodes with 4 accelerators, by block and NVLink domain."""
    entries = [
        {"ranks": rank, "accelerators": 4, "hostname": f"n{rank}", "labels": dict(zip(LEVELS, pair, strict=True))}
        for rank, pair in enumerate(labels)
    ]
    return Inventory.from_dict({"levels": list(LEVELS), "nodes": entries})


NODES = cluster(PAGE)
TWO = [7, 8, 9, 10]
WHOLE = {"segment": 2, "keep": {"rollout": {"world": "block"}}}


def job(nodes: list[int], topology: dict[str, Any], inventory: Inventory = NODES, **parts: tuple[str, Any]) -> Plan:
    """Return a plan on these nodes; ``parts`` are placements and sizes."""
    placement = {name: {"placement": text, "parallel": sizes} for name, (text, sizes) in parts.items()}
    section = {"num_nodes": len(nodes), "topology": topology, "component_placement": placement}
    return rankplan.plan({"cluster": section}, inventory.reordered(nodes))


def engines(nodes: list[int], topology: dict[str, Any], tp: int = 8) -> Plan:
    """Return a job of a rollout, engines of ``tp`` accelerators."""
    return job(nodes, topology, rollout=(f"0-{4 * len(nodes) - 1}", {"tp": tp}))


def hosts(plan: Plan) -> list[int]:
    """Return the number of the host of each node rank."""
    found = (plan.inventory.node(rank).hostname for rank in range(plan.inventory.num_nodes))
    return [int((name or "n-1")[1:]) for name in found]


def assert_same_rows(before: Plan, after: Plan) -> None:
    """No process that stays has another place, other devices or other coordinates."""
    for name, old in before.items():
        new = after[name]
        for rank in range(len(old)):
            one, other = old[rank], new[rank]
            for field in ("cluster_node_rank", "devices", "visible_accelerators", "local_rank", "node_group_label"):
                assert getattr(one, field) == getattr(other, field)
            for slot, same in zip(old.coordinates(rank), new.coordinates(rank), strict=True):
                assert all(same[kind] == slot[kind] for kind in slot.keys() & same.keys())
            assert (
                after.inventory.node(one.cluster_node_rank).hostname
                == before.inventory.node(one.cluster_node_rank).hostname
            )
