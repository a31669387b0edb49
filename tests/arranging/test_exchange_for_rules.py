"""A saved plan on nodes whose racks are others than planned: its nodes change places, as few as the rules allow."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import pytest
import rankplan
from hypothesis import given
from hypothesis import strategies as st
from rankplan import Inventory, PlacementError, Plan
from rankplan.arranging.of_job import exchange_for_rules
from rankplan.plans.exchange import Exchange, keeps_rules
from support.outcomes import at_least, outcome

ON_TWO_NODES = (
    "python3 -m openrlhf.cli.train_ppo_ray --actor.num_nodes 2 --actor.num_gpus_per_node 2 --train.colocate_all "
    "--ref.num_nodes 2 --ref.num_gpus_per_node 2 --vllm.num_engines 2 --vllm.tensor_parallel_size 2 "
    "--reward.remote_url http://rewards:5000 --algo.advantage.estimator rloo\n"
)
NODES = 4


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    """A plan of OpenRLHF, which sorts no nodes, on two of four nodes in one rack."""
    folder: Path = tmp_path_factory.mktemp("saved")
    (folder / "run.sh").write_text(ON_TWO_NODES)
    (folder / "run.job.yaml").write_text("job: run.sh\ntopology: {keep: {actor: {world: rack}}}\n")
    return rankplan.plan(folder / "run.job.yaml", _nodes("aabb"), pinned=True)


def _nodes(racks: str) -> Inventory:
    entries = [
        {"ranks": rank, "hostname": f"n{rank}", "accelerators": 2, "labels": {"rack": rack}}
        for rank, rack in enumerate(racks)
    ]
    return Inventory.from_dict({"levels": ["rack"], "nodes": entries})


@at_least(exchanged=0.2, refused=0.02)
@given(racks=st.text("abcd", min_size=NODES, max_size=NODES))
def test_the_fewest_nodes_change_places(saved: Plan, racks: str) -> None:
    there = saved.fitted(_nodes(racks))
    used = sorted(there["actor"].used_nodes())
    moves = {
        sum(order[rank] != rank for rank in used)
        for order in permutations(range(NODES))
        if keeps_rules(Exchange.of(there, order).plan)
    }
    try:
        exchange = exchange_for_rules(there, saved.inventory)
    except PlacementError as refused:
        outcome("refused")
        assert not moves and [fault.code for fault in refused.diagnostics] == ["domain-too-small"]
        return
    if exchange is None:
        assert min(moves) == 0
        return
    outcome("exchanged")
    assert keeps_rules(exchange.plan) and sorted(exchange.order) == list(range(NODES))
    assert sum(exchange.order[rank] != rank for rank in used) == min(moves) > 0
    names = [exchange.plan.inventory.node(rank).hostname for rank in range(NODES)]
    assert names == [f"n{rank}" for rank in exchange.order]
    assert exchange.moved().keys() == {rank for rank in range(NODES) if exchange.order[rank] != rank}


def test_nodes_that_do_not_show_their_racks_stay(saved: Plan) -> None:
    bare = saved.inventory.with_levels([]).updated([saved.inventory.node(rank).changed(labels={}) for rank in range(4)])
    assert exchange_for_rules(saved.fitted(bare), saved.inventory) is None
