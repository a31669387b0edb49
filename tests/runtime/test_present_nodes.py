"""Pinning, launching and looking find the nodes of a plan alike."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from rankplan import Inventory, RankSet
from rankplan.runtime.nodes.nodes import FoundNode, Nodes
from rankplan.runtime.usage.look import _numbered


@st.composite
def machines(draw: st.DrawFn, most: int) -> list[dict[str, Any]]:
    return [
        {"ranks": rank, "accelerators": draw(st.sampled_from([0, 2])), "hostname": f"h{rank}", "ip": f"10.0.0.{rank}"}
        for rank in range(draw(st.integers(1, most)))
    ]


@given(machines(4), machines(3), st.sampled_from(["all", "none"]), st.booleans())
def test_one_matcher(present: list[dict[str, Any]], planned: list[dict[str, Any]], names: str, equal: bool) -> None:
    """Whatever the plan says of names, and wherever a head without accelerators is."""
    if names == "none":
        planned = [{key: entry[key] for key in ("ranks", "accelerators")} for entry in planned]
    if equal:
        planned = [{**entry, "accelerators": 2} for entry in planned]
    cluster, plan = (Inventory.from_dict({"nodes": entries}) for entries in (present, planned))
    ids = tuple(f"id{rank}" for rank in range(cluster.num_nodes))
    pinned = Nodes(ids, cluster).of_plan(plan).ids[: plan.num_nodes]
    found = [FoundNode(ids[rank], cluster.node(rank).at(RankSet([rank]))) for rank in range(cluster.num_nodes)]
    _, looked = _numbered(found, plan)
    for bound, seen in zip(pinned, looked, strict=False):
        assert seen in ("", bound)
    if names == "none" and equal:
        able = [node.node_id for node in found if node.spec.num_accelerators]
        assert list(pinned[: len(able)]) == able[: plan.num_nodes]
