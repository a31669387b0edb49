"""Shared pool arithmetic: what is free, chunks of it, and verl's pools and defaults."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rankplan import Inventory
from rankplan.dialects import verl
from rankplan.dialects.pools import Free, engine_faults, torn
from support.configs import from_overrides, nodes
from support.goldens import lines

COUNTS = st.lists(st.integers(0, 8), min_size=1, max_size=6)
POOLS = [line for line in lines("verl_pools") if line["kind"] == "pool"]
DEFAULTS = [line for line in lines("verl_pools") if line["kind"] == "defaults"]


@given(COUNTS, st.lists(st.tuples(st.booleans(), st.integers(1, 9)), max_size=8))
def test_every_accelerator_is_taken_at_most_once(counts: list[int], wanted: list[tuple[bool, int]]) -> None:
    free = Free(nodes(counts))
    starts = [sum(counts[:node]) for node in range(len(counts))]
    left, taken = list(counts), list[int]()
    for together, count in wanted:
        found = free.together(count) if together else free.packed(count)
        room = [node for node, size in enumerate(left) if size >= count]
        possible = bool(room) if together else sum(left) >= count
        assert (found is not None) == possible
        if found is None:
            continue
        on = free.node_of(found)
        assert len(found) == count and not {*found} & {*taken}
        assert all(starts[node] <= rank < starts[node] + counts[node] for rank, node in zip(found, on, strict=True))
        assert ({*on} == {room[0]}) if room else len({*on}) > 1
        for node in on:
            left[node] -= 1
        taken += found
        assert free.left == sum(left)


@given(st.lists(st.integers(1, 8), min_size=1, max_size=4), st.integers(1, 20), st.integers(1, 8))
def test_engines_without_a_fault_fill_their_pool_and_stay_on_nodes(
    counts: list[int], engine: int, per_node: int
) -> None:
    owners = [node for node, count in enumerate(counts) for _ in range(count)]
    each = min(engine, per_node)
    chunks = [owners[start : start + each] for start in range(0, len(owners) // each * each, each)]
    whole = len(owners) % engine == 0 and engine % each == 0
    fine = whole and all(len({*chunk}) == 1 for chunk in chunks)
    assert (not engine_faults("rollout", engine, each, owners, "tp")) == fine
    spanning = [index for index, chunk in enumerate(chunks) if len({*chunk}) > 1]
    assert torn(owners, each) == (spanning[0] if spanning else None)


@pytest.mark.parametrize("line", POOLS, ids=[line["id"] for line in POOLS])
def test_pools_take_the_nodes_that_verls_do(line: dict[str, Any]) -> None:
    """Each part of a pool takes the first node with room, as the recorded placement groups."""
    groups = line["result"].get("pgs") or []
    free = Free(nodes([gpus for _, gpus in line["cluster"]]))
    sizes = [size for spec in (line["spec"], line.get("merge") or []) for size in spec]
    for size, group in zip(sizes, groups, strict=False):
        if "nodes" in group:
            assert free.node_of(free.together(size) or []) == group["nodes"]


@pytest.mark.parametrize("line", DEFAULTS, ids=[line["id"] for line in DEFAULTS])
def test_a_missing_key_has_verls_own_default(line: dict[str, Any]) -> None:
    name = f"hydra.job.config_name={line['config_name']}"
    # verl's own default, gae, has a critic, with which its asynchronous trainers fail.
    last = ["algorithm.adv_estimator=grpo"]
    stated = [f"{key}={'null' if value is None else value}" for key, value in line["values"].items()]
    stated = [word for word in stated if not word.startswith(("reward_model.", "actor_rollout_ref.rollout.name"))]
    inventory = Inventory.uniform(4, 8)
    plain = verl.plan(from_overrides([name, "actor_rollout_ref.actor={}", *line["overrides"], *last]), inventory)
    assert verl.plan(from_overrides([name, *stated, *last]), inventory) == plain
