"""Simulated clusters start as declared, and leave nothing behind, however they end."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import ray
from rankplan import Cluster, ClusterError, Inventory, LaunchError, NodePlacementStrategy, PlacementError, RankSet
from rankplan.runtime.group.spec import one_process_each
from rankplan.runtime.nodes import simulate
from rankplan.runtime.nodes.processes import family, left_after
from support.workers import Reader

SIMULATING = """
import sys
from rankplan import Cluster
cluster = Cluster.simulate("1x2")
print("up", flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def base(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The parent of the simulated clusters' folders; check that no folder and no process is left."""
    base = Path(os.environ["RAY_TMPDIR"])
    monkeypatch.setattr(tempfile, "tempdir", str(base))
    monkeypatch.setenv("TMPDIR", str(base))
    folders = set(base.glob("rankplan-*"))
    seen: set[Any] = set()

    def watched(variable: str) -> set[Any]:
        found = family(variable)
        seen.update(found)
        return found

    monkeypatch.setattr(simulate, "family", watched)
    yield base
    assert set(base.glob("rankplan-*")) == folders
    assert not left_after(seen, 0)
    assert not ray.is_initialized()


@pytest.mark.long
def test_a_cluster_is_closed_twice() -> None:
    told: list[str] = []
    cluster = Cluster.simulate("1x2", on_progress=told.append)
    group = Reader.create_group().launch(cluster)
    raylets = cluster._raylets
    assert raylets is not None
    assert {process.pid for process in raylets.processes()} > set(group.pid().wait())
    cluster.close()
    cluster.close()
    group.shutdown()
    assert told[:2] == ["starting node 1 of 1", "probing 1 node"]
    assert repr(cluster) == "<Cluster of 1 node, closed>"
    with pytest.raises(LaunchError, match="the cluster was closed"):
        Reader.create_group().launch(cluster)


@pytest.mark.long
def test_the_drivers_own_mask_and_rank_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    monkeypatch.setenv("RLINF_NODE_RANK", "7")
    with Cluster.simulate("1x2") as cluster:
        assert cluster.inventory.node(0).accelerator_ids == ("0", "1")
        with Reader.create_group().launch(cluster, NodePlacementStrategy([0])) as group:
            assert group.environment("CUDA_VISIBLE_DEVICES").wait() == [("0,1",)]
    assert (os.environ["CUDA_VISIBLE_DEVICES"], os.environ["RLINF_NODE_RANK"]) == ("3", "7")


@pytest.mark.long
@pytest.mark.parametrize("error", [ValueError("no such device"), KeyboardInterrupt()])
def test_a_start_that_fails_half_way(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    options = simulate._node_options

    def fail_at_the_second(node: Any, rank: int) -> dict[str, Any]:
        if rank == 1:
            raise error
        return options(node, rank)

    monkeypatch.setattr(simulate, "_node_options", fail_at_the_second)
    expected = ClusterError if isinstance(error, Exception) else KeyboardInterrupt
    with pytest.raises(expected):
        Cluster.simulate("2x2")


@pytest.mark.long
def test_nodes_that_are_not_up_in_time_start_again(monkeypatch: pytest.MonkeyPatch) -> None:
    options = simulate._node_options
    started: list[int] = []

    def fail_once_at_the_second(node: Any, rank: int) -> dict[str, Any]:
        started.append(rank)
        if started.count(1) == 1 and rank == 1:
            raise TimeoutError("the node timed out during startup")
        return options(node, rank)

    monkeypatch.setattr(simulate, "_node_options", fail_once_at_the_second)
    told: list[str] = []
    with Cluster.simulate("2x2", on_progress=told.append) as cluster:
        assert cluster.num_nodes == 2
        assert sum(node["Alive"] for node in ray.nodes()) == 2
    starts = ["starting node 1 of 2", "starting node 2 of 2"]
    again = "the nodes did not start (the node timed out during startup); starting them again"
    assert told[:5] == [*starts, again, *starts]


def test_a_probe_that_fails_ends_the_raylets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rankplan.runtime.cluster.find_nodes", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        Cluster.simulate("1x2")


@pytest.mark.long
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"env_vars": {"MUSA_VISIBLE_DEVICES": "5"}},
            r"^node 127.0.0.2 .*: its processes start with MUSA_VISIBLE_DEVICES=5 .*, which names 1 device",
        ),
        (
            {"labels": {"rankplan.io/accelerator-type": "GPU"}},
            r"^node 127.0.0.2 .*: the Ray label rankplan.io/accelerator-type: unknown accelerator type 'GPU'",
        ),
    ],
)
def test_nodes_that_contradict_themselves(
    monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any], message: str
) -> None:
    options = simulate._node_options
    monkeypatch.setattr(simulate, "_node_options", lambda node, rank: options(node, rank) | changed)
    with pytest.raises(ClusterError, match=message):
        Cluster.simulate(Inventory.uniform(num_nodes=1, num_accelerators=2, accelerator_type="MUSA_GPU"))


def test_a_faulty_section_starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulate, "Raylets", None)
    for section in ({"num_nodes": 0}, {"num_nodes": 3}, {"num_nodes": 2, "node_groups": [{"label": "a"}]}):
        with pytest.raises(PlacementError):
            Cluster.simulate("2x2", section)
    with pytest.raises(PlacementError):
        Cluster(cluster_cfg={"num_nodes": 0})
    with pytest.raises(ClusterError, match="num_nodes is 3, but cluster_cfg has 2"):
        Cluster(cluster_cfg={"num_nodes": 2}, num_nodes=3)


@pytest.mark.parametrize(
    "options", [{"num_nodes": number} for number in (0, -1, True, 2.0, "2")] + [{"timeout": -1}, {"timeout": math.nan}]
)
def test_invalid_numbers_start_nothing(options: dict[str, Any]) -> None:
    (name,) = options
    with pytest.raises(ValueError, match=f"^{name} is .*; it must be a"):
        Cluster(**options)


@pytest.mark.parametrize("text", ["2", "x8", "2x", "0x8", "2*8", "2x-1", "2x8x1", "٢x8"])
def test_an_invalid_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not nodes x accelerators\\nhelp: write 2x8"):
        Cluster.simulate(text)


def test_a_section_takes_the_first_nodes() -> None:
    nodes = Inventory.uniform(3, 1).without(["node-0/0", "node-2"])
    with Cluster.simulate(nodes, {"num_nodes": 1}) as cluster:
        assert cluster.num_nodes == 1
        assert len(ray.nodes()) == 1
        assert cluster.inventory.excluded == [(RankSet("0"), RankSet("0"))]


@pytest.mark.long
def test_a_launch_without_a_strategy_leaves_out_what_is_excluded() -> None:
    nodes = Inventory.uniform(3, 2).without(["node-0/0", "node-2"])
    with Cluster.simulate(nodes) as cluster, Reader.create_group().launch(cluster) as group:
        assert [row.devices for row in group.placements] == [[(0, 1)], [(1, 0)], [(1, 1)]]
    nodes = Inventory.uniform(3, 0).without(["node-1"])
    assert [row.cluster_node_rank for row in one_process_each(nodes).get_placement(nodes)] == [0, 2]


@pytest.mark.long
@pytest.mark.parametrize("how", [None, signal.SIGINT, signal.SIGTERM])
def test_a_driver_that_does_not_close(base: Path, how: signal.Signals | None) -> None:
    with driver() as process:
        processes = family(f"RAY_TMPDIR={simulated(base)}")
        if how is not None:
            process.send_signal(how)
    assert not left_after(processes, 0)


@pytest.mark.long
def test_a_driver_that_is_killed(base: Path) -> None:
    """Ray's own agents would take minutes, and nobody would remove the folder."""
    with driver() as process:
        folder = simulated(base)
        processes = family(f"RAY_TMPDIR={folder}")
        process.kill()
    assert len(processes) > 4
    assert not left_after(processes, 60)
    deadline = time.monotonic() + 60
    while folder.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not folder.exists()


TERMINATED = """
import time
from rankplan import Cluster
from rankplan.runtime.group.worker import RollCall
try:
    with Cluster.simulate("1x1") as cluster:
        group = RollCall.create_group().launch(cluster)
        try:
            print("up", flush=True)
            time.sleep(600)
        finally:
            time.sleep(3)
            print("checkpoint of", group.verify()[0].rank, flush=True)
finally:
    time.sleep(2)
    print("end", flush=True)
"""


@pytest.mark.long
@pytest.mark.parametrize("repeated", [False, True])
def test_sigterm_leaves_time_for_cleanup(base: Path, repeated: bool) -> None:
    """Ray's own handler would abort the program after 3 seconds."""
    with driver(TERMINATED) as process:
        processes = family(f"RAY_TMPDIR={simulated(base)}")
        time.sleep(0.5)  # until it sleeps in its `try`
        process.send_signal(signal.SIGTERM)
        while repeated and process.poll() is None:
            time.sleep(0.05)
            process.send_signal(signal.SIGTERM)
        assert process.stdout is not None
        assert process.stdout.read() == "checkpoint of 0\nend\n"
    assert process.returncode == 143
    assert not left_after(processes, 0)


@contextmanager
def driver(program: str = SIMULATING) -> Iterator[subprocess.Popen[str]]:
    """A program that has simulated a cluster, and ends with the context."""
    command, pipe = [sys.executable, "-c", program], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        yield process


def simulated(base: Path) -> Path:
    """The folder of the only simulated cluster."""
    (folder,) = base.glob("rankplan-*")
    return folder
