"""Plans made elsewhere on a real Ray cluster: they launch where they fit, with the cluster's own ids, or not at all."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rankplan import Cluster, ComponentPlacement, Inventory, PackedPlacementStrategy, PlacementError, Plan
from rankplan.rlinf.dialect import DIALECT as rlinf
from rankplan.runtime.ray.internals import available_resources
from ray._private.state import actors
from ray.util.placement_group import placement_group_table
from support.workers import Reader

HERE = socket.gethostname()
NODES: list[dict[str, Any]] = [
    {"ranks": 0, "accelerator_ids": ["4", "5", "6", "7"]},
    {"ranks": 1, "accelerator_ids": ["GPU-5e1f", "MIG-c3d2"]},
    {"ranks": 2, "accelerators": 2, "accelerator_type": "AMD_GPU"},
    {"ranks": 3},
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster.simulate(Inventory.from_dict({"nodes": NODES})) as cluster:
        yield cluster


def plan_on(nodes: list[dict[str, Any]], placement: Any = "0-5", **section: Any) -> Plan:
    """Return a plan of a component ``actor`` on these nodes."""
    inventory = Inventory.from_dict({"nodes": nodes})
    content = {"num_nodes": inventory.num_nodes, "component_placement": {"actor": placement}, **section}
    return rlinf.plan({"cluster": content}, inventory)  # does not check what must stay together


UNIFORM = [{"ranks": 0, "accelerators": 4}, {"ranks": 1, "accelerators": 2}]


def test_a_plan_that_states_no_ids_takes_those_of_the_nodes(cluster: Cluster, tmp_path: Path) -> None:
    made = plan_on(UNIFORM)
    assert [row.visible_accelerators for row in made["actor"]] == [["0"], ["1"], ["2"], ["3"], ["0"], ["1"]]
    made.save(tmp_path / "plan.json")
    masks = ["4", "5", "6", "7", "GPU-5e1f", "MIG-c3d2"]
    for plan in (made, Plan.load(tmp_path / "plan.json")):
        with cluster.reserve(plan) as reserved:
            group = Reader.create_group().launch(cluster, plan["actor"], reservation=reserved)
            assert group.component == "actor"
            assert group.environment("CUDA_VISIBLE_DEVICES").wait() == [(mask,) for mask in masks]
            assert [row.visible_accelerators for row in group.placements] == [[mask] for mask in masks]
            assert [report.accelerators for report in group.verify()] == [(mask,) for mask in masks]


def test_a_plan_of_this_cluster_fits(cluster: Cluster) -> None:
    made = plan_on([node | {"ip": f"127.0.0.{node['ranks'] + 2}", "hostname": HERE} for node in NODES], "all")
    with Reader.create_group().launch(cluster, made["actor"]) as group:
        assert len(group.verify()) == 8
        assert group.placements == list(made["actor"])


def test_a_plan_without_isolation_shows_the_ids_of_the_whole_node(cluster: Cluster) -> None:
    made = plan_on(UNIFORM).with_visibility("node")
    with Reader.create_group().launch(cluster, made["actor"], name="all") as group:
        seen = group.environment("CUDA_VISIBLE_DEVICES", "LOCAL_RANK").wait()
    assert seen == [("4,5,6,7", str(rank)) for rank in range(4)] + [("GPU-5e1f,MIG-c3d2", str(rank)) for rank in (0, 1)]


def test_nodes_that_a_plan_does_not_use_may_differ(cluster: Cluster) -> None:
    made = plan_on([UNIFORM[0], {"ranks": 1, "accelerators": 16, "accelerator_type": "NPU"}], "1-2")
    with Reader.create_group().launch(cluster, made["actor"]) as group:
        assert group.environment("CUDA_VISIBLE_DEVICES").wait() == [("5",), ("6",)]


def test_the_node_groups_of_a_plan_apply(cluster: Cluster) -> None:
    environment = {"node_ranks": 1, "env_vars": [{"MODE": "fast"}]}
    groups = [{"label": "second", "node_ranks": 1, "env_configs": [environment]}]
    made = plan_on(UNIFORM, {"node_group": "second", "placement": "all"}, node_groups=groups)
    with Reader.create_group().launch(cluster, made["actor"]) as group:
        assert group.environment("MODE", "CUDA_VISIBLE_DEVICES").wait() == [("fast", "GPU-5e1f"), ("fast", "MIG-c3d2")]


FOUR = {"ranks": 0, "accelerators": 4}
TWO = {"ranks": 1, "accelerators": 2}
MISMATCHES: list[tuple[list[dict[str, Any]], list[str]]] = [
    (
        [{"ranks": 0, "accelerator_ids": ["0", "1", "2", "3"]}, TWO],
        [f"node 0 ({HERE}): the plan has accelerator ids 0,1,2,3, the cluster has 4,5,6,7"],
    ),
    (
        [{"ranks": 0, "accelerator_ids": ["7", "6", "5", "4"]}, TWO],
        [f"node 0 ({HERE}): the plan has accelerator ids 7,6,5,4, the cluster has 4,5,6,7"],
    ),
    (
        [{**FOUR, "accelerator_type": "AMD_GPU"}, TWO],
        [f"node 0 ({HERE}): the plan has 4 AMD_GPU, the cluster has 4 NV_GPU"],
    ),
    (
        [{"ranks": "0-2", "accelerators": 2}],
        [
            f"node 0 ({HERE}): the plan has 2 NV_GPU, the cluster has 4 NV_GPU",
            f"node 2 ({HERE}): the plan has 2 NV_GPU, the cluster has 2 AMD_GPU",
        ],
    ),
    ([{"ranks": 0, "accelerators": 8}], [f"node 0 ({HERE}): the plan has 8 NV_GPU, the cluster has 4 NV_GPU"]),
    (
        [{**FOUR, "ip": "127.0.0.8"}, {**TWO, "ip": "127.0.0.9"}],
        [
            f"node 0 ({HERE}): the plan has ip 127.0.0.8, the cluster has 127.0.0.2",
            f"node 1 ({HERE}): the plan has ip 127.0.0.9, the cluster has 127.0.0.3",
        ],
    ),
    (  # found by their names
        [{**FOUR, "ip": "127.0.0.3"}, {**TWO, "ip": "127.0.0.2"}],
        [
            f"node 0 ({HERE}): the plan has 4 NV_GPU, the cluster has 2 NV_GPU",
            f"node 1 ({HERE}): the plan has 2 NV_GPU, the cluster has 4 NV_GPU",
        ],
    ),
    (
        [{**FOUR, "hostname": HERE}, {**TWO, "hostname": "other"}],
        [f"node 1 ({HERE}): the plan has hostname other, the cluster has {HERE}"],
    ),
]


@pytest.mark.parametrize(("nodes", "messages"), MISMATCHES)
def test_a_plan_for_other_nodes_starts_nothing(
    cluster: Cluster, nodes: list[dict[str, Any]], messages: list[str]
) -> None:
    made, before = plan_on(nodes), started()
    for launch in (
        lambda: Reader.create_group().launch(cluster, made["actor"]),
        lambda: Reader.create_group().launch(cluster, made["actor"], reserve=True),
        lambda: cluster.reserve(made),
    ):
        with pytest.raises(PlacementError) as caught:
            launch()
        assert [(found.code, found.message) for found in caught.value.diagnostics] == [
            ("plan-mismatch", message) for message in messages
        ]
    assert started() == before


def test_a_plan_for_a_larger_cluster_starts_nothing(cluster: Cluster) -> None:
    made, before = plan_on([{"ranks": "0-7", "accelerators": 4}], "20-23"), started()
    for launch in (
        lambda: Reader.create_group().launch(cluster, made["actor"]),
        lambda: cluster.reserve(made),
    ):
        with pytest.raises(PlacementError):
            launch()
    assert started() == before


def test_a_group_that_must_stay_together_starts_nothing_elsewhere(cluster: Cluster) -> None:
    keep = {name: {"tp": "node"} for name in ("actor", "a component that is launched elsewhere")}
    placed = {"placement": "0-5", "parallel": {"tp": 3}}
    part = plan_on(UNIFORM, placed, topology={"keep": keep})
    whole = plan_on(UNIFORM, placed, topology={"keep": {"actor": {"tp": "node"}}})
    before = started()
    for launch in (
        lambda: Reader.create_group().launch(cluster, part["actor"], name="another name"),
        lambda: cluster.reserve(whole),
    ):
        with pytest.raises(PlacementError) as caught:
            launch()
        assert (caught.value.code, caught.value.path) == ("group-spans", "cluster.topology.keep.actor.tp")
        assert "actor: tensor group 1 (ranks 3-5) spans nodes 0-1" in str(caught.value)
    assert started() == before


def started() -> tuple[int, int]:
    """The numbers of actors and placement groups that were ever started."""
    return len(actors()), len(placement_group_table())


def shared(cluster: Cluster, **shares: float | None) -> Plan:
    made = ComponentPlacement({"cluster": {"num_nodes": 4, "component_placement": {",".join(shares): "0-5"}}}, cluster)
    plan = made.plan()
    return Plan(plan.inventory, [plan[name].with_settings(share=share) for name, share in shares.items()])


def test_shares_that_exceed_an_accelerator_request_nothing(cluster: Cluster) -> None:
    before = started()
    plan = shared(cluster, actor=0.8, rollout=0.3, env=None)
    with pytest.raises(PlacementError) as caught:
        cluster.reserve(plan)
    assert caught.value.code == "share-overflow"
    assert "(actor 0.8 + rollout 0.3)" in str(caught.value)
    assert started() == before
    with cluster.reserve(plan, ["rollout", "env"]) as reserved:
        assert reserved.components == ("rollout", "env")


def test_shares_that_add_up_to_one_reserve_whole_accelerators(cluster: Cluster) -> None:
    with cluster.reserve(shared(cluster, actor=0.8, rollout=0.2, env=None)):
        free = available_resources()
        assert [free[node_id].get("GPU", 0) for node_id in cluster.node_ids] == [0, 0, 2, 0]


@pytest.mark.parametrize("what", ["rows", "slice", "list"])
def test_rows_without_their_component_are_refused(cluster: Cluster, what: str) -> None:
    rows = PackedPlacementStrategy(0, 5).get_placement(cluster)
    given = {"rows": rows, "slice": rows[2:], "list": list(rows)}[what]
    with pytest.raises(TypeError, match=r"placement_strategy is of type (Placements|list); pass a strategy, such as"):
        Reader.create_group().launch(cluster, given)  # type: ignore[arg-type]
