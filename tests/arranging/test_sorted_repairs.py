"""Repaired plans of trainers that sort the nodes of a pool: the plan stays in their order, and few ranks move."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import pytest
import rankplan
from hypothesis import given
from hypothesis import strategies as st
from rankplan import Inventory, Plan, diff, replan
from rankplan.errors import PlacementError
from rankplan.plans.node_order import in_trainers_order
from rankplan.plans.rules import Rules
from support.configs import from_overrides
from support.oracle_order import sort_key
from support.outcomes import at_least, outcome
from support.paths import ROOT

CONFIGS = [
    "areal.yaml",
    "ms_swift.yaml",
    "nemo_rl.yaml",
    "openrlhf.sh",
    "roll.yaml",
    "skyrl.sh",
    "slime.yaml",
    "slime-colocated.yaml",
]
CONFIGS += ["verl.sh", "verl.yaml"]


def cluster(sizes: Sequence[int], last: Sequence[int], racks: Sequence[str] = ()) -> Inventory:
    """Return nodes with these numbers of accelerators and last parts of their addresses."""
    entries: list[dict[str, Any]] = [
        {"ranks": rank, "accelerators": each, "hostname": f"h{rank}", "ip": f"10.0.0.{last[rank]}"}
        for rank, each in enumerate(sizes)
    ]
    for rank, entry in enumerate(entries):
        entry["labels"] = {"NODE_RANK": str(rank + 1)} | ({"rack": racks[rank]} if racks else {})
    return Inventory.from_dict({"nodes": entries, **({"levels": ["rack"]} if racks else {})})


def verl(nodes: int, tensor: int = 1) -> Any:
    sizes = [f"trainer.nnodes={nodes}", "trainer.n_gpus_per_node=2", "algorithm.adv_estimator=grpo"]
    return from_overrides([*sizes, f"actor_rollout_ref.rollout.tensor_model_parallel_size={tensor}"])


def unsorted(plan: Plan) -> list[tuple[int, ...]]:
    """Return the nodes of the pools that the trainer would sort otherwise, as far as it is known by what."""
    found = []
    for order, numbers in plan.requests.pools():
        nodes = [node for number in numbers for node in plan.requests[number].nodes]
        key = sort_key(plan.inventory, order, [], set(nodes))
        if key is not None and nodes != sorted(nodes, key=key):
            found.append(tuple(nodes))
    return found


@pytest.mark.parametrize("config", CONFIGS)
@given(st.data())
def test_a_repaired_plan_is_in_the_order_of_its_trainer(config: str, data: st.DataObject) -> None:
    path = ROOT / "examples" / config
    sizes = [spec.num_accelerators for nodes, spec in rankplan.plan(path).inventory.stretches() for _ in nodes]
    count = len(sizes) + 3
    last = data.draw(st.lists(st.integers(1, 120), min_size=count, max_size=count, unique=True))
    nodes = cluster([*sizes, *sizes[:1] * 3], last)
    before = rankplan.plan(path, nodes, pinned=True)
    assert not unsorted(before)
    used = sorted({node for part in before.values() for node in part.used_nodes()})
    lost = data.draw(st.lists(st.sampled_from(used), min_size=1, max_size=2, unique=True))
    found = replan(before, nodes, without=[str(before.inventory.node(rank).hostname) for rank in lost])
    assert found.plan.requests == before.requests
    assert not unsorted(found.plan)
    assert in_trainers_order(found.plan) == (found.plan, [])
    moved = {(move.component, move.rank) for move in found.moves}
    assert moved == {(move.component, move.rank) for move in diff(before, found.plan).moved}
    without = {before.inventory.node(rank).hostname for rank in lost}
    assert without.isdisjoint(found.plan.inventory.node(rank).hostname for rank in used)


@given(st.data())
def test_no_more_ranks_move_than_the_order_forces(data: st.DataObject) -> None:
    count, spares = data.draw(st.integers(2, 5)), data.draw(st.integers(1, 4))
    last = data.draw(st.permutations(range(1, count + spares + 1)))
    nodes = cluster([2] * (count + spares), [10 + one for one in last])
    before = rankplan.plan(verl(count), nodes, pinned=True)
    here = [str(before.inventory.node(rank).hostname) for rank in range(count)]
    lost = data.draw(st.lists(st.sampled_from(here), min_size=1, max_size=min(count, spares), unique=True))
    addresses = {f"h{rank}": address for rank, address in enumerate(last)}
    left = [name for name in here if name not in lost]
    others = [name for name in addresses if name not in here]
    fewest = count
    for chosen in combinations(others, len(lost)):
        after = sorted([*left, *chosen], key=addresses.__getitem__)
        fewest = min(fewest, sum(old != new for old, new in zip(here, after, strict=True)))
    found = replan(before, nodes, without=lost)
    after = [str(found.plan.inventory.node(rank).hostname) for rank in range(count)]
    assert after == sorted(after, key=addresses.__getitem__)
    assert sum(old != new for old, new in zip(here, after, strict=True)) == fewest
    survivors = {node for node, (was, _) in found.successors.items() if was.hostname in left}
    if survivors:
        assert any("in the order in which verl sorts its nodes" in reason for reason in found.reasons)


@at_least(kept=0.2, refused=0.03)
@given(st.data())
def test_rules_hold_in_the_order_of_the_trainer_or_the_repair_is_refused(data: st.DataObject) -> None:
    spares = data.draw(st.lists(st.tuples(st.sampled_from("ab"), st.integers(11, 69)), min_size=1, max_size=3))
    last = [20, 30, 40, 50, *(address - address % 10 + 1 + index for index, (_, address) in enumerate(spares))]
    racks = ["a", "a", "b", "b", *(rack for rack, _ in spares)]
    nodes = cluster([2] * len(racks), last, racks)
    planned = rankplan.plan(verl(4), cluster([2] * 4, last[:4], racks[:4]), pinned=True)
    before = planned.placed(planned.inventory, planned.values(), Rules(segment=2))
    assert not before.rule_faults()
    lost = str(before.inventory.node(data.draw(st.integers(0, 3))).hostname)
    try:
        found = replan(before, nodes, without=[lost])
    except PlacementError as refused:
        if refused.code == "order-not-kept":
            outcome("refused")
            assert "verl sorts the nodes of nodes 0-3 by addresses as text" in refused.message
        return
    outcome("kept")
    assert not found.plan.rule_faults()
    assert not unsorted(found.plan)
