"""Excluded hardware: no number changes, `all` skips it, and naming it is an error."""

from __future__ import annotations

import pickle
from pathlib import Path
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
    Plan,
    RankSet,
)
from rankplan.rlinf import with_section
from rankplan.testing import inventories

NODES = Inventory.from_dict(
    {
        "nodes": [
            {"ranks": "0-2", "accelerators": 4},
            {
                "ranks": 3,
                "accelerators": [{"id": "GPU-a"}, {"id": "GPU-b"}],
                "hostname": "h3",
                "labels": {"nvlink": "b"},
            },
            {"ranks": 4, "accelerators": 4, "ip": "10.0.0.4", "hostname": "h4", "labels": {"nvlink": "b"}},
        ]
    }
)


def placed(inventory: Inventory, entry: Any, **more: Any) -> Plan:
    section = {"num_nodes": inventory.num_nodes, "component_placement": {"actor": entry}, **more}
    return ComponentPlacement({"cluster": section}, inventory).plan()


def devices(plan: Plan) -> list[tuple[int, int]]:
    return [place for row in plan["actor"] for place in row.devices]


@pytest.mark.parametrize(
    ("names", "ranks"),
    [
        (["node-1"], "0-3,8-17"),
        (["h3"], "0-11,14-17"),
        (["10.0.0.4"], "0-13"),
        (["node-3"], "0-11,14-17"),  # its hostname is not the only name of a node
        (["node-0/2", "h3/1", "GPU-a"], "0-1,3-11,14-17"),
        (["nvlink=b"], "0-11"),
        (["node-0/1", "node-0", "node-0/3"], "4-17"),
        ([], "0-17"),
    ],
)
def test_all_skips_what_is_excluded_and_numbers_stay(names: list[str], ranks: str) -> None:
    whole = placed(NODES, "all")
    plan = placed(NODES, "all", exclude=names)
    kept = RankSet(ranks)
    assert plan["actor"].rule.resources == kept
    assert devices(plan) == [devices(whole)[rank] for rank in kept]
    assert plan["actor"] == placed(NODES.without(names), "all")["actor"]
    assert plan.inventory.marks == NODES.without(names).marks and plan.on(NODES) == plan
    assert plan.idle() == {}


def test_unhealthy_entries_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "nodes.yaml"
    path.write_text(
        "nodes:\n"
        "  - {ranks: 0, accelerators: 4, healthy: false}\n"
        "  - {ranks: 1, accelerators: 4, unhealthy: 0-1}\n"
        "  - {ranks: 2, accelerators: [{id: GPU-a}, {id: GPU-b, healthy: false}]}\n"
        "  - {ranks: 3, accelerators: [{healthy: false}, {}]}\n"
    )
    found = Inventory.load(path)
    assert placed(found, "all")["actor"].rule.resources == RankSet("6-8,11")
    assert found.node(2).accelerator_ids == ("GPU-a", "GPU-b") and not found.node(3).states("accelerator_ids")
    found.save(path)
    assert Inventory.load(path) == found == pickle.loads(pickle.dumps(found))
    assert found != Inventory.from_dict({"nodes": [{**entry, "healthy": True} for entry in found.to_dict()["nodes"]]})


@pytest.mark.parametrize(
    ("entry", "message", "help"),
    [
        ("0-7", "resource ranks 4-7 are excluded: node 1", "omit 4-7: write 0-3"),
        ("4", "resource rank 4 is excluded: node 1", "omit 4, or use other ranks"),
        ("8-11", "resource rank 10 is excluded: accelerator 2 of node 2", "omit 10: write 8-9,11"),
        (
            "3-12",
            "resource ranks 4-7,10 are excluded: accelerator 2 of node 2, node 1",
            "omit 4-7,10: write 3,8-9,11-12",
        ),
        ({"node_group": "node", "placement": "0-1"}, "resource rank 1 is excluded: node 1", "omit 1: write 0"),
    ],
)
def test_naming_an_excluded_resource_is_an_error(entry: Any, message: str, help: str) -> None:
    with pytest.raises(PlacementError) as refused:
        placed(NODES, entry, exclude=["node-1", "node-2/2"])
    assert (refused.value.code, refused.value.message, refused.value.help) == ("excluded-resource", message, help)
    assert refused.value.span == (0, len(entry if isinstance(entry, str) else entry["placement"]))


def test_every_rule_rejects_excluded_resources() -> None:
    broken = NODES.without(["node-1/1"])
    for strategy in (PackedPlacementStrategy(0, 7), FlexiblePlacementStrategy([[5], [0]])):
        with pytest.raises(PlacementError, match="resource rank 5 is excluded: accelerator 1 of node 1"):
            strategy.get_placement(broken)
    # the node itself can still be used
    assert [row.cluster_node_rank for row in NodePlacementStrategy([1]).get_placement(broken)] == [1]
    with pytest.raises(PlacementError, match="resource rank 1 is excluded: node 1"):
        NodePlacementStrategy([1]).get_placement(NODES.without(["node-1"]))


def test_robots_of_an_excluded_node_are_excluded() -> None:
    arms = {"type": "Arm", "configs": [{"node_rank": 0, "n": 0}, {"node_rank": 1, "n": 1}, {"node_rank": 1, "n": 2}]}
    group = {"label": "arms", "node_ranks": "0-1", "hardware": arms}
    entry = {"node_group": "arms", "placement": "all"}
    assert placed(NODES, entry, node_groups=[group], exclude=["node-1"])["actor"].rule.resources == RankSet("0")
    assert len(placed(NODES, entry, node_groups=[group], exclude=["node-1/0"])["actor"]) == 3


def test_a_group_with_excluded_hardware_only_has_no_resources() -> None:
    group = {"label": "two", "node_ranks": "1-2"}
    with pytest.raises(PlacementError, match="node group `two` has only excluded accelerators") as refused:
        placed(NODES, {"node_group": "two", "placement": "all"}, node_groups=[group], exclude=["node-1", "node-2"])
    assert refused.value.code == "no-resources"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("node-9", "unknown node or accelerator 'node-9'\nhelp: the nodes are: node-0, node-1, node-2, h3, h4"),
        ("node-01", "unknown node or accelerator 'node-01'"),
        ("h33", "unknown node or accelerator 'h33'\nhelp: the nodes are: node-0, "),
        ("hh", "unknown node or accelerator 'hh'\nhelp: the nodes are: node-0"),
        ("h3/2", "unknown accelerator '2' of h3: it has 2 accelerators, 0-1\nhelp: write a local index, e.g. node-5/2"),
        ("h3/x", "unknown accelerator 'x' of h3"),
        ("rack=b", "no node has the label `rack`\nhelp: the labels are: nvlink"),
        ("nvlink=c", "no node has the label nvlink=c\nhelp: nvlink is one of: b"),
        ("0", "unknown node or accelerator '0'"),
    ],
)
def test_unknown_names(name: str, message: str) -> None:
    with pytest.raises(PlacementError) as refused:
        NODES.without(["node-0", name])
    assert message in str(refused.value) and refused.value.code == "invalid-value"
    with pytest.raises(PlacementError) as refused:
        placed(NODES, "all", exclude=["node-0", name])
    assert refused.value.path == "cluster.exclude[1]" and message in str(refused.value)


def test_names_that_several_nodes_have() -> None:
    nodes = [
        {"ranks": rank, "hostname": "same", "ip": f"10.0.0.{rank}", "accelerator_ids": ["GPU-a"]} for rank in (0, 1)
    ]
    known = Inventory.from_dict({"nodes": nodes})
    with pytest.raises(PlacementError, match="nodes 0-1 are all named same\nhelp: write their addresses, or node-0"):
        known.without(["same"])
    with pytest.raises(PlacementError, match="2 accelerators have the id GPU-a\nhelp: write the node and the local"):
        known.without(["GPU-a"])
    assert known.without(["10.0.0.1"]).excluded == known.without(["node-1"]).excluded == [(RankSet("1"), None)]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (3, "`exclude` is 3; it must be a list"),
        ([3], "3 is not a name"),
        ([""], "'' is not a name"),
        ("${broken}", "unknown node or accelerator"),
    ],
)
def test_what_exclude_accepts(value: Any, message: str) -> None:
    with pytest.raises(PlacementError) as refused:
        placed(NODES, "all", exclude=value)
    assert message in str(refused.value)
    assert placed(NODES, "all", exclude="node-1") == placed(NODES, "all", exclude=["node-1"])


def test_spares_can_be_excluded_and_the_plan_of_a_cluster_keeps_it() -> None:
    """A name beyond num_nodes is known to the inventory, but not to the first num_nodes of its nodes."""
    config = {"cluster": {"num_nodes": 2, "component_placement": {"actor": "all"}, "exclude": ["h4", "node-0/0"]}}
    configured = with_section(NODES, config["cluster"])
    plan = ComponentPlacement(config, configured).plan()
    assert plan == ComponentPlacement(config, NODES).plan() and plan["actor"].rule.resources == RankSet("1-7")
    plan.save("plan.json")
    assert Plan.load("plan.json") == plan == pickle.loads(pickle.dumps(plan))


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_plan_is_not_launched_on_hardware_that_the_cluster_excludes() -> None:
    plan = placed(NODES, "0-7")
    assert plan.fitted(NODES.without(["h4"]))["actor"] == plan["actor"]
    with pytest.raises(PlacementError, match="resource rank 5 is excluded: accelerator 1 of node 1"):
        plan.fitted(NODES.without(["node-1/1"]))
    with pytest.raises(PlacementError, match="resource ranks 4-7 are excluded: node 1"):
        plan.on(NODES.without(["node-1"]))


@given(known=inventories(), data=st.data())
def test_excluding_is_the_same_as_omitting_the_ranks(known: Inventory, data: st.DataObject) -> None:
    """The rows on the rest are those of a placement that names every rank that is left."""
    broken = data.draw(st.sets(st.integers(0, known.num_nodes - 1)))
    marked = known.without(f"node-{node}" for node in broken)
    pool = known.pool(("cluster",))
    whole = [place for row in placed(known, "all")["actor"] for place in row.devices or [(row.cluster_node_rank, 0)]]
    left = RankSet(rank for rank, (node, _) in enumerate(whole) if node not in broken)
    assert pool.excluded == RankSet()
    if not left:
        with pytest.raises(PlacementError, match="has only excluded"):
            placed(marked, "all")
        return
    assert placed(marked, "all")["actor"].rows == placed(known, str(left))["actor"].rows
    for rank in range(len(whole)):
        if rank not in left:
            with pytest.raises(PlacementError, match=f"resource rank {rank} is excluded"):
                placed(marked, str(rank))


def test_one_name_may_be_a_text() -> None:
    assert NODES.without("h3") == NODES.without(["h3"])
