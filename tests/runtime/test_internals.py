"""Everything that rankplan relies on in Ray beyond its documentation, on a real cluster.

A failure here means that a new version of Ray has changed it: adapt ``rankplan/runtime/ray/internals.py``.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import ray
from rankplan import Cluster
from rankplan.runtime.nodes import simulate
from rankplan.runtime.nodes.nodes import pinned
from rankplan.runtime.ray import internals as ray_internals
from rankplan.runtime.ray.internals import (
    accelerator_managers,
    actor_id,
    available_resources,
    dead_actors,
    death,
    granted,
    greet,
    has_process,
    is_driver,
    is_termination,
    lost_connection,
    memory_shortage,
    quiet_detection,
    running_cluster,
    sending_fault,
    unloadable,
    worker_ports,
)
from ray import cloudpickle, cluster_utils
from ray._private.accelerators import nvidia_gpu
from ray.exceptions import OutOfMemoryError, RayActorError, RaySystemError
from ray.util.placement_group import placement_group, remove_placement_group

SOON = 60.0

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # the workers of Ray cannot import this module


class Unreadable:
    """A value that can be pickled but not unpickled."""

    def __reduce__(self) -> tuple[type, tuple[str]]:
        return int, ("no number",)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster.simulate("2x4") as cluster:
        yield cluster


@ray.remote(num_cpus=0)
class Victim:
    def __init__(self, waits: bool = False) -> None:
        if waits:
            time.sleep(600)

    def pid(self, ignored: Any = None) -> int:
        return os.getpid()

    def sleep(self) -> None:
        time.sleep(600)

    def send_itself(self, number: int) -> None:
        os.kill(os.getpid(), number)
        time.sleep(600)

    def leave(self) -> None:
        sys.exit(4)

    def leave_as_ray_does(self) -> None:
        ray.actor.exit_actor()

    def terminated(self) -> bool:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(600)
        except BaseException as error:
            return is_termination(error)
        return False

    def unreadable(self) -> Any:
        return Unreadable()


# ------------------------------------------------------------------------------------------------------- connections


def test_a_cluster_is_found_as_ray_init_finds_it(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    assert running_cluster(None) is None
    assert running_cluster("local") is None
    assert running_cluster(cluster.address) == cluster.address
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    assert running_cluster(None) == running_cluster("auto") == cluster.address


def test_a_ray_head_is_told_from_another_server(cluster: Cluster) -> None:
    greet(cluster.address, SOON)
    with HTTPServer(("127.0.0.2", 0), BaseHTTPRequestHandler) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        with pytest.raises(OSError, match="the server there is not a Ray head"):
            greet(f"127.0.0.2:{server.server_port}", SOON)
    with pytest.raises(OSError, match="refused"):
        greet("127.0.0.2:1", SOON)


# ------------------------------------------------------------------------------------------------------------- nodes


def test_the_manager_of_each_resource_is_known_by_name() -> None:
    assert accelerator_managers({"NPU": 1, "HPU": 0, "CPU": 4}) == {"NPUAcceleratorManager"}


def test_the_search_for_models_can_be_silenced() -> None:
    assert nvidia_gpu.logger.isEnabledFor(logging.ERROR)
    with quiet_detection():
        assert not nvidia_gpu.logger.isEnabledFor(logging.CRITICAL)
    assert nvidia_gpu.logger.isEnabledFor(logging.ERROR)


def test_a_simulated_cluster_starts_few_processes(cluster: Cluster) -> None:
    assert cluster._raylets is not None
    assert len(cluster._raylets.processes()) < 40, "Ray starts one worker per CPU, of 128, unless told otherwise"


@pytest.mark.parametrize("options", [{"min_worker_port": 21_000, "max_worker_port": 21_040}, {}])
def test_the_ports_of_workers_are_read_from_the_raylet(cluster: Cluster, options: dict[str, int]) -> None:
    @ray.remote(num_cpus=0)
    def ports() -> tuple[set[int], bool]:
        sockets = {str(fd.readlink()) for fd in Path("/proc/self/fd").iterdir() if fd.is_socket()}
        listening = set()
        for table in ("tcp", "tcp6"):
            for line in Path(f"/proc/self/net/{table}").read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets:
                    listening.add(int(fields[1].rpartition(":")[2], 16))
        return listening, all(port in worker_ports() for port in listening)

    raylets = cluster._raylets
    assert raylets is not None
    if not options:
        listening, known = ray.get(ports.options(scheduling_strategy=pinned(cluster.node_ids[1])).remote())
        assert listening and not known, "without options the raylet has no range of ports"
        return
    with simulate._environment(raylets._start_environment()):
        node = raylets._cluster.add_node(
            num_cpus=1, node_ip_address="127.0.0.9", object_store_memory=80 << 20, **options
        )
    try:
        listening, known = ray.get(ports.options(scheduling_strategy=pinned(node.node_id)).remote(), timeout=SOON)
        assert listening and known
    finally:
        raylets._cluster.remove_node(node)


def test_available_resources_are_counted_by_node(cluster: Cluster) -> None:
    assert {node: free["GPU"] for node, free in available_resources().items()} == dict.fromkeys(cluster.node_ids, 4.0)


def test_a_placement_group_is_granted_refused_or_removed(cluster: Cluster) -> None:
    def asked(gpus: int, node_id: str = cluster.node_ids[0]) -> tuple[Any, bool | None]:
        group = placement_group([{"GPU": gpus}], bundle_label_selector=[{"ray.io/node-id": node_id}])
        deadline = time.monotonic() + SOON
        while (answer := granted(group)) is None and time.monotonic() < deadline:
            time.sleep(0.005)
        return group, answer

    first, granted_first = asked(3)
    busy, granted_busy = asked(2)
    too_many, granted_too_many = asked(5)
    nowhere, granted_nowhere = asked(1, "f" * 56)
    for group in (first, busy, too_many, nowhere):
        remove_placement_group(group)
    assert (granted_first, granted_busy, granted_too_many, granted_nowhere) == (True, False, False, False)
    assert granted(first) is False


# ------------------------------------------------------------------------------------------------ actors and failures


def test_an_actor_has_a_process_once_it_runs(cluster: Cluster) -> None:
    pending = Victim.options(label_selector={"rack": "none"}).remote()
    running = Victim.remote()
    ray.get(running.pid.remote())
    assert (has_process(pending), has_process(running)) == (False, True)
    ray.kill(pending)
    ray.kill(running)
    staying = Victim.remote()
    ray.get(staying.pid.remote())
    deadline = time.monotonic() + SOON
    while actor_id(running) not in dead_actors():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert actor_id(staying) not in dead_actors()
    ray.kill(staying)


def test_a_driver_is_told_from_a_task(cluster: Cluster) -> None:
    assert is_driver()
    assert not ray.get(ray.remote(num_cpus=0)(is_driver).remote(), timeout=SOON)


def test_rays_processes_are_apart_from_those_that_start_them(cluster: Cluster) -> None:
    """They have sessions of their own, which signals to the process group of the driver do not reach."""
    assert cluster._raylets is not None
    sessions = {one.name(): os.getsid(one.pid) for one in cluster._raylets.processes()}
    assert sessions["raylet"] != os.getsid(0) != sessions["gcs_server"]


def test_sigterm_arrives_as_an_exception(cluster: Cluster) -> None:
    victim = Victim.remote()
    assert ray.get(victim.terminated.remote(), timeout=SOON)
    ray.kill(victim)


def killed(victim: Any) -> Any:
    ray.get(victim.pid.remote())
    answer = victim.sleep.remote()
    ray.kill(victim)
    return answer


DEATHS: list[tuple[str, Callable[[Any], Any]]] = [
    ("it was ended, with its group or by ray.kill", killed),
    ("it was ended by SIGTERM", lambda victim: victim.send_itself.remote(signal.SIGTERM)),
    (
        "it exited without reporting an error (killed, out of memory, or a crash)",
        lambda victim: victim.send_itself.remote(signal.SIGKILL),
    ),
    ("it exited (code 4)", lambda victim: victim.leave.remote()),
    ("it exited", lambda victim: victim.leave_as_ray_does.remote()),
]


@pytest.mark.parametrize(("reason", "answer"), DEATHS, ids=[reason for reason, _ in DEATHS])
def test_the_cause_of_a_death_is_read_from_its_message(
    cluster: Cluster, reason: str, answer: Callable[[Any], Any]
) -> None:
    with pytest.raises(RayActorError) as caught:
        ray.get(answer(Victim.remote()), timeout=SOON)
    assert death(caught.value) == reason


def test_a_death_before_the_constructor_is_done(cluster: Cluster) -> None:
    victim = Victim.remote(waits=True)
    answer = victim.pid.remote()
    ray.kill(victim)
    with pytest.raises(RayActorError) as caught:
        ray.get(answer, timeout=SOON)
    assert death(caught.value) == "it was ended, with its group or by ray.kill"


def test_the_death_of_a_node_is_named(cluster: Cluster) -> None:
    raylets = cluster._raylets
    assert raylets is not None
    with simulate._environment(raylets._start_environment()):
        node = raylets._cluster.add_node(num_cpus=1, node_ip_address="127.0.0.9", object_store_memory=80 << 20)
    victim = Victim.options(scheduling_strategy=pinned(node.node_id)).remote()
    ray.get(victim.pid.remote(), timeout=SOON)
    answer = victim.sleep.remote()
    raylets._cluster.remove_node(node)
    with pytest.raises(RayActorError) as caught:
        ray.get(answer, timeout=SOON)
    assert death(caught.value).startswith("its node has died (")
    assert "\n" not in death(caught.value)


def test_an_answer_that_cannot_be_unpickled(cluster: Cluster) -> None:
    victim = Victim.remote()
    with pytest.raises(RaySystemError) as caught:
        ray.get(victim.unreadable.remote(), timeout=SOON)
    assert isinstance(unloadable(caught.value), ValueError)
    ray.kill(victim)


def test_an_argument_that_cannot_be_pickled(cluster: Cluster) -> None:
    victim = Victim.remote()
    with pytest.raises(TypeError) as caught:
        victim.pid.remote(threading.Lock())
    assert str(sending_fault(caught.value)).startswith("cannot pickle '_thread.lock'")
    ray.kill(victim)


def test_a_process_that_ray_kills_for_memory(cluster: Cluster) -> None:
    raylets = cluster._raylets
    assert raylets is not None
    settings = {"RAY_memory_usage_threshold": "0.01", "RAY_memory_monitor_refresh_ms": "50"}
    with simulate._environment({**raylets._start_environment(), **settings}):
        node = raylets._cluster.add_node(num_cpus=1, node_ip_address="127.0.0.9", object_store_memory=80 << 20)
    try:
        victim = Victim.options(scheduling_strategy=pinned(node.node_id)).remote()
        with pytest.raises(OutOfMemoryError) as caught:
            ray.get(victim.sleep.remote(), timeout=SOON)
    finally:
        raylets._cluster.remove_node(node)
    reason = memory_shortage(caught.value)
    assert reason.startswith("its node ran low on memory (") and "used" in reason


@pytest.mark.long
def test_a_raylet_and_a_head_that_are_gone(cluster: Cluster) -> None:
    """The last test of the module: it ends the cluster."""
    assert lost_connection(SOON) is None
    assert ray_internals.worker.global_worker.node is not None
    raylets = cluster._raylets
    assert raylets is not None
    assert isinstance(raylets._cluster, cluster_utils.Cluster)
    for name, message in (("gcs_server", "the Ray head at .* does not answer"), ("raylet", "Ray has ended on this ma")):
        process = raylets._cluster.head_node.all_processes[name][0].process
        process.kill()
        process.wait()
        lost = lost_connection(SOON)
        assert lost is not None and re.match(message, lost)
