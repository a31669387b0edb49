"""A head that is frozen or killed, and nodes that return before it has noticed: times hold, and no rank stays behind.

``RANKPLAN_ROUNDS`` is how often each is tried: 30 before a release, and 1 by default.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from rankplan.runtime.nodes.processes import end, family
from rankplan.runtime.ray import timeouts
from support.paths import TESTS
from support.raylets import Raylets
from support.workers import has_ended

pytestmark = pytest.mark.long

ROUNDS = range(int(os.environ.get("RANKPLAN_ROUNDS", "1")))
SLACK = 12.0
"""Seconds that a loaded machine may take beyond a timeout: less than the default one, and far less than Ray's own."""

DRIVER = """
import json, sys, time
from pathlib import Path
from rankplan import Cluster, NodePlacementStrategy, RankplanError, replan
import rankplan
from support.workers import Reader

folder = Path(sys.argv[2])
cluster = Cluster(address=sys.argv[1])
group = Reader.create_group().launch(cluster, NodePlacementStrategy([0, 1]), name="actor")
plan = rankplan.plan({"cluster": {"num_nodes": 2, "component_placement": {"actor": "0-3:0-1"}}}, cluster)

def launch(patience):
    Reader.create_group().launch(cluster, NodePlacementStrategy([0]), name="late", timeout=patience)

def round(patience):
    cluster.refresh()
    group.restart()
    return group.node_id().wait(60) == [cluster.node_ids[rank] for rank in (0, 1)] and cluster.num_nodes

tasks = {
    "wait_for_failure": group.wait_for_failure,
    "refresh": lambda patience: cluster.refresh(patience) and None,
    "restart": lambda patience: group.restart(timeout=patience),
    "launch": launch,
    "reserve": lambda patience: cluster.reserve(plan).release(),
    "call": lambda patience: group.pid().wait(10) and None,
    "busy": lambda patience: group.wait_for(folder / "never") and None,
    "shutdown": lambda patience: group.shutdown(),
    "round": round,
}
print("@", json.dumps(group.pid().wait()), flush=True)
for line in sys.stdin:
    started, error, value = time.monotonic(), "", None
    try:
        task, patience = line.split()
        value = tasks[task](int(patience))
    except RankplanError as raised:
        error = f"{type(raised).__name__}: {raised}"
    print("@", json.dumps([time.monotonic() - started, error, str(value)]), flush=True)
"""


class Driver:
    """A driver with a group of two ranks on two nodes, which does what it is told."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.pids: list[int] = self._answer()

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        for line in iter(self.process.stdout.readline, ""):
            if line.startswith("@ "):  # Ray prints, too
                return json.loads(line[2:])
        raise AssertionError(f"the driver has ended: {self.process.communicate()[1]}")

    def begin(self, task: str, patience: int = 2) -> None:
        """Begin a task."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{task} {patience}\n")
        self.process.stdin.flush()

    def does(self, task: str, patience: int = 2) -> tuple[float, str, str]:
        """Return how long a task took, and its error or its value; some tasks end after ``patience`` seconds."""
        self.begin(task, patience)
        seconds, error, value = self._answer()
        return seconds, error, value

    def said(self) -> str:
        """End its input; return the rest of its stderr."""
        assert self.process.stdin is not None and self.process.stderr is not None
        self.process.stdin.close()
        return self.process.stderr.read()


@contextmanager
def cluster(**options: Any) -> Iterator[Raylets]:
    """Two nodes with two accelerators, whose processes all end, also those of a cluster without a head."""
    folder = tempfile.mkdtemp(prefix="rph-", dir="/tmp")
    before = {name: os.environ.get(name) for name in ("RAY_TMPDIR", "RAY_AUTH_MODE")}
    os.environ.update(RAY_TMPDIR=folder, RAY_AUTH_MODE="disabled")
    try:
        yield Raylets(2, num_gpus=2, **options)
    finally:
        end(family(f"RAY_TMPDIR={folder}") - {psutil.Process()}, 0.0)
        shutil.rmtree(folder, ignore_errors=True)
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


@contextmanager
def driver(raylets: Raylets, folder: Path) -> Iterator[Driver]:
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    command = [sys.executable, "-c", DRIVER, raylets.address, str(folder)]
    with subprocess.Popen(command, cwd=TESTS, **pipes) as process:
        try:
            yield Driver(process)
        finally:
            process.kill()


def gcs(raylets: Raylets) -> psutil.Process:
    return psutil.Process(raylets.head_node.all_processes["gcs_server"][0].process.pid)


@pytest.mark.parametrize("number", ROUNDS)
@pytest.mark.timeout(600)
def test_timeouts_hold_while_the_head_is_frozen(tmp_path: Path, number: int) -> None:
    with cluster() as raylets, driver(raylets, tmp_path) as run:
        head = gcs(raylets)
        silent = f"the Ray head at {raylets.address} does not answer"
        for task, most in (
            ("wait_for_failure", 2),
            ("refresh", 2),
            ("restart", 2),
            ("launch", 2),
            ("reserve", timeouts.ANSWER),
        ):
            head.suspend()
            seconds, error, value = run.does(task)
            head.resume()
            assert silent in error, (task, seconds, error, value)
            assert seconds < most + SLACK, (task, seconds)
            assert run.does("call")[1] == "", "the ranks go on"
            assert run.does("wait_for_failure")[1:] == ("", "None")
        for task in ("refresh", "restart", "launch", "reserve"):
            assert run.does(task, patience=60)[1] == "", task
        head.suspend()
        seconds, error, _ = run.does("shutdown")
        head.resume()
        assert error == "" and seconds < timeouts.KILL + SLACK
        assert all(map(has_ended, run.pids))


@pytest.mark.parametrize("number", ROUNDS)
@pytest.mark.parametrize("busy", [False, True])
@pytest.mark.timeout(600)
def test_without_a_head_ranks_end_at_the_shutdown_or_are_named(tmp_path: Path, busy: bool, number: int) -> None:
    with cluster() as raylets, driver(raylets, tmp_path) as run:
        if busy:
            assert run.does("busy")[1] == ""
        gcs(raylets).kill()
        seconds, error, _ = run.does("shutdown")
        assert error == "" and seconds < timeouts.KILL + timeouts.LEAVE + SLACK
        if not busy:
            assert all(map(has_ended, run.pids))
        said = run.said()
        assert ("actor: ranks 0-1 on nodes 0-1 may still run: the Ray head at" in said) == busy, said
        assert all(map(has_ended, run.pids)), "30 s after their driver"


@pytest.mark.parametrize("number", ROUNDS)
@pytest.mark.parametrize("task", ["busy", "launch", "restart"])
@pytest.mark.timeout(600)
def test_ranks_outlive_a_driver_and_a_head_by_seconds(tmp_path: Path, task: str, number: int) -> None:
    with cluster() as raylets, driver(raylets, tmp_path) as run:
        assert run.does("busy")[1] == ""
        gcs(raylets).kill()
        if task != "busy":
            run.begin(task)
        time.sleep(1)
        assert all(map(psutil.pid_exists, run.pids))
        run.process.kill()
        started = time.monotonic()
        assert all(map(has_ended, run.pids))
        assert time.monotonic() - started < timeouts.ORPHAN + 2 * timeouts.ORPHAN_POLL + SLACK


@pytest.mark.parametrize("number", ROUNDS)
@pytest.mark.timeout(600)
def test_ranks_end_with_a_killed_head_node(tmp_path: Path, number: int) -> None:
    """The GCS, the raylet of its node, and the driver on it, at once."""
    with cluster() as raylets, driver(raylets, tmp_path) as run:
        for found in raylets.head_node.all_processes.values():
            for one in found:
                one.process.kill()
        run.process.kill()
        assert all(map(has_ended, run.pids))


@pytest.mark.parametrize("number", ROUNDS)
@pytest.mark.timeout(600)
def test_a_node_that_returns_before_its_death_is_noticed_has_its_rank_again(tmp_path: Path, number: int) -> None:
    slow = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 3000, "health_check_failure_threshold": 5}
    with cluster(settings=slow) as raylets, driver(raylets, tmp_path) as run:
        raylets.kill(1)
        raylets.start(1)
        _, error, value = run.does("round")
        assert (error, value) == ("", "2"), "the node is no third one, and a round works on it"
