"""What the code of trainers expects of nodes after a placement: each warning has a cluster with it and one without."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import rankplan
from hypothesis import given
from hypothesis import strategies as st
from rankplan import Faults, Inventory
from rankplan._core import Taken
from rankplan.dialects.placing.placer import Placer
from rankplan.errors import NOWHERE
from rankplan.sdk.placing import check_addresses
from support.outcomes import at_least, outcome

CODES = ("engine-address", "assumed-nodes")


def nemo_rl(size: int, gpus: int, nodes: int, backend: str = "sglang") -> dict[str, Any]:
    server = {"num_gpus": gpus * nodes, "num_gpus_per_engine": size}
    generation = {
        "backend": backend,
        "colocated": {"enabled": True},
        "sglang_cfg": {"tp_size": size, "sglang_server_config": server},
        "vllm_cfg": {"tensor_parallel_size": size},
    }
    return {"cluster": {"num_nodes": nodes, "gpus_per_node": gpus}, "grpo": {}, "policy": {"generation": generation}}


def slime(each: int, **flags: int) -> dict[str, Any]:
    sides = {"actor_num_nodes": 1, "actor_num_gpus_per_node": 8, "rollout_num_gpus": 16}
    return {**sides, "rollout_num_gpus_per_engine": each, **flags}


def verl(nodes: int, gpus: int, tensor: int, name: str = "vllm") -> dict[str, Any]:
    rollout = {"name": name, "tensor_model_parallel_size": tensor}
    trainer = {"nnodes": nodes, "n_gpus_per_node": gpus}
    return {"trainer": trainer, "actor_rollout_ref": {"rollout": rollout}, "critic": {"enable": False}}


def verl_alone(nodes: int, gpus: int, tensor: int) -> dict[str, Any]:
    return verl(1, 8, tensor) | {"rollout": {"nnodes": nodes, "n_gpus_per_node": gpus}}


def roll(devices: str, size: int, engine: str = "sglang") -> dict[str, Any]:
    strategy = {"strategy_name": engine, "strategy_config": {"tensor_parallel_size": size}}
    role = {"device_mapping": devices, "num_gpus_per_worker": size, "strategy_args": strategy}
    return {"actor_train": {"device_mapping": "list(range(0,8))"}, "actor_infer": role}


def skyrl(nodes: int, gpus: int) -> dict[str, Any]:
    placement = {"policy_num_nodes": nodes, "policy_num_gpus_per_node": gpus}
    algorithm = {"use_kl_loss": False}
    trainer = {"strategy": "fsdp2", "placement": placement, "algorithm": algorithm}
    engines = {"num_engines": nodes * gpus, "tensor_parallel_size": 1}
    return {"trainer": trainer, "generator": {"inference_engine": engines}}


EVEN = {"a": {"device_mapping": "list(range(0,8))"}}
ROWS = [
    ("slime", slime(2, num_gpus_per_node=8), (3, 8), None),
    ("slime", slime(2, num_gpus_per_node=4), (3, 8), "slime may give process 2 of the engines on node 1 the ports of"),
    ("slime", slime(8, num_gpus_per_node=4), (3, 8), "slime may give process 1 of the engines on node 1 the ports of"),
    ("slime", slime(8), (2, 16), None),
    ("slime", slime(8), (3, 24), "slime may give process 1 of the engines on node 0 the ports of process 0"),
    ("nemo_rl", nemo_rl(2, 8, 2), (2, 8), None),
    ("nemo_rl", nemo_rl(2, 4, 2), (1, 8), "NeMo-RL may give process 2 of the engines on node 0 the ports of process 0"),
    ("nemo_rl", nemo_rl(8, 4, 2), (1, 8), "NeMo-RL may give process 1 of the engines on node 0 the ports of process 0"),
    ("nemo_rl", nemo_rl(2, 4, 2), (2, 4), None),
    ("nemo_rl", nemo_rl(2, 4, 2, "vllm"), (1, 8), None),
    ("verl", verl(2, 4, 8), (2, 4), None),
    ("verl", verl(2, 4, 8), (1, 8), "verl gives processes of engine 0 of the rollout on node 0 the same sockets"),
    ("verl", verl(2, 4, 8, "sglang"), (1, 8), None),
    ("verl", verl(2, 4, 4), (1, 8), None),
    ("verl", verl_alone(2, 4, 8), (2, 8), "verl gives processes of engine 0 of the rollout on node 1 the same sockets"),
    ("verl", verl_alone(1, 8, 8), (2, 8), None),
    (
        "roll",
        roll("list(range(16,32))", 16),
        (4, 8),
        "worker 0 of actor_infer, on nodes 2-3, lacks accelerator 0 of nodes",
    ),
    (
        "roll",
        roll("list(range(4,20))", 16),
        (4, 8),
        "worker 0 of actor_infer, on nodes 0-2, lacks accelerator 0 of node",
    ),
    ("roll", roll("list(range(0,32))", 16), (4, 8), None),
    ("roll", roll("list(range(16,32))", 8), (4, 8), None),
    ("roll", roll("list(range(16,32))", 16, "vllm"), (4, 8), None),
    ("skyrl", skyrl(1, 8), (2, 4), "no process of policy on node 1 makes the folders of checkpoints"),
    ("skyrl", skyrl(2, 4), (2, 4), None),
    ("skyrl", skyrl(2, 4), (1, 8), None),
]


@pytest.mark.parametrize(("dialect", "config", "nodes", "message"), ROWS)
def test_a_trainer_that_expects_other_nodes_is_warned_of(
    dialect: str, config: dict[str, Any], nodes: tuple[int, int], message: str | None
) -> None:
    report = rankplan.check(config, Inventory.uniform(*nodes), dialect=dialect)
    assert report.plan is not None, report.faults
    texts = [warning.message for warning in report.warnings if warning.code in CODES]
    assert [text.startswith(message or "") for text in texts] == ([] if message is None else [True])


def test_roll_takes_one_number_of_accelerators_of_every_node() -> None:
    nodes = [{"ranks": 0, "accelerators": 4}, {"ranks": 1, "accelerators": 8}]
    report = rankplan.check(EVEN, Inventory.from_dict({"nodes": nodes}), dialect="roll")
    texts = [warning.message for warning in report.warnings if warning.code == "assumed-nodes"]
    assert texts == ["these nodes have 4 or 8 accelerators: ROLL takes as many of each as the driver's node has"]
    report = rankplan.check(EVEN, Inventory.uniform(2, 4), dialect="roll")
    assert not [warning for warning in report.warnings if warning.code in CODES]


@at_least(right=0.1, wrong=0.3)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=8).map(sorted), st.integers(1, 4))
def test_the_addresses_are_those_that_counting_gives(nodes: list[int], together: int) -> None:
    """The loop of slime and NeMo-RL: a node is so many processes, has the host of the first, and ports of its own."""
    hosts: list[int] = []
    ports: list[int] = []
    for process in range(len(nodes)):
        leader = process // together * together
        hosts.append(nodes[leader])
        ports.append(15_000 + process - leader)
    is_right = hosts == nodes and max(Counter(zip(nodes, ports, strict=True)).values()) == 1
    outcome("right" if is_right else "wrong")
    counts = Counter(nodes)
    inventory = Inventory.from_dict({"nodes": [{"ranks": node, "accelerators": counts[node]} for node in range(4)]})
    taken = Taken([(0, len(nodes) - 1)])
    placer = Placer(Faults(), inventory)
    check_addresses(placer, "slime", taken, 1, together, 8, NOWHERE, "")
    assert bool(placer.faults.warnings) is not is_right
