"""The overlay in `examples/rlinf`, on nodes and node groups with the attributes of RLinf's."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from types import ModuleType
from typing import Any

import pytest
from rankplan import NodePlacementStrategy, PackedPlacementStrategy
from rankplan.rlinf import ComponentPlacement
from support.paths import EXAMPLES

OVERLAY = EXAMPLES / "rlinf/overlay/rlinf"


class AcceleratorType(str, Enum):  # noqa: UP042  # as RLinf declares it
    NV_GPU = "NV_GPU"
    NO_ACCEL = "NO_ACCEL"


@dataclass
class RobotConfig:
    node_rank: int
    robot_ip: str | None = None
    camera_serials: list[str] | None = None


@dataclass
class Info:
    type: str
    model: str
    config: RobotConfig


@dataclass
class Resource:
    type: str
    infos: list[Any]


@dataclass
class NodeInfo:
    node_rank: int
    num_accelerators: int
    node_ip: str
    hardware_resources: list[Resource] = field(default_factory=list)

    @property
    def accelerator_type(self) -> AcceleratorType:
        return AcceleratorType.NV_GPU if self.num_accelerators else AcceleratorType.NO_ACCEL


@dataclass
class NodeGroupInfo:
    label: str
    nodes: list[NodeInfo]
    hardware_type: str | None = None
    ignore_hardware: bool = False

    @property
    def node_ranks(self) -> list[int]:
        return [node.node_rank for node in self.nodes]


class Cluster:
    """As much of RLinf's cluster as its placement code uses."""

    def __init__(self, nodes: list[NodeInfo], groups: list[NodeGroupInfo]) -> None:
        self._nodes = nodes
        reserved = NodeGroupInfo("cluster", nodes, "Accelerator"), NodeGroupInfo("node", nodes, None, True)
        self._node_groups = [*groups, *reserved]

    @property
    def num_nodes(self) -> int:
        return len(self._nodes)

    def get_node_info(self, node_rank: int) -> NodeInfo:
        return self._nodes[node_rank]


@pytest.fixture(scope="module")
def placement() -> Iterator[ModuleType]:
    """The overlay's `rlinf.scheduler.placement`."""
    parents = [ModuleType("rlinf"), ModuleType("rlinf.scheduler")]
    name = "rlinf.scheduler.placement"
    path = OVERLAY / "scheduler/placement/__init__.py"
    spec = importlib.util.spec_from_file_location(name, path, submodule_search_locations=[str(path.parent)])
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.update({each.__name__: each for each in parents} | {name: module})
    spec.loader.exec_module(module)
    yield module
    for each in [each for each in sys.modules if each.split(".")[0] == "rlinf"]:
        del sys.modules[each]


@pytest.fixture
def mixed(placement: ModuleType) -> Cluster:
    """Two nodes with accelerators, one with two robots, one with nothing that counts."""
    robots = [Info("Franka", "Franka", RobotConfig(2, f"10.0.0.{each}", ["1"])) for each in (1, 2)]
    nodes = [
        NodeInfo(0, 8, "10.0.1.1"),
        NodeInfo(1, 8, "10.0.1.2"),
        NodeInfo(2, 0, "10.0.1.3", [Resource("Franka", list(robots))]),
        NodeInfo(3, 8, "10.0.1.4"),
    ]
    groups = [
        NodeGroupInfo("a800", nodes[:2], "Accelerator"),
        NodeGroupInfo("robots", nodes[2:3], "Franka"),
        NodeGroupInfo("quiet", nodes[3:], None, True),
    ]
    return Cluster(nodes, groups)


def test_the_overlay_exports_what_rlinf_imports(placement: ModuleType) -> None:
    assert placement.ComponentPlacement is ComponentPlacement
    names = {"Flexible", "Node", "Packed"}
    assert {f"{name}PlacementStrategy" for name in names} | {"Placement", "PlacementStrategy"} <= set(placement.__all__)


def test_strategies_take_the_cluster(mixed: Cluster) -> None:
    rows = PackedPlacementStrategy(0, 15, 4).get_placement(mixed)
    assert [(row.rank, row.cluster_node_rank, row.local_hardware_ranks) for row in rows] == [
        (0, 0, [0, 1, 2, 3]),
        (1, 0, [4, 5, 6, 7]),
        (2, 1, [0, 1, 2, 3]),
        (3, 1, [4, 5, 6, 7]),
    ]
    assert rows[0].accelerator_type == AcceleratorType.NV_GPU
    assert [row.cluster_node_rank for row in NodePlacementStrategy([3, 0]).get_placement(mixed)] == [0, 3]


def test_node_groups_are_those_of_the_cluster(mixed: Cluster) -> None:
    robots = PackedPlacementStrategy(0, 1, node_group="robots").get_placement(mixed)
    assert [(row.cluster_node_rank, row.local_hardware_ranks, row.node_group_label) for row in robots] == [
        (2, [0], "robots"),
        (2, [1], "robots"),
    ]
    (quiet,) = NodePlacementStrategy([0], "quiet").get_placement(mixed)
    assert (quiet.cluster_node_rank, quiet.local_hardware_ranks) == (3, [])
    with pytest.raises(AssertionError, match="unknown node group `h100`"):
        PackedPlacementStrategy(0, 1, node_group="h100").get_placement(mixed)


def test_node_groups_may_be_a_mapping_as_in_the_clusters_of_rlinfs_tests(mixed: Cluster) -> None:
    strategy = PackedPlacementStrategy(0, 17, node_group=["a800", "robots"])
    rows = list(strategy.get_placement(mixed))
    assert rows[-1].node_group_label == "robots"
    mixed._node_groups = {group.label: group for group in mixed._node_groups}  # type: ignore[assignment]
    assert list(strategy.get_placement(mixed)) == rows


def test_component_placements_take_the_cluster(mixed: Cluster) -> None:
    groups = [
        {"label": "a800", "node_ranks": "0-1"},
        {"label": "robots", "node_ranks": 2, "hardware": {"type": "Franka", "configs": [
            {"robot_ip": "10.0.0.1", "node_rank": 2}, {"robot_ip": "10.0.0.2", "node_rank": 2},
        ]}},
    ]  # fmt: skip
    section = {
        "num_nodes": 4,
        "component_placement": {
            "actor": {"node_group": "a800", "placement": "0-15:0-7"},
            "env": {"node_group": "robots", "placement": "0-1"},
        },
        "node_groups": groups,
    }
    placement = ComponentPlacement({"cluster": section}, mixed)
    assert placement.get_world_size("actor") == 8
    env = placement.get_strategy("env").get_placement(mixed)
    assert [row.cluster_node_rank for row in env] == [2, 2]


def test_the_class_module_exports_what_rlinf_imports(placement: ModuleType) -> None:
    sys.modules["rlinf.scheduler"].ComponentPlacement = ComponentPlacement  # type: ignore[attr-defined]
    names: dict[str, Any] = {}
    exec(compile((OVERLAY / "utils/placement.py").read_text(encoding="utf-8"), "placement.py", "exec"), names)
    assert set(names["__all__"]) <= set(names)
    assert names["ModelParallelComponentPlacement"].__module__.startswith("rankplan.")
