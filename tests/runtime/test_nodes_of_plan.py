"""The nodes of a cluster in the order of a plan that names them, also if it names some that the cluster lacks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rankplan import Inventory, PlacementError, plan
from rankplan.runtime.nodes.nodes import Nodes


def inventory(addresses: list[int]) -> Inventory:
    entries = [{"ranks": rank, "ip": f"10.0.0.{at}", "accelerators": 2} for rank, at in enumerate(addresses)]
    return Inventory.from_dict({"nodes": entries})


ADDRESSES = st.lists(st.integers(1, 9), min_size=1, max_size=6, unique=True)


@given(ADDRESSES, ADDRESSES)
def test_each_node_is_where_the_plan_has_it(planned: list[int], present: list[int]) -> None:
    nodes = Nodes(tuple(f"id{at}" for at in present), inventory(present)).of_plan(inventory(planned))
    assert sorted(nodes.ids) == sorted(f"id{at}" for at in present)
    assert [f"id{str(nodes.inventory.node(rank).ip).split('.')[-1]}" for rank in range(len(present))] == [*nodes.ids]
    if len(planned) <= len(present) or {*planned} <= {*present}:
        for rank, at in enumerate(planned):
            assert (nodes.ids[rank] == f"id{at}") == (at in present)


@given(ADDRESSES, ADDRESSES)
def test_a_plan_on_nodes_that_the_cluster_lacks_does_not_fit(planned: list[int], present: list[int]) -> None:
    config = {"cluster": {"num_nodes": len(planned), "component_placement": {"actor": "all"}}}
    made = plan(config, inventory(planned))
    nodes = Nodes(tuple(f"id{at}" for at in present), inventory(present))
    if {*planned} <= {*present}:
        found = made.fitted(nodes.of_plan(made.inventory).inventory)
        assert [found.inventory.node(rank).ip for rank in range(len(planned))] == [f"10.0.0.{at}" for at in planned]
    else:
        with pytest.raises(PlacementError) as caught:
            made.fitted(nodes.of_plan(made.inventory).inventory)
        assert caught.value.code in ("plan-mismatch", "too-few-nodes")
