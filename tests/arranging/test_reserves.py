"""Reserves and bounds of a plan hold in every plan that ``replan`` makes of it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rankplan import Inventory, PlacementError, Plan, check, plan, replan
from rankplan._core import RankSet
from support.outcomes import at_least, outcome


@st.composite
def pooled(draw: st.DrawFn) -> dict[str, Any]:
    """Return a config of an actor on nodes 0 and 1 and engines on node 2, with a reserve and bounds."""
    reserve = draw(st.sampled_from(["3", "3-4", "4"]))
    bounds = draw(st.sampled_from([{}, {"min_accelerators": 4}, {"max_accelerators": 8}]))
    pools = [
        {"name": "train", "components": ["actor"]},
        {"name": "infer", "components": ["rollout"], **bounds},
        {"name": "spare", "node_ranks": reserve, "protects": draw(st.sampled_from([["train"], ["infer"]]))},
    ]
    actor = {"placement": "0-7", "parallel": {"tp": 2}}
    rollout = {"placement": "8-11", "parallel": {"tp": 4}}
    return {"cluster": {"num_nodes": 5, "component_placement": {"actor": actor, "rollout": rollout}, "pools": pools}}


# Two data groups of the actor fill a node; the rollout has a single one, which must stay.
GROWTH = st.sampled_from([{}, {"actor": 2}, {"rollout": 1}, {"rollout": 2}])
SHRINKING = st.sampled_from([{}, {"actor": 2}])


@at_least(accepted=0.5, changed=0.3)
@given(
    pooled(),
    st.sets(st.sampled_from(["h0", "h1", "h2", "h3", "h4", "h0/1"]), max_size=2),
    GROWTH,
    SHRINKING,
)
def test_every_plan_that_replan_makes_keeps_its_pools_true(
    config: dict[str, Any], without: set[str], grow: dict[str, int], shrink: dict[str, int]
) -> None:
    """A node of a reserve has processes only of the components that it protects, and each plan can be loaded again."""
    nodes = [{"ranks": rank, "hostname": f"h{rank}", "accelerators": 4} for rank in range(6)]
    inventory = Inventory.from_dict({"nodes": nodes})
    before = plan(config, inventory)
    try:
        after = replan(before, inventory, without=without, grow=grow, shrink=shrink).plan
    except PlacementError:
        return
    outcome("accepted")
    if after != before:
        outcome("changed")
    assert not after.rule_faults() and Plan.from_dict(after.to_dict()) == after
    entry = config["cluster"]["pools"][2]
    reserve = RankSet(entry["node_ranks"])  # node ranks, which a repair may give to other machines
    stranger = "rollout" if entry["protects"] == ["train"] else "actor"
    assert not reserve & after[stranger].used_nodes()
    # The machines that were reserved, whatever node ranks they have now.
    machines = {str(before.inventory.node(rank).hostname) for rank in reserve}
    assert machines.isdisjoint(hosts(after, after[stranger].used_nodes()))
    ranks = RankSet().union(*(pool.node_ranks for pool in after.rules.pools))
    used = hosts(after, RankSet().union(*(part.used_nodes() for part in after.values())))
    present = hosts(after, RankSet(range(after.inventory.num_nodes)))
    assert machines - used - without <= hosts(after, ranks)
    healthy = hosts(after, ranks) - without
    if not grow and not shrink and not any("/" in name for name in without) and machines.isdisjoint(without):
        spares = present - used - without
        assert len(healthy) == min(len(ranks), len(spares))


def hosts(found: Plan, ranks: RankSet) -> set[str]:
    return {str(found.inventory.node(rank).hostname) for rank in ranks}


def test_strangers_do_not_get_a_reserved_machine_that_a_repair_has_used() -> None:
    """The actor takes the reserve, leaves it again, and the rollout grows, in one step or in several."""
    pools = [{"name": "train", "components": ["actor"]}, {"name": "infer", "components": ["rollout"]}]
    pools.append({"name": "spare", "node_ranks": 3, "protects": ["train"]})
    placed = {"actor": {"placement": "0-7", "parallel": {"tp": 2}}}
    placed["rollout"] = {"placement": "8-11", "parallel": {"tp": 4}}
    entries = [{"ranks": rank, "hostname": f"h{rank}", "accelerators": 4} for rank in range(6)]
    config = {"cluster": {"num_nodes": 5, "component_placement": placed, "pools": pools}}
    whole = Inventory.from_dict({"nodes": entries})
    before, lost = plan(config, whole), ["h1", "h2"]
    for inventory in (whole, Inventory.from_dict({"nodes": entries[:5]})):
        with pytest.raises(PlacementError, match="rollout: no 2 more nodes"):
            replan(before, inventory, without=lost, shrink={"actor": 2}, grow={"rollout": 2})
        smaller = replan(before, inventory, without=lost, shrink={"actor": 2}).plan
        assert smaller.inventory.node(3).hostname == "h3"
    larger = replan(before, whole, without=lost, shrink={"actor": 2}, grow={"rollout": 1}).plan
    assert larger.inventory.node(3).hostname == "h3"
    assert hosts(larger, larger["rollout"].used_nodes()) == {"h4", "h5"}


def test_a_reserve_that_growth_uses_up_is_none_any_more() -> None:
    """The plan is valid after each step, and is loaded again."""
    inventory = Inventory.uniform(4, 4)
    placed = {"actor": "0-7", "rollout": {"placement": "8-11", "parallel": {"tp": 4}}}
    pools = [{"name": "infer", "components": ["rollout"]}, {"name": "spare", "node_ranks": 3, "protects": ["infer"]}]
    section = {"num_nodes": 4, "component_placement": placed, "pools": pools}
    grown = replan(plan({"cluster": section}, inventory), inventory, grow={"rollout": 1}).plan
    assert [pool.name for pool in grown.rules.pools] == ["infer"]
    assert not check(Plan.from_dict(grown.to_dict())).faults
