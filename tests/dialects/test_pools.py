"""Engines on pools, and verl's pools and defaults."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rankplan import Inventory
from rankplan._core import Free, RankSet, Taken
from rankplan.dialects.placing.engines import Engine, engine_faults
from rankplan.parallel import NO_SIZES
from rankplan.trainers.verl.dialect import DIALECT as verl
from support.configs import from_overrides, nodes
from support.goldens import lines

POOLS = [line for line in lines("verl_pools") if line["kind"] == "pool"]
DEFAULTS = [line for line in lines("verl_pools") if line["kind"] == "defaults"]


@given(st.lists(st.integers(1, 8), min_size=1, max_size=4), st.integers(1, 20), st.integers(1, 8))
def test_engines_without_a_fault_fill_their_pool_and_stay_on_nodes(
    counts: list[int], engine: int, per_node: int
) -> None:
    owners = [node for node, count in enumerate(counts) for _ in range(count)]
    each = min(engine, per_node)
    chunks = [owners[start : start + each] for start in range(0, len(owners) // each * each, each)]
    whole = len(owners) % engine == 0 and engine % each == 0
    fine = whole and all(len({*chunk}) == 1 for chunk in chunks)
    pool, core = Taken([(0, len(owners) - 1)]), nodes(counts).core
    assert (not engine_faults("rollout", Engine(engine, "tp", NO_SIZES, (), ()), each, pool, core)) == fine
    spanning = [index for index, chunk in enumerate(chunks) if len({*chunk}) > 1]
    torn = pool.torn(core, each)
    assert (None if torn is None else torn[0]) == (spanning[0] if spanning else None)


@pytest.mark.parametrize("line", POOLS, ids=[line["id"] for line in POOLS])
def test_pools_take_the_nodes_that_verls_do(line: dict[str, Any]) -> None:
    """Each part of a pool takes the first node with room, as the recorded placement groups."""
    groups = line["result"].get("pgs") or []
    core = nodes([gpus for _, gpus in line["cluster"]]).core
    free = Free(core, RankSet())
    sizes = [size for spec in (line["spec"], line.get("merge") or []) for size in spec]
    for size, group in zip(sizes, groups, strict=False):
        if "nodes" in group:
            taken = free.in_bundles(size, [size])
            assert (taken.nodes(core) if isinstance(taken, Taken) else []) == group["nodes"]


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
