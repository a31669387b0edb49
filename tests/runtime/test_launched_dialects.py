"""The examples of the other dialects, reserved and launched on simulated clusters, and verified."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from rankplan import Cluster, Inventory, load_config
from rankplan.dialects import dialect_of
from rankplan.runtime.reserve.notices import is_notice
from rankplan.trainers.roll.dialect import DIALECT as roll
from rankplan.trainers.slime.dialect import DIALECT as slime
from rankplan.trainers.slime.engines import EngineProcess, dist_init_addrs, engine_processes
from ray.util.placement_group import placement_group_table
from support.paths import EXAMPLES
from support.workers import Reader

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster.simulate("3x4") as cluster:
        yield cluster


def granted() -> list[dict[str, Any]]:
    """The placement groups of reservations."""
    entries = placement_group_table().values()
    return [entry for entry in entries if entry["state"] == "CREATED" and not is_notice(entry["name"])]


@pytest.mark.parametrize(
    ("example", "size", "processes"), [("roll", "3x8", 31), ("slime", "3x4", 10), ("slime-colocated", "2x4", 10)]
)
def test_an_example_is_run_and_verified(example: str, size: str, processes: int) -> None:
    command = [
        sys.executable,
        "-m",
        "rankplan",
        "run",
        str(EXAMPLES / f"{example}.yaml"),
        "--nodes",
        size,
        "--simulate",
    ]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ, timeout=200)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 1 + processes
    assert all(line.endswith(" environment") for line in lines[1:])


def test_a_run_is_reported_as_json_alone(tmp_path: Path) -> None:
    config = tmp_path / "one.yaml"
    config.write_text("cluster: {num_nodes: 1, component_placement: {a: 0-1}}\n")
    command = [sys.executable, "-m", "rankplan", "run", str(config), "--nodes", "1x2", "--simulate", "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ, timeout=200)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    pids = [rank.pop("pid") for rank in found["ranks"]]
    assert found["mode"] is None and len(set(pids)) == 2
    own = [{"component": "a", "rank": rank, "node_rank": 0, "accelerators": [str(rank)]} for rank in range(2)]
    checked = {"verified": True, "proof": "environment", "planned_cpus": None}
    assert [rank | each | checked for rank, each in zip(found["ranks"], own, strict=True)] == found["ranks"]
    assert all(rank["cpus"][0].isdecimal() for rank in found["ranks"])


PROCESSES = {
    "verl.yaml": {"actor": 8, "rollout": 2, "reward": 2},
    "verl.sh": {"actor": 4, "ref": 4, "rollout": 2},
    "nemo_rl.yaml": {"policy": 8, "generation": 2},
    "areal.yaml": {"rollout": 2, "actor": 4, "ref": 4},
    "openrlhf.sh": {"actor": 4, "ref": 4, "vllm": 2},
    "skyrl.sh": {"policy": 4, "ref": 4, "generator": 2},
}


@pytest.mark.parametrize("example", PROCESSES)
def test_an_example_is_reserved_launched_and_verified(example: str, cluster: Cluster) -> None:
    config = load_config(EXAMPLES / example)
    plan = dialect_of(config).plan(config, cluster.inventory)
    assert {name: len(component) for name, component in plan.items()} == PROCESSES[example]
    with cluster.reserve(plan) as reserved:
        for name, component in plan.items():
            with Reader.create_group().launch(cluster, component, name=name, reservation=reserved) as group:
                group.verify()
                masks = [mask for (mask,) in group.environment("CUDA_VISIBLE_DEVICES").wait()]
                assert masks == [",".join(row.visible_accelerators) for row in component]


def test_a_colocated_rollout_shares_the_actors_gpus_and_meets_by_engine(cluster: Cluster) -> None:
    plan = slime.plan(EXAMPLES / "slime-colocated.yaml", cluster.inventory)
    assert {name: component.share for name, component in plan.items()} == {"actor": 0.4, "rollout": 0.2}
    with cluster.reserve(plan) as reserved:
        groups = {
            name: Reader.create_group().launch(cluster, component, reservation=reserved)
            for name, component in plan.items()
        }
        held = [entry["bundles"] for entry in granted()]
        gpus = sorted(bundle["GPU"] for bundles in held for bundle in bundles.values() if "GPU" in bundle)
        assert gpus == [1.0] * 8
        processes = engine_processes(plan["rollout"])
        found = [(process.engine, process.node_rank, process.first_node) for process in processes]
        assert found == [(0, 0, 0), (0, 1, 0)]
        ports = groups["rollout"].free_ports(4)
        assert dist_init_addrs(processes, cluster.inventory, ports) == [f"127.0.0.2:{ports[0][0]}"] * 2
        masks = [mask for (mask,) in groups["rollout"].environment("CUDA_VISIBLE_DEVICES").wait()]
        assert masks == ["0,1,2,3", "0,1,2,3"]


def test_a_worker_that_spans_nodes_holds_what_it_uses_on_both(cluster: Cluster) -> None:
    plan = roll.plan({"judge": {"device_mapping": "[3, 4, 2, 5]", "num_gpus_per_worker": 4}}, cluster.inventory)
    with Reader.create_group().launch(cluster, plan["judge"], name="judge", reserve=True) as group:
        assert group.environment("CUDA_VISIBLE_DEVICES", "LOCAL_RANK").wait() == [("3,2", "0")]
        held = granted()
        where = {next(iter(entry["bundles_to_node_id"].values())): entry["bundles"] for entry in held}
        assert list(where[cluster.node_ids[0]].values()) == [{"GPU": 1.0}, {"CPU": 1.0, "GPU": 1.0}]
        assert list(where[cluster.node_ids[1]].values()) == [{"GPU": 1.0}, {"GPU": 1.0}]
        assert ray.cluster_resources()["GPU"] == 12


def test_addresses_of_either_ip_version() -> None:
    nodes = [{"ranks": 0, "accelerators": 2, "ip": "fe80::1"}, {"ranks": 1, "accelerators": 2, "ip": "[fe80::2]"}]
    inventory = Inventory.from_dict({"nodes": nodes})
    processes = [EngineProcess(0, 0, 0), EngineProcess(0, 1, 0), EngineProcess(1, 0, 1)]
    ports = [range(20_000, 20_004), range(21_000, 21_004), range(22_000, 22_004)]
    addresses = dist_init_addrs(processes, inventory, ports)
    assert addresses == ["[fe80::1]:20000", "[fe80::1]:20000", "[fe80::2]:22000"]
    with pytest.raises(ValueError, match="ports are given for 2 of 3 processes; pass a range for each"):
        dist_init_addrs(processes, inventory, [*ports[:2], range(0)])
    with pytest.raises(ValueError, match="the first process is not the first of its engine"):
        dist_init_addrs(processes[1:], inventory, ports[1:])
