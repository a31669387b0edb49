"""Nodes of a saved plan change places where its trainer sorts the pods of a cluster otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from typing import Any

import pytest
import rankplan
from hypothesis import given
from hypothesis import strategies as st
from rankplan import Chunks, Inventory, PlacementError, Plan
from rankplan.launchers.embedded import portable
from rankplan.plans.component import Component
from rankplan.plans.exchange import Exchange, shows_domains, sorted_for_trainer
from rankplan.plans.fitting import moved
from rankplan.plans.topology import topology_faults
from rankplan.rlinf import with_section
from support.outcomes import at_least, outcome

ADDRESSES = ("10.0.0.9", "10.0.0.10", "10.0.0.11", "10.0.0.8")
AS_TEXT = sorted(ADDRESSES)
VERL = {"trainer": {"nnodes": 4, "n_gpus_per_node": 2}, "algorithm": {"adv_estimator": "grpo"}}
RACKS = [{"rack": "a"}, {"rack": "a"}, {"rack": "b"}, {"rack": "b"}]


def cluster(
    addresses: Sequence[str], labels: Sequence[dict[str, str]] = (), counts: Sequence[int] = (), **facts: Any
) -> Inventory:
    """Return nodes in the order of their ranks, which a launcher has set."""
    nodes: list[dict[str, Any]] = [
        {"ranks": rank, "ip": ip, "accelerators": counts[rank] if counts else 2} for rank, ip in enumerate(addresses)
    ]
    for node, own in zip(nodes, labels, strict=False):
        node["labels"] = own
    return Inventory.from_dict({"nodes": nodes, **facts})


def saved(rules: dict[str, Any], labels: Sequence[dict[str, str]] = RACKS, config: Any = VERL) -> Plan:
    """Return the plan in the file of a launcher: without names of machines."""
    inventory = cluster(AS_TEXT, labels, levels=["rack"]) if labels else Inventory.uniform(4, 2)
    job = {"job": "x", "topology": rules} if rules else None
    plan = rankplan.plan(config, inventory, pinned=True)
    if job is not None:
        content = plan.to_dict()
        content["cluster"] = {"num_nodes": 4, "component_placement": {}, "node_groups": [], "topology": rules}
        plan = Plan.from_dict(content)
    return portable(plan)


def on(plan: Plan, inventory: Inventory) -> Exchange | None:
    return sorted_for_trainer(plan.fitted(inventory), plan.inventory).exchange


@pytest.mark.parametrize("addresses", list(permutations(ADDRESSES)))
def test_every_order_of_four_addresses_is_exchanged(addresses: tuple[str, ...]) -> None:
    plan = saved({}, ())
    exchange = on(plan, cluster(addresses))
    if list(addresses) == AS_TEXT:
        assert exchange is None
        return
    assert exchange is not None
    found = exchange.plan
    assert [found.inventory.node(rank).ip for rank in range(4)] == AS_TEXT
    assert [addresses[former] for former in exchange.order] == AS_TEXT
    assert exchange.moved() == {
        rank: (before, now) for rank, (before, now) in enumerate(zip(addresses, AS_TEXT, strict=True)) if before != now
    }
    assert [one.nodes for one in found.requests] == [one.nodes for one in plan.requests]
    for name in plan:
        rows = [(row.rank, row.cluster_node_rank, row.local_hardware_ranks) for row in plan[name]]
        assert [(row.rank, row.cluster_node_rank, row.local_hardware_ranks) for row in found[name]] == rows


def keeps(plan: Plan, inventory: Inventory) -> bool:
    """Whether the rules hold where the trainer sorts the nodes: the oracle, which moves nothing."""
    nodes = sorted(range(4), key=lambda rank: str(inventory.node(rank).ip))
    labels = [dict(inventory.node(rank).labels) for rank in nodes]
    sizes = plan.rules.segment.get("actor") or 0
    racks = [one["rack"] for one in labels]
    return all(len(set(racks[at : at + sizes])) == 1 for at in range(0, 4, sizes or 4)) if sizes else True


@pytest.mark.parametrize("racks", list(dict.fromkeys(permutations("aabb"))))
@pytest.mark.parametrize("addresses", list(permutations(ADDRESSES)))
def test_an_exchange_keeps_the_rules_or_is_refused(addresses: tuple[str, ...], racks: tuple[str, ...]) -> None:
    """With labels that the cluster shows, in any racks: the trainer's order, if the segments are whole in it."""
    plan = saved({"segment": {"actor": 2}})
    inventory = cluster(addresses, [{"rack": rack} for rack in racks], levels=["rack"])
    if list(addresses) == AS_TEXT:
        assert on(plan, inventory) is None
        return
    if keeps(plan, inventory):
        exchange = on(plan, inventory)
        assert exchange is not None and not list(
            topology_faults(plan.rules, dict(exchange.plan), exchange.plan.inventory)
        )
        assert [exchange.plan.inventory.node(rank).ip for rank in range(4)] == AS_TEXT
        return
    with pytest.raises(PlacementError) as refused:
        on(plan, inventory)
    assert refused.value.code == "order-not-kept"


def test_without_labels_only_nodes_of_one_planned_domain_are_exchanged() -> None:
    plan = saved({"segment": {"actor": 2}})
    inside = ("10.0.0.11", "10.0.0.10", "10.0.0.9", "10.0.0.8")  # as text: 10, 11, 8, 9
    exchange = on(plan, cluster(inside))
    assert exchange is not None and exchange.order == (1, 0, 3, 2)
    with pytest.raises(PlacementError) as refused:
        on(plan, cluster(("10.0.0.8", "10.0.0.10", "10.0.0.9", "10.0.0.11")))
    (fault,) = refused.value.diagnostics
    assert fault.code == "order-not-kept" and "`ray start --labels=rack=NAME`" in str(fault.help)
    assert "10.0.0.8, 10.0.0.10, 10.0.0.9, 10.0.0.11; verl sorts them by addresses as text" in fault.message


def test_nodes_that_differ_are_not_exchanged() -> None:
    config = {"trainer": {"nnodes": 2, "n_gpus_per_node": 2}, "algorithm": {"adv_estimator": "grpo"}}
    plan = rankplan.plan(
        config,
        Inventory.from_dict({"nodes": [{"ranks": 0, "accelerators": 2}, {"ranks": 1, "accelerators": 4}]}),
        pinned=True,
    )
    unequal = cluster(("10.0.0.9", "10.0.0.10"), counts=(2, 4))
    with pytest.raises(PlacementError, match="these nodes differ, so they cannot be exchanged"):
        on(plan, unequal)
    equal = rankplan.plan(config, "2x2", pinned=True)
    excluded = cluster(("10.0.0.9", "10.0.0.10"), counts=(2, 4)).without(["10.0.0.10/3"])
    with pytest.raises(PlacementError):
        on(plan, excluded)
    exchange = on(equal, cluster(("10.0.0.9", "10.0.0.10")))
    assert exchange is not None and exchange.moved() == {0: ("10.0.0.9", "10.0.0.10"), 1: ("10.0.0.10", "10.0.0.9")}


def with_pools(pools: list[list[int]], nodes: int) -> Plan:
    """Return a plan of verl with a request for each node of each pool."""
    content = rankplan.plan(
        {"trainer": {"nnodes": nodes, "n_gpus_per_node": 4}, "algorithm": {"adv_estimator": "grpo"}}, f"{nodes}x4"
    ).to_dict()
    (first,) = content["requests"]
    content["requests"] = [
        {
            **first,
            "names": {"before": f"pool{index}_", "first": 0},
            "groups": len(pool),
            "nodes": [[node, 1, first["nodes"][0][2]] for node in pool],
        }
        for index, pool in enumerate(pools)
    ]
    return Plan.from_dict(content)


@at_least(exchanged=0.03, refused=0.02)
@given(st.data())
def test_pools_that_share_nodes_move_alike(data: st.DataObject) -> None:
    """Against all bijections: the first one in the plan's order after which every pool is sorted."""
    count = data.draw(st.integers(2, 5))
    pools = data.draw(
        st.lists(
            st.lists(st.sampled_from(range(count)), min_size=1, max_size=count, unique=True), min_size=1, max_size=3
        )
    )
    counts = data.draw(st.lists(st.sampled_from([4, 4, 5]), min_size=count, max_size=count))
    addresses = data.draw(st.permutations([f"10.0.0.{10 + rank}" for rank in range(count)]))
    plan = with_pools(pools, count)
    inventory = cluster(addresses, counts=counts)
    content = plan.to_dict()
    content["inventory"]["nodes"] = [{"ranks": str(rank), "accelerators": each} for rank, each in enumerate(counts)]
    rule = {
        "map": ",".join(
            f"{sum(counts[:node])}-{sum(counts[:node]) + 3}:{4 * node}-{4 * node + 3}" for node in range(count)
        )
    }
    for component in content["components"].values():
        component["rule"] = rule
    plan = Plan.from_dict(content).fitted(inventory)
    joined = union_of(pools)
    wanted = next(
        (
            order
            for order in permutations(range(count))
            if all(order[rank] in joined[rank] and counts[order[rank]] == counts[rank] for rank in range(count))
            and all(sorted(one, key=lambda rank: addresses[order[rank]]) == one for one in pools)
        ),
        None,
    )
    if wanted is None:
        outcome("refused")
        with pytest.raises(PlacementError):
            sorted_for_trainer(plan, plan.inventory)
        return
    found = sorted_for_trainer(plan, plan.inventory)
    if found.exchange is None:
        assert all(sorted(one, key=lambda rank: addresses[rank]) == one for one in pools)
        return
    outcome("exchanged")
    assert found.exchange.order == wanted


def union_of(pools: list[list[int]]) -> dict[int, set[int]]:
    """Return, for each node, those that it may change places with: those of pools that are connected with its own."""
    found: dict[int, set[int]] = {}
    for pool in pools:
        group = set(pool).union(*(found.get(node, set()) for node in pool))
        for node in group:
            found[node] = group
    return {node: found.get(node, {node}) for node in range(5)}


def test_processes_keep_their_node_ranks_whatever_nodes_their_group_has_now() -> None:
    """A node of a group that nobody uses gets a rank behind that of the process, which is on the first node then."""
    group = {"label": "fast", "node_ranks": "0-1"}
    nodes = with_section(Inventory.uniform(4, 2), {"num_nodes": 4, "node_groups": [group]})
    plan = Plan(nodes, [Component.place("actor", nodes, ("fast",), Chunks([2, 3], 1))], dialect="verl")
    found = Exchange.of(plan, [2, 0, 1, 3]).plan
    assert [str(group.node_ranks) for group in found.inventory.node_groups] == ["1-2"]
    assert [row.devices for row in found["actor"]] == [row.devices for row in plan["actor"]] == [[(1, 0)], [(1, 1)]]
    assert [row.devices for row in found.on(found.inventory)["actor"]] == [[(1, 0)], [(1, 1)]]


def test_a_spare_without_labels_is_a_domain_of_its_own() -> None:
    plan = saved({"segment": {"actor": 2}})
    addresses = ["10.0.0.10", "10.0.0.11", "10.0.0.9", "10.0.0.8"]  # as text: 10, 11, 8, 9
    more = cluster([*addresses, "10.0.0.1"], RACKS, levels=["rack"])
    wide = plan.placed(more, [moved(one, more) for one in plan.values()])
    assert shows_domains(wide, plan.inventory)
    exchange = sorted_for_trainer(wide, plan.inventory).exchange
    assert exchange is not None and exchange.order == (0, 1, 3, 2, 4)
    bare = cluster([*addresses, "10.0.0.1"], RACKS[:3], levels=["rack"])
    lacking = plan.placed(bare, [moved(one, bare) for one in plan.values()])
    assert not shows_domains(lacking, plan.inventory)
