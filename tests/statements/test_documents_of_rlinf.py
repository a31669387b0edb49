"""RLinf's documents on mixed clusters and on the placement of workers, statement by statement.

What both say is one row.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import yaml
from rankplan import (
    ComponentPlacement,
    FlexiblePlacementStrategy,
    HardwareConfig,
    Inventory,
    NodePlacementStrategy,
    NodeSpec,
    PlacementError,
    Plan,
    RankSet,
    parse_placement,
)
from rankplan.environment import NODE_RANK_VARIABLES, planned_environment
from rankplan.runtime.nodes.nodes import FoundNode, in_order
from rankplan.runtime.rank.hardware import hardware_of
from support.statements import Statement, refusal

EIGHTEEN_NODES = """
num_nodes: 18
component_placement:
  actor: {node_group: a800, placement: 0-63}
  rollout: {node_group: 4090, placement: 0-63}
  env: {node_group: franka, placement: 0-1}
  agent: {node_group: node, placement: "0-1:0-199,2-3:200-399"}
node_groups:
  - label: a800
    node_ranks: 0-7
    env_configs:
      - node_ranks: 0-7
        python_interpreter_path: /opt/venv/openpi/bin/python3
        env_vars: [{GLOO_SOCKET_IFNAME: eth0}]
  - label: 4090
    node_ranks: 8-15
    env_configs: [{node_ranks: 8-15, env_vars: [{GLOO_SOCKET_IFNAME: eth1}]}]
  - label: franka
    node_ranks: 16-17
    hardware:
      type: Franka
      configs:
        - {robot_ip: 10.10.10.1, node_rank: 16, camera_serials: ["322142001230", "322142001231"]}
        - {robot_ip: 10.10.10.2, node_rank: 17, camera_serials: ["322142001232", "322142001233"]}
"""

GROUP_FORM = """
num_nodes: 4
component_placement:
  actor: {node_group: a800, placement: 0-8}
  rollout: {node_group: 4090, placement: 0-8}
  env: {node_group: robot, placement: "0-3:0-7"}
node_groups:
  - {label: a800, node_ranks: 0-1}
  - {label: 4090, node_ranks: 2-3}
  - label: robot
    node_ranks: 2-3
    hardware:
      type: Arm
      configs: [{node_rank: 2, n: 0}, {node_rank: 2, n: 1}, {node_rank: 3, n: 0}, {node_rank: 3, n: 1}]
"""

ARMS = {"type": "Arm", "configs": [{"node_rank": rank, "name": name} for rank, name in ((0, "a"), (1, "a"), (1, "b"))]}


def placement(section: str | dict[str, Any], *accelerators: int) -> ComponentPlacement:
    """Return what a ``cluster`` section places on nodes with so many accelerators each."""
    content = yaml.safe_load(section) if isinstance(section, str) else section
    nodes = [{"ranks": rank, "accelerators": count} for rank, count in enumerate(accelerators)]
    return ComponentPlacement({"cluster": content}, Inventory.from_dict({"nodes": nodes}))


@cache
def example() -> Plan:
    return placement(EIGHTEEN_NODES, *[8] * 16, 0, 0).plan()


@cache
def group_form() -> Plan:
    return placement(GROUP_FORM, 8, 8, 8, 8).plan()


def section(entry: Any, *groups: dict[str, Any], nodes: int = 2) -> dict[str, Any]:
    """Return a ``cluster`` section with the component ``a``."""
    return {"num_nodes": nodes, "component_placement": {"a": entry}, "node_groups": list(groups)}


def group(label: Any, ranks: Any, **more: Any) -> dict[str, Any]:
    return {"label": label, "node_ranks": ranks, **more}


def on(label: str, ranks: Any) -> dict[str, Any]:
    """Return a component on a node group."""
    return {"node_group": label, "placement": ranks}


def rows(entry: Any, *groups: dict[str, Any], each: int = 4, nodes: int = 2) -> list[tuple[int, list[int]]]:
    """Return the node and the hardware ranks of each process of a component."""
    plan = placement(section(entry, *groups, nodes=nodes), *[each] * nodes).plan()
    return [(row.cluster_node_rank, row.local_hardware_ranks) for row in plan["a"]]


def nodes_of(component: Any) -> list[int]:
    return [row.cluster_node_rank for row in component]


def faults(entry: Any, *groups: dict[str, Any], each: int = 4) -> list[str]:
    return refusal(rows, entry, *groups, each=each)


def variables(*configs: dict[str, Any], node: int = 0) -> tuple[dict[str, str], str | None]:
    """Return the variables and the interpreter of a node of the group ``g``."""
    plan = placement(section(on("g", "all"), group("g", "0-1", env_configs=list(configs))), 4, 4).plan()
    return plan.inventory.environment(node, "g")


def strategy(entry: Any, *groups: dict[str, Any], each: int = 4) -> type:
    return type(placement(section(entry, *groups), each, each).get_strategy("a"))


def assertion(entry: Any) -> bool:
    """Return whether a rank map is refused with an ``AssertionError``."""
    try:
        placement(section(entry), 4, 4)
    except AssertionError as error:
        return isinstance(error, PlacementError)
    return False


def robots() -> list[HardwareConfig]:
    """Return the robots of the example's env, process by process."""
    plan = example()
    configs: list[HardwareConfig] = []
    for row in plan["env"]:
        configs += hardware_of(plan.inventory, row)
    return configs


def by_rank_variable(*ranks: str) -> list[str]:
    """Return the nodes in their order, each named by the rank that its variable gives it."""
    nodes = [FoundNode(rank, NodeSpec(ranks=RankSet()), rank_variable=rank) for rank in ranks]
    return [node.node_id for node in in_order(nodes, None)[0]]


def devices_seen(isolate: bool) -> str:
    """Return the devices that process 1 of two sees on a node of four accelerators."""
    plan = placement(section("0-1"), 4, 4).plan(isolate_accelerator=isolate)
    return planned_environment(plan["a"][1])["CUDA_VISIBLE_DEVICES"]


def ranks_of_processes(entry: Any, *, each: int = 16) -> list[list[int]]:
    """Return the processes of each resource, for a component on one node."""
    users: dict[int, list[int]] = {}
    for process, (_, resources) in enumerate(rows(entry, each=each, nodes=1)):
        for resource in resources:
            users.setdefault(resource, []).append(process)
    return [users[resource] for resource in sorted(users)]


MIXED = "0-1:0-3,3-5,7-10:7-14"
FRANKA_WITHOUT_NODE = section(on("g", 0), group("g", 0, hardware={"type": "Franka", "configs": [{}]}), nodes=1)


def shared_rule() -> bool:
    """Return whether components of one key have one strategy."""
    both = placement({"num_nodes": 1, "component_placement": {"actor,inference": "0-7"}}, 8)
    return both.components == ["actor", "inference"] and both.get_strategy("actor") is both.get_strategy("inference")


def one_worker() -> ComponentPlacement:
    """Return the example of a program; ``tests/runtime/test_launch.py`` launches it."""
    return placement(
        {
            "num_nodes": 1,
            "component_placement": {"test_worker": on("a800", "0-3")},
            "node_groups": [group("a800", 0)],
        },
        8,
    )


def nodes_of_group() -> list[int]:
    return [node for node, _ in rows(on("g", "all"), group("g", "0-1"), each=0)]


STATEMENTS = [
    # the section, and its example
    Statement("nodes of several kinds run one job", lambda: sorted(example()), ["actor", "agent", "env", "rollout"]),
    Statement("num_nodes counts all nodes", lambda: example().inventory.num_nodes, 18),
    Statement("actor: 0-63 are ranks within a800", lambda: nodes_of(example()["actor"][::8]), [*range(8)]),
    Statement("rollout: 0-63 are ranks within 4090", lambda: nodes_of(example()["rollout"][::8]), [*range(8, 16)]),
    Statement("env: 0-1 are robots", lambda: nodes_of(example()["env"]), [16, 17]),
    Statement("agent: 0-199 run on nodes 0-1", lambda: {*nodes_of(example()["agent"][:200])}, {0, 1}),
    Statement("agent: 200-399 run on nodes 2-3", lambda: {*nodes_of(example()["agent"][200:])}, {2, 3}),
    Statement("node ranks count from 0", lambda: faults(on("g", 0), group("g", 2)), ["node-out-of-range"]),
    Statement("RLINF_NODE_RANK is a rank variable", lambda: "RLINF_NODE_RANK" in NODE_RANK_VARIABLES, True),
    Statement("the variable orders the nodes", lambda: by_rank_variable("1", "2", "0"), ["0", "1", "2"]),
    # labels and nodes of a group
    Statement("a group is a set of nodes", lambda: nodes_of(group_form()["rollout"]), [2] * 8 + [3]),
    Statement("labels are unique", lambda: faults(0, group("g", 0), group("g", 1)), ["duplicate-node-group"]),
    Statement("components name groups by label", lambda: faults(on("h", 0), group("g", 0)), ["unknown-node-group"]),
    Statement("labels are case-sensitive", lambda: faults(on("G", 0), group("g", 0)), ["unknown-node-group"]),
    Statement("labels may differ by case", lambda: rows(on("G", 0), group("g", 0), group("G", 1)), [(1, [0])]),
    Statement("a label may be a number", lambda: rows(on("4090", 0), group(4090, 1)), [(1, [0])]),
    Statement("`cluster` is reserved", lambda: faults(0, group("cluster", 0)), ["reserved-label"]),
    Statement("`node` is reserved", lambda: faults(0, group("node", 0)), ["reserved-label"]),
    Statement("`node` covers all nodes", lambda: rows(on("node", "all")), [(0, []), (1, [])]),
    Statement("`node` needs no hardware", lambda: rows(on("node", "0:0-1"), each=0), [(0, []), (0, [])]),
    Statement("`node` ignores accelerators", lambda: faults(on("node", 3)), ["resource-out-of-range"]),
    Statement("node_ranks is a range", lambda: rows(on("g", "all"), group("g", "0-1"), each=1), [(0, [0]), (1, [0])]),
    Statement("node_ranks is a list", lambda: rows(on("g", "all"), group("g", [0, 1]), each=1), [(0, [0]), (1, [0])]),
    # env_configs
    Statement("env_configs may be absent", lambda: example().inventory.environment(16, "franka"), ({}, None)),
    Statement(
        "a variable of a group reaches its nodes",
        lambda: example().inventory.environment(8, "4090"),
        ({"GLOO_SOCKET_IFNAME": "eth1"}, None),
    ),
    Statement(
        "an interpreter of a group runs on its nodes",
        lambda: example().inventory.environment(3, "a800"),
        ({"GLOO_SOCKET_IFNAME": "eth0"}, "/opt/venv/openpi/bin/python3"),
    ),
    Statement(
        "a config covers a subset of the nodes",
        lambda: variables({"node_ranks": 1, "env_vars": [{"A": "1"}]}),
        ({}, None),
    ),
    Statement(
        "its nodes belong to the group",
        lambda: faults(on("g", 0), group("g", 0, env_configs=[{"node_ranks": 1}])),
        ["node-out-of-range"],
    ),
    Statement(
        "configs of a group do not overlap",
        lambda: refusal(variables, {"node_ranks": "0-1"}, {"node_ranks": 1}),
        ["overlapping-env"],
    ),
    Statement(
        "env_vars is a list of mappings with one key",
        lambda: variables({"node_ranks": 0, "env_vars": [{"A": "1"}, {"B": "2"}]}),
        ({"A": "1", "B": "2"}, None),
    ),
    Statement(
        "a variable is set once on a node",
        lambda: refusal(variables, {"node_ranks": 0, "env_vars": [{"A": "1"}, {"A": "2"}]}),
        ["duplicate-env-var"],
    ),
    Statement(
        "a variable may differ between nodes of a group",
        lambda: variables(*({"node_ranks": rank, "env_vars": [{"A": str(rank)}]} for rank in (0, 1)), node=1),
        ({"A": "1"}, None),
        differs="variables-unique-in-group",
    ),
    # hardware
    Statement(
        "robots have the fields of their type",
        lambda: [robot.robot_ip for robot in robots()],
        ["10.10.10.1", "10.10.10.2"],
    ),
    Statement("cameras belong to a robot", lambda: [*robots()[1].camera_serials], ["322142001232", "322142001233"]),
    Statement("the type decides the fields", lambda: refusal(placement, FRANKA_WITHOUT_NODE, 0), ["missing-key"]),
    Statement(
        "hardware ranks count through the group",
        lambda: rows(on("g", "1-2"), group("g", "0-1", hardware=ARMS)),
        [(1, [0]), (1, [1])],
    ),
    Statement(
        "hardware replaces accelerators",
        lambda: faults(on("g", 3), group("g", "0-1", hardware=ARMS)),
        ["resource-out-of-range"],
    ),
    Statement("without hardware, accelerators count", lambda: rows(on("g", 5), group("g", "0-1")), [(1, [1])]),
    Statement(
        "their ranks are local indices", lambda: rows(on("g", "all"), group("g", 1), each=2), [(1, [0]), (1, [1])]
    ),
    Statement("without accelerators, nodes count", lambda: nodes_of_group(), [0, 1]),
    Statement(
        "a node is a resource with hardware rank 0",
        lambda: rows(on("g", "all"), group("g", "0-1"), each=0),
        [(0, []), (1, [])],
        differs="documented-hardware-rank-of-a-node",
    ),
    Statement("a placement counts in its group", lambda: rows(on("g", 0), group("g", 1)), [(1, [0])]),
    # forms of a placement
    Statement("a short form is one of `cluster`", lambda: rows("0-3") == rows(on("cluster", "0-3")), True),
    Statement("names with a comma share a rule", shared_rule, True),
    Statement("`0-7` makes eight processes", lambda: rows("0-7", each=8, nodes=1), [(0, [rank]) for rank in range(8)]),
    Statement("actor: 0-8 of a800", lambda: group_form()["actor"][8].devices, [(1, 0)]),
    Statement("rollout: 0-8 of 4090", lambda: group_form()["rollout"][8].devices, [(3, 0)]),
    Statement("env: two processes on each robot", lambda: nodes_of(group_form()["env"]), [2] * 4 + [3] * 4),
    Statement(
        "agent: 201 processes on two nodes",
        lambda: faults(on("node", "0-1:0-200")),
        ["not-multiple"],
        differs="documented-example",
    ),
    # resource ranks and process ranks
    Statement("`a-b` includes both ends", lambda: len(rows("0-3")), 4),
    Statement("`all` takes every resource", lambda: len(rows("all")), 8),
    Statement("`all` is that of the group", lambda: len(rows(on("g", "all"), group("g", 1))), 4),
    Statement("processes are a range after the colon", lambda: len(rows("0-3:0-7")), 8),
    Statement("`all` is no process rank", lambda: faults("0-3:all"), ["all-processes"]),
    Statement("without a colon, one process per resource", lambda: ranks_of_processes("4-5"), [[0], [1]]),
    Statement(
        "a second part continues: `0-3,4-7`", lambda: ranks_of_processes("0-3,4-7"), [[rank] for rank in range(8)]
    ),
    Statement("`0-1:0-3` of a mixed text", lambda: ranks_of_processes(MIXED)[:2], [[0, 1], [2, 3]]),
    Statement("`3-5` of a mixed text", lambda: ranks_of_processes(MIXED)[2:5], [[4], [5], [6]]),
    Statement(
        "`7-10:7-14` of a mixed text", lambda: ranks_of_processes(MIXED)[5:], [[7, 8], [9, 10], [11, 12], [13, 14]]
    ),
    Statement("process ranks have no gap", lambda: faults("0-1:0-1,2-3:3-4"), ["process-gap"]),
    Statement(
        "process ranks start at 0", lambda: faults("0-3:4-7"), ["process-start"], differs="process-ranks-start-anywhere"
    ),
    Statement("a process rank occurs once", lambda: faults("0-1:0-1,2-3:1-2"), ["process-gap"]),
    Statement(
        "any order is enough", lambda: faults("0-1:2-3,2-3:0-1")[0], "process-start", differs="documented-process-order"
    ),
    Statement("a violation is an AssertionError", lambda: assertion("0-3:4-7"), True),
    Statement("one number is a multiple of the other", lambda: faults("0-3:0-5"), ["not-multiple"]),
    Statement("a process may have several resources", lambda: rows("0-3:0-1"), [(0, [0, 1]), (0, [2, 3])]),
    Statement("processes may share a resource", lambda: rows("0:0-1"), [(0, [0]), (0, [0])]),
    # how it is executed
    Statement("without hardware, the strategy is by node", lambda: strategy(0, each=0), NodePlacementStrategy),
    Statement("on `node`, the strategy is by node", lambda: strategy(on("node", 0)), NodePlacementStrategy),
    Statement("no process spans nodes", lambda: faults(on("node", "0-1:0")), ["spans-nodes"]),
    Statement("with accelerators, the strategy is flexible", lambda: strategy(0), FlexiblePlacementStrategy),
    Statement(
        "with robots, the strategy is flexible",
        lambda: strategy(on("g", 0), group("g", "0-1", hardware=ARMS)),
        FlexiblePlacementStrategy,
    ),
    Statement("hardware of a process is on one node", lambda: faults("2-5:0"), ["spans-nodes"]),
    Statement("a row has its process rank", lambda: [row.rank for row in example()["env"]], [0, 1]),
    Statement(
        "a row has its node, and its index among the component's",
        lambda: [(row.cluster_node_rank, row.placement_node_rank) for row in example()["env"]],
        [(16, 0), (17, 1)],
    ),
    Statement(
        "a row has local hardware ranks",
        lambda: [row.local_hardware_ranks for row in group_form()["env"][::2]],
        [[0], [1], [0], [1]],
    ),
    Statement("other accelerators are hidden", lambda: devices_seen(isolate=True), "1"),
    Statement("or shown", lambda: devices_seen(isolate=False), "0,1,2,3"),
    # only in the document on the placement of workers
    Statement(
        "a list of ranges as resources",
        lambda: ranks_of_processes("0-1,4-5:0-3"),
        [[0], [1], [2], [3]],
        differs="resource-lists",
    ),
    Statement(
        "a list of ranges as processes",
        lambda: str(parse_placement("0-3:0-3,4-7")),
        "0-3:0-3,4-7:4-7",
        differs="documented-process-lists",
    ),
    Statement(
        "resources in any order",
        lambda: faults("4-7,0-3"),
        ["resource-order"],
        differs="documented-resource-order",
    ),
    Statement(
        "a component has a strategy under its name", lambda: one_worker().get_strategy("test_worker").world_size, 4
    ),
    Statement(
        "an unknown component has none", lambda: refusal(one_worker().get_strategy, "other"), ["unknown-component"]
    ),
    Statement(
        "its processes have one accelerator each",
        lambda: [row.visible_accelerators for row in one_worker().plan()["test_worker"]],
        [["0"], ["1"], ["2"], ["3"]],
    ),
    Statement("its group is node 0", lambda: {*nodes_of(one_worker().plan()["test_worker"])}, {0}),
    Statement(
        "the config needs `component_placement`", lambda: refusal(placement, {"num_nodes": 1}, 4), ["no-components"]
    ),
]


@pytest.mark.parametrize("statement", STATEMENTS, ids=[statement.says for statement in STATEMENTS])
def test_a_statement_of_rlinf(statement: Statement) -> None:
    assert statement.result() == statement.answer
