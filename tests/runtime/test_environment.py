"""The environment of one rank, as a function of its row."""

from __future__ import annotations

import pytest
from rankplan import (
    ComponentPlacement,
    FlexiblePlacementStrategy,
    Inventory,
    NodePlacementStrategy,
    PackedPlacementStrategy,
    Placement,
    Placements,
    PlacementStrategy,
)
from rankplan.accelerators import NO_ACCEL, VARIABLES, VENDORS, Vendor, vendor
from rankplan.environment import (
    PATH_VARIABLES,
    added,
    expanded,
    planned_environment,
    rank_environment,
    reserved_variables,
    start_variables,
)
from support.outcomes import some

TWO_NODES = Inventory.uniform(num_nodes=2, num_accelerators=4)
EIGHT = PackedPlacementStrategy(0, 7)


def environment(row: Placement, **env_vars: str) -> dict[str, str]:
    return rank_environment(row, master_addr="10.0.0.1", master_port=29500, env_vars=env_vars)


def column(rows: Placements, name: str) -> list[str]:
    return [environment(row)[name] for row in rows]


def test_whole_environment_of_an_isolated_rank() -> None:
    assert environment(EIGHT.get_placement(TWO_NODES)[5], GLOO_SOCKET_IFNAME="eth0") == {
        "RANK": "5",
        "WORLD_SIZE": "8",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "NODE_RANK": "1",
        "NODE_LOCAL_RANK": "1",
        "NODE_LOCAL_WORLD_SIZE": "4",
        "CLUSTER_NODE_RANK": "1",
        "CUDA_VISIBLE_DEVICES": "1",
        "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1",
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "29500",
        "GLOO_SOCKET_IFNAME": "eth0",
    }


def test_local_rank_without_isolation_is_the_index_among_all_accelerators() -> None:
    rows = FlexiblePlacementStrategy([[2, 3], [6]]).get_placement(TWO_NODES, isolate_accelerator=False)
    assert column(rows, "CUDA_VISIBLE_DEVICES") == ["0,1,2,3", "0,1,2,3"]
    assert column(rows, "LOCAL_RANK") == ["2", "2"]
    assert column(rows, "LOCAL_WORLD_SIZE") == ["1", "1"]
    assert column(rows, "NODE_LOCAL_RANK") == ["0", "0"]


@pytest.mark.parametrize(("isolate", "local_ranks"), [(True, ["0", "0", "0", "0"]), (False, ["0", "0", "1", "1"])])
def test_processes_that_share_an_accelerator(isolate: bool, local_ranks: list[str]) -> None:
    rows = FlexiblePlacementStrategy([[0], [0], [1], [1]]).get_placement(TWO_NODES, isolate)
    assert column(rows, "LOCAL_RANK") == local_ranks
    assert column(rows, "LOCAL_WORLD_SIZE") == (["1"] * 4 if isolate else ["4"] * 4)
    assert column(rows, "NODE_LOCAL_RANK") == ["0", "1", "2", "3"]


@pytest.mark.parametrize("isolate", [True, False])
def test_processes_by_node_have_their_own_local_ranks(isolate: bool) -> None:
    rows = NodePlacementStrategy([0, 1, 1]).get_placement(TWO_NODES, isolate)
    assert column(rows, "LOCAL_RANK") == ["0", "0", "1"]
    assert column(rows, "LOCAL_WORLD_SIZE") == ["1", "2", "2"]
    assert column(rows, "CUDA_VISIBLE_DEVICES") == ["0,1,2,3"] * 3


def test_processes_with_robots_have_their_own_local_ranks_and_see_all_accelerators() -> None:
    configs = [{"robot_ip": "10.1.0.1", "node_rank": 1}, {"robot_ip": "10.1.0.2", "node_rank": 1}]
    cluster = {
        "num_nodes": 2,
        "component_placement": {"env": {"node_group": "arms", "placement": "0-1"}},
        "node_groups": [{"label": "arms", "node_ranks": 1, "hardware": {"type": "Franka", "configs": configs}}],
    }
    rows = ComponentPlacement({"cluster": cluster}, TWO_NODES).plan()["env"]
    assert column(rows, "LOCAL_RANK") == ["0", "1"]
    assert column(rows, "NODE_RANK") == ["0", "0"]
    assert column(rows, "CLUSTER_NODE_RANK") == ["1", "1"]
    assert column(rows, "CUDA_VISIBLE_DEVICES") == ["0,1,2,3"] * 2


def test_visibility_is_in_the_nodes_own_ids() -> None:
    nodes = [{"ranks": 0, "accelerator_ids": ["4", "5"]}, {"ranks": 1, "accelerator_ids": ["GPU-a1", "MIG-b2"]}]
    rows = PackedPlacementStrategy(0, 3).get_placement(Inventory.from_dict({"nodes": nodes}))
    assert column(rows, "CUDA_VISIBLE_DEVICES") == ["4", "5", "GPU-a1", "MIG-b2"]
    assert column(rows, "LOCAL_RANK") == ["0"] * 4


STRATEGIES = {
    "one each": PackedPlacementStrategy(0, 7),
    "two each": PackedPlacementStrategy(0, 7, num_hardware_per_process=2),
    "every second": PackedPlacementStrategy(0, 7, num_hardware_per_process=2, stride=2),
    "shared": FlexiblePlacementStrategy([[1], [1], [3], [4, 7], [4, 7], [6]]),
    "uneven": FlexiblePlacementStrategy([[3], [0, 2], [4, 5, 6, 7]]),
}


@pytest.mark.parametrize("isolate", [True, False])
@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
def test_local_rank_is_the_first_own_device(strategy: PlacementStrategy, isolate: bool) -> None:
    """What ``set_device(LOCAL_RANK)`` relies on."""
    ids = [["4", "7", "6", "5"], ["MIG-b2", "GPU-a1", "1", "0"]]
    nodes = [{"ranks": rank, "accelerator_ids": own} for rank, own in enumerate(ids)]
    rows = strategy.get_placement(Inventory.from_dict({"nodes": nodes}), isolate)
    for row in some(rows):
        own = [ids[node][index] for node, index in row.devices]
        planned = environment(row)
        visible = planned["CUDA_VISIBLE_DEVICES"].split(",")
        assert visible == (own if isolate else ids[row.cluster_node_rank])
        assert visible[int(planned["LOCAL_RANK"])] == own[0]
        neighbours = [other for other in rows if other.cluster_node_rank == row.cluster_node_rank]
        assert planned["LOCAL_WORLD_SIZE"] == ("1" if isolate else str(len(neighbours)))
        assert planned["NODE_LOCAL_WORLD_SIZE"] == str(len(neighbours))
        assert neighbours[int(planned["NODE_LOCAL_RANK"])] == row


def test_a_node_without_accelerators_gets_no_vendor_variable() -> None:
    (row,) = NodePlacementStrategy([0]).get_placement(Inventory.uniform(num_nodes=1, num_accelerators=0))
    assert not VARIABLES & set(environment(row))


@pytest.mark.parametrize("row", VENDORS, ids=lambda row: row.accelerator_type)
def test_each_vendor_has_its_own_variables(row: Vendor) -> None:
    inventory = Inventory.uniform(num_nodes=1, num_accelerators=2, accelerator_type=row.accelerator_type)
    planned = planned_environment(PackedPlacementStrategy(0, 1).get_placement(inventory)[1])
    assert row.shown(planned) == ("1",)
    assert {name for name in planned if name.startswith("RAY_")} == (
        {row.noset_env_var} if row.noset_env_var else set()
    )
    assert VARIABLES & set(planned) <= row.variables


def test_the_plan_overrides_env_vars() -> None:
    row = EIGHT.get_placement(TWO_NODES)[3]
    tried = dict.fromkeys(reserved_variables() & set(environment(row)), "tried")
    assert environment(row, **tried) == environment(row)


def test_variables_of_the_loader_and_the_interpreter_are_needed_at_process_start() -> None:
    env_vars = {"LD_PRELOAD": "a", "PYTHONPATH": "b", "MALLOC_ARENA_MAX": "1", "NCCL_DEBUG": "INFO", "OLD_LD_X": "c"}
    assert set(start_variables(env_vars)) == {"LD_PRELOAD", "PYTHONPATH", "MALLOC_ARENA_MAX"}


def test_variables_are_expanded_like_ray_does() -> None:
    env_vars = {"A": "/opt:${HOME}", "B": "$A:$NONE", "C": "<${NONE}>", "D": "a$ ${} 5$", "HOME": "/x", "E": "$HOME"}
    expected = {"A": "/opt:/h", "B": "/opt:/h:$NONE", "C": "<>", "D": "a$ ${} 5$", "HOME": "/x", "E": "/x"}
    assert expanded(env_vars, {"HOME": "/h"}) == expected


@pytest.mark.parametrize(
    ("value", "node", "merged"),
    [
        ("/opt/bin", "/usr/bin:/bin", "/opt/bin:/usr/bin:/bin"),
        ("/opt/bin", None, "/opt/bin"),
        ("/opt/bin::/bin:", ":/usr/bin::/bin", "/opt/bin:/bin:/usr/bin"),
        ("$HOME/bin", "/usr/bin", "/h/bin:/usr/bin"),
        ("/opt/bin:$PATH", "/bin", "/opt/bin:/bin"),
        ("${PATH}:/opt/bin", "/bin", "/bin:/opt/bin"),
        ("", "/bin", "/bin"),
    ],
)
def test_folders_are_prepended_to_those_of_the_node(value: str, node: str | None, merged: str) -> None:
    here = {"HOME": "/h"} if node is None else {"HOME": "/h", "PATH": node}
    assert expanded({"PATH": value, "SEEN": "$PATH"}, here) == {"PATH": merged, "SEEN": merged}


def test_the_merge_mode_comes_from_the_group_or_else_from_the_environment() -> None:
    mode, here = "RLINF_PATH_ENV_MERGE_MODE", {"CPATH": "/b", "OTHER": "/b"}
    assert expanded({"CPATH": "/a", "OTHER": "/a"}, here) == {"CPATH": "/a:/b", "OTHER": "/a"}
    assert expanded({"CPATH": "/a"}, {**here, mode: "Override"}) == {"CPATH": "/a"}
    assert expanded({"CPATH": "/a", mode: "append"}, {**here, mode: "override"})["CPATH"] == "/a:/b"
    assert expanded({"CPATH": "/a", mode: "override"}, here)["CPATH"] == "/a"


def test_exports_are_literal() -> None:
    here = {"PATH": "/bin", "A": "x"}
    assert added({"PATH": "/opt:$A", "B": "$A", "A": "y"}, here) == {"PATH": "/opt:$A:/bin", "B": "$A", "A": "y"}
    assert {"PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "LIBRARY_PATH", "CPATH"} < PATH_VARIABLES


def test_an_unknown_type_is_refused_and_none_has_no_vendor() -> None:
    assert vendor(NO_ACCEL) is None
    with pytest.raises(ValueError, match="unknown accelerator type 'GPU'; the types are NV_GPU, AMD_GPU"):
        vendor("GPU")
