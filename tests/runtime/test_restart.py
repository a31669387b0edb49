"""Ranks and nodes that die under a group: it notices, starts what is lost elsewhere, and leaves the rest alone.

The tests run in order on one cluster, which loses and gains nodes.
"""

from __future__ import annotations

import os
import queue
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from rankplan import (
    ActiveStep,
    Cluster,
    ClusterError,
    ComponentPlacement,
    Failure,
    Inventory,
    LaunchError,
    PlacementError,
    Plan,
    TransitionError,
    WorkerError,
    WorkerGroup,
    apply,
    diff,
    replan,
    transition,
)
from rankplan.runtime.rank.ports import PORTS
from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group
from support.paths import DOCS, EXAMPLES
from support.raylets import Raylets
from support.workers import Engine, Reader, has_ended

pytestmark = pytest.mark.long

RENDEZVOUS = ("MASTER_ADDR", "MASTER_PORT", "RANKPLAN_RESTART")


@pytest.fixture(scope="module")
def raylets() -> Iterator[Raylets]:
    raylets = Raylets(4, num_gpus=2)
    yield raylets
    raylets.shutdown()


@pytest.fixture(scope="module")
def cluster(raylets: Raylets) -> Iterator[Cluster]:
    with Cluster(address=raylets.address) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def nothing_left(cluster: Cluster) -> Iterator[None]:
    yield
    assert groups() == []


def groups() -> list[str]:
    """Return the names of the placement groups: reservations and notices."""
    return [entry["name"] for entry in placement_group_table().values() if entry["state"] != "REMOVED"]


def plan(cluster: Cluster, num_nodes: int = 3, **components: Any) -> Plan:
    section = {"num_nodes": num_nodes, "component_placement": components}
    return ComponentPlacement({"cluster": section}, cluster).plan()


def failure_of(group: WorkerGroup) -> Failure:
    failure = group.wait_for_failure(60)
    assert failure is not None
    return failure


def test_a_killed_process_starts_again_at_its_place(cluster: Cluster, tmp_path: Path) -> None:
    failures: queue.SimpleQueue[tuple[WorkerGroup, Failure]] = queue.SimpleQueue()
    made = plan(cluster, rollout="2-5")
    group = Engine.create_group(tmp_path).launch(
        cluster, made["rollout"], on_failure=lambda *found: failures.put(found)
    )
    assert group.wait_for_failure(0) is None and group.restart() == []
    before, ports = group.pid().wait(), group.environment(*RENDEZVOUS).wait()
    assert {restarts for *_, restarts in ports} == {None}
    serving = group.execute_on(3, 0).serve()
    selected = group.execute_on(2)
    os.kill(before[2], signal.SIGKILL)
    failure = failure_of(group)
    assert (set(failure.ranks), set(failure.nodes), set(failure.dead_nodes)) == ({2}, {2}, set())
    assert str(failure) == (
        "rollout rank 2 (node 2) is gone: it exited without reporting an error (killed, out of memory, or a crash)"
    )
    assert failures.get(timeout=30) == (group, failure)
    (report,) = group.restart()
    assert (report.rank, report.node_rank, report.accelerators) == (2, 2, ("0",))
    assert group.wait_for_failure(0) is None and failures.empty()
    after = group.pid().wait()
    assert after[2] == report.pid != before[2] and selected.pid().wait() == [after[2]]
    assert [after[rank] for rank in (0, 1, 3)] == [before[rank] for rank in (0, 1, 3)]
    new = group.environment(*RENDEZVOUS).wait()
    assert [new[rank] for rank in (0, 1, 3)] == [ports[rank] for rank in (0, 1, 3)]
    assert new[2][0] == ports[2][0] and new[2][1] != ports[2][1] and new[2][2] == "1"
    assert [one.pid for one in group.refresh_environment()] == after
    assert group.environment(*RENDEZVOUS).wait() == [new[2]] * 4
    assert [one.pid for one in group.verify()] == after
    group.execute_on(0, 3).stop().wait()
    assert serving.wait(60) == [before[3], before[0]]
    group.shutdown()
    assert all(map(has_ended, after))
    with pytest.raises(WorkerError, match=r"rollout.restart\(\): the group was shut down"):
        group.restart()
    with pytest.raises(WorkerError, match="the group was shut down"):
        group.wait_for_failure()


def test_a_callback_may_restart(cluster: Cluster) -> None:
    restarted: queue.SimpleQueue[list[int]] = queue.SimpleQueue()

    def recover(group: WorkerGroup, failure: Failure) -> None:
        restarted.put([report.rank for report in group.restart()])
        raise ValueError("is logged; the watch goes on")

    with Reader.create_group().launch(cluster, plan(cluster, env="2-3")["env"], on_failure=recover) as group:
        for rank in (1, 0):
            os.kill(group.pid().wait()[rank], signal.SIGKILL)
            assert restarted.get(timeout=60) == [rank]
        assert group.refresh_environment()
        assert {restarts for (restarts,) in group.environment("RANKPLAN_RESTART").wait()} == {"2"}


def test_ranks_of_a_reservation_move_while_they_live(cluster: Cluster) -> None:
    """A node is drained. Its rank ends only once the new one is up."""
    made = plan(cluster, actor="0-5:0-2")
    moved = replan(made, cluster.inventory, without=["127.0.0.4"]).plan
    assert diff(made, moved).replaced == {2}
    with Reader.create_group().launch(cluster, made["actor"], reserve=True) as group:
        before, spare = group.pid().wait(), node_id(moved, 2)
        held = placement_group([{"GPU": 2}], bundle_label_selector=[{"ray.io/node-id": spare}])
        ray.get(held.ready())
        with pytest.raises(LaunchError, match=r"cannot reserve actor: too little is available\n"):
            group.restart(moved["actor"])
        assert group.pid().wait() == before and len(group.verify()) == 3
        remove_placement_group(held)
        assert [report.rank for report in group.restart(moved["actor"])] == [2]
        assert group.node_id().wait() == [*cluster.node_ids[:2], spare]
        assert group.environment("CLUSTER_NODE_RANK").wait() == [("0",), ("1",), ("2",)]
        assert group.pid().wait()[:2] == before[:2] and has_ended(before[2])
        os.kill(before[0], signal.SIGKILL)
        assert set(failure_of(group).ranks) == {0} and [report.rank for report in group.restart()] == [0]
        # the plan is for other nodes than those of the same ranks in the cluster
        with pytest.raises(LaunchError, match="accelerator 0 of node 0 is reserved by this program for actor"):
            cluster.reserve(moved)
    with (
        cluster.reserve(moved) as reserved,
        Reader.create_group().launch(cluster, moved["actor"], reservation=reserved) as again,
    ):
        assert again.node_id().wait() == [*cluster.node_ids[:2], spare]


def test_a_plan_that_shrinks_ends_the_ranks_beyond(cluster: Cluster, tmp_path: Path) -> None:
    made = plan(cluster, rollout={"placement": "0-5", "parallel": {"tp": 2}})
    smaller = replan(made, made.inventory, without=["127.0.0.3"], shrink=["rollout"]).plan
    with Engine.create_group(tmp_path).launch(cluster, made["rollout"]) as group:
        before, last = group.pid().wait(), group.execute_on(5)
        reports = group.restart(smaller["rollout"])
        kept = {row.rank for row in smaller["rollout"]} - {report.rank for report in reports}
        assert (group.world_size, len(smaller["rollout"])) == (4, 4) and len(kept) == 2
        after = group.pid().wait()
        assert {rank for rank in range(4) if after[rank] == before[rank]} == kept
        with pytest.raises(WorkerError, match=r"rollout.pid\(\): a restart has removed rank 5; select other ranks"):
            last.pid()
        assert {size for rank, size in enumerate(group.size().wait()) if rank in kept} == {(6, 6, 6)}
        group.verify()
        assert [report.pid for report in group.refresh_environment()] == after
        assert group.size().wait() == [(4, 4, 4)] * 4 and group.environment("WORLD_SIZE").wait() == [("4",)] * 4
        assert [report.pid for report in group.verify()] == after
    assert all(map(has_ended, before))


def test_ranks_with_other_sizes_start_again_at_their_places(cluster: Cluster, tmp_path: Path) -> None:
    """A process has loaded its share for its coordinates: the same place is not enough for it to stay."""
    made = plan(cluster, rollout={"placement": "0-1", "parallel": {"tp": 2}})
    other = plan(cluster, rollout={"placement": "0-1", "parallel": {"pp": 2}})
    with Reader.create_group().launch(cluster, made["rollout"]) as group:
        before = group.pid().wait()
        assert group.restart(made) == [] and group.pid().wait() == before
        assert [report.rank for report in group.restart(other)] == [0, 1]
        assert all(map(has_ended, before)) and len(group.verify()) == 2
        assert group.restart(other) == []


def test_what_cannot_be_restarted(cluster: Cluster) -> None:
    made = plan(cluster, actor="0-1", env="0-1")
    with Reader.create_group().launch(cluster, made["actor"], name="mine") as group:
        with pytest.raises(ValueError, match=r"this group runs actor, not env; pass plan\['actor'\]"):
            group.restart(made["env"])
        with pytest.raises(ValueError, match="this group runs actor, which the plan lacks; it has env"):
            group.restart(made.only("env"))
        with pytest.raises(TypeError, match=r"plan is of type list; pass a plan, or a component of one: plan\[name\]"):
            group.restart([])  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="timeout is -1"):
            group.wait_for_failure(-1)
        with pytest.raises(PlacementError, match="the plan has 4 NV_GPU, the cluster has 2 NV_GPU"):
            group.restart(made.on(Inventory.uniform(3, 4))["actor"])
        assert group.restart(made["actor"]) == group.restart(made) == []
        with pytest.raises(TypeError, match="on_failure is 5; pass a function of the group and the failure"):
            Reader.create_group().launch(cluster, made["env"], on_failure=5)  # type: ignore[arg-type]
    with pytest.raises(ClusterError, match="only a simulated cluster can stop a node"):
        cluster.stop_node(1)


def test_the_node_of_rank_0_dies(raylets: Raylets, cluster: Cluster, tmp_path: Path) -> None:
    """A restart that fails leaves the survivors as they are; the next one succeeds."""
    made = plan(cluster, rollout="2-5")
    group = Engine.create_group(tmp_path).launch(cluster, made["rollout"])
    before = group.pid().wait()
    serving = group.execute_on(2, 3).serve()
    raylets.kill(1)
    failure = failure_of(group)
    assert (set(failure.ranks), set(failure.nodes), set(failure.dead_nodes)) == ({0, 1}, {1}, {1})
    assert failure.reason.startswith("its node has died (health check failed")
    ranks = dict(enumerate(cluster.node_ids))
    assert cluster.refresh() is cluster.inventory and dict(enumerate(cluster.node_ids)) == ranks
    assert [cluster.inventory.node(rank).healthy for rank in range(4)] == [True, False, True, True]
    with pytest.raises(PlacementError, match="resource ranks 2-3 are excluded: node 1"):
        group.restart()
    moved = replan(made, cluster.inventory).plan
    posted, ports = groups(), PORTS.taken(socket.gethostname())
    (tmp_path / "obstacle").touch()
    # both of its ranks fail, and the first to fail is named
    refused = (
        r"rollout rank (\d) \(node 1\) did not come up, so the group is not restarted: it raised ValueError: rank \1 "
    )
    with pytest.raises(LaunchError, match=refused):
        group.restart(moved["rollout"])
    assert all(has_ended(int((tmp_path / f"pid-{rank}").read_text())) for rank in (0, 1))
    assert sorted(groups()) == sorted(posted) and PORTS.taken(socket.gethostname()) == ports
    assert group.execute_on(2, 3).pid().wait() == before[2:]
    (tmp_path / "obstacle").unlink()
    assert [report.rank for report in group.restart(moved["rollout"])] == [0, 1]
    after, spare = group.pid().wait(), moved.inventory.node(1).ip
    assert after[2:] == before[2:] and not set(after[:2]) & set(before)
    found = group.environment(*RENDEZVOUS, "CLUSTER_NODE_RANK").wait()
    assert found[0] == (spare, found[1][1], "1", "1") and found[2][0] == "127.0.0.3" and found[2][2] is None
    assert [report.pid for report in group.refresh_environment()] == after
    assert set(group.environment(*RENDEZVOUS).wait()) == {found[0][:3]}
    group.execute_on(2, 3).stop().wait()
    assert serving.wait(60) == before[2:]
    assert [report.pid for report in group.verify()] == after
    group.shutdown()
    assert all(map(has_ended, after))


def test_nodes_join_come_back_and_die(raylets: Raylets, cluster: Cluster, tmp_path: Path) -> None:
    known = cluster.node_ids
    raylets.start(6)
    raylets.start(1)
    nodes = cluster.refresh()
    assert [nodes.node(rank).ip for rank in range(5)] == [f"127.0.0.{last}" for last in (2, 3, 4, 5, 8)]
    assert all(nodes.node(rank).healthy for rank in range(5)) and cluster.num_nodes == 5
    assert [rank for rank in range(4) if cluster.node_ids[rank] != known[rank]] == [1]
    made = plan(cluster, num_nodes=5, actor="2-3,8-9")
    with Reader.create_group().launch(cluster, made["actor"]) as group:
        assert group.node_id().wait() == [cluster.node_ids[node] for node in (1, 1, 4, 4)]
        before = group.pid().wait()
        busy = group.execute_on(0, 1).wait_for(tmp_path / "go")
        raylets.kill(6)
        assert set(failure_of(group).dead_nodes) == {4}
        moved = replan(made, cluster.refresh(), without=["127.0.0.2"]).plan
        spare = str(moved.inventory.node(4).ip)

        def lose_the_spare(step: ActiveStep) -> None:
            raylets.kill(int(spare.rpartition(".")[2]) - 2)
            step.ranks.wait_for(tmp_path / "never").wait(60)

        with pytest.raises(TransitionError, match="the transition stopped at `sync actor/2`") as error:
            apply(transition(made, moved), {"actor": group}, calls={"sync": lose_the_spare})
        assert (error.value.done, error.value.plan) == ((), None)
        assert [str(one) for one in error.value.running] == ["actor/0 as before", "actor/1 as before"]
        assert group.world_size == 4
        until_dead(spare)
        moved = replan(made, cluster.refresh(), without=["127.0.0.2"]).plan
        assert str(moved.inventory.node(4).ip) not in (spare, "127.0.0.8")
        apply(transition(made, moved), {"actor": group}, calls={"sync": lambda step: step.ranks.pid().wait()})
        (tmp_path / "go").touch()
        assert busy.wait(60) == before[:2] and [report.pid for report in group.verify()][:2] == before[:2]
        assert group.node_id().wait()[2:] == [node_id(moved, 4)] * 2
        assert group.execute_on(2, 3).environment("MASTER_ADDR").wait() == [("127.0.0.3",)] * 2


def until_dead(address: str) -> None:
    """Wait until the head knows that a node is dead: ranks notice that before."""
    deadline = time.monotonic() + 60
    while any(node["NodeManagerAddress"] == address and node["Alive"] for node in ray.nodes()):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def node_id(made: Plan, node: int) -> str:
    """Return Ray's id of the node that has this rank in a plan."""
    return next(one["NodeID"] for one in ray.nodes() if one["NodeManagerAddress"] == made.inventory.node(node).ip)


def test_the_example_recovers() -> None:
    """Its output is that on the page."""
    done = subprocess.run([sys.executable, str(EXAMPLES / "failover.py")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"```text\n{done.stdout}```" in (DOCS / "failures.md").read_text()
