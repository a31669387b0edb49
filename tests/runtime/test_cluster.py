"""A real Ray cluster of four different nodes: what is found there, and drivers in other processes that use it."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from textwrap import dedent

import pytest
import ray
from rankplan import (
    Cluster,
    ClusterError,
    ComponentPlacement,
    Inventory,
    LaunchError,
    NodePlacementStrategy,
    WorkerError,
)
from support.paths import EXAMPLES
from support.workers import Faulty, Reader

DECLARED = {
    "nodes": [
        {"ranks": 0, "accelerators": 4, "accelerator_model": "A800", "labels": {"rack": "r1"}},
        {"ranks": 1, "accelerator_ids": ["6", "4"]},
        {"ranks": 2},
        {"ranks": 3, "accelerator_ids": ["GPU-5e1f", "MIG-c3d2"], "accelerator_model": "NVIDIA H200 (MIG)"},
    ]
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster.simulate(Inventory.from_dict(DECLARED)) as cluster:
        yield cluster


def drive(cluster: Cluster, code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program that finds the cluster by RAY_ADDRESS."""
    variables = {**os.environ, "RAY_ADDRESS": cluster.address, **environment}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=120, check=False)


def test_the_inventory_is_what_was_declared(cluster: Cluster) -> None:
    found = cluster.inventory
    for rank in range(4):
        declared, node = Inventory.from_dict(DECLARED).node(rank), found.node(rank)
        names = {"ip": f"127.0.0.{rank + 2}", "hostname": node.hostname}
        assert node == declared.changed(**names)


def test_ranks_see_the_nodes_own_ids(cluster: Cluster) -> None:
    with Reader.create_group().launch(cluster) as group:
        masks = [mask for (mask,) in group.environment("CUDA_VISIBLE_DEVICES").wait()]
        assert [row.cluster_node_rank for row in group.placements] == [0, 0, 0, 0, 1, 1, 3, 3]
        assert [report.accelerators for report in group.verify()] == [(mask,) for mask in masks]
    assert masks == ["0", "1", "2", "3", "6", "4", "GPU-5e1f", "MIG-c3d2"]


def test_a_component_over_all_nodes(cluster: Cluster) -> None:
    with Reader.create_group().launch(cluster, NodePlacementStrategy(range(4))) as group:
        seen = group.environment("NODE_RANK", "CUDA_VISIBLE_DEVICES").wait()
    assert seen == [("0", "0,1,2,3"), ("1", "6,4"), ("2", None), ("3", "GPU-5e1f,MIG-c3d2")]


def test_another_driver_finds_the_cluster_in_the_same_order(cluster: Cluster) -> None:
    code = "from rankplan import Cluster; print([n['ip'] for n in Cluster().inventory.to_dict()['nodes']])"
    done = drive(cluster, code)
    assert done.stdout.splitlines()[-1] == str([f"127.0.0.{index}" for index in range(2, 6)]), done.stderr


def test_more_nodes_than_num_nodes(cluster: Cluster) -> None:
    code = (
        "import logging; logging.basicConfig(level=logging.INFO)\n"
        "from rankplan import Cluster; print(Cluster(num_nodes=3).num_nodes)"
    )
    done = drive(cluster, code)
    assert done.stdout.splitlines()[-1] == "3", done.stderr
    assert "using 3 of 4 nodes (num_nodes); not used: 127.0.0.5" in done.stderr
    assert "3 nodes, in the order of the node rank variables: 127.0.0.2" in done.stderr


def test_fewer_nodes_than_num_nodes(cluster: Cluster) -> None:
    told: list[str] = []
    with pytest.raises(ClusterError) as caught:
        Cluster(num_nodes=5, timeout=0.5, on_progress=told.append)
    assert "num_nodes is 5, but only 4 nodes have joined within 0.5 s:" in str(caught.value)
    for rank in range(4):
        assert f"\n  127.0.0.{rank + 2}  " in str(caught.value)
    assert told[0] == "waiting for nodes: 4 of 5 have joined"
    assert ray.is_initialized()


def test_an_existing_connection_is_kept(cluster: Cluster) -> None:
    with Cluster(address=cluster.address) as again:
        assert again.inventory == cluster.inventory
    assert ray.is_initialized()
    with pytest.raises(ClusterError, match=f"connected to the Ray cluster at {cluster.address}, not to 10.0.0.1:6379"):
        Cluster(address="10.0.0.1:6379")
    with pytest.raises(ClusterError, match="already connected to a Ray cluster"):
        Cluster.simulate("1x1")


@pytest.mark.parametrize(
    ("arguments", "address", "message"),
    [
        ("", "127.0.0.2:1", "no Ray cluster answers at 127.0.0.2:1 ("),
        ("address='127.0.0.3:1'", "", "no Ray cluster answers at 127.0.0.3:1 ("),
        ("address='nowhere'", "", "'nowhere' is not the address of a Ray cluster; write host:port"),
        ("", "nowhere:123456", "'nowhere:123456' is not the address of a Ray cluster; write host:port"),
        ("address='127.0.0.1:1'", "", "no Ray cluster answers at 127.0.0.1:1 ("),
        ("address='ray://127.0.0.2:10001'", "", "ray://127.0.0.2:10001 is a Ray Client address, which cannot"),
        ("num_nodes=3", "", "num_nodes is 3, but no running Ray cluster was found; run `ray start"),
    ],
)
def test_no_cluster_at_the_address(cluster: Cluster, arguments: str, address: str, message: str) -> None:
    code = (
        "from rankplan import Cluster, ClusterError\n"
        f"try: Cluster({arguments})\n"
        "except ClusterError as error: print('refused:', error)"
    )
    started = time.monotonic()
    done = drive(cluster, code, RAY_ADDRESS=address)
    assert f"refused: {message}" in done.stdout, done.stderr
    assert time.monotonic() - started < 60


def test_another_server_is_not_a_ray_head(cluster: Cluster) -> None:
    with HTTPServer(("127.0.0.2", 0), BaseHTTPRequestHandler) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        address = f"127.0.0.2:{server.server_port}"
        done = drive(cluster, "from rankplan import Cluster; Cluster()", RAY_ADDRESS=address)
    assert f"no Ray cluster answers at {address} (the server there is not a Ray head" in done.stderr


@pytest.mark.long
def test_without_a_running_cluster_a_local_one_is_started(cluster: Cluster) -> None:
    code = (
        "from rankplan import Cluster, NodePlacementStrategy, Worker\n"
        "class Hello(Worker):\n"
        "    def run(self): return self.rank, self.world_size\n"
        "with Cluster({'num_nodes': 1}) as cluster:\n"
        "    print(Hello.create_group().launch(cluster, NodePlacementStrategy([0, 0])).run().wait())\n"
    )
    done = drive(cluster, code, RAY_ADDRESS="")
    assert done.stdout.splitlines()[-1] == "[(0, 2), (1, 2)]", done.stderr


def test_without_ray_there_is_one_clear_error(cluster: Cluster) -> None:
    code = (
        "import sys; sys.modules['ray'] = None\n"
        "import rankplan; rankplan.ComponentPlacement\n"
        "try: rankplan.Cluster\n"
        "except rankplan.ClusterError as error: print(error)\n"
        "try: from rankplan import Worker\n"
        "except ImportError as error: print(error)"
    )
    done = drive(cluster, code)
    assert done.stdout == "this needs Ray, which is not installed; run pip install 'ray>=2.49'\n" * 2, done.stderr


def run_program(cluster: Cluster, *command: str | Path) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "RAY_ADDRESS": cluster.address, "RAY_DEDUP_LOGS": "0"}
    return subprocess.run(
        [sys.executable, *command],
        env=variables,
        cwd=Path(command[0]).parent if command[0] != "-m" else None,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture
def example(tmp_path: Path) -> Path:
    """The example program and its config, in a separate folder: hydra writes there."""
    for name in ("hello.py", "conf.yaml"):
        shutil.copy(EXAMPLES / name, tmp_path)
    return tmp_path / "hello.py"


def test_the_example_greets_from_every_rank(cluster: Cluster, example: Path) -> None:
    done = run_program(cluster, example, "greeting=Hi")
    assert done.returncode == 0, done.stderr
    for rank in range(4):
        assert f"INFO [greeter rank {rank}] Hi from rank {rank} of 4" in done.stdout + done.stderr


def test_the_example_on_a_cluster_that_is_too_small(cluster: Cluster, example: Path) -> None:
    done = run_program(cluster, example, "cluster.node_groups.0.node_ranks=4")
    assert done.returncode == 1
    assert "set num_nodes to 5" in done.stderr


@pytest.mark.long
def test_the_command_line_uses_a_running_cluster(cluster: Cluster) -> None:
    config = EXAMPLES / "conf.yaml"
    check = run_program(cluster, "-m", "rankplan", "check", config, "--ray", cluster.address)
    assert check.returncode == 0, check.stderr
    assert check.stdout.startswith(f"{config}: fine, 1 component, 4 processes on 1 of 4 nodes\n")
    run = run_program(cluster, "-m", "rankplan", "run", config)
    assert run.returncode == 0, run.stderr
    assert [line.split()[:3] for line in run.stdout.splitlines()[-4:]] == [["greeter", str(n), "0"] for n in range(4)]


def test_the_quick_start_config_fits_its_cluster() -> None:
    plan = ComponentPlacement(EXAMPLES / "quickstart.yaml", Inventory.uniform(num_nodes=2, num_accelerators=8)).plan()
    assert {name: len(rows) for name, rows in plan.items()} == {
        "actor": 8,
        "reference": 8,
        "rollout": 4,
        "reward": 4,
        "agent": 4,
    }
    assert plan.idle() == {}


@pytest.mark.long
def test_a_terminal_shows_what_a_slow_launch_waits_for(cluster: Cluster) -> None:
    code = """
    import time
    from rankplan import Cluster, NodePlacementStrategy, Worker
    class Slow(Worker):
        def __init__(self):
            time.sleep(4 * self.rank)
    with Cluster() as cluster:
        Slow.create_group().launch(cluster, NodePlacementStrategy([0, 1]))
    """
    terminal, end = os.openpty()
    environment = {**os.environ, "RAY_ADDRESS": cluster.address, "TERM": "xterm"}
    command = [sys.executable, "-c", dedent(code)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=end) as program:
        os.close(end)
        text = read_all(terminal)
    assert program.returncode == 0, text
    assert "Slow: 1 of 2 ranks are up" in text


def read_all(terminal: int) -> str:
    """Return what is written to a terminal until its last writer is gone."""
    parts = []
    with contextlib.suppress(OSError):  # the end of a terminal
        while part := os.read(terminal, 4096):
            parts.append(part)
    os.close(terminal)
    return b"".join(parts).decode()


def test_a_group_can_be_launched_inside_a_ray_task(cluster: Cluster) -> None:
    @ray.remote(num_cpus=0)
    def driver() -> list[int]:
        from rankplan.runtime.group.worker import RollCall

        with Cluster() as inner, RollCall.create_group().launch(inner, NodePlacementStrategy([0, 1])) as group:
            return [report.node_rank for report in group.verify()]

    assert ray.get(driver.remote(), timeout=120) == [0, 1]


def test_a_node_that_dies(cluster: Cluster) -> None:
    """The last test of the module: the cluster loses a node."""
    strategy = NodePlacementStrategy(range(4))
    group = Faulty.create_group().launch(cluster, strategy, name="mortal")
    call = group.fail_while_others_wait(-1)
    cluster.stop_node(3)
    cluster.stop_node(3)
    with pytest.raises(WorkerError, match=r"mortal rank 3 \(node 3\).*its process is gone: .*node has died") as caught:
        call.wait(30)
    assert (caught.value.rank, caught.value.node) == (3, 3)
    group.shutdown()
    with pytest.raises(
        LaunchError, match=r"Reader rank 3 \(node 3\) did not come up.*its node has left the cluster"
    ) as refused:
        Reader.create_group().launch(cluster, strategy)
    assert (refused.value.rank, refused.value.node) == (3, 3)
    with Reader.create_group().launch(cluster, NodePlacementStrategy(range(3))) as rest:
        assert [report.node_rank for report in rest.verify()] == [0, 1, 2]
    with pytest.raises(ClusterError, match="node 0 runs the head of the simulated cluster; stop another node"):
        cluster.stop_node(0)
    with pytest.raises(IndexError, match="unknown node 4; the nodes are 0-3"):
        cluster.stop_node(4)
