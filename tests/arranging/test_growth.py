"""Growing and shrinking by a number of data groups: worked examples, and with repairs."""

from __future__ import annotations

from typing import Any

import pytest
import rankplan
from rankplan import replan
from rankplan.errors import PlacementError
from rankplan.render.changes import replan_lines
from support.growth import NODES, TWO, WHOLE, assert_same_rows, cluster, engines, hosts, job


@pytest.mark.parametrize(
    ("topology", "grow", "nodes"),
    [
        ({"segment": 2}, 1, [*TWO, 11, 12]),
        ({"segment": 2}, 2, [*TWO, 0, 1, 2, 3]),
        (WHOLE, 1, [*TWO, 11, 12]),
        ({"balance": "nvlink"}, 1, [*TWO, 11, 12]),
        ({"prefer": {"rollout": {"world": "block"}}}, 1, [*TWO, 11, 12]),
        ({"cap": {"nvlink": 4}, "segment": {"rollout": {"block": 4, "nvlink": 2}}}, 2, [*TWO, 0, 1, 2, 3]),
    ],
)
def test_worked_examples(topology: dict[str, Any], grow: int, nodes: list[int]) -> None:
    before = engines(TWO, topology)
    found = replan(before, NODES, grow={"rollout": grow})
    assert hosts(found.plan) == nodes and found.arrangement.optimal and not found.moves
    assert [move.rank for move in found.gains] == list(range(16, 16 + 8 * grow))
    assert found.plan["rollout"].layout.size("dp") == 2 + grow
    assert replan(found.plan, NODES, shrink={"rollout": grow}).plan == before


def test_repair_then_shrink_then_grow() -> None:
    before = job([0, 1, 4, 5], {}, rollout=("0-7", {"tp": 4}), actor=("8-15", {"tp": 4}))
    found = replan(before, NODES, without=["n5"], shrink={"rollout": 1}, grow={"actor": 1})
    # n6 takes over from n5; node rank 1 has no processes any more, and its node is a spare.
    assert hosts(found.plan)[:1] + hosts(found.plan)[2:4] == [0, 4, 6]
    assert [move.rank for move in found.moves] == [4, 5, 6, 7] and all(move.replaced for move in found.moves)
    assert [(move.component, move.rank) for move in found.losses] == [("rollout", rank) for rank in range(4, 8)]
    assert [(move.component, move.rank) for move in found.gains] == [("actor", rank) for rank in range(8, 12)]
    assert {move.after.cluster_node_rank for move in found.gains if move.after} == {4}
    assert list(replan_lines(found))[1:] == [
        "rollout shrinks from 2 data groups to 1: 4 of 8 ranks",
        f"actor grows from 2 data groups to 3: ranks 8-11 on n{hosts(found.plan)[4]}",
    ]


@pytest.mark.parametrize("count", [4, 5])
def test_node_ranks_without_processes_get_some_where_nodes_lack(count: int) -> None:
    """On a full cluster, the node that one component leaves goes to another; its rank stays where it is."""
    before = job([0, 1, 2, 3], {}, rollout=("0-7", {"tp": 4}), actor=("8-15", {"tp": 4}))
    found = replan(before, NODES.first(count), shrink={"rollout": 1}, grow={"actor": 1})
    assert str(found.plan["actor"].used_nodes()) == ("1-3" if count == 4 else "2-4")
    assert sorted(hosts(found.plan)) == list(range(count)) and not found.moves
    assert_same_rows(before.only("actor"), found.plan)
    with pytest.raises(PlacementError) as refused:
        replan(before, NODES.first(count), shrink={"rollout": 1}, grow={"actor": 3})
    assert refused.value.message == f"actor: no 3 more nodes with 4 NV_GPU; {count - 3} can be added"


def test_a_repair_before_growth_may_move_survivors() -> None:
    before = engines([0, 1, 2, 3, 4, 5], {"segment": 2}, tp=4)
    found = replan(before, NODES, without=["n1", "n4"], grow={"rollout": 2})
    assert hosts(found.plan) == [11, 12, 2, 3, 6, 5, 7, 8]
    with pytest.raises(PlacementError) as refused:
        replan(before, NODES, without=["n1", "n4"], grow={"rollout": 2}, fixed=True)
    assert refused.value.code == "no-spare"


def test_last_node_ranks_without_processes_are_spares() -> None:
    found = replan(engines([0, 1, 2, 3, 4], {}, tp=4), NODES, shrink={"rollout": 2})
    assert hosts(found.plan) == [0, 1, 2] and len(found.arrangement.spares) == 10


def test_without_a_failure_nothing_moves() -> None:
    """A whole in two domains stays there, though one has room for it; growth does not mend a torn segment."""
    labels = [("x", "a"), ("x", "b"), ("x", "a"), ("x", "a")]
    halves = {"keep": {"rollout": {"world": {"nvlink": 2}}}}
    before = job([0, 1], halves, cluster(labels), rollout=("0-7", {"tp": 4}))
    assert replan(before, cluster(labels)).plan == before
    before = engines([0, 1, 2, 3], {"segment": 2})
    relabelled = cluster([("b0", "ab"[rank % 2]) for rank in range(13)])
    with pytest.raises(PlacementError) as refused:
        replan(before, relabelled, grow={"rollout": 1})
    assert refused.value.code == "segment-incomplete"


def test_node_groups_grow_with_their_component() -> None:
    section = {
        "num_nodes": 4,
        "node_groups": [
            {"label": "train", "node_ranks": "0-1"},
            {"label": "infer", "node_ranks": "2-3", "env_configs": [{"node_ranks": "3", "env_vars": [{"A": "1"}]}]},
        ],
        "component_placement": {
            "actor": {"node_group": "train", "placement": "0-7", "parallel": {"tp": 4}},
            "rollout": {"node_group": "infer", "placement": "0-7", "parallel": {"tp": 4}},
        },
    }
    before = rankplan.plan({"cluster": section}, NODES)
    found = replan(before, NODES, grow={"actor": 1, "rollout": 2}).plan
    assert found.inventory.facts is not None
    groups = {group.label: group for group in found.inventory.facts.node_groups}
    assert str(groups["train"].node_ranks) == "0-1,4" and str(groups["infer"].node_ranks) == "2-3,5-6"
    assert groups["infer"].environment(6)[0] == {"A": "1"} and groups["infer"].environment(2)[0] == {}
    assert_same_rows(before, found)
    assert found.on(found.inventory) == found
    assert replan(found, NODES, shrink={"actor": 1, "rollout": 2}).plan == before or hosts(found)[:4] == hosts(before)
