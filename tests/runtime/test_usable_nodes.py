"""What a job may use of the nodes of a cluster when it is pinned there: those of its inventory, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from rankplan import Inventory, PlacementError
from rankplan.jobs.nodes import usable
from rankplan.jobs.reader import job_file


def nodes(*names: str, **more: Mapping[str, Any]) -> Inventory:
    """Nodes with these hostnames; ``more`` are keys of some of them."""
    content = [
        {"ranks": rank, "hostname": name, "accelerators": 2, **more.get(name, {})} for rank, name in enumerate(names)
    ]
    return Inventory.from_dict({"nodes": content})


@pytest.mark.parametrize(
    ("cluster", "allowed", "excluded"),
    [
        (nodes("a", "b", "c"), nodes("c", "b"), {0: None}),
        (nodes("a", "b"), nodes("b", "a"), {}),
        (nodes("node-2", "node-0", "node-1"), nodes("node-0", "node-1"), {0: None}),
        (nodes("node-1", "node-2", "node-3"), nodes("node-1", "node-2"), {2: None}),
        (nodes("a", "b"), nodes("a", "b", a={"healthy": False}, b={"unhealthy": [1]}), {0: None, 1: "1"}),
    ],
)
def test_nodes_that_a_job_may_not_use_are_excluded(
    cluster: Inventory, allowed: Inventory, excluded: dict[int, str | None]
) -> None:
    """Hosts may have names that are those of ranks elsewhere; what is not healthy there is not used here."""
    found = usable(cluster, allowed, job_file({"job": "run.yaml", "nodes": "nodes.yaml"}))
    assert found.levels == ()
    assert {rank: None if which is None else str(which) for rank, which in found.marks.items()} == excluded


def test_the_levels_of_the_inventory_hold_on_the_cluster() -> None:
    """Ray's nodes have labels without an order. Those that they lack are the inventory's."""
    racks = {"a": {"labels": {"rack": "x"}}, "b": {"labels": {"rack": "y"}}}
    allowed = Inventory.from_dict({"levels": ["rack"], **nodes("a", "b", **racks).to_dict()})
    for cluster in (nodes("b", "a", **racks), nodes("b", "a")):
        found = usable(cluster, allowed, job_file({"job": "run.yaml", "nodes": "nodes.yaml"}))
        assert found.levels == ("rack",)
        assert [found.node(rank).labels for rank in range(2)] == [{"rack": "y"}, {"rack": "x"}]


def test_a_cluster_without_any_of_the_nodes_is_a_fault() -> None:
    job = job_file({"job": "run.yaml", "nodes": "nodes.yaml"})
    with pytest.raises(PlacementError, match="none of the `nodes` is in the cluster, which has a, b") as caught:
        usable(nodes("a", "b"), nodes("c"), job)
    assert caught.value.code == "plan-mismatch"
