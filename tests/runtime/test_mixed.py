"""One real Ray cluster of five different nodes: node groups of every kind, and what the ranks in them see."""

from __future__ import annotations

import os
import re
import site
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf
from rankplan import (
    Cluster,
    ComponentPlacement,
    FlexiblePlacementStrategy,
    Franka,
    HardwareConfig,
    Inventory,
    LaunchError,
    Plan,
    WorkerGroup,
    register_hardware,
)
from support import answers, oracle
from support.paths import EXAMPLES
from support.robots import Lamp, Lighter
from support.workers import NAMES, Reader

pytestmark = pytest.mark.long

NODES = {
    "nodes": [
        {"ranks": 0, "accelerators": 4, "accelerator_model": "A800"},
        {"ranks": 1, "accelerator_ids": ["6", "4"], "accelerator_model": "A800"},
        {"ranks": 2, "accelerators": 3, "accelerator_model": "RTX 4090"},
        {"ranks": 3, "accelerators": 1, "accelerator_type": "AMD_GPU"},
        {"ranks": 4},
    ]
}
ARMS = [
    {"node_rank": 4, "name": "d", "cameras": [{"serial": "0322", "rate": 30}]},
    {"node_rank": 2, "name": "a"},
    {"node_rank": 4, "name": "c", "cameras": []},
    {"node_rank": 3, "name": "b", "gain": 0.5},
]
SECTION: dict[str, Any] = {
    "num_nodes": 5,
    "node_groups": [
        {"label": "a800", "node_ranks": "0-1"},
        {"label": 4090, "node_ranks": 2},
        {"label": "edge", "node_ranks": [3, 4]},
        {"label": "arms", "node_ranks": "2-4", "hardware": {"type": "Arm", "configs": ARMS}},
        {"label": "bare", "node_ranks": "0,4", "ignore_hardware": True},
        {
            "label": "elsewhere",
            "node_ranks": "3-4",
            "env_configs": [{"node_ranks": "3-4", "python_interpreter_path": "/opt/nowhere/bin/python"}],
            "ignore_hardware": True,
        },
    ],
    "component_placement": {
        # uneven nodes, one with ids of its own: two processes with two accelerators each, then two on each
        "actor": {"node_group": "a800", "placement": "0-3:0-1,4-5:2-5"},
        # not in the order of the nodes
        "rollout": {"node_group": [4090, "a800"], "placement": "0-2,3-6:3,7-8"},
        # a node without accelerators beside one with those of another vendor
        "reward": {"node_group": "edge,4090", "placement": "all"},
        "env": {"node_group": "arms", "placement": "all"},
        # one process has both robots of node 4
        "pair": {"node_group": "arms", "placement": "0-1,2-3:2"},
        # robots and accelerators of one node
        "mixture": {"node_group": "arms,4090", "placement": "0-1,2:2-3,3-6"},
        "agent": {"node_group": "node", "placement": "0:0-1,4:2-3"},
        "tool": {"node_group": "bare", "placement": "all"},
        # one of the groups counts nodes, so all do
        "judge": {"node_group": "bare, 4090", "placement": "all"},
        "guest": {"node_group": "elsewhere", "placement": "all"},
    },
}
ROBOTS = {
    "env": [["a"], ["b"], ["d"], ["c"]],
    "pair": [["a"], ["b"], ["d", "c"]],
    "mixture": [["a"], ["b"], ["d"], ["d"], ["c"], [], [], []],
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster.simulate(Inventory.from_dict(NODES), SECTION) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def interpreter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another interpreter with the packages of this one; its path contains a space."""
    folder = tmp_path_factory.mktemp("a venv")
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    lines = [f"import site; site.addsitedir({path!r})\n" for path in site.getsitepackages()]
    (packages / "borrowed.pth").write_text("".join(lines))
    return folder / "bin" / "python"


def launched(cluster: Cluster, section: dict[str, Any], component: str, isolate: bool = True) -> WorkerGroup:
    strategy = ComponentPlacement({"cluster": section}, cluster).get_strategy(component)
    return Reader.create_group().launch(cluster, strategy, name=component, isolate_accelerator=isolate)


def variables(row: oracle.Row) -> tuple[str | None, ...]:
    """What a rank must see, by the oracle, in the order of ``NAMES``, and then the mask of AMD."""
    own = bool(row["devices"]) and row["node_group_label"] != "arms"
    local_rank, local_world_size = row["local_rank"], row["local_world_size"]
    if own:
        local_rank = 0 if row["isolate_accelerator"] else row["local_accelerator_rank"]
        local_world_size = 1 if row["isolate_accelerator"] else local_world_size
    among_all = row["rank"], row["world_size"], local_rank, local_world_size
    on_nodes = row["placement_node_rank"], row["local_rank"], row["local_world_size"], row["cluster_node_rank"]
    mask = ",".join(row["visible_accelerators"]) or None
    masks = (mask, None) if row["accelerator_type"] == "NV_GPU" else (None, mask)
    return (*map(str, among_all + on_nodes), *masks)


@pytest.mark.parametrize(
    ("component", "isolate"),
    [*((name, True) for name in SECTION["component_placement"]), ("rollout", False)],
)
def test_every_rank_is_where_the_oracle_places_it(cluster: Cluster, component: str, isolate: bool) -> None:
    rows = oracle.plan(SECTION, NODES, isolate)[component]
    nodes = [row["cluster_node_rank"] for row in rows]
    with launched(cluster, SECTION, component, isolate) as group:
        assert answers.as_dicts(group.placements) == rows
        assert group.environment(*NAMES, "HIP_VISIBLE_DEVICES").wait() == [variables(row) for row in rows]
        assert group.environment("MASTER_ADDR").wait() == [(f"127.0.0.{nodes[0] + 2}",)] * len(rows)
        assert group.node_id().wait() == [cluster.node_ids[node] for node in nodes]
        robots = group.robots().wait()
        assert [report.node_rank for report in group.verify()] == nodes
    assert [[robot.name for robot in held] for held in robots] == ROBOTS.get(component, [[]] * len(rows))
    held = {robot.name: robot for of_rank in robots for robot in of_rank}
    assert all(held[arm["name"]].model_dump() == arm for arm in ARMS if arm["name"] in held)


def test_each_node_of_a_group_has_its_own_variables_and_interpreter(cluster: Cluster, interpreter: Path) -> None:
    here = sys.executable
    section = SECTION | {
        "node_groups": [
            {
                "label": "g",
                "node_ranks": "0-2",
                "env_configs": [
                    {"node_ranks": 0, "env_vars": [{"SIDE": "eth0"}, {"LD_SIDE": "x:${HOME}"}, {"OWN": "y:${HOME}"}]},
                    {"node_ranks": [2], "env_vars": [{"SIDE": "eth1"}], "python_interpreter_path": str(interpreter)},
                ],
            },
            {
                "label": "same nodes",
                "node_ranks": "all",
                "env_configs": [{"node_ranks": "all", "env_vars": {"OMP_NUM_THREADS": 3}}],
            },
        ],
        "component_placement": {
            "actor": {"node_group": "g", "placement": "0,4,6"},
            "agent": {"node_group": "same nodes", "placement": "0,6,9"},
            "rollout": "0,6",
        },
    }
    with Cluster(cluster_cfg=section) as same:
        groups = [launched(same, section, component) for component in ("actor", "agent", "rollout")]
        home = os.environ["HOME"]
        assert [group.environment("SIDE", "LD_SIDE", "OWN", "OMP_NUM_THREADS").wait() for group in groups] == [
            [("eth0", f"x:{home}", f"y:{home}", "1"), (None, None, None, "1"), ("eth1", None, None, "1")],
            [(None, None, None, "3")] * 3,
            [(None, None, None, "1")] * 2,
        ]
        assert [group.interpreter().wait() for group in groups] == [
            [here, here, str(interpreter)],
            [here] * 3,
            [here] * 2,
        ]
        assert [group.at_start("LD_SIDE").wait() for group in groups[:2]] == [[True, False, False], [False] * 3]


OWN_MODEL = """
from rankplan import Cluster, ComponentPlacement, HardwareConfig, Worker, register_hardware

class Gripper(HardwareConfig):
    name: str
    force: float = 2.5

    @property
    def label(self):
        return f"{self.name} {self.force}"

class Env(Worker):
    def labels(self):
        return [f"{type(robot).__name__} {robot.label} on node {robot.node_rank}" for robot in self.hardware]

register_hardware("Gripper", Gripper)
grippers = [{"node_rank": 4, "name": "right"}, {"node_rank": 3, "name": "left", "force": 1}]
group = {"label": "grippers", "node_ranks": "3-4", "hardware": {"type": "Gripper", "configs": grippers}}
placements = {"env": {"node_group": "grippers", "placement": "all"}}
config = {"cluster": {"num_nodes": 5, "node_groups": [group], "component_placement": placements}}
with Cluster(config["cluster"]) as cluster:
    strategy = ComponentPlacement(config, cluster).get_strategy("env")
    print(Env.create_group().launch(cluster, strategy).labels().wait())
"""


def test_a_hardware_model_of_the_drivers_own_program_reaches_the_ranks(cluster: Cluster) -> None:
    variables = {**os.environ, "RAY_ADDRESS": cluster.address}
    command = [sys.executable, "-c", OWN_MODEL]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=120, check=False)
    labels = [["Gripper left 1.0 on node 3"], ["Gripper right 2.5 on node 4"]]
    assert done.stdout.splitlines()[-1] == str(labels), done.stderr


def lamps(model: type[HardwareConfig]) -> dict[str, Any]:
    """A section with a component over two lamps."""
    register_hardware("Lamp of this test", model)
    configs = [{"node_rank": 3, "watts": 7}, {"node_rank": 2, "watts": 5}]
    group = {"label": "lamps", "node_ranks": "2-3", "hardware": {"type": "Lamp of this test", "configs": configs}}
    return SECTION | {
        "node_groups": [group],
        "component_placement": {"light": {"node_group": "lamps", "placement": "all"}},
    }


def test_a_hardware_model_is_imported_after_the_environment_is_set(cluster: Cluster) -> None:
    section = lamps(Lamp)
    with Cluster(cluster_cfg=section) as same:
        strategy = ComponentPlacement({"cluster": section}, same).get_strategy("light")
        with Lighter.create_group().launch(same, strategy) as group:
            assert group.lamps().wait() == [[("support.robots", 5, "0")], [("support.robots", 7, "1")]]


def test_a_hardware_model_that_cannot_be_sent_is_a_launch_error(cluster: Cluster) -> None:
    class Lock(HardwareConfig):
        """pydantic keeps the variables of the enclosing function, including the cluster."""

        watts: int

    section = lamps(Lock)
    message = (
        r"^light: the hardware of a rank cannot be sent to the ranks: .* define its model at the top level of a module"
    )
    with Cluster(cluster_cfg=section) as same, pytest.raises(LaunchError, match=message):
        launched(same, section, "light")


def test_an_interpreter_that_does_not_exist_is_simulated(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    with launched(cluster, SECTION, "guest") as group:
        assert group.interpreter().wait() == [sys.executable] * 2
    assert caplog.messages == [
        f"guest: simulated nodes 3-4 of node group 'elsewhere' with {sys.executable}, because its interpreter "
        "/opt/nowhere/bin/python does not exist on this machine"
    ]
    message = r"the interpreter /opt/nowhere/bin/python of node group 'elsewhere' cannot run a rank: it is not an exec"
    with (
        Cluster(cluster_cfg=SECTION) as same,
        pytest.raises(LaunchError, match=rf"^guest rank 0 \(node 3\): {message}"),
    ):
        launched(same, SECTION, "guest")


def test_robots_of_built_in_and_unknown_types_from_an_omegaconf_section(cluster: Cluster) -> None:
    franka = {"node_rank": 4, "camera_serials": ["0322"], "reach": 3}
    robot_ip = [{"node_ranks": "3-4", "env_vars": {"ROBOT_IP": "${address}4, 10.1.0.9"}}]
    dual = {"node_rank": 3, "left_robot_ip": "${address}5", "left_camera_serials": ["7"]}
    section = SECTION | {
        "node_groups": [
            {
                "label": kind,
                "node_ranks": "3-4",
                "env_configs": robot_ip,
                "hardware": {"type": kind, "configs": [config]},
            }
            for kind, config in (("Franka", franka), ("DualFranka", dual))
        ],
        "component_placement": {"env": {"node_group": ["DualFranka", "Franka"], "placement": "all"}},
    }
    config = OmegaConf.create({"address": "10.1.0.", "cluster": section})
    with Cluster(cluster_cfg=config.cluster) as same:
        strategy = ComponentPlacement(config, same).get_strategy("env")
        with Reader.create_group().launch(same, strategy) as group:
            assert group.robots().wait() == [
                [HardwareConfig(**{**dual, "left_robot_ip": "10.1.0.5"})],
                [Franka(**{**franka, "robot_ip": "10.1.0.4"})],
            ]


def test_an_omegaconf_section_and_a_saved_plan_give_the_same_group(cluster: Cluster, tmp_path: Path) -> None:
    config = OmegaConf.create({"kind": "Arm", "cluster": SECTION})
    config.cluster.node_groups[3].hardware.type = "${kind}"
    with Cluster(cluster_cfg=config.cluster) as same:
        assert same.inventory == cluster.inventory
        plan = ComponentPlacement(config, same).plan()
        plan.save(tmp_path / "plan.json")
        with Reader.create_group().launch(same, Plan.load(tmp_path / "plan.json")["pair"]) as group:
            assert group.placements == list(plan["pair"])
            held = group.robots().wait()
    cameras = held[2][0].cameras
    assert (type(cameras), type(cameras[0]), cameras) == (list, dict, [{"serial": "0322", "rate": 30}])


def test_a_strategy_and_a_plan_use_the_node_groups_of_their_config(cluster: Cluster) -> None:
    """The cluster has no groups, or others of the same name."""
    others = [{"label": "arms", "node_ranks": "2-4", "hardware": {"type": "Arm", "configs": ARMS[:1]}}]
    for section in (None, {"num_nodes": 5, "node_groups": others}):
        with Cluster(cluster_cfg=section) as same, launched(same, SECTION, "pair") as group:
            assert [[robot.name for robot in held] for held in group.robots().wait()] == ROBOTS["pair"]
    plan = ComponentPlacement({"cluster": SECTION}, cluster).plan()
    with Cluster() as bare, Reader.create_group().launch(bare, plan["pair"]) as group:
        assert [[robot.name for robot in held] for held in group.robots().wait()] == ROBOTS["pair"]


def test_strategies_made_by_hand_use_the_groups_of_the_cluster(cluster: Cluster) -> None:
    strategy = FlexiblePlacementStrategy([[2, 3], [0]], "arms")
    with Reader.create_group().launch(cluster, strategy) as group:
        assert [[robot.name for robot in held] for held in group.robots().wait()] == [["a"], ["d", "c"]]


def test_the_example_shows_what_each_rank_has() -> None:
    """It starts its own cluster. Next to the node: whether the interpreter is that of the driver."""
    program = EXAMPLES / "mixed" / "run.py"
    done = subprocess.run([sys.executable, "-W", "error", program], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    found = re.findall(r"^(\w+) \d of \d on node (\d): (\S+) ?(.*)$", done.stdout, re.MULTILINE)
    assert [(component, int(node), path == sys.executable, what) for component, node, path, what in found] == [
        *(("actor", 0, False, f"CUDA_VISIBLE_DEVICES={gpu} GLOO_SOCKET_IFNAME=eth0") for gpu in range(4)),
        *(("actor", 1, False, f"CUDA_VISIBLE_DEVICES={gpu} GLOO_SOCKET_IFNAME=eth0") for gpu in (4, 5)),
        *(("rollout", 2, True, f"CUDA_VISIBLE_DEVICES={gpu} GLOO_SOCKET_IFNAME=eth1") for gpu in (0, 1)),
        ("env", 3, True, "ROBOT_ROOM=left 10.10.10.1"),
        ("env", 4, True, "ROBOT_ROOM=right 10.10.10.2"),
        ("env", 4, True, "ROBOT_ROOM=right 10.10.10.3"),
        *[("agent", 0, True, "CUDA_VISIBLE_DEVICES=0,1,2,3")] * 2,
        *[("agent", 1, True, "CUDA_VISIBLE_DEVICES=4,5")] * 2,
        *(("agent", node, True, "") for node in (3, 4)),
    ]
    (interpreter,) = {path for component, _, path, _ in found if component == "actor"}
    assert not Path(interpreter).exists()
