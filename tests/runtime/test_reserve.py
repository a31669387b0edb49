"""Reservations on a real Ray cluster: whole accelerators, the same rows as without, immediate refusals node by node."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import ray
from rankplan import (
    Cluster,
    ComponentPlacement,
    FlexiblePlacementStrategy,
    Inventory,
    LaunchError,
    PackedPlacementStrategy,
    Plan,
    Reservation,
    Worker,
    WorkerError,
    launch,
)
from rankplan.plans.process_reserving import process_faults
from rankplan.runtime.ray import timeouts
from rankplan.runtime.ray.internals import available_resources
from rankplan.runtime.reserve.notices import is_notice
from ray.util.placement_group import PlacementGroup, placement_group, placement_group_table, remove_placement_group
from support.workers import FailsToStart, Faulty, Reader

NODES = {
    "nodes": [
        {"ranks": 0, "accelerators": 4},
        {"ranks": 1, "accelerator_ids": ["6", "4"]},
        {"ranks": 2},
        {"ranks": 3, "accelerators": 2, "accelerator_type": "NPU"},
    ]
}
SIX = PackedPlacementStrategy(0, 5)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster.simulate(Inventory.from_dict(NODES)) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def nothing_reserved(cluster: Cluster) -> Iterator[None]:
    """Check that a test leaves no placement group behind, and remove those of a test that failed."""
    yield
    left = groups()
    for entry in left:
        remove_placement_group(PlacementGroup(ray._raylet.PlacementGroupID.from_hex(entry["placement_group_id"])))
    assert left == []


def groups() -> list[dict[str, Any]]:
    """The placement groups that exist, apart from the notices of what ranks use."""
    entries = placement_group_table().values()
    return [entry for entry in entries if entry["state"] != "REMOVED" and not is_notice(entry["name"])]


def bundles(cluster: Cluster) -> dict[int, list[dict[str, float]]]:
    """What the placement groups hold, by node rank; each group must be on one node."""
    held: dict[int, list[dict[str, float]]] = {}
    for entry in groups():
        (node_id,) = set(entry["bundles_to_node_id"].values())
        held.setdefault(cluster.node_ids.index(node_id), []).extend(entry["bundles"].values())
    return dict(sorted(held.items()))


def plan(cluster: Cluster, **placements: Any) -> Plan:
    section = {"num_nodes": 4, "component_placement": placements}
    return ComponentPlacement({"cluster": section}, cluster).plan()


@contextmanager
def held_by_others(cluster: Cluster, node: int, bundles: list[dict[str, float]], name: str) -> Iterator[None]:
    pins = [{"ray.io/node-id": cluster.node_ids[node]}] * len(bundles)
    group = placement_group(bundles, name=name, bundle_label_selector=pins)
    try:
        assert group.wait(30)
        yield
    finally:
        remove_placement_group(group)


HOLDER = """
import sys
from rankplan import Cluster, ComponentPlacement
with Cluster() as cluster:
    section = {"num_nodes": 4, "component_placement": {sys.argv[1]: sys.argv[2]}}
    with cluster.reserve(ComponentPlacement({"cluster": section}, cluster).plan()):
        print("reserved", flush=True)
        sys.stdin.read()
"""


@contextmanager
def another_driver(cluster: Cluster, component: str, placement: str) -> Iterator[subprocess.Popen[str]]:
    """A program that has reserved these components, until the end of the context."""
    environment, pipe = {**os.environ, "RAY_ADDRESS": cluster.address}, subprocess.PIPE
    command = [sys.executable, "-c", HOLDER, component, placement]
    with subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True) as driver:
        assert driver.stdout is not None
        assert driver.stdout.readline() == "reserved\n"
        yield driver


def refused(cluster: Cluster, plan: Plan, *components: str) -> LaunchError:
    """Reserve what does not fit: it must fail without waiting for a grant, and change nothing."""
    before, started = len(groups()), time.monotonic()
    with pytest.raises(LaunchError) as caught:
        cluster.reserve(plan, components or None)
    assert time.monotonic() - started < timeouts.GRANT
    assert len(groups()) == before
    return caught.value


class Parent(Worker):
    """Starts tasks with a part of an accelerator."""

    def children(self) -> tuple[list[tuple[str | None, str]], str]:
        def place() -> tuple[str | None, str]:
            group = ray.util.get_current_placement_group()
            return None if group is None else group.id.hex(), ray.get_runtime_context().get_node_id()

        task = ray.remote(num_gpus=0.2)(place)
        return ray.get([task.remote(), task.remote()], timeout=60), ray.get_runtime_context().get_node_id()


def table(text: str) -> str:
    return dedent(text).strip()


# ---------------------------------------------------------------------------------------------- what is reserved


def test_a_plan_reserves_whole_accelerators_and_a_cpu_per_process(cluster: Cluster) -> None:
    made = plan(
        cluster,
        actor="0-1:0,2:1-2,4-5:3",
        rollout="0-2:0-2",
        env={"node_group": "node", "placement": "0:0-1,2-3:2-3"},
        reward="7",
    )
    with cluster.reserve(made) as reserved:
        assert reserved.components == ("actor", "rollout", "env", "reward")
        assert repr(reserved) == "<Reservation for actor + rollout + env + reward, on 4 nodes>"
        assert bundles(cluster) == {
            0: [{"CPU": 2, "GPU": 1}, {"CPU": 1, "GPU": 1}, {"CPU": 3, "GPU": 1}, {"CPU": 2}],
            1: [{"CPU": 1, "GPU": 1}, {"GPU": 1}],
            2: [{"CPU": 1}],
            3: [{"CPU": 1, "NPU": 1}, {"CPU": 1}],
        }
    assert repr(reserved) == "<Reservation for actor + rollout + env + reward, released>"


def test_only_the_named_components_are_reserved(cluster: Cluster) -> None:
    made = plan(cluster, actor="0-1", rollout="4-5")
    for components in ("rollout", ["rollout"]):
        with cluster.reserve(made, components) as reserved:
            assert reserved.components == ("rollout",)
            assert list(bundles(cluster)) == [1]
    with pytest.raises(KeyError, match="unknown component 'critic'"):
        cluster.reserve(made, ["critic"])


def test_a_reserved_group_has_the_same_rows_and_environment(cluster: Cluster) -> None:
    strategy = FlexiblePlacementStrategy([[0, 1], [2], [2], [4, 5], [6]])
    with (
        Reader.create_group().launch(cluster, strategy, name="plain") as plain,
        Reader.create_group().launch(cluster, strategy, name="reserved", reserve=True) as reserved,
    ):
        assert reserved.placements == plain.placements
        assert reserved.environment().wait() == plain.environment().wait()
        assert reserved.at_import().wait() == reserved.environment().wait()
        assert reserved.node_id().wait() == plain.node_id().wait()
        assert [report.accelerators for report in reserved.verify()] == [("0", "1"), ("2",), ("2",), ("6", "4"), ("0",)]


def test_each_rank_starts_in_the_bundle_of_its_first_accelerator(cluster: Cluster) -> None:
    made = plan(cluster, actor="0-1:0,2-5:1-4", env={"node_group": "node", "placement": "0-1"})
    with cluster.reserve(made) as reserved:

        def indices_of(name: str) -> list[int]:
            return [reserved.strategy(name, row, cluster.nodes).placement_group_bundle_index for row in made[name]]

        assert indices_of("actor") == [0, 2, 3, 0, 1]
        assert indices_of("env") == [4, 2]


@pytest.mark.long
def test_processes_reserve_what_their_component_states(cluster: Cluster) -> None:
    def left(name: str) -> list[float]:
        available = available_resources()
        return [round(available[cluster.nodes.ids[node]].get(name, 0), 4) for node in range(2)]

    def when(condition: Callable[[], bool]) -> None:
        """Wait for Ray, which tells what is available a moment later."""
        end = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < end, (left("CPU"), left("memory"))
            time.sleep(0.05)

    amounts = {"cpus_per_process": 2.5, "host_memory_per_process": 64}
    made = plan(cluster, actor={"placement": "2-4", **amounts}, env={"placement": "3", "cpus_per_process": 0})
    resources = {node["NodeID"]: node["Resources"] for node in ray.nodes()}
    cpus, memory = ([resources[cluster.nodes.ids[node]][name] for node in range(2)] for name in ("CPU", "memory"))
    when(lambda: (left("CPU"), left("memory")) == (cpus, memory))  # the ranks of other tests have gone
    with Parent.create_group().launch(cluster, made["actor"], name="actor"):
        when(lambda: left("CPU") == [cpus[0] - 5, cpus[1] - 2.5])
        when(lambda: left("memory") == [memory[0] - (128 << 20), memory[1] - (64 << 20)])
    when(lambda: left("CPU") == cpus)
    with cluster.reserve(made) as reserved:
        assert bundles(cluster) == {
            0: [{"CPU": 2.5, "GPU": 1, "memory": 64 << 20}] * 2,
            1: [{"CPU": 2.5, "GPU": 1, "memory": 64 << 20}],
        }
        group = Parent.create_group().launch(cluster, made["actor"], name="actor", reservation=reserved)
        assert left("CPU") == [cpus[0] - 5, cpus[1] - 2.5], "ranks hold nothing beside their reservation"
        found = group.children().wait()
        for row, (children, own) in zip(made["actor"], found, strict=True):
            held = reserved.place(cluster.nodes.ids[row.cluster_node_rank], row.local_hardware_ranks[0])
            assert held is not None
            assert children == [(held[0].id.hex(), own)] * 2, "what a rank starts is in its reservation, on its node"


def test_more_than_a_node_has_is_refused_before_a_launch(cluster: Cluster) -> None:
    made = plan(cluster, actor={"placement": "0-3", "cpus_per_process": 50})
    with pytest.raises(LaunchError, match=r"\n  0     CPU       200 "):
        cluster.reserve(made)
    stated = Inventory.from_dict({"nodes": [{"ranks": 0, "accelerators": 4, "cpus": 8}]})
    (fault,) = process_faults(stated, [made["actor"]])
    assert fault.fault.message == "node 0 has 8 of the 200 CPUs that its processes reserve: 200 for actor"


@pytest.mark.long
def test_components_share_their_accelerators_within_a_reservation(cluster: Cluster) -> None:
    made = plan(cluster, actor="0-5", rollout="0-5:0-11")
    with cluster.reserve(made) as reserved:
        actor = Reader.create_group().launch(cluster, made["actor"], name="actor", reservation=reserved)
        rollout = Reader.create_group().launch(cluster, made["rollout"], name="rollout", reservation=reserved)
        assert len(actor.verify()) == 6
        assert len(rollout.verify()) == 12
        before = bundles(cluster)
        actor.shutdown()
        assert bundles(cluster) == before, "a group leaves its reservation alone"
        Reader.create_group().launch(cluster, made["actor"], name="actor", reservation=reserved).verify()


def test_ray_sees_what_is_taken(cluster: Cluster) -> None:
    with cluster.reserve(plan(cluster, actor="0-5")):
        with pytest.raises(LaunchError):
            cluster.reserve(plan(cluster, actor="3"))
        other = placement_group([{"GPU": 1}])
        assert not other.wait(1)
        remove_placement_group(other)


# -------------------------------------------------------------------------------------------------------- refusals


def test_what_others_hold_is_in_the_table(cluster: Cluster) -> None:
    @ray.remote(num_gpus=1, num_cpus=2)
    class Other:
        def node(self) -> str:
            return str(ray.get_runtime_context().get_node_id())

    pin = {"ray.io/node-id": cluster.node_ids[0]}
    with (
        held_by_others(cluster, 0, [{"GPU": 2}, {"CPU": 100}], "trainer"),
        held_by_others(cluster, 1, [{"GPU": 2}], ""),
    ):
        other = Other.options(label_selector=pin).remote()
        assert ray.get(other.node.remote()) == cluster.node_ids[0]
        error = refused(cluster, plan(cluster, actor="0-5", agent={"node_group": "node", "placement": "0:0-29"}))
        ray.kill(other)
    lines = str(error).splitlines()
    lines[4] = lines[4][:-8] + "ffffffff"
    assert "\n".join(lines) == table("""
        cannot reserve actor + agent: too little is available
          node  resource  needed  available  total  held by
          0     GPU       4       1          4      2 by trainer, 1 by others
          0     CPU       34      26         128    100 by trainer, 2 by others
          1     GPU       2       0          2      2 by placement group ffffffff
        end what holds the rest, use other nodes, or launch without a reservation
    """)
    assert (error.component, error.rank, error.node) == (None, None, 0)


def test_another_driver_is_named_as_a_holder_by_its_components(cluster: Cluster) -> None:
    with another_driver(cluster, "actor,rollout,critic,reward,env,judge", "0-5"):
        error = refused(cluster, plan(cluster, late="4,6-7"))
    assert (
        "1     GPU       1       0          2      2 by actor + rollout + critic + reward + 2 more (rankplan "
        in str(error)
    )


def test_more_than_a_node_has_is_refused_at_once(cluster: Cluster) -> None:
    error = refused(cluster, plan(cluster, agent={"node_group": "node", "placement": "1:0-199,2:200"}))
    assert str(error) == table("""
        cannot reserve agent: too little is available
          node  resource  needed  available  total  held by
          1     CPU       200     128        128
        end what holds the rest, use other nodes, or launch without a reservation
    """)
    assert (error.component, error.node) == ("agent", 1)


def test_parts_of_accelerators_are_not_enough(cluster: Cluster) -> None:
    with held_by_others(cluster, 0, [{"GPU": 0.6}] * 4, "small"):
        error = refused(cluster, plan(cluster, actor="0"))
    row = "  0     GPU       1       1.6        4      2.4 by small (only parts are available, or the node is down)"
    assert row in str(error).splitlines()


def test_a_large_table_is_cut(cluster: Cluster) -> None:
    from rankplan.runtime.reserve.reserve import _table

    lines = _table([("node", "resource")] + [(str(node), "GPU") for node in range(1000)]).splitlines()
    assert len(lines) == 22 and lines[-1] == "  and 980 more rows"


@pytest.mark.parametrize(
    "name",
    [
        "rankplan:0-4000000000:x:y",
        "red \x1b[31m\n",
        pytest.param("rankplan:a:b:c", marks=pytest.mark.long),
        pytest.param("rankplan:x", marks=pytest.mark.long),
    ],
)
def test_names_of_other_groups_are_only_shown(cluster: Cluster, name: str) -> None:
    made = plan(cluster, actor="0-3")
    with held_by_others(cluster, 0, [{"CPU": 1}], name), cluster.reserve(made) as reserved:
        group = Reader.create_group().launch(cluster, made["actor"], name="actor", reservation=reserved)
        assert len(group.verify()) == 4
    with held_by_others(cluster, 0, [{"GPU": 2}], name):
        assert f"2 by {name.encode('unicode_escape').decode()}\n" in str(refused(cluster, made))


def test_a_refusal_returns_the_nodes_that_were_granted(cluster: Cluster) -> None:
    with held_by_others(cluster, 3, [{"NPU": 1}], "trainer"):
        error = refused(cluster, plan(cluster, actor="0-7"))
    assert [line.split()[:3] for line in str(error).splitlines()[2:-1]] == [["3", "NPU", "2"]]


def test_an_accelerator_is_reserved_once_within_a_program(cluster: Cluster) -> None:
    """Ray counts four accelerators on node 0, and would grant the same one twice."""
    with cluster.reserve(plan(cluster, actor="1")):
        error = refused(cluster, plan(cluster, late="0-1"))
        assert str(error) == (
            "cannot reserve late: accelerator 1 of node 0 is reserved by this program for actor; reserve these "
            "components together, or release the other reservation first"
        )
        with cluster.reserve(plan(cluster, beside="0,2-3")):
            pass
    with cluster.reserve(plan(cluster, late="0-1")):
        pass


# ----------------------------------------------------------------------------------------------- launching in one


def test_what_is_outside_of_a_reservation_is_refused(cluster: Cluster) -> None:
    made, other = plan(cluster, actor="0-1"), plan(cluster, actor="1-2", env={"node_group": "node", "placement": 0})
    with cluster.reserve(made) as reserved:
        with pytest.raises(LaunchError) as caught:
            Reader.create_group().launch(cluster, made["actor"], name="critic", reservation=reserved)
        assert str(caught.value) == (
            "critic is outside of the reservation, which was made for actor; launch it under one of these names, or "
            "reserve it too"
        )
        with pytest.raises(LaunchError) as caught:
            Reader.create_group().launch(cluster, other["actor"], name="actor", reservation=reserved)
        assert str(caught.value) == (
            "actor rank 1 (node 0) needs accelerator 2 of node 0, which is outside of the reservation for actor; "
            "launch the component that was reserved"
        )
        with pytest.raises(LaunchError, match="needs a process of node 0 without an accelerator of its own, which is"):
            Reader.create_group().launch(cluster, other["env"], name="actor", reservation=reserved)
        assert len(groups()) == 1


def test_releasing_shuts_down_the_groups_first(cluster: Cluster) -> None:
    made = plan(cluster, actor="0-1")
    reserved = cluster.reserve(made)
    group = Faulty.create_group().launch(cluster, made["actor"], name="actor", reservation=reserved)
    call = group.fail_while_others_wait(-1)
    reserved.release()
    reserved.release()
    assert groups() == []
    with pytest.raises(WorkerError, match="it was ended, with its group"):
        call.wait(30)
    with pytest.raises(WorkerError, match="the group was shut down"):
        group.verify()
    with pytest.raises(LaunchError, match="the reservation for actor was released; launch before release"):
        Reader.create_group().launch(cluster, made["actor"], name="actor", reservation=reserved)


def test_closing_the_cluster_releases_everything(cluster: Cluster) -> None:
    made = plan(cluster, actor="0-1")
    with Cluster() as same:
        reserved = same.reserve(made)
        Reader.create_group().launch(same, made["actor"], name="actor", reservation=reserved)
        with pytest.raises(ValueError, match="the reservation belongs to another Cluster"):
            Reader.create_group().launch(cluster, made["actor"], name="actor", reservation=reserved)
        assert len(groups()) == 1
    assert groups() == []
    with pytest.raises(LaunchError, match="the cluster was closed"):
        same.reserve(made)


@pytest.mark.long
def test_a_group_of_its_own_reservation_returns_it(cluster: Cluster) -> None:
    for _ in range(3):  # what was returned can be reserved again at once
        with Reader.create_group().launch(cluster, SIX, reserve=True) as group:
            assert len(groups()) == 2
            group.shutdown()
            assert groups() == []


@pytest.mark.long
def test_a_launch_that_fails_returns_what_it_reserved(cluster: Cluster) -> None:
    with pytest.raises(LaunchError, match="no weights for rank 2"):
        FailsToStart.create_group("raise", 2).launch(cluster, SIX, reserve=True)
    assert groups() == []
    made = plan(cluster, actor="0-5")
    with cluster.reserve(made) as reserved:
        with pytest.raises(LaunchError, match="no weights for rank 2"):
            FailsToStart.create_group("raise", 2).launch(cluster, made["actor"], name="actor", reservation=reserved)
        assert len(groups()) == 2


@pytest.mark.long
def test_a_job_returns_what_it_reserved_with_its_last_group(cluster: Cluster) -> None:
    made = plan(cluster, actor="0-3", rollout="2-5")
    job = launch(made, cluster, Reader, reserve=True)
    job["actor"].shutdown()
    assert len(groups()) == 2
    job["rollout"].shutdown()
    assert groups() == []
    with pytest.raises(LaunchError, match="no weights for rank 2"):
        launch(made, cluster, {"actor": Reader, "rollout": FailsToStart.create_group("raise", 2)}, reserve=True)
    assert groups() == []


@pytest.mark.long
def test_a_job_with_shares_is_reserved(cluster: Cluster) -> None:
    made = plan(cluster, actor="0-3", rollout="2-5")
    shared = Plan(made.inventory, [component.with_settings(share=0.5) for component in made.values()])
    job = launch(shared, cluster, Reader)
    assert len(groups()) == 2
    for group in job.values():
        group.shutdown()


@pytest.mark.parametrize("reserve", [0.8, 1, 1.0, None, "yes"])
def test_reserve_is_true_or_false(cluster: Cluster, reserve: Any) -> None:
    with pytest.raises(TypeError, match=r"^reserve is .*; pass True or False: shares belong to the components"):
        Reader.create_group().launch(cluster, SIX, reserve=reserve)


def test_a_reservation_is_what_reserve_returned(cluster: Cluster) -> None:
    with pytest.raises(TypeError, match=r"reservation is of type dict; pass the result of cluster.reserve\(plan\)"):
        Reader.create_group().launch(cluster, SIX, reservation={})  # type: ignore[arg-type]
    with (
        cluster.reserve(plan(cluster, actor="0")) as reserved,
        pytest.raises(ValueError, match="pass either reserve or reservation"),
    ):
        Reader.create_group().launch(cluster, SIX, reservation=reserved, reserve=True)


# ------------------------------------------------------------------------------------------------ at the same time


def test_of_two_threads_one_gets_the_accelerator(cluster: Cluster) -> None:
    outcomes: list[Reservation | LaunchError] = []
    made = [plan(cluster, **{name: "2"}) for name in ("one", "two")]

    def reserve(plan: Plan) -> None:
        try:
            outcomes.append(cluster.reserve(plan))
        except LaunchError as error:
            outcomes.append(error)

    threads = [threading.Thread(target=reserve, args=(plan,)) for plan in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (reserved,) = (outcome for outcome in outcomes if isinstance(outcome, Reservation))
    (error,) = (outcome for outcome in outcomes if isinstance(outcome, LaunchError))
    assert f"is reserved by this program for {reserved.components[0]};" in str(error)
    reserved.release()


DRIVER = """
import sys, time
from pathlib import Path
from rankplan import Cluster, ComponentPlacement, LaunchError

folder, me, other = Path(sys.argv[1]), sys.argv[2], sys.argv[3]

def meet(point):
    (folder / f"{point}.{me}").touch()
    while not (folder / f"{point}.{other}").exists():
        time.sleep(0.001)

with Cluster() as cluster:
    section = {"num_nodes": 4, "component_placement": {me: sys.argv[4]}}
    plan = ComponentPlacement({"cluster": section}, cluster).plan()
    for turn in range(8):
        meet(f"start{turn}")
        try:
            reserved = cluster.reserve(plan)
        except LaunchError as error:
            print("refused", flush=True)
            reserved = None
        else:
            print("reserved", flush=True)
        if turn % 2:  # otherwise the other one may come in time
            meet(f"answer{turn}")
        if reserved:
            reserved.release()
"""


@pytest.mark.long
@pytest.mark.parametrize(("one", "two"), [("0-7", "0-7"), ("0-5", "4-7"), ("0-4,6-7", "5-7")])
def test_of_two_drivers_one_succeeds(cluster: Cluster, tmp_path: Path, one: str, two: str) -> None:
    environment = {**os.environ, "RAY_ADDRESS": cluster.address}
    drivers = [
        subprocess.Popen(
            [sys.executable, "-c", DRIVER, tmp_path, *arguments], env=environment, stdout=subprocess.PIPE, text=True
        )
        for arguments in (("one", "two", one), ("two", "one", two))
    ]
    answers = [driver.communicate(timeout=120)[0].split() for driver in drivers]
    assert [driver.returncode for driver in drivers] == [0, 0]
    for turn, both in enumerate(zip(*answers, strict=True)):
        assert "reserved" in both, f"turn {turn}: none of the drivers succeeded: {answers}"
        assert turn % 2 == 0 or "refused" in both, f"turn {turn}: both drivers succeeded: {answers}"
    assert len(answers[0]) == 8


def test_a_driver_that_is_killed_leaves_nothing_reserved(cluster: Cluster) -> None:
    with another_driver(cluster, "actor", "0-7") as driver:
        assert len(groups()) == 3
        driver.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 60
    while groups() and time.monotonic() < deadline:
        time.sleep(0.1)


def test_a_node_that_has_left_the_cluster(cluster: Cluster) -> None:
    """The last test of the module: the cluster loses a node."""
    raylets = cluster._raylets
    assert raylets is not None
    nodes = {node.node_ip_address: node for node in raylets._cluster.worker_nodes}
    raylets._cluster.remove_node(nodes["127.0.0.4"])
    error = refused(cluster, plan(cluster, env={"node_group": "node", "placement": "1-2"}))
    assert "\n  2     all                                 the node has left the cluster\n" in str(error)
