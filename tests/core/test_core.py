"""The compiled core by itself: rules as values, the ways from rows to runs and back to ranks, and what it rejects."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rankplan import NodeSpec, PlacementError, RankSet, _core, plan
from rankplan._core import Chunks, Packed, Placements, Pool, RankMap


def inventory(*accelerators: int, prefix: str = "") -> _core.Inventory:
    """Return nodes with these numbers of accelerators."""
    return _core.Inventory(
        [
            NodeSpec(ranks=node, accelerator_ids=[f"{prefix}{index}" for index in range(count)])
            for node, count in enumerate(accelerators)
        ]
    )


def pool(nodes: _core.Inventory, by_node: bool = False) -> Pool:
    return Pool(nodes, [("cluster", RankSet(f"0-{nodes.num_nodes - 1}"), by_node)])


TWO_BY_FOUR = inventory(4, 4)
RULES = [
    RankMap.parse("0-3:0-1,4,5-7:3", 8),
    RankMap.from_lists([[5], [1, 0]]),
    Packed(0, 7, 2, 2),
    Chunks([6, 7, 3, 0, 0, 1], 2),
    Chunks([2, 3, 4, 5], 4),
]


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_a_rule_is_a_value(rule: RankMap | Packed | Chunks) -> None:
    again = pickle.loads(pickle.dumps(rule))
    assert again == rule and hash(again) == hash(rule) and type(again) is type(rule)
    rows, same = pool(TWO_BY_FOUR).apply(rule), pool(TWO_BY_FOUR).apply(again, visibility=True)
    assert rows == same and len(rows) == rule.world_size
    assert not pool(TWO_BY_FOUR).apply(rule, visibility=False).isolate_accelerator


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_ranks_of_inverts_apply(rule: RankMap | Packed | Chunks) -> None:
    rows = pool(TWO_BY_FOUR).apply(rule)
    ranks = pool(TWO_BY_FOUR).ranks_of(rows)
    assert ranks == [[4 * node + local for node, local in row.devices] for row in rows]
    assert pool(TWO_BY_FOUR).ranks_of(rows[::-1]) == ranks[::-1]
    assert RankSet(rank for held in ranks for rank in held) == rule.resources
    assert pool(TWO_BY_FOUR, by_node=True).ranks_of(rows) == [[row.cluster_node_rank] for row in rows]
    if rule.resources[-1] > 3:
        with pytest.raises(ValueError, match="outside the selected node groups"):
            pool(inventory(4)).ranks_of(rows)


def unfolded(rows: Placements, at_home: bool = False) -> list[tuple[Any, ...]]:
    """Return the runs, one for each node."""
    return [
        (run.node + i, run.first_rank + i * run.pattern.processes, run.pattern.processes, run.pattern.devices)
        for run in rows.runs(at_home)
        for i in range(run.nodes)
    ]


def test_runs_fold_equal_nodes_and_share_their_patterns() -> None:
    rows = pool(inventory(2, 2, 2, 4, 2)).place("all")[1]
    runs = rows.runs()
    assert [(run.node, run.nodes, run.first_rank) for run in runs] == [(0, 3, 0), (3, 1, 6), (4, 1, 10)]
    first, wide, last = (run.pattern for run in runs)
    assert first is last and first == last and hash(first) == hash(last) and first != wide
    assert (first.node_group, first.resource_type, first.processes) == ("cluster", "accelerator", 2)
    assert first.devices == ((0,), (1,)) and wide.devices == ((0,), (1,), (2,), (3,))
    assert runs == rows.runs() and runs[0] != runs[1]
    by_node = pool(TWO_BY_FOUR, by_node=True).place("0-1:0-3")[1].runs()
    assert [(run.nodes, run.pattern.resource_type, run.pattern.devices) for run in by_node] == [(2, "node", ())]


def test_a_process_on_several_nodes_is_a_run_on_each_or_at_home() -> None:
    rows = pool(TWO_BY_FOUR).apply(Chunks([2, 3, 4, 5, 6, 7], 3))
    assert unfolded(rows) == [(0, 0, 1, ((2, 3),)), (1, 0, 1, ((0,),)), (1, 1, 1, ((1, 2, 3),))]
    assert unfolded(rows, at_home=True) == [(0, 0, 1, ((2, 3, 0),)), (1, 1, 1, ((1, 2, 3),))]


def test_rows_move_to_another_inventory_that_has_their_places() -> None:
    rows = pool(TWO_BY_FOUR).place("0-5")[1]
    moved = rows.on(inventory(4, 2, prefix="GPU-"))
    assert [row.visible_accelerators for row in moved] == [[f"GPU-{index}"] for index in (0, 1, 2, 3, 0, 1)]
    assert [row.devices for row in moved] == [row.devices for row in rows] and moved != rows
    for fewer, message in [
        (inventory(4), "process 4 is on node 1, but the inventory has 1 node"),
        (inventory(4, 1), "process 5 uses accelerator 1 of node 1, which has 1 accelerator"),
    ]:
        with pytest.raises(PlacementError) as refused:
            rows.on(fewer)
        assert refused.value.message == message


def test_a_map_keeps_the_text_that_its_faults_point_into() -> None:
    rule = RankMap.parse("0-3, 5-7", 8)
    with pytest.raises(PlacementError) as refused:
        pool(inventory(6)).apply(rule)
    assert (refused.value.text, refused.value.span) == ("0-3, 5-7", (5, 8))
    again = pickle.loads(pickle.dumps(rule))
    with pytest.raises(PlacementError) as refused:
        pool(inventory(6)).apply(again)
    assert again == rule and refused.value.text is None


def test_packed_windows_need_hardware() -> None:
    for nodes in (pool(inventory(0, 0, 0, 0)), pool(inventory(2, 2, 2, 2), by_node=True)):
        with pytest.raises(PlacementError) as refused:
            nodes.apply(Packed(0, 3, 2, 1))
        assert refused.value.code == "no-resources"


LISTS = st.lists(st.lists(st.integers(0, 20), min_size=1, max_size=5, unique=True), min_size=1, max_size=8)


@given(LISTS)
def test_a_map_of_any_lists_reads_what_it_prints(lists: list[list[int]]) -> None:
    rule = RankMap.from_lists(lists)
    again = RankMap.read(str(rule))
    assert again == rule == pickle.loads(pickle.dumps(rule))
    used = [list(resources) for resources, _ in again.segments]
    assert used == sorted(map(sorted, lists), key=lambda ranks: ranks[0])


@pytest.mark.parametrize(
    ("text", "code"),
    [("0-2:0-1", "not-multiple"), ("0,0:0", "resource-order"), ("0:1", "process-start"), ("", "empty-placement")],
)
def test_no_other_map_is_read(text: str, code: str) -> None:
    with pytest.raises(PlacementError) as refused:
        RankMap.read(text)
    assert refused.value.code == code


def test_chunks_read_what_they_print() -> None:
    chunks = Chunks([0, 1, 2, 3, 8, 9, 10, 11, 2, 0], 5)
    assert str(chunks) == "0-3,8-11,2,0" and Chunks.parse(str(chunks), 5) == chunks
    assert (chunks.world_size, chunks.per_process, str(chunks.resources)) == (2, 5, "0-3,8-11")


@pytest.mark.parametrize(
    ("resources", "per_process", "code"),
    [
        ([0, 1], 0, "invalid-value"),
        ([4294967295], 1, "invalid-value"),
        ([], 1, "empty-placement"),
        ([0, 1, 2], 2, "not-multiple"),
        ("0-16777216", 1, "too-many-processes"),
        ("3-0", 1, "reversed-range"),
        ("0:1", 1, "syntax"),
    ],
)
def test_chunks_are_rejected_without_a_pool(resources: Any, per_process: int, code: str) -> None:
    with pytest.raises(PlacementError) as refused:
        (Chunks.parse if isinstance(resources, str) else Chunks)(resources, per_process)
    assert refused.value.code == code


def test_as_many_processes_as_the_limit_are_placed_and_no_more() -> None:
    most = _core.MAX_PROCESSES
    assert Packed(0, most - 1, 1, 1).world_size == Chunks.parse(f"0-{most - 1}", 1).world_size == most
    with pytest.raises(PlacementError) as refused:
        Packed(0, most, 1, 1)
    assert refused.value.code == "too-many-processes"


def test_nothing_is_placed_after_too_many_processes() -> None:
    """The last process would be on two nodes."""
    text = "0:0-16777216,7-8:16777217"
    with pytest.raises(PlacementError) as refused:
        plan({"cluster": {"num_nodes": 2, "component_placement": {"actor": text}}}, "2x8")
    assert [fault.code for fault in refused.value.diagnostics] == ["too-many-processes"]


def test_limits_and_reserved_names() -> None:
    assert (_core.CLUSTER, _core.NODE, _core.ACCELERATOR, _core.WHOLE_NODE) == (
        "cluster",
        "node",
        "accelerator",
        "node",
    )
    assert (_core.MAX_RANK, _core.MAX_NODES) == (4294967294, 1 << 24)
    assert (_core.MAX_PROCESSES, _core.MAX_LOCAL) == (1 << 24, 1 << 16)
