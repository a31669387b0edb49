"""Where processes end up: rankplan against the oracle on generated clusters, and laws that hold for every plan."""

from __future__ import annotations

import copy
import pickle
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import answers
import oracle
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
    Plan,
)
from rankplan.accelerators import VENDORS

# ------------------------------------------------------------------------------------------- generated clusters

ACCELERATOR_TYPES = [row.accelerator_type for row in VENDORS]
FAULTY_PARTS = ["2-1", "0", "99", "0-1:0-2", "5:all", "x", ":1", "1,3:2", "", "all"]


@st.composite
def nodes(draw: st.DrawFn, rank: int) -> dict[str, Any]:
    """One node: none to five accelerators of some type, now and then with physical ids of its own."""
    count = draw(st.sampled_from([0, 1, 2, 2, 4, 4, 5]))
    node: dict[str, Any] = {"ranks": rank, "accelerators": count}
    if count and draw(st.booleans()):
        node["accelerator_type"] = draw(st.sampled_from(ACCELERATOR_TYPES))
    if count and draw(st.booleans()):
        first = draw(st.integers(0, 4))
        node["accelerator_ids"] = draw(
            st.sampled_from([[str(first + i) for i in range(count)], [f"GPU-{rank}-{i}" for i in range(count)]])
        )
    return node


@st.composite
def groups(draw: st.DrawFn, label: str, num_nodes: int) -> dict[str, Any]:
    """A node group over some of the nodes: plain, ignoring its hardware, or with robots (a type of its own)."""
    ranks = sorted(draw(st.sets(st.integers(0, num_nodes - 1), min_size=1)))
    written = draw(st.sampled_from(["list", "text"]))
    group: dict[str, Any] = {"label": label, "node_ranks": ranks if written == "list" else oracle.rank_text(ranks)}
    kind = draw(st.sampled_from(["plain", "plain", "ignoring", "robots"]))
    if kind == "ignoring":
        group["ignore_hardware"] = True
    if kind == "robots":
        robots = draw(st.lists(st.sampled_from(ranks), min_size=1, max_size=6))
        configs = [{"node_rank": node, "name": f"{label}{index}"} for index, node in enumerate(robots)]
        group["hardware"] = {"type": f"Arm{label}", "configs": configs}
    return group


@st.composite
def texts(draw: st.DrawFn, count: int) -> str:
    """A placement over ``count`` resources: most are valid, some have a part changed afterwards."""
    if draw(st.integers(0, 7)) == 0:
        return draw(st.sampled_from(["all", "all:0", "all:0-1", f"all:0-{2 * count - 1}", "0-999", f"{count}", ""]))
    parts, resource, process = [], draw(st.integers(0, min(2, count - 1))), 0
    while resource < count and len(parts) < 4:
        size = draw(st.integers(1, min(6, count - resource)))
        text = f"{resource}-{resource + size - 1}" if size > 1 or draw(st.booleans()) else str(resource)
        resource += size + draw(st.sampled_from([0, 0, 0, 1, 2]))
        if draw(st.booleans()):
            sizes = [k for k in range(1, 2 * size + 1) if k % size == 0 or size % k == 0]
            k = draw(st.sampled_from(sizes))
            text += f":{process}-{process + k - 1}" if k > 1 else f":{process}"
            process += k
        else:
            process += size
        parts.append(text)
    if draw(st.integers(0, 5)) == 0:
        at = draw(st.integers(0, len(parts)))
        change = draw(st.sampled_from(FAULTY_PARTS))
        parts = [*parts[:at], change, *parts[at:]]
    return ",".join(parts)


def _overlap(inventory: dict[str, Any], cluster: dict[str, Any], labels: list[str]) -> bool:
    return answers.outcome(oracle.topology, inventory, cluster, labels) == ["overlapping-groups"]


Case = tuple[dict[str, Any], dict[str, Any], bool]  # cluster section, inventory, isolate


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """A cluster of up to five nodes with up to three groups, and one or two placements over some of them."""
    num_nodes = draw(st.integers(1, 5))
    inventory = {"nodes": [draw(nodes(rank)) for rank in range(num_nodes)]}
    labels = ["a", "b", "4090"][: draw(st.integers(0, 3))]
    node_groups = [draw(groups(label, num_nodes)) for label in labels]
    cluster: dict[str, Any] = {"num_nodes": num_nodes, "node_groups": node_groups, "component_placement": {}}
    for name in ["actor,critic", "rollout"][: draw(st.integers(1, 2))]:
        named = draw(st.lists(st.sampled_from(["cluster", "node", *labels * 2]), min_size=1, max_size=2))
        if draw(st.integers(0, 9)) and _overlap(inventory, cluster, named):
            named = named[:1]
        count = 4 if _overlap(inventory, cluster, named) else len(oracle.topology(inventory, cluster, named).resources)
        text = draw(texts(count))
        if named == ["cluster"]:
            cluster["component_placement"][name] = int(text) if text.isdigit() else text
        else:
            written = draw(st.sampled_from([named, ",".join(named), " , ".join(named)]))
            cluster["component_placement"][name] = {"node_group": written, "placement": text}
    return cluster, inventory, draw(st.booleans())


# ---------------------------------------------------------------------------------------------- against the oracle


@given(cases())
def test_config_is_placed_as_the_oracle_places_it(case: Case) -> None:
    assert answers.outcome(answers.plan, *case) == answers.outcome(oracle.plan, *case)


Where = tuple[dict[str, Any], dict[str, Any], str]  # cluster section, inventory, group label


@st.composite
def places(draw: st.DrawFn) -> Where:
    cluster, inventory, _ = draw(cases())
    label = draw(st.sampled_from(["cluster", "node", *(group["label"] for group in cluster["node_groups"])]))
    return cluster, inventory, label


def by_hand(strategy: Callable[[], PlacementStrategy], where: Where, isolate: bool) -> list[oracle.Row]:
    cluster, inventory, _ = where

    def ask() -> list[oracle.Row]:
        known = Inventory.from_dict(inventory).with_config(cluster)
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
    counting_nodes = [group | {"ignore_hardware": True} for group in [*cluster["node_groups"], EVERY_NODE]]
    topology = oracle.topology(inventory, {"node_groups": counting_nodes}, [label])
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


def without_refused_components(case: Case) -> Case:
    """The case with only those components that the oracle can place, or with one that it always can."""
    cluster, inventory, isolate = case
    kept = {}
    for names, entry in cluster["component_placement"].items():
        if isinstance(answers.outcome(oracle.plan, cluster | {"component_placement": {names: entry}}, inventory), dict):
            kept[names] = entry
    kept = kept or {"actor": {"node_group": "node", "placement": "all"}}
    return cluster | {"component_placement": kept}, inventory, isolate


valid_cases = cases().map(without_refused_components)


def planned(case: Case) -> Plan:
    cluster, inventory, isolate = case
    placement = ComponentPlacement({"cluster": cluster}, Inventory.from_dict(inventory))
    return placement.plan(isolate_accelerator=isolate)


@given(valid_cases)
def test_every_rank_is_placed_once(case: Case) -> None:
    for rows in planned(case).values():
        assert [row.rank for row in rows] == list(range(len(rows)))
        assert {row.world_size for row in rows} == {len(rows)}


@given(valid_cases)
def test_nothing_is_past_its_node(case: Case) -> None:
    inventory = Inventory.from_dict(case[1])
    for rows in planned(case).values():
        for row in rows:
            node = inventory.node(row.cluster_node_rank)
            assert set(row.visible_accelerators) <= set(node.accelerator_ids)
            assert -1 <= row.local_accelerator_rank < node.accelerators
            assert (row.local_accelerator_rank == -1) == (node.accelerators == 0)
            assert row.accelerator_type == node.accelerator_type
            assert [node_rank for node_rank, _ in row.devices] == [row.cluster_node_rank] * len(row.devices)
            assert [local for _, local in row.devices] == row.local_hardware_ranks


@given(valid_cases)
def test_local_ranks_are_dense_on_every_node(case: Case) -> None:
    for rows in planned(case).values():
        on_node = Counter(row.cluster_node_rank for row in rows)
        for node, count in on_node.items():
            here = [row for row in rows if row.cluster_node_rank == node]
            assert [row.local_rank for row in here] == list(range(count))
            assert {row.local_world_size for row in here} == {count}


@given(valid_cases)
def test_nodes_are_numbered_in_the_order_of_their_first_use(case: Case) -> None:
    for rows in planned(case).values():
        first_uses = list(dict.fromkeys(row.cluster_node_rank for row in rows))
        assert [row.placement_node_rank for row in rows] == [first_uses.index(row.cluster_node_rank) for row in rows]


@given(valid_cases)
def test_devices_of_a_process_are_ascending(case: Case) -> None:
    for rows in planned(case).values():
        for row in rows:
            assert row.local_hardware_ranks == sorted(set(row.local_hardware_ranks))


@given(valid_cases)
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


@given(valid_cases, st.data())
def test_placements_are_a_sequence_like_any_other(case: Case, data: st.DataObject) -> None:
    for rows in planned(case).values():
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


@given(valid_cases)
def test_placements_compare_pickle_and_hash_by_their_rows(case: Case) -> None:
    for rows in planned(case).values():
        again = pickle.loads(pickle.dumps(rows))
        assert again == rows
        assert rows[:-1] != rows
        assert list(pickle.loads(pickle.dumps(list(rows)))) == list(rows)
        assert len({*rows, *again}) == len(rows)
        assert copy.copy(rows) == rows == copy.deepcopy(rows)
        assert str(len(rows)) in repr(rows) and len(repr(rows)) < 2000


def test_a_row_is_read_only_and_shows_its_fields() -> None:
    row = FlexiblePlacementStrategy([[1, 2]]).get_placement(Inventory.uniform(num_nodes=1, accelerators=4))[0]
    assert "rank=0/1" in repr(row) and "[1, 2]" in repr(row)
    for field in oracle.FIELDS:
        with pytest.raises(AttributeError):
            setattr(row, field, None)


def test_groups_may_share_a_node_that_has_nothing_to_count() -> None:
    inventory = Inventory.from_dict({"nodes": [{"ranks": "0,2", "accelerators": 1}, {"ranks": 1}]})
    groups = [{"label": "a", "node_ranks": "0-1"}, {"label": "b", "node_ranks": "1-2"}]
    both = inventory.with_config({"num_nodes": 3, "node_groups": groups})
    rows = PackedPlacementStrategy(0, 1, node_group=["a", "b"]).get_placement(both)
    assert [row.cluster_node_rank for row in rows] == [0, 2]


@given(valid_cases)
def test_numpy_columns_hold_what_the_rows_hold(case: Case) -> None:
    for rows in (part for whole in planned(case).values() for part in (whole, whole[::-2])):
        columns = rows.to_numpy()
        for field in ("rank", "cluster_node_rank", "placement_node_rank", "local_rank", "local_world_size"):
            assert columns[field].tolist() == [getattr(row, field) for row in rows]
        devices = list(zip(columns["device_node_rank"].tolist(), columns["devices"].tolist(), strict=True))
        starts = columns["device_starts"].tolist()
        assert [devices[start:end] for start, end in pairwise(starts)] == [row.devices for row in rows]


# ------------------------------------------------------------------------------------------ strategies by hand

TWO_BY_FOUR = Inventory.uniform(num_nodes=2, accelerators=4)

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


# (what makes and asks a strategy, code)
REFUSED_BY_HAND = [
    (lambda: FlexiblePlacementStrategy([]), "empty-placement"),
    (lambda: FlexiblePlacementStrategy([[0], []]), "empty-placement"),
    (lambda: FlexiblePlacementStrategy([[0, 0]]), "duplicate-resource"),
    (lambda: FlexiblePlacementStrategy([[-1]]), "invalid-value"),
    (lambda: FlexiblePlacementStrategy([["0"]]), "invalid-value"),
    (lambda: FlexiblePlacementStrategy([[2**40]]), "invalid-value"),
    (lambda: FlexiblePlacementStrategy([[8]]).get_placement(TWO_BY_FOUR), "resource-out-of-range"),
    (lambda: FlexiblePlacementStrategy([[3, 4]]).get_placement(TWO_BY_FOUR), "spans-nodes"),
    (lambda: FlexiblePlacementStrategy([[0]], "node").get_placement(TWO_BY_FOUR), "no-resources"),
    (lambda: FlexiblePlacementStrategy([[0]], "nope").get_placement(TWO_BY_FOUR), "unknown-node-group"),
    (lambda: NodePlacementStrategy([]), "empty-placement"),
    (lambda: NodePlacementStrategy([-1]), "invalid-value"),
    (lambda: NodePlacementStrategy([2]).get_placement(TWO_BY_FOUR), "resource-out-of-range"),
    (lambda: PackedPlacementStrategy(-1, 2), "invalid-value"),
    (lambda: PackedPlacementStrategy(0, 3, 0), "invalid-value"),
    (lambda: PackedPlacementStrategy(0, 3, 1, 0), "invalid-value"),
    (lambda: PackedPlacementStrategy(0, 3, -1), "invalid-value"),
    (lambda: PackedPlacementStrategy(0, 3, 1, 1.0), "invalid-value"),  # type: ignore[arg-type]
    (lambda: PackedPlacementStrategy(3, 2), "reversed-range"),
    (lambda: PackedPlacementStrategy(0, 2, 2), "not-multiple"),
    (lambda: PackedPlacementStrategy(0, 10**9), "too-many-processes"),
    (lambda: PackedPlacementStrategy(0, 8).get_placement(TWO_BY_FOUR), "resource-out-of-range"),
    (lambda: PackedPlacementStrategy(3, 4, 2).get_placement(TWO_BY_FOUR), "spans-nodes"),
    (lambda: PackedPlacementStrategy(0, 0, node_group="node").get_placement(TWO_BY_FOUR), "no-resources"),
]


@pytest.mark.parametrize(("ask", "code"), REFUSED_BY_HAND)
def test_strategy_by_hand_is_refused_with_a_code(ask: Callable[[], object], code: str) -> None:
    with pytest.raises(PlacementError) as refused:
        ask()
    assert refused.value.code == code


# ---------------------------------------------------------------------------------------------- in a config

ARM = {"label": "arm", "node_ranks": 0, "hardware": {"type": "Arm", "configs": [{"node_rank": 0}]}}
NO_ARM = {"label": "none", "node_ranks": 0, "hardware": {"type": "Arm", "configs": []}}
HEAD = {"label": "head", "node_ranks": 0}

# (component entry over two nodes of four accelerators, code and message of every fault, help of the last)
WORDS = [
    (
        "0-7:0",
        ["spans-nodes: process 0 would need 8 accelerators on nodes 0 and 1; a process runs on one node"],
        "choose ranks so that each block of 8 lies on one node, or give each process fewer",
    ),
    (
        {"node_group": "node", "placement": "0-1:0"},
        ["spans-nodes: process 0 would run on 2 nodes (0 to 1); a process runs on one node"],
        "give at least as many processes as nodes, e.g. 0-1:0-1",
    ),
    (
        {"node_group": "head,arm", "placement": "3-4:0"},
        ["mixed-hardware: process 0 would need two kinds of hardware: NV_GPU and Arm"],
        "give each kind of hardware its own segment, or its own component",
    ),
    (
        {"node_group": "cluster,arm", "placement": "7-8:0"},
        [
            "spans-nodes: process 0 would need 2 resources on nodes 1 and 0; a process runs on one node",
            "mixed-hardware: process 0 would need two kinds of hardware: NV_GPU and Arm",
        ],
        "give each kind of hardware its own segment, or its own component",
    ),
    (
        8,
        ["resource-out-of-range: resource rank 8 is out of range: node group `cluster` has 8 accelerators, ranks 0-7"],
        "use ranks up to 7",
    ),
    (
        60,
        ["resource-out-of-range: resource rank 60 is out of range: node group `cluster` has 8 accelerators, ranks 0-7"],
        "use ranks up to 7; 60 may be YAML 1.1's reading of 1:0; quote it",
    ),
    (
        {"node_group": "node", "placement": "0-5"},
        ["resource-out-of-range: resource ranks 0-5 are out of range: node group `node` has 2 nodes, ranks 0-1"],
        "write 0-1, or add nodes",
    ),
    (
        {"node_group": "none", "placement": "all"},
        ["no-resources: node group `none` has no Arm units to place processes on"],
        "select another node group, or place by node with `node_group: node`",
    ),
    (
        {"node_group": "head, cluster", "placement": "all"},
        ["overlapping-groups: node groups `head` and `cluster` both count the accelerators of node 0"],
        "select groups that have no node in common, or one group that has all of these nodes",
    ),
    (
        {"node_group": "heads", "placement": "all"},
        ["unknown-node-group: node group `heads` is not there"],
        "did you mean `head`?",
    ),
]


@pytest.mark.parametrize(("entry", "found", "help"), WORDS)
def test_refusal_says_what_was_found_and_what_to_write(entry: Any, found: list[str], help: str) -> None:
    groups = [group for group in (ARM, NO_ARM, HEAD) if group["label"] in str(entry)]
    cluster = {"num_nodes": 2, "component_placement": {"actor": entry}, "node_groups": groups}
    with pytest.raises(PlacementError) as refused:
        ComponentPlacement({"cluster": cluster}, TWO_BY_FOUR)
    assert [f"{fault.code}: {fault.message}" for fault in refused.value.diagnostics] == found
    assert refused.value.diagnostics[-1].help == help
