"""Nodes that die suddenly: their raylets are killed. Ray is configured to notice within 2 seconds, not 15.

Each test removes one node from the cluster.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray
from rankplan import Cluster, ClusterError, ComponentPlacement, LaunchError, NodePlacementStrategy, WorkerError
from ray.util.placement_group import placement_group_table
from support.raylets import Raylets
from support.workers import Plain, Reader, Stuck, has_ended, stuck

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def raylets() -> Iterator[Raylets]:
    raylets = Raylets(6)
    yield raylets
    raylets.shutdown()


@pytest.fixture(scope="module")
def cluster(raylets: Raylets) -> Iterator[Cluster]:
    with Cluster(address=raylets.address) as cluster:
        yield cluster


def known_dead(cluster: Cluster, rank: int) -> bool:
    return any(entry["NodeID"] == cluster.node_ids[rank] and not entry["Alive"] for entry in ray.nodes())


def who(error: LaunchError | WorkerError) -> tuple[str | None, int | None, int | None]:
    return error.component, error.rank, error.node


def test_during_a_call(raylets: Raylets, cluster: Cluster) -> None:
    group = Plain.create_group().launch(cluster, NodePlacementStrategy([0, 1]), name="actor")
    pid = group.verify()[1].pid
    unfetched = group.echo(bytes(1 << 20))
    group.echo(0).wait()
    call = group.sleep(60)
    raylets.kill(1)
    with pytest.raises(WorkerError, match=r"actor rank 1 \(node 1\): sleep\(\) gave no answer, its process ") as caught:
        call.wait(60)
    assert who(caught.value) == ("actor", 1, 1)
    assert has_ended(pid)
    while not known_dead(cluster, 1):
        time.sleep(0.05)
    with pytest.raises(WorkerError, match=r"rank 1 \(node 1\): verify\(\) .*: its node has died \(health check failed"):
        group.verify()
    with pytest.raises(WorkerError, match=r"rank 1 \(node 1\): echo\(\) gave an answer that is lost: the node that"):
        unfetched.wait(60)
    group.shutdown()
    with pytest.raises(
        LaunchError, match=r"did not come up.*: it could not start: its node has left the cluster"
    ) as refused:
        Reader.create_group().launch(cluster, NodePlacementStrategy([0, 1]), name="actor")
    assert who(refused.value) == ("actor", 1, 1)
    with Reader.create_group().launch(cluster, NodePlacementStrategy([0])) as again:
        assert len(again.verify()) == 1


def test_during_a_launch(raylets: Raylets, cluster: Cluster, tmp_path: Path) -> None:
    pids: list[int] = []

    def kill() -> None:
        pids.extend(stuck(tmp_path, rank) for rank in (0, 1))
        raylets.kill(2)

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(LaunchError, match=r"actor rank 1 \(node 2\) did not come up.*gave no answer, its p") as caught:
        Stuck.create_group(tmp_path).launch(cluster, NodePlacementStrategy([0, 2]), name="actor", timeout=60)
    killer.join()
    assert who(caught.value) == ("actor", 1, 2)
    assert all(map(has_ended, pids))


def test_right_before_a_launch(raylets: Raylets, cluster: Cluster) -> None:
    raylets.kill(3)
    assert not known_dead(cluster, 3)
    with pytest.raises(LaunchError, match=r"actor rank 1 \(node 3\) did not come up") as caught:
        Reader.create_group().launch(cluster, NodePlacementStrategy([0, 3]), name="actor", timeout=60)
    assert who(caught.value) == ("actor", 1, 3)


def test_right_before_a_reservation(raylets: Raylets, cluster: Cluster) -> None:
    section = {"num_nodes": 6, "component_placement": {"env": {"node_group": "node", "placement": "0,5"}}}
    plan = ComponentPlacement({"cluster": section}, cluster).plan()
    raylets.kill(5)
    assert not known_dead(cluster, 5)
    message = r"cannot reserve env: (node 5 .* did not answer|.*\n.*\n  5 .*(has left the cluster|the node is down\)))"
    with pytest.raises(LaunchError, match=message):
        cluster.reserve(plan)
    assert all(entry["state"] == "REMOVED" for entry in placement_group_table().values())


def test_right_before_the_nodes_are_probed(raylets: Raylets, cluster: Cluster) -> None:
    raylets.kill(4)
    assert not known_dead(cluster, 4)
    with pytest.raises(ClusterError, match="num_nodes is 2, but only 1 node has joined within 10 s"):
        Cluster(address=raylets.address, num_nodes=2, timeout=10)
    with Cluster(address=raylets.address) as rest:
        assert rest.num_nodes == 1
