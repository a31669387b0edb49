"""Nodes in the order in which trainers sort them: where a trainer's sorted bundles are, its ranks are in the plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rankplan import Chunks, Inventory, PlacementError, Plan, RankSet, Request, plan
from rankplan._core import joined_pools
from rankplan.front.job import read_job
from rankplan.plans.component import Component
from rankplan.plans.node_order import in_pools_order, in_trainers_order
from rankplan.plans.requests import NodeOrder
from support.configs import from_overrides

ADDRESSES = st.permutations([f"10.0.0.{last}" for last in (3, 9, 10, 12, 100)])


def cluster(counts: Sequence[int], addresses: Sequence[str], labels: Sequence[dict[str, str]] = ()) -> Inventory:
    named = labels or [{}] * len(counts)
    entries = [
        {"ranks": rank, "ip": addresses[rank], "accelerators": count, "labels": named[rank]}
        for rank, count in enumerate(counts)
    ]
    return Inventory.from_dict({"nodes": entries})


def verl(nodes: int, each: int) -> Any:
    words = [f"trainer.nnodes={nodes}", f"trainer.n_gpus_per_node={each}", "algorithm.adv_estimator=grpo"]
    return from_overrides([*words, "actor_rollout_ref.rollout.tensor_model_parallel_size=1"])


def slime(nodes: int, each: int) -> Any:
    return {"actor_num_nodes": nodes, "actor_num_gpus_per_node": each, "colocate": True}


def skyrl(engines: int, tensor: int, *, alone: bool = False, prefill: int = 0) -> Any:
    words = [f"trainer.placement.colocate_all={not alone}", f"generator.inference_engine.num_engines={engines}"]
    words += [f"generator.inference_engine.tensor_parallel_size={tensor}"]
    for name in ("policy", "ref"):
        words += [f"trainer.placement.{name}_num_nodes=1"]
        words += [f"trainer.placement.{name}_num_gpus_per_node={1 if alone else engines * tensor}"]
    if prefill:
        words += ["generator.inference_engine.enable_pd=true", f"generator.inference_engine.num_prefill={prefill}"]
    return from_overrides(words)


def nemo_rl(nodes: int, each: int, segment: int | None = None) -> Any:
    generation = {"backend": "vllm", "vllm_cfg": {"tensor_parallel_size": nodes * each}, "colocated": {"enabled": True}}
    sizes = {"num_nodes": nodes, "gpus_per_node": each} | ({"segment_size": segment} if segment else {})
    policy = {"generation": generation, "megatron_cfg": {"enabled": True, "tensor_model_parallel_size": 1}}
    return {"cluster": sizes, "grpo": {}, "policy": policy}


def devices(found: Plan, component: str) -> list[tuple[int, int]]:
    return [device for row in found[component] for device in row.devices]


def sorted_nodes(found: Plan, key: Callable[[int], Any]) -> None:
    for _, numbers in found.requests.pools():
        nodes = [node for number in numbers for node in found.requests[number].nodes]
        assert nodes == sorted(nodes, key=key)


@given(ADDRESSES, st.lists(st.integers(1, 4), min_size=3, max_size=5), st.data())
def test_a_pinned_plan_has_the_nodes_of_each_pool_in_order(
    addresses: list[str], counts: list[int], data: st.DataObject
) -> None:
    inventory = cluster(counts, addresses)
    ids = data.draw(st.permutations([f"{number:02x}" for number in range(len(counts))]))
    each = min(counts)
    for config in (verl(2, each), slime(1, each * 2), skyrl(2, each), skyrl(1, each, alone=True)):
        job = read_job(config, inventory)
        found = job.plan(pinned=True, node_ids=ids)
        mine = [ids[addresses.index(str(found.inventory.node(rank).ip))] for rank in range(len(counts))]
        assert in_trainers_order(found, mine) == (found, [])
        ips = [str(found.inventory.node(rank).ip) for rank in range(len(counts))]
        keys: dict[str | None, Callable[[int], Any]] = {
            "text": ips.__getitem__,
            "number": lambda rank, ips=ips: int(ips[rank].split(".")[-1]),
            "id": mine.__getitem__,
        }
        sorted_nodes(found, keys[job.dialect.node_order(job.config)])


@given(st.lists(st.integers(1, 5), min_size=2, max_size=4), st.integers(1, 3), st.sampled_from([1, 2]), st.data())
def test_ranks_are_where_the_sorted_bundles_are(
    counts: list[int], engines: int, tensor: int, data: st.DataObject
) -> None:
    """A plan whose nodes are exchanged by Ray's ids: SkyRL and NeMo-RL sort bundles, and number ranks by them."""
    ids = data.draw(st.permutations([f"{number:02x}" for number in range(len(counts))]))
    apart = data.draw(st.booleans())
    prefill = data.draw(st.integers(0, engines - 1)) if apart else 0
    config = skyrl(engines, tensor, alone=apart, prefill=prefill)
    before = plan(config, cluster([*counts, 8], ADDRESS), pinned=True)
    after, changed = in_trainers_order(before, [*ids, "ff"])
    ids.append("ff")
    start = 0
    for old, new in zip(before.requests, after.requests, strict=True):
        assert (old.component, old.accelerators, old.strategy) == (new.component, new.accelerators, new.strategy)
        if old.order is None or old.component != "generator":
            continue
        span = slice(start, start + len(old.accelerators))
        bundles = devices(before, "generator")[span]  # bundle by bundle, one accelerator each
        mine = sorted(bundles, key=lambda device: (ids[device[0]], device[1]))
        assert devices(after, "generator")[span] == mine
        assert list(new.nodes) == [node for node, _ in mine]
        start = span.stop
    for name in before:
        assert sorted(devices(before, name)) == sorted(devices(after, name))
    if not apart:
        assert devices(after, "policy") == devices(after, "ref") == devices(after, "generator")
    assert bool(changed) == (before != after)
    assert all(one.warning and one.code == "order-not-kept" for one in changed)
    assert in_trainers_order(after, ids) == (after, [])


ADDRESS = ("10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5")


def test_another_order_of_addresses_is_a_fault_with_both_orders() -> None:
    inventory = cluster([2, 2], ("10.0.0.9", "10.0.0.10"))
    kept = plan(verl(2, 2), inventory)
    with pytest.raises(PlacementError) as caught:
        in_trainers_order(kept)
    message = "the pool of `actor` has the nodes 10.0.0.9, 10.0.0.10; verl sorts them by addresses as text: "
    assert caught.value.code == "order-not-kept" and message + "10.0.0.10, 10.0.0.9" in caught.value.render()
    assert "--pinned" in caught.value.render()
    assert in_trainers_order(plan(slime(2, 2), inventory))[1] == []
    again = Plan.from_dict(kept.to_dict())  # the orders are saved
    with pytest.raises(PlacementError, match="addresses as text"):
        in_trainers_order(again)
    without = Inventory.parse("2x2")
    assert in_trainers_order(plan(verl(2, 2), without)) == (plan(verl(2, 2), without), [])


def test_only_nodes_of_a_pool_are_compared() -> None:
    """The reward model's nodes come after those of the actor, whatever their addresses."""
    words = ["trainer.nnodes=1", "trainer.n_gpus_per_node=2", "reward.reward_model.enable=true"]
    words += ["reward.reward_model.enable_resource_pool=true", "reward.reward_model.nnodes=2"]
    words += ["reward.reward_model.n_gpus_per_node=2", "algorithm.adv_estimator=grpo"]
    found = plan(from_overrides(words), cluster([2, 2, 2], ("10.0.0.9", "10.0.0.1", "10.0.0.2")))
    assert in_trainers_order(found) == (found, [])


@pytest.mark.parametrize("segment", [None, 1])
def test_nemo_rl_sorts_by_ranks_in_the_network_else_by_ids(segment: int | None) -> None:
    ranks = [{"nvlink_domain": domain, "topo_rank": rank} for domain, rank in (("b", "7"), ("a", "2"), ("b", "1"))]
    labelled, plain = cluster([2, 2, 2], ADDRESS, ranks), cluster([2, 2, 2], ADDRESS)
    config = nemo_rl(3, 2, segment)
    after, _ = in_trainers_order(plan(config, labelled))
    # The domain with the lowest rank comes first, whole.
    assert [node for node, _ in devices(after, "policy")] == [2, 2, 0, 0, 1, 1]
    after, _ = in_trainers_order(plan(config, plain), ["2", "1", "3"])
    assert [node for node, _ in devices(after, "policy")] == [1, 1, 0, 0, 2, 2]
    alone = {**config, "policy": {**config["policy"], "generation": {}}}
    found = plan(alone, plain)
    assert in_trainers_order(found, ["2", "1", "3"]) == (found, [])  # a group a node: nothing is sorted


@given(st.permutations(range(3)))
def test_roll_numbers_nodes_by_their_own_rank(ranks: list[int]) -> None:
    config = {"num_gpus_per_node": 2, "num_nodes": 3, "actor_train": {"device_mapping": "[0,1,4,5]"}}
    stated = cluster([2, 2, 2], ADDRESS, [{"NODE_RANK": str(rank)} for rank in ranks])
    after, _ = in_trainers_order(plan(config, stated))
    first, last = ranks.index(0), ranks.index(2)
    assert devices(after, "actor_train") == [(first, 0), (first, 1), (last, 0), (last, 1)]
    assert [one.nodes[0] for one in after.requests] == [ranks.index(rank) for rank in range(3)]
    unset = cluster([2, 2, 2], ADDRESS)
    assert in_trainers_order(plan(config, unset), ["b", "c", "a"])[1] == []


@pytest.mark.parametrize("how", ["text", "number"])
@given(addresses=ADDRESSES)
def test_nodes_that_are_in_order_have_no_other_order(how: str, addresses: list[str]) -> None:
    core = cluster([1] * 5, addresses).core
    order = core.order(how)
    assert order is not None
    kept = order == list(range(5))
    for _ in range(2):  # what was found once stays
        assert core.other_order(how) == (None if kept else order)
    assert core.reordered(order).other_order(how) is None
    assert Inventory.uniform(2, 8).core.other_order(how) is None


@given(st.lists(st.tuples(st.sampled_from(["text", "number"]), st.sets(st.integers(0, 7))), max_size=6), st.booleans())
def test_joined_pools_are_those_that_share_nodes_directly_or_through_others(
    pools: list[tuple[NodeOrder, set[int]]], together: bool
) -> None:
    """Of one order, pools are joined until nothing changes; those that contradict an earlier order are left out."""
    groups: list[tuple[NodeOrder, set[int]]] = []
    for order, nodes in pools:
        same = [group for group in groups if group[0] == order and (together or group[1] & nodes)]
        groups = [
            *(group for group in groups if group not in same),
            (order, nodes.union(*(ranks for _, ranks in same))),
        ]
    expected: list[tuple[NodeOrder, RankSet]] = []
    for order, nodes in groups:
        if all(not RankSet(nodes) & ranks for _, ranks in expected):
            expected.append((order, RankSet(nodes)))
    stated = [(order, RankSet(nodes)) for order, nodes in pools]
    assert joined_pools(stated, together=together) == expected


def test_the_order_of_pools_gives_each_pool_its_own_nodes() -> None:
    """A plan on eight nodes: two pools that share a node are sorted as one, a third by itself, the last stays."""
    inventory = cluster([1] * 8, [f"10.0.0.{last}" for last in (9, 3, 12, 7, 2, 30, 20, 1)])
    requests = [
        Request("a", "a0", [1, 1], [0, 1], order="number"),
        Request("b", "b0", [1, 1], [1, 2], order="number"),
        Request("c", "c0", [1, 1], [5, 6], order="number"),
    ]
    found = Plan(inventory, [], None, "slime", requests)
    assert in_pools_order(found) == [1, 0, 2, 3, 4, 6, 5, 7]
    assert in_pools_order(found, together=True) == [1, 0, 2, 3, 4, 6, 5, 7]
    shared = Plan(inventory, [], None, "slime", [*requests[:1], Request("d", "d0", [1, 1], [2, 4], order="number")])
    assert in_pools_order(shared) == [1, 0, 4, 3, 2, 5, 6, 7]
    assert in_pools_order(shared, together=True) == [4, 1, 0, 3, 2, 5, 6, 7]
    by_text = Plan(inventory, [], None, "verl", [Request("a", "a0", [1, 1], [2, 1], order="text")])
    assert in_pools_order(by_text) is None


def test_bundles_smaller_than_their_nodes_are_exchanged_with_the_accelerators_of_their_component() -> None:
    """Half of each node belongs to another component, so that a bundle of two is not the first half of its node."""
    inventory = cluster([4, 4, 4], ["10.0.0.1", "10.0.0.2", "10.0.0.3"])
    upper = Component.place("b", inventory, ("cluster",), Chunks([2, 3, 6, 7, 10, 11], 2))
    lower = Component.place("a", inventory, ("cluster",), Chunks([0, 1, 4, 5, 8, 9], 2))
    requests = [Request("a", None, [2, 2, 2], [0, 1, 2]), Request("b", None, [2, 2, 2], [0, 1, 2], order="id")]
    found, changes = in_trainers_order(Plan(inventory, [lower, upper], None, "skyrl", requests), ["c", "b", "a"])
    assert [(change.code, change.warning) for change in changes] == [("order-not-kept", True)]
    assert [request.nodes for request in found.requests] == [(0, 1, 2), (2, 1, 0)]
    assert devices(found, "b") == [(2, 2), (2, 3), (1, 2), (1, 3), (0, 2), (0, 3)]
    assert devices(found, "a") == devices(Plan(inventory, [lower]), "a")


def test_the_accelerators_of_a_bundle_are_those_after_the_earlier_requests_of_its_component() -> None:
    inventory = cluster([4, 4, 4], ["10.0.0.1", "10.0.0.2", "10.0.0.3"])
    part = Component.place("a", inventory, ("cluster",), Chunks([0, 1, 4, 5, 8, 2, 3, 6, 7, 9], 1))
    earlier = Request("a", None, [1, 1, 1, 1, 1], [0, 0, 1, 1, 2])
    later = Request("a", None, [2, 2, 1], [0, 1, 2], order="id")
    found, _ = in_trainers_order(Plan(inventory, [part], None, "skyrl", [earlier, later]), ["b", "a", "c"])
    assert devices(found, "a")[:5] == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0)]
    assert devices(found, "a")[5:] == [(1, 2), (1, 3), (0, 2), (0, 3), (2, 1)]


def test_a_pool_whose_bundles_would_be_torn_is_refused() -> None:
    """A bundle of four is on the first node; the trainer sorts a node of two before it."""
    inventory = cluster([4, 2], ["10.0.0.1", "10.0.0.2"])
    part = Component.place("a", inventory, ("cluster",), Chunks([0, 1, 2, 3, 4, 5], 1))
    request = Request("a", None, [4, 2], [0, 1], order="id")
    plan_of_two = Plan(inventory, [part], None, "skyrl", [request])
    assert in_trainers_order(plan_of_two, ["a", "b"]) == (plan_of_two, [])
    with pytest.raises(PlacementError) as refused:
        in_trainers_order(plan_of_two, ["b", "a"])
    assert refused.value.code == "order-not-kept"
