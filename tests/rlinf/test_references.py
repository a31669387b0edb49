"""Plan the examples of RLinf's documentation offline, including the invalid one."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from rankplan import ComponentPlacement, Inventory, PlacementError, load_config
from rankplan.runtime.rank.hardware import hardware_of

SHORT_FORM = """\
cluster:
  num_nodes: 1
  component_placement:
    actor,inference: 0-7
"""

NODE_GROUP_FORM = """\
cluster:
  num_nodes: 4
  component_placement:
    actor:
      node_group: a800
      placement: 0-8
    env:
      node_group: robot
      placement: 0-3:0-7
    agent:
      node_group: node
      placement: 0-1:0-200,2-3:201-511
    rollout:
      node_group: 4090
      placement: 0-8
  node_groups:
    - label: a800
      node_ranks: 0-1
    - label: 4090
      node_ranks: 2-3
    - label: robot
      node_ranks: 2-3
      hardware:
        type: Arm
        configs:
          - {node_rank: 2, name: left}
          - {node_rank: 2, name: right}
          - {node_rank: 3, name: left}
          - {node_rank: 3, name: right}
"""

DIAGNOSTIC = """\
error[not-multiple]: 201 processes cannot be shared evenly by 2 resources
  --> conf.yaml:12:18  cluster.component_placement.agent.placement
   |
12 |       placement: 0-1:0-200,2-3:201-511
   |                  ^^^ ----- 201 processes
   |                  |
   |                  2 resources
   |
   = help: use 200 or 202 processes here, e.g. 0-1:0-199

error[not-multiple]: 311 processes cannot be shared evenly by 2 resources
  --> conf.yaml:12:28  cluster.component_placement.agent.placement
   |
12 |       placement: 0-1:0-200,2-3:201-511
   |                            ^^^ ------- 311 processes
   |                            |
   |                            2 resources
   |
   = help: use 310 or 312 processes here"""

EIGHTEEN_NODES = """\
cluster:
  num_nodes: 18
  component_placement:
    actor:
      node_group: a800
      placement: 0-63           # hardware ranks within ``a800``
    rollout:
      node_group: 4090
      placement: 0-63           # hardware ranks within ``4090``
    env:
      node_group: franka
      placement: 0-1            # robot hardware ranks within ``franka``
    agent:
      node_group: node
      placement: 0-1:0-199,2-3:200-399  # node ranks : process ranks
  node_groups:
    - label: a800
      node_ranks: 0-7
      env_configs:
        - node_ranks: 0-7
          python_interpreter_path: /opt/venv/openpi/bin/python3
          env_vars:
            - GLOO_SOCKET_IFNAME: "eth0"
    - label: 4090
      node_ranks: 8-15
      env_configs:
        - node_ranks: 8-15
          env_vars:
            - GLOO_SOCKET_IFNAME: "eth1"
    - label: franka
      node_ranks: 16-17
      hardware:
        type: Franka
        configs:
          - robot_ip: "10.10.10.1"
            node_rank: 16
            camera_serials:
              - "322142001230"
              - "322142001231"
          - robot_ip: "10.10.10.2"
            node_rank: 17
            camera_serials:
              - "322142001232"
              - "322142001233"
"""

MIXED_SEGMENTS = "{cluster: {num_nodes: 2, component_placement: {actor: '0-1:0-3,3-5,7-10:7-14'}}}"

TEST_WORKER = """\
cluster:
  num_nodes: 1
  component_placement:
    test_worker: # Component name
      node_group: a800
      placement: 0-3 # Place one process on each of the GPUs 0-3 of node group 'a800' (contains only node 0)
  node_groups:
    - label: a800
      node_ranks: 0
"""


@pytest.fixture
def conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path of a test's ``conf.yaml`` in the working directory."""
    monkeypatch.chdir(tmp_path)
    return Path("conf.yaml")


def component(conf: Path, text: str, inventory: Inventory) -> ComponentPlacement:
    conf.write_text(text)
    return ComponentPlacement(load_config(conf), inventory)


def test_short_form_gives_both_components_the_same_rule(conf: Path) -> None:
    placement = component(conf, SHORT_FORM, Inventory.uniform(num_nodes=1, num_accelerators=8))
    assert placement.components == ["actor", "inference"]
    assert placement.get_strategy("actor") is placement.get_strategy("inference")
    plan = placement.plan()
    assert [row.visible_accelerators for row in plan["actor"]] == [[str(i)] for i in range(8)]
    assert plan["actor"] == plan["inference"]


def test_the_invalid_example_is_rejected_with_both_errors(conf: Path) -> None:
    with pytest.raises(PlacementError) as rejected:
        component(conf, NODE_GROUP_FORM, Inventory.uniform(num_nodes=4, num_accelerators=8))
    assert rejected.value.render() == DIAGNOSTIC


def test_the_corrected_example_plans(conf: Path) -> None:
    corrected = NODE_GROUP_FORM.replace("0-1:0-200,2-3:201-511", "0-1:0-199,2-3:200-511")
    plan = component(conf, corrected, Inventory.uniform(num_nodes=4, num_accelerators=8)).plan()
    assert {name: len(plan[name]) for name in plan.components} == {"actor": 9, "env": 8, "agent": 512, "rollout": 9}
    # processes 0-7 are evenly shared across the robots, two each
    env = [(row.cluster_node_rank, row.local_hardware_ranks) for row in plan["env"]]
    assert env == [(2, [0]), (2, [0]), (2, [1]), (2, [1]), (3, [0]), (3, [0]), (3, [1]), (3, [1])]
    assert Counter(row.cluster_node_rank for row in plan["agent"]) == {0: 100, 1: 100, 2: 156, 3: 156}
    assert plan["rollout"][8].devices == [(3, 0)]


def test_mixed_segments_are_read_as_documented(conf: Path) -> None:
    rows = component(conf, MIXED_SEGMENTS, Inventory.uniform(num_nodes=2, num_accelerators=8)).plan()["actor"]
    assert [row.devices for row in rows] == [
        *[[(0, 0)], [(0, 0)], [(0, 1)], [(0, 1)]],
        *[[(0, 3)], [(0, 4)], [(0, 5)]],
        *[[(0, 7)], [(0, 7)], [(1, 0)], [(1, 0)], [(1, 1)], [(1, 1)], [(1, 2)], [(1, 2)]],
    ]


def test_eighteen_nodes_are_planned_offline(conf: Path) -> None:
    inventory = Inventory.from_dict(
        {
            "nodes": [
                {"ranks": "0-7", "accelerators": 8, "accelerator_model": "A800"},
                {"ranks": "8-15", "accelerators": 8, "accelerator_model": "RTX 4090"},
                {"ranks": "16-17", "accelerators": 0},
            ]
        }
    )
    placement = component(conf, EIGHTEEN_NODES, inventory)
    plan = placement.plan()
    assert [row.devices for row in plan["actor"]] == [[(node, gpu)] for node in range(8) for gpu in range(8)]
    assert [row.devices for row in plan["rollout"]] == [[(8 + node, gpu)] for node in range(8) for gpu in range(8)]
    assert [row.cluster_node_rank for row in plan["env"]] == [16, 17]
    assert [row.accelerator_type for row in plan["env"]] == ["NO_ACCEL"] * 2
    assert Counter(row.cluster_node_rank for row in plan["agent"]) == {0: 100, 1: 100, 2: 100, 3: 100}

    known = plan.inventory
    assert known.environment(3, "a800") == ({"GLOO_SOCKET_IFNAME": "eth0"}, "/opt/venv/openpi/bin/python3")
    assert known.environment(8, "4090") == ({"GLOO_SOCKET_IFNAME": "eth1"}, None)
    assert known.environment(3, "node") == ({}, None)
    assert [hardware_of(known, row)[0].robot_ip for row in plan["env"]] == ["10.10.10.1", "10.10.10.2"]
    assert hardware_of(known, plan["actor"][0]) == []


def test_the_test_worker_has_one_process_on_each_accelerator(conf: Path) -> None:
    plan = component(conf, TEST_WORKER, Inventory.uniform(num_nodes=1, num_accelerators=8)).plan()
    assert [(row.rank, row.visible_accelerators) for row in plan["test_worker"]] == [(i, [str(i)]) for i in range(4)]
