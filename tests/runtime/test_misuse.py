"""Misuse of a live cluster: each mistake raises one clear error, and no second Ray is started."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
from rankplan import (
    Cluster,
    ClusterError,
    FlexiblePlacementStrategy,
    Inventory,
    LaunchError,
    NodePlacementStrategy,
    RankReport,
    Worker,
    WorkerError,
    WorkerGroup,
    live,
    pin,
    plan,
)
from rankplan import launch as launch_job
from rankplan.runtime.group import launch, spec
from rankplan.runtime.group.launch import verified
from rankplan.runtime.ray import timeouts
from ray.util.placement_group import placement_group_table
from support.arguments import refused_by_python
from support.workers import Stuck, command, has_ended, stuck

pytestmark = pytest.mark.long

STRATEGY = FlexiblePlacementStrategy([[0], [1]])


class Odd(Worker):
    """Returns values that cannot be sent, and fails in odd ways."""

    def generator(self) -> Any:
        yield self.rank

    async def begin(self) -> None:
        self.task = asyncio.ensure_future(asyncio.sleep(0.1, "kept"))

    async def finish(self) -> str:
        return await self.task

    def noted(self) -> None:
        error = ValueError("first line\nsecond line")
        error.add_note("a note")
        raise error

    def cancelled(self) -> None:
        raise asyncio.CancelledError

    def rest(self) -> int:
        time.sleep(0.2)
        return self.rank


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster.simulate("1x2") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def group(cluster: Cluster) -> WorkerGroup:
    return Odd.create_group().launch(cluster, STRATEGY, name="odd")


def test_a_generator_is_refused(group: WorkerGroup) -> None:
    with pytest.raises(WorkerError, match=r"generator\(\) returns a generator, .* return a list"):
        group.generator().wait()


def test_async_methods_share_one_event_loop(group: WorkerGroup) -> None:
    group.begin().wait()
    assert group.finish().wait() == ["kept", "kept"]


def test_a_fault_is_named_by_its_type_and_first_line(group: WorkerGroup) -> None:
    with pytest.raises(WorkerError, match=r"noted\(\) raised ValueError: first line"):
        group.noted().wait()
    with pytest.raises(WorkerError, match=r"cancelled\(\) raised CancelledError"):
        group.cancelled().wait()


@pytest.mark.parametrize("ranks", [(1.0,), (True,), ("0",), (), (0, 0), (2,)])
def test_execute_on_takes_ranks(group: WorkerGroup, ranks: tuple[Any, ...]) -> None:
    with pytest.raises(ValueError, match="odd has ranks 0-1; pass some of them to execute_on"):
        group.execute_on(*ranks)


@pytest.mark.parametrize(
    "options",
    [
        {"timeout": float("nan")},
        {"timeout": -1},
        {"timeout": "5"},
        {"max_concurrency": 0},
        {"max_concurrency": 1.5},
        {"name": ""},
        {"name": 5},
        {"name": "a\x1b[31m"},
    ],
)
def test_launch_refuses_invalid_options(cluster: Cluster, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"^{next(iter(options))} is "):
        Odd.create_group().launch(cluster, STRATEGY, **options)


def test_wrong_arguments_are_refused_by_rankplan(
    cluster: Cluster, group: WorkerGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not by Python, in the middle of a launch."""

    def accepted(*_: Any) -> None:
        raise FileNotFoundError("all checks have passed")

    monkeypatch.setattr(spec, "rank_specs", accepted)
    made = plan({"cluster": {"num_nodes": 1, "component_placement": {"odd": "0-1"}}}, cluster)
    calls: list[tuple[Any, dict[str, Any]]] = [
        (Cluster, {"timeout": 0.2}),
        (cluster.reserve, {"plan": made}),
        (cluster.refresh, {}),
        (launch_job, {"plan": made, "cluster": cluster}),
        (Odd.create_group().launch, {"cluster": cluster, "placement_strategy": STRATEGY}),
        (group.restart, {}),
        (group.free_ports, {}),
        (group.verify, {}),
        (group.refresh_environment, {}),
        (group.rest().wait, {}),
        (group.rest().durations, {}),
        (lambda method: group.call(method), {}),
        (lambda rank: group.execute_on(rank), {}),
    ]
    for function, given in calls:
        assert refused_by_python(function, given) == []


def test_numbers_may_come_from_numpy(cluster: Cluster) -> None:
    options = {"timeout": np.int64(600), "max_concurrency": np.int64(2)}
    with Odd.create_group().launch(cluster, STRATEGY, name="counted", **options) as counted:
        assert counted.rest().wait() == [0, 1]


def test_only_a_live_cluster_can_be_launched_on() -> None:
    with pytest.raises(TypeError, match=r"cluster is of type Inventory; pass a live rankplan\.Cluster"):
        Odd.create_group().launch(Inventory.uniform(1, 1))  # type: ignore[arg-type]


def test_a_cluster_is_simulated_from_the_main_thread() -> None:
    errors: list[BaseException] = []

    def simulate() -> None:
        try:
            Cluster.simulate("1x1")
        except ClusterError as error:
            errors.append(error)

    thread = threading.Thread(target=simulate)
    thread.start()
    thread.join()
    assert "only the main thread can simulate a cluster" in str(errors[0])


def test_nothing_that_outlives_its_cluster_starts_another(cluster: Cluster, group: WorkerGroup) -> None:
    """The last test of the module: the cluster is closed here."""
    done, running, some = group.rest(), group.rest(), group.execute_on(1)
    done.wait()
    address = cluster.address
    inner = Cluster()
    assert inner.address == address
    cluster.close()
    for use in (done.wait, running.wait, running.done, some.rest, group.rest, group.verify):
        with pytest.raises(WorkerError, match=r"closed|shut down"):
            use()
    assert "closed" in repr(running) and "shut down" in repr(group) and cluster.address == address
    for closed in (cluster, inner):
        with pytest.raises(LaunchError, match="the cluster was closed"):
            Odd.create_group().launch(closed, NodePlacementStrategy([0]))
    group.shutdown()
    inner.close()
    assert not ray.is_initialized()


@pytest.mark.parametrize("reserve", [False, True])
def test_a_cluster_that_is_closed_right_after_the_last_tick_of_a_launch(
    monkeypatch: pytest.MonkeyPatch, reserve: bool
) -> None:
    """All ranks are up, and the group is about to be returned. The borrowed connection to Ray stays open."""
    checking, closed = threading.Event(), threading.Event()

    def late(*arguments: Any) -> list[RankReport]:
        checking.set()
        assert closed.wait(60)
        return verified(*arguments)

    monkeypatch.setattr(launch, "verified", late)
    with Cluster.simulate("1x2") as cluster, ThreadPoolExecutor() as threads:
        borrowing = Cluster()
        launching = threads.submit(Odd.create_group().launch, borrowing, STRATEGY, name="late", reserve=reserve)
        assert checking.wait(60)
        borrowing.close()
        closed.set()
        with pytest.raises(LaunchError, match="the cluster was closed"):
            launching.result(20)
        assert ray.is_initialized()
        assert cluster._raylets is not None
        commands = {process.pid: command(process.pid) for process in cluster._raylets.processes()}
        assert all(has_ended(pid) for pid, text in commands.items() if b"ray::Host" in text)
        assert all(entry["state"] == "REMOVED" for entry in placement_group_table().values())


def test_a_cluster_that_is_closed_while_a_thread_launches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The thread must not continue without its cluster: Ray would start another one for it."""
    monkeypatch.setattr(timeouts, "TICK", 2.0)
    cluster = Cluster.simulate("1x2")
    with ThreadPoolExecutor() as threads:
        launching = threads.submit(Stuck.create_group(tmp_path).launch, cluster, STRATEGY, name="stuck")
        pid = stuck(tmp_path, 0)
        cluster.close()
        with pytest.raises(LaunchError, match="the cluster was closed"):
            launching.result(20)
    assert has_ended(pid) and not ray.is_initialized()


def test_ray_that_ended_under_the_program() -> None:
    """Like ``ray stop``. Ray would silently end this process too, at the next launch."""
    with Cluster.simulate("1x2") as cluster:
        raylets = cluster._raylets
        assert raylets is not None
        raylet = raylets._cluster.head_node.all_processes["raylet"][0].process
        raylet.kill()
        raylet.wait()
        with pytest.raises(
            LaunchError, match="Ray has ended on this machine; close this Cluster, start Ray again, and"
        ):
            Odd.create_group().launch(cluster, STRATEGY)


@pytest.mark.parametrize("own", [True, False])
def test_the_signal_handler_of_a_program_stays(own: bool) -> None:
    def mine(number: int, frame: object) -> None:
        raise AssertionError

    handler = mine if own else signal.SIG_IGN
    before = signal.signal(signal.SIGTERM, handler)
    try:
        with Cluster.simulate("1x0"):
            assert signal.getsignal(signal.SIGTERM) is handler
            os.kill(os.getpid(), 0 if own else signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) is handler
    finally:
        signal.signal(signal.SIGTERM, before)


MISTAKES = """
from rankplan import Worker
from rankplan.rlinf import Worker as RLinfWorker
class NeedsArgument(Worker):
    def __init__(self, size): pass
class Hides(Worker):
    def verify(self): pass
class Fine(RLinfWorker):
    def run(self): print("hello from a rank")
    def verify(self): raise ValueError("the command verifies by itself")
"""


@pytest.mark.parametrize(
    ("arguments", "message", "code"),
    [
        (["--worker", "mistakes:NeedsArgument"], "missing a required argument: 'size'", 2),
        (["--worker", "mistakes:Hides"], "Hides.create_group(): verify is a name of the group itself; rename", 2),
        (["--method", "create_group"], "has no method 'create_group'", 2),
        (["--method", "mro"], "has no method 'mro'", 2),
        (["--worker", "leaves:X"], "cannot import leaves: SystemExit: no way", 1),
        (["--worker", "nowhere:X"], "cannot import nowhere: ModuleNotFoundError", 1),
    ],
)
def test_a_worker_that_cannot_run_is_refused_before_anything_starts(
    arguments: list[str], message: str, code: int, tmp_path: Path
) -> None:
    (tmp_path / "one.yaml").write_text("cluster: {num_nodes: 1, component_placement: {actor: 0}}\n")
    (tmp_path / "mistakes.py").write_text(MISTAKES)
    (tmp_path / "leaves.py").write_text("import sys; sys.exit('no way')\n")
    command = [sys.executable, "-m", "rankplan", "run", "one.yaml", "--nodes", "1x1", "--simulate", *arguments]
    done = subprocess.run(command, cwd=tmp_path, text=True, capture_output=True)
    assert done.returncode == code and message in done.stderr and "Traceback" not in done.stderr


def test_without_a_terminal_there_is_no_colour(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text("cluster: {num_nodes: 1, component_placement: {actor: 0-1}}\n")
    (tmp_path / "mistakes.py").write_text(MISTAKES)
    command = [
        sys.executable,
        "-m",
        "rankplan",
        "run",
        "one.yaml",
        "--nodes",
        "1x2",
        "--simulate",
        "--worker",
        "mistakes:Fine",
    ]
    done = subprocess.run(command, cwd=tmp_path, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout + done.stderr and done.stdout.count("hello from a rank") == 2


@pytest.mark.parametrize("function", [live, lambda address: Cluster(address=address)])
def test_an_address_is_a_text(function: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError, match="address is of type int; pass the host:port of a Ray head"):
        function(5)


@pytest.mark.parametrize("program", [5, "train.py", ["python", 3]])
def test_a_program_to_pin_is_its_words(program: Any) -> None:
    with pytest.raises(TypeError, match=r"command is of type (int|str|list); pass the program and its arguments"):
        pin({"trainer": {"nnodes": 1}}, program)
