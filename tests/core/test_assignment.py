"""Where processes end up: rankplan against the oracle on generated clusters, and laws that hold for every plan."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rankplan import (
    ComponentPlacement,
    FlexiblePlacementStrategy,
    Inventory,
    NodePlacementStrategy,
    PackedPlacementStrategy,
    PlacementError,
    PlacementStrategy,
)
from rankplan.rlinf import with_section
from rankplan.testing import check_plan, placements
from support import answers, oracle
from support.cases import Case, planned, valid_cases
from support.outcomes import some
from support.rejected.assignment import REFUSED_BY_HAND, TWO_BY_FOUR, WORDS

# ------------------------------------------------------------------------------------------- generated clusters


FAULTY_PARTS = ["2-1", "0", "99", "0-1:0-2", "5:all", "x", ":1", "1,3:2", "", "all", "all:0"]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Most are valid; in some, a component has a part more, the placement or the node groups of another case."""
    cluster, inventory, isolate = draw(valid_cases())
    components = cluster["component_placement"]
    name = draw(st.sampled_from(list(components)))
    entry = components[name] if isinstance(components[name], dict) else {"placement": components[name]}
    change = draw(st.sampled_from(["nothing", "nothing", "part", "text", "groups"]))
    if change == "part":
        parts = str(entry["placement"]).split(",")
        parts.insert(draw(st.integers(0, len(parts))), draw(st.sampled_from(FAULTY_PARTS)))
        components[name] = entry | {"placement": ",".join(parts)}
    elif change == "text":
        components[name] = entry | {"placement": draw(placements(draw(st.integers(1, 20))))}
    elif change == "groups":
        labels = ["cluster", "node", "nowhere", *(group["label"] for group in cluster.get("node_groups", ()))]
        components[name] = entry | {"node_group": draw(st.lists(st.sampled_from(labels), min_size=1, max_size=3))}
    return cluster, inventory, isolate


# ---------------------------------------------------------------------------------------------- against the oracle


@given(cases())
def test_config_is_placed_as_the_oracle_places_it(case: Case) -> None:
    assert answers.outcome(answers.plan, *case) == answers.outcome(oracle.plan, *case)


Where = tuple[dict[str, Any], dict[str, Any], str]  # cluster section, inventory, group label


@st.composite
def places(draw: st.DrawFn) -> Where:
    cluster, inventory, _ = draw(valid_cases())
    labels = [str(group["label"]) for group in cluster.get("node_groups", ())]
    return cluster, inventory, draw(st.sampled_from(["cluster", "node", *labels]))


def by_hand(strategy: Callable[[], PlacementStrategy], where: Where, isolate: bool) -> list[oracle.Row]:
    cluster, inventory, _ = where

    def ask() -> list[oracle.Row]:
        known = with_section(Inventory.from_dict(inventory), cluster)
        return answers.as_dicts(strategy().get_placement(known, isolate_accelerator=isolate))

    try:
        return answers.refusing(ask)
    except oracle.Refused as refused:
        raise oracle.Refused(*set(refused.codes)) from refused  # there is no text: how often does not matter


@given(places(), st.lists(st.lists(st.integers(0, 8), min_size=1, max_size=3), min_size=1, max_size=4), st.booleans())
def test_flexible_strategy_agrees_with_the_oracle(where: Where, held: list[list[int]], isolate: bool) -> None:
    before = copy.deepcopy(held)
    found = answers.outcome(by_hand, lambda: FlexiblePlacementStrategy(held, where[2]), where, isolate)
    assert held == before, "the caller's lists were changed"
    topology = oracle.topology(where[1], where[0], [where[2]])
    assert found == answers.outcome(oracle.flexible, held, topology, isolate)


EVERY_NODE = {"label": "cluster", "node_ranks": "all"}


@given(places(), st.lists(st.integers(0, 5), min_size=1, max_size=6), st.booleans())
def test_node_strategy_agrees_with_the_oracle(where: Where, ranks: list[int], isolate: bool) -> None:
    cluster, inventory, label = where
    groups = [group | {"ignore_hardware": True} for group in [*cluster.get("node_groups", ()), EVERY_NODE]]
    topology = oracle.topology(inventory, cluster | {"node_groups": groups}, [label])
    found = answers.outcome(by_hand, lambda: NodePlacementStrategy(ranks, label), where, isolate)
    assert found == answers.outcome(oracle.by_node, ranks, topology, isolate)


@given(places(), st.integers(0, 4), st.integers(1, 12), st.integers(1, 3), st.integers(1, 3), st.booleans())
def test_packed_strategy_agrees_with_the_oracle(
    where: Where, start: int, windows: int, per_process: int, stride: int, isolate: bool
) -> None:
    end = start + windows - 1
    found = answers.outcome(
        by_hand, lambda: PackedPlacementStrategy(start, end, per_process, stride, where[2]), where, isolate
    )
    topology = oracle.topology(where[1], where[0], [where[2]])
    assert found == answers.outcome(oracle.packed, start, end, per_process, stride, topology, isolate)


# ------------------------------------------------------------------------------------------- laws of every plan


@given(valid_cases())
def test_what_must_hold_for_every_plan(case: Case) -> None:
    check_plan(planned(case))


@given(valid_cases())
def test_devices_of_a_process_are_ascending(case: Case) -> None:
    for rows in some(planned(case).values()):
        for row in some(rows):
            assert row.local_hardware_ranks == sorted(set(row.local_hardware_ranks))


@given(valid_cases())
def test_asking_twice_gives_equal_answers(case: Case) -> None:
    cluster, inventory, isolate = case
    kept = copy.deepcopy(case)
    known = Inventory.from_dict(inventory)
    placement = ComponentPlacement({"cluster": cluster}, known)
    for name in placement.components:
        strategy = placement.get_strategy(name)
        once, twice = (strategy.get_placement(known, isolate_accelerator=isolate) for _ in range(2))
        assert once == twice == placement.plan(isolate_accelerator=isolate)[name]
        assert len(once) == placement.get_world_size(name)
    assert case == kept, "the config or the inventory of the caller was changed"


# ----------------------------------------------------------------------------------------- the sequence of rows


@given(valid_cases(), st.data())
def test_placements_are_a_sequence_like_any_other(case: Case, data: st.DataObject) -> None:
    for rows in some(planned(case).values()):
        listed = list(rows)
        assert isinstance(rows, Sequence)
        assert len(rows) == len(listed) and list(reversed(rows)) == listed[::-1]
        assert [rows[i] for i in range(len(rows))] == listed
        assert [rows[i - len(rows)] for i in range(len(rows))] == listed
        cut = data.draw(st.slices(len(rows)))
        assert list(rows[cut]) == listed[cut]
        assert listed[0] in rows and rows.index(listed[-1]) == len(listed) - 1 and rows.count(listed[0]) == 1
        for outside in (len(rows), -len(rows) - 1):
            with pytest.raises(IndexError):
                rows[outside]


@given(valid_cases())
def test_placements_compare_pickle_and_hash_by_their_rows(case: Case) -> None:
    for rows in some(planned(case).values()):
        again = pickle.loads(pickle.dumps(rows))
        assert again == rows
        assert rows[:-1] != rows
        assert list(pickle.loads(pickle.dumps(list(rows)))) == list(rows)
        assert len({*rows, *again}) == len(rows)
        assert copy.copy(rows) == rows == copy.deepcopy(rows)
        assert str(len(rows)) in repr(rows) and len(repr(rows)) < 2000


def test_a_row_is_read_only_and_shows_its_fields() -> None:
    row = FlexiblePlacementStrategy([[1, 2]]).get_placement(Inventory.uniform(num_nodes=1, num_accelerators=4))[0]
    assert "rank=0/1" in repr(row) and "[1, 2]" in repr(row)
    for field in oracle.FIELDS:
        with pytest.raises(AttributeError):
            setattr(row, field, None)


def test_groups_may_share_a_node_that_has_nothing_to_count() -> None:
    inventory = Inventory.from_dict({"nodes": [{"ranks": "0,2", "accelerators": 1}, {"ranks": 1}]})
    groups = [{"label": "a", "node_ranks": "0-1"}, {"label": "b", "node_ranks": "1-2"}]
    both = with_section(inventory, {"num_nodes": 3, "node_groups": groups})
    rows = PackedPlacementStrategy(0, 1, node_group=["a", "b"]).get_placement(both)
    assert [row.cluster_node_rank for row in rows] == [0, 2]


@given(valid_cases())
def test_numpy_columns_hold_what_the_rows_hold(case: Case) -> None:
    for rows in some(part for one in planned(case).values() for part in (one.rows, one[::-2])):
        columns = rows.to_numpy()
        for field in ("rank", "cluster_node_rank", "placement_node_rank", "local_rank", "local_world_size"):
            assert columns[field].tolist() == [getattr(row, field) for row in rows]
        devices = list(zip(columns["device_node_rank"].tolist(), columns["devices"].tolist(), strict=True))
        starts = columns["device_starts"].tolist()
        assert [devices[start:end] for start, end in pairwise(starts)] == [row.devices for row in rows]


# ------------------------------------------------------------------------------------------ strategies by hand


# (strategy, devices of every process)
BY_HAND = [
    (FlexiblePlacementStrategy([[0], [1], [5]]), [[(0, 0)], [(0, 1)], [(1, 1)]]),
    (FlexiblePlacementStrategy([[3, 2], [1, 0]]), [[(0, 0), (0, 1)], [(0, 2), (0, 3)]]),
    (FlexiblePlacementStrategy([[4], [0], [4]]), [[(0, 0)], [(1, 0)], [(1, 0)]]),
    (PackedPlacementStrategy(0, 7), [[(node, gpu)] for node in (0, 1) for gpu in range(4)]),
    (PackedPlacementStrategy(2, 5, 2), [[(0, 2), (0, 3)], [(1, 0), (1, 1)]]),
    (
        PackedPlacementStrategy(0, 7, num_hardware_per_process=2, stride=2),
        [[(0, 0), (0, 2)], [(0, 1), (0, 3)], [(1, 0), (1, 2)], [(1, 1), (1, 3)]],
    ),
    (PackedPlacementStrategy(0, 3, stride=4), [[(0, 0)], [(0, 1)], [(0, 2)], [(0, 3)]]),
]


@pytest.mark.parametrize(("strategy", "devices"), BY_HAND)
def test_strategy_by_hand_gives_each_process_its_devices(strategy: PlacementStrategy, devices: Any) -> None:
    rows = strategy.get_placement(TWO_BY_FOUR)
    assert [row.devices for row in rows] == devices
    assert [row.visible_accelerators for row in rows] == [[str(local) for _, local in held] for held in devices]
    assert strategy.get_placement(TWO_BY_FOUR) == rows
    assert pickle.loads(pickle.dumps(strategy)).get_placement(TWO_BY_FOUR) == rows


def test_node_strategy_places_by_node_and_sees_all_of_it() -> None:
    rows = NodePlacementStrategy([1, 0, 1]).get_placement(TWO_BY_FOUR)
    assert [row.cluster_node_rank for row in rows] == [0, 1, 1]
    assert {row.node_group_label for row in rows} == {"node"}
    assert all(row.local_hardware_ranks == [] and row.local_accelerator_rank == 0 for row in rows)
    assert all(row.visible_accelerators == ["0", "1", "2", "3"] for row in rows)


def test_a_strategy_does_not_change_with_the_list_it_was_made_from() -> None:
    held = [[1, 0], [2]]
    strategy = FlexiblePlacementStrategy(held)
    before = strategy.get_placement(TWO_BY_FOUR)
    held[0].append(3)
    held.append([3])
    assert strategy.get_placement(TWO_BY_FOUR) == before


def test_ids_are_the_node_s_own_and_ranks_count_the_visible_ones() -> None:
    masked = Inventory.from_dict({"nodes": [{"ranks": 0, "accelerator_ids": ["4", "6", "7"]}]})
    isolated = FlexiblePlacementStrategy([[1, 2]]).get_placement(masked)[0]
    assert (isolated.visible_accelerators, isolated.local_accelerator_rank) == (["6", "7"], 1)
    open_to_all = FlexiblePlacementStrategy([[1, 2]]).get_placement(masked, isolate_accelerator=False)[0]
    assert (open_to_all.visible_accelerators, open_to_all.local_accelerator_rank) == (["4", "6", "7"], 1)


@pytest.mark.parametrize(("ask", "code"), REFUSED_BY_HAND)
def test_strategy_by_hand_is_refused_with_a_code(ask: Callable[[], object], code: str) -> None:
    with pytest.raises(PlacementError) as refused:
        ask()
    assert refused.value.code == code


# ---------------------------------------------------------------------------------------------- in a config

ARM = {"label": "arm", "node_ranks": 0, "hardware": {"type": "Arm", "configs": [{"node_rank": 0}]}}
NO_ARM = {"label": "none", "node_ranks": 0, "hardware": {"type": "Arm", "configs": []}}
HEAD = {"label": "head", "node_ranks": 0}


@pytest.mark.parametrize(("entry", "found", "help"), WORDS)
def test_refusal_says_what_was_found_and_what_to_write(entry: Any, found: list[str], help: str) -> None:
    groups = [group for group in (ARM, NO_ARM, HEAD) if group["label"] in str(entry)]
    cluster = {"num_nodes": 2, "component_placement": {"actor": entry}, "node_groups": groups}
    with pytest.raises(PlacementError) as refused:
        ComponentPlacement({"cluster": cluster}, TWO_BY_FOUR)
    assert [f"{fault.code}: {fault.message}" for fault in refused.value.diagnostics] == found
    assert refused.value.diagnostics[-1].help == help
