"""A saved plan on nodes whose racks are others than planned: its nodes change places, as few as the rules allow."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
import rankplan
from hypothesis import given, settings
from hypothesis import strategies as st
from rankplan import Inventory, PlacementError, Plan
from rankplan.arranging.of_job import exchange_for_rules
from rankplan.plans.exchange import keeps_rules
from support.outcomes import at_least, outcome

ON_TWO_NODES = (
    "python3 -m openrlhf.cli.train_ppo_ray --actor.num_nodes 2 --actor.num_gpus_per_node 2 --train.colocate_all "
    "--ref.num_nodes 2 --ref.num_gpus_per_node 2 --vllm.num_engines 2 --vllm.tensor_parallel_size 2 "
    "--reward.remote_url http://rewards:5000 --algo.advantage.estimator rloo\n"
)
NODES = 4


KEEP: dict[str, Any] = {"topology": {"keep": {"actor": {"world": "rack"}}}}
CAP: dict[str, Any] = {"topology": {"cap": {"rack": 1}}}
GROUP: dict[str, Any] = {
    "node_groups": [{"label": "fast", "node_ranks": "0-2", "components": ["actor", "ref", "vllm"]}]
}


def saved(stated: dict[str, Any], racks: str) -> Plan:
    """Return a plan of OpenRLHF, which sorts no nodes, on two of these nodes."""
    Path("run.sh").write_text(ON_TWO_NODES)
    Path("run.job.yaml").write_text(json.dumps({"job": "run.sh", **stated}))
    return rankplan.plan(Path("run.job.yaml"), _nodes(racks), pinned=True)


@pytest.fixture(autouse=True, scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("saved"))
        yield


@pytest.fixture(scope="module")
def plans(folder: None) -> dict[str, Plan]:
    """Return plans that were saved for two used nodes: alone, with spares, and in a node group with a spare."""
    return {
        "keep": saved(KEEP, "aabb"),
        "keep, without spares": saved(KEEP, "aa"),
        "keep in a group": saved(KEEP | GROUP, "aaab"),
        "cap": saved(CAP, "abcd"),
        "cap in a group": saved(CAP | GROUP, "abcd"),
    }


def _nodes(racks: str) -> Inventory:
    """Return nodes in these racks; those in rack ``-`` have no label."""
    entries = [
        {"ranks": rank, "hostname": f"n{rank}", "accelerators": 2, "labels": {} if rack == "-" else {"rack": rack}}
        for rank, rack in enumerate(racks)
    ]
    return Inventory.from_dict({"nodes": entries} | ({"levels": ["rack"]} if set(racks) - {"-"} else {}))


def _holds(name: str, racks: Sequence[str]) -> bool:
    """Return whether a rule holds on used nodes in these racks: one rack for all, or one for each."""
    if name.startswith("keep"):
        return len(set(racks)) == 1 and "-" not in racks
    return len(set(racks)) == len(racks) or set(racks) == {"-"}


@at_least(exchanged=0.08, refused=0.04)
@settings(max_examples=200)
@given(data=st.data())
def test_the_fewest_nodes_change_places_and_all_rules_hold(plans: dict[str, Plan], data: st.DataObject) -> None:
    """Against every order of the nodes, by the letters of their racks."""
    name = data.draw(st.sampled_from(list(plans)))
    racks = "".join(data.draw(st.lists(st.sampled_from("aaabbbcc-"), min_size=NODES, max_size=NODES)))
    plan = plans[name]
    there = plan.fitted(_nodes(racks))
    used = sorted(there["actor"].used_nodes())
    assert used == [0, 1]
    present = range(plan.inventory.num_nodes)
    group = range(3) if "group" in name else present
    moves = {
        sum(order[rank] != rank for rank in used)
        for order in permutations(present)
        if _holds(name, [racks[order[rank]] for rank in used]) and all(order[rank] in group for rank in used)
    }
    shown = all(racks[rank] != "-" for rank in used)
    try:
        exchange = exchange_for_rules(there, plan.inventory)
    except PlacementError as refused:
        outcome("refused")
        assert shown and not moves and "ended early" not in refused.message
        return
    if exchange is None:
        assert not shown or min(moves) == 0
        return
    outcome("exchanged")
    found = exchange.plan
    assert keeps_rules(found) and not found.rule_faults() and sorted(exchange.order) == list(present)
    assert sum(exchange.order[rank] != rank for rank in used) == min(moves) > 0
    assert [found.inventory.node(rank).hostname for rank in present] == [f"n{rank}" for rank in exchange.order]
    assert exchange.moved().keys() == {rank for rank in present if exchange.order[rank] != rank}
    assert len(found.requests) == len(there.requests) > 0
    for one in found.values():
        rows = [(row.cluster_node_rank, row.local_hardware_ranks) for row in one]
        assert rows == [(row.cluster_node_rank, row.local_hardware_ranks) for row in there[one.name]]
        assert all(exchange.order[rank] in group for rank in one.used_nodes())


def test_what_rules_name_is_known_on_the_nodes_or_was_when_they_were_planned(plans: dict[str, Plan]) -> None:
    content = plans["keep"].to_dict()
    content["cluster"]["topology"] = {"keep": {"actor": {"world": "rak"}}}
    wrong = Plan.from_dict(content)
    for racks in ("abab", "aabb", "----"):
        with pytest.raises(PlacementError) as refused:
            exchange_for_rules(wrong.fitted(_nodes(racks)), wrong.inventory)
        assert refused.value.message == "unknown level `rak`"


def test_nodes_that_do_not_show_their_racks_stay(plans: dict[str, Plan]) -> None:
    saved = plans["keep"]
    bare = saved.inventory.with_levels([]).updated([saved.inventory.node(rank).changed(labels={}) for rank in range(4)])
    assert exchange_for_rules(saved.fitted(bare), saved.inventory) is None
