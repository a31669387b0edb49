"""Hardware that an inventory states, and fields that only a node knows."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from rankplan import ComponentPlacement, Franka, HardwareConfig, Inventory, PlacementError, Plan, register_hardware
from rankplan.runtime.rank.hardware import hardware_of, on_node
from rankplan.testing import check_plan

NODES = {"nodes": [{"ranks": "0-2", "accelerators": 2}, {"ranks": 3, "hardware": {"Franka": 2, "Arm": 1}}]}


def config(kind: str = "Franka", node_ranks: Any = "2-3", **hardware: Any) -> dict[str, Any]:
    groups = [{"label": "robots", "node_ranks": node_ranks, "hardware": {"type": kind, **hardware}}]
    placement = {"actor": "all", "env": {"node_group": "robots", "placement": "all"}}
    return {"cluster": {"num_nodes": 4, "component_placement": placement, "node_groups": groups}}


def test_a_group_without_configs_counts_the_hardware_of_its_nodes(tmp_path: Path) -> None:
    inventory = Inventory.from_dict(NODES)
    plan = ComponentPlacement(config(), inventory).plan()
    assert [(row.devices, row.resource_type) for row in plan["env"]] == [([(3, 0)], "Franka"), ([(3, 1)], "Franka")]
    assert hardware_of(plan.inventory, plan["env"][1]) == [Franka(node_rank=3)]
    check_plan(plan)
    plan.save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json") == plan == pickle.loads(pickle.dumps(plan))
    inventory.save(tmp_path / "nodes.yaml")
    assert Inventory.load(tmp_path / "nodes.yaml") == inventory
    assert inventory != Inventory.from_dict({"nodes": [NODES["nodes"][0], {"ranks": 3, "hardware": {"Franka": 3}}]})
    arm = ComponentPlacement(config("Arm"), inventory).plan()
    assert hardware_of(arm.inventory, arm["env"][0]) == [HardwareConfig(node_rank=3)]
    stated = ComponentPlacement(config(configs=[{"node_rank": 2}]), inventory).plan()
    assert [row.devices for row in stated["env"]] == [[(2, 0)]], "configs of the group count, if it has any"


@pytest.mark.parametrize(
    ("hardware", "message"),
    [
        ({"Franka": 0}, "`Franka` is 0; it must be 1 or more"),
        ({"Franka": True}, "true is not a whole number"),
        ({"franka": 1}, "unknown hardware type `franka`"),
        ({"NV_GPU": 1}, "hardware type `NV_GPU` cannot be configured"),
        (["Franka"], "`hardware` is ['Franka']; it must be a mapping"),
    ],
)
def test_faults_of_an_inventory(hardware: Any, message: str) -> None:
    with pytest.raises(PlacementError) as refused:
        Inventory.from_dict({"nodes": [{"ranks": 0, "hardware": hardware}]})
    assert message in str(refused.value)


def test_nodes_without_such_hardware() -> None:
    with pytest.raises(PlacementError) as refused:
        ComponentPlacement(config(node_ranks="0-1"), Inventory.from_dict(NODES))
    assert (refused.value.code, refused.value.message) == (
        "no-resources",
        "node group `robots` has no Franka units to place processes on",
    )


@pytest.mark.parametrize(
    ("variable", "found"),
    [
        ("10.0.0.1", ["10.0.0.1", "ROBOT_IP has 1 address"]),
        ("10.0.0.1, 10.0.0.2", ["10.0.0.1", "10.0.0.2"]),
        (None, ["ROBOT_IP is not set", "ROBOT_IP is not set"]),
        (" ", ["ROBOT_IP is not set", "ROBOT_IP is not set"]),
    ],
)
def test_a_robot_without_an_address_gets_that_of_its_node(variable: str | None, found: list[str]) -> None:
    environment = {} if variable is None else {"ROBOT_IP": variable}
    for index, expected in enumerate(found):
        if expected.startswith("ROBOT_IP"):
            with pytest.raises(PlacementError) as refused:
                on_node([Franka(node_rank=3)], [index], environment)
            assert refused.value.message == f"robot {index} of node 3 has no `robot_ip`, and {expected}"
        else:
            (robot,) = on_node([Franka(node_rank=3)], [index], environment)
            assert robot == Franka(node_rank=3, robot_ip=expected)
    stated = Franka(node_rank=3, robot_ip="10.9.9.9")
    assert on_node([stated], [0], environment) == (stated,)


def test_a_registered_model_fills_in_its_fields_on_the_node() -> None:
    class Camera(HardwareConfig):
        port: str = ""

        def on_node(self, environment: Any, index: int) -> Camera:
            return self.model_copy(update={"port": f"{environment['PORTS']}{index}"})

    register_hardware("TestCamera", Camera)
    pieces = [Camera(node_rank=0), Camera(node_rank=0)]
    assert [piece.port for piece in on_node(pieces, [2, 5], {"PORTS": "usb"})] == ["usb2", "usb5"]  # type: ignore[attr-defined]
    assert on_node([], [0, 1], {}) == ()
