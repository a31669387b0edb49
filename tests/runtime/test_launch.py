"""Groups on a real Ray cluster of two nodes: what each rank sees, and calls."""

from __future__ import annotations

import copy
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import rankplan
import ray
from rankplan import (
    Cluster,
    ComponentPlacement,
    FlexiblePlacementStrategy,
    Franka,
    Inventory,
    LaunchError,
    NodePlacementStrategy,
    PackedPlacementStrategy,
    Plan,
    Worker,
    WorkerError,
    WorkerGroup,
)
from rankplan.environment import planned_environment
from rankplan.runtime.group import launch
from rankplan.runtime.nodes.nodes import pinned
from rankplan.runtime.rank.spec import RankReport, RankSpec, differences
from rankplan.runtime.ray import timeouts
from rankplan.runtime.ray.answers import collect
from support.workers import NAMES, Caller, Early, FailsToStart, Reader

SHARED = FlexiblePlacementStrategy([[0, 1], [4], [4], [6, 7]])


@pytest.fixture(scope="module")
def readers(two_nodes: Cluster) -> Iterator[WorkerGroup]:
    with Reader.create_group().launch(two_nodes, SHARED, name="reader") as group:
        yield group


@pytest.fixture(scope="module")
def callers(two_nodes: Cluster) -> Iterator[WorkerGroup]:
    with Caller.create_group().launch(two_nodes, NodePlacementStrategy([0, 0, 1]), max_concurrency=2) as group:
        yield group


def test_each_rank_reads_its_own_environment(readers: WorkerGroup) -> None:
    rows = zip(*readers.environment().wait(), strict=True)
    assert dict(zip(NAMES, rows, strict=True)) == {
        "RANK": ("0", "1", "2", "3"),
        "WORLD_SIZE": ("4", "4", "4", "4"),
        "LOCAL_RANK": ("0", "0", "0", "0"),
        "LOCAL_WORLD_SIZE": ("1", "1", "1", "1"),
        "NODE_RANK": ("0", "1", "1", "1"),
        "NODE_LOCAL_RANK": ("0", "0", "1", "2"),
        "NODE_LOCAL_WORLD_SIZE": ("1", "3", "3", "3"),
        "CLUSTER_NODE_RANK": ("0", "1", "1", "1"),
        "CUDA_VISIBLE_DEVICES": ("0,1", "0", "0", "2,3"),
    }


def test_the_users_module_sees_its_rank_when_it_is_imported(readers: WorkerGroup) -> None:
    assert readers.at_import().wait() == readers.environment().wait()


def test_the_program_of_rlinfs_document(two_nodes: Cluster) -> None:
    """Its config names a group of node 0; its worker reads its rank and logs."""

    class TestWorker(Worker):
        def __init__(self) -> None:
            super().__init__()

        def run(self) -> int:
            self.log_info(f"Hello from TestWorker rank {self._rank}!")
            return self._rank

    section = {
        "num_nodes": 1,
        "component_placement": {"test_worker": {"node_group": "a800", "placement": "0-3"}},
        "node_groups": [{"label": "a800", "node_ranks": 0}],
    }
    with Cluster(cluster_cfg=section) as cluster:
        strategy = ComponentPlacement({"cluster": section}, cluster).get_strategy("test_worker")
        with TestWorker.create_group().launch(cluster, placement_strategy=strategy) as worker:
            assert worker.run().wait() == [0, 1, 2, 3]


def test_plain_methods_run_in_the_main_thread(readers: WorkerGroup) -> None:
    assert readers.in_main_thread().wait() == [True] * 4, "where signal handlers can be set"


def test_each_rank_runs_on_its_node(two_nodes: Cluster, readers: WorkerGroup) -> None:
    first, second = two_nodes.node_ids
    assert readers.node_id().wait() == [first, second, second, second]


def test_the_ranks_can_meet(readers: WorkerGroup) -> None:
    meeting = readers.environment("MASTER_ADDR", "MASTER_PORT").wait()
    _, port = meeting[0]
    assert meeting == [("127.0.0.2", port)] * 4
    assert readers.execute_on(0).listen().wait() == [int(port)]


def test_without_isolation_a_rank_sees_all_of_its_node(two_nodes: Cluster) -> None:
    with Reader.create_group().launch(two_nodes, SHARED, isolate_accelerator=False) as group:
        seen = group.environment("CUDA_VISIBLE_DEVICES", "LOCAL_RANK", "LOCAL_WORLD_SIZE").wait()
    assert seen == [("0,1,2,3", "0", "1"), ("0,1,2,3", "0", "3"), ("0,1,2,3", "0", "3"), ("0,1,2,3", "2", "3")]


def test_two_components_share_accelerators(two_nodes: Cluster, readers: WorkerGroup) -> None:
    config = {"cluster": {"num_nodes": 2, "component_placement": {"actor,critic": "0-1", "reward": "0-1:0-3"}}}
    placement = ComponentPlacement(config, two_nodes)
    groups = [
        Reader.create_group().launch(two_nodes, placement.get_strategy(name), name=name)
        for name in placement.components
    ]
    devices = [[mask for (mask,) in group.environment("CUDA_VISIBLE_DEVICES").wait()] for group in groups]
    ports = {group.environment("MASTER_PORT").wait()[0] for group in [*groups, readers]}
    for group in groups:
        group.shutdown()
    assert devices == [["0", "1"], ["0", "1"], ["0", "0", "1", "1"]]
    assert len(ports) == 4


def test_processes_by_node(callers: WorkerGroup, two_nodes: Cluster) -> None:
    assert [(row.cluster_node_rank, row.local_rank) for row in callers.placements] == [(0, 0), (0, 1), (1, 0)]
    assert [report.accelerators for report in callers.verify()] == [("0", "1", "2", "3")] * 3


def test_without_a_strategy_there_is_a_process_for_each_accelerator(two_nodes: Cluster) -> None:
    with Reader.create_group().launch(two_nodes) as group:
        assert group.component == "Reader"
        assert [row.devices for row in group.placements] == [[(node, index)] for node in (0, 1) for index in range(4)]


def test_a_component_of_a_plan_can_be_launched(two_nodes: Cluster) -> None:
    config = {"cluster": {"num_nodes": 2, "component_placement": {"actor": "1,5"}}}
    plan = ComponentPlacement(config, two_nodes.inventory).plan(isolate_accelerator=False)
    with Reader.create_group().launch(two_nodes, plan["actor"]) as group:
        assert group.placements == list(plan["actor"])
        assert group.environment("LOCAL_RANK").wait() == [("1",), ("1",)]


@pytest.fixture(scope="module")
def shared(two_nodes: Cluster) -> Plan:
    config = {"cluster": {"num_nodes": 2, "component_placement": {"actor": "0-3", "rollout": "2-5:0-1"}}}
    return ComponentPlacement(config, two_nodes).plan()


def test_all_components_of_a_plan_are_launched(two_nodes: Cluster, shared: Plan, nothing_stays: None) -> None:
    groups = rankplan.launch(shared, two_nodes)
    assert [len(set(group.run().wait())) for group in groups.values()] == [4, 2]  # process ids
    for group in groups.values():
        group.shutdown()
    early = Early.create_group(1)
    groups = rankplan.launch(shared, two_nodes, {"rollout": Reader, "actor": early}, timeout=100)
    assert {name: group.placements for name, group in groups.items()} == {
        name: list(component) for name, component in shared.items()
    }
    assert groups["rollout"].environment("CUDA_VISIBLE_DEVICES").wait() == [("2,3",), ("0,1",)]
    for group in groups.values():
        group.shutdown()


def test_a_component_that_fails_ends_the_others(two_nodes: Cluster, shared: Plan, nothing_stays: None) -> None:
    workers = {"actor": Reader, "rollout": FailsToStart.create_group("raise", 1)}
    with pytest.raises(LaunchError, match=r"rollout rank 1 .* no weights for rank 1"):
        rankplan.launch(shared, two_nodes, workers)


@pytest.mark.parametrize(
    ("workers", "error", "message"),
    [
        ({"actor": Reader, "rolout": Reader}, KeyError, "rolout"),
        ({"rollout": Reader}, ValueError, r"^workers lacks actor; name a class for each, or launch plan\.only"),
        (int, TypeError, r"is not a worker; pass a subclass of rankplan\.Worker, or its create_group"),
        (FailsToStart, TypeError, r"^FailsToStart\.create_group\(\): "),
    ],
)
def test_workers_are_checked_first(
    two_nodes: Cluster, shared: Plan, workers: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        rankplan.launch(shared, two_nodes, workers)
    with pytest.raises(TypeError, match=r"^cluster is of type Inventory; pass a live rankplan\.Cluster"):
        rankplan.launch(shared, two_nodes.inventory, Reader)  # type: ignore[arg-type]


def test_a_text_is_not_a_strategy(two_nodes: Cluster) -> None:
    with pytest.raises(TypeError, match=r"placement_strategy is of type str; pass a strategy, such as"):
        Reader.create_group().launch(two_nodes, "0-3")  # type: ignore[arg-type]


def test_a_rank_knows_itself_in_its_constructor(two_nodes: Cluster) -> None:
    with Early.create_group(10, factor=5).launch(two_nodes, PackedPlacementStrategy(3, 4), name="early") as group:
        answers = group.attributes().wait()
    rows = PackedPlacementStrategy(3, 4).get_placement(two_nodes)
    assert answers == [(10, (0, 2, 2, 0, "early"), rows[0]), (15, (1, 2, 2, 0, "early"), rows[1])]


def test_node_groups_give_variables_interpreters_and_robots(two_nodes: Cluster) -> None:
    settings = {
        "node_ranks": 1,
        "env_vars": [{"MODE": "fast"}, {"LD_TEST": "x"}],
        "python_interpreter_path": sys.executable,
    }
    arm = {"robot_ip": "10.1.0.1", "node_rank": 1}
    section = {
        "num_nodes": 2,
        "component_placement": {"env": {"node_group": "arms", "placement": 0}, "actor": 0},
        "node_groups": [
            {
                "label": "arms",
                "node_ranks": "0-1",
                "env_configs": [settings],
                "hardware": {"type": "Franka", "configs": [arm]},
            }
        ],
    }
    with Cluster(cluster_cfg=section) as same:
        placement = ComponentPlacement({"cluster": section}, same)
        env = Reader.create_group().launch(same, placement.get_strategy("env"), name="env")
        actor = Reader.create_group().launch(same, placement.get_strategy("actor"), name="actor")
        assert env.environment("MODE", "LD_TEST", "CLUSTER_NODE_RANK").wait() == [("fast", "x", "1")]
        assert (env.at_start("LD_TEST").wait(), env.at_start("MODE").wait()) == ([True], [False])
        assert env.interpreter().wait() == [sys.executable]
        assert env.robots().wait() == [[Franka(robot_ip="10.1.0.1", node_rank=1)]]
        assert actor.environment("MODE").wait() == [(None,)]
        assert actor.robots().wait() == [[]]
    assert ray.is_initialized(), "a connection that was there before stays"


def test_answers_come_in_rank_order(callers: WorkerGroup) -> None:
    call = callers.echo("a", key=1)
    assert call.wait() == [(0, "a", 1), (1, "a", 1), (2, "a", 1)]
    assert call.wait() == call.wait()
    assert call.done()


def test_object_refs_are_replaced_by_their_values(callers: WorkerGroup) -> None:
    assert callers.length(ray.put(bytes(3_000_000))).wait() == [3_000_000] * 3


def test_an_argument_that_cannot_be_pickled_is_reported_on_one_line(callers: WorkerGroup) -> None:
    with pytest.raises(
        TypeError, match=r"^Caller.echo\(\): an argument cannot be sent to the ranks: cannot pickle '_thr"
    ) as e:
        callers.echo(threading.Lock())
    assert "\n" not in str(e.value)


def test_some_ranks_only(callers: WorkerGroup) -> None:
    assert callers.execute_on(0, 2).echo("b").wait() == [(0, "b", None), (2, "b", None)]
    assert callers.execute_on(2, 0).echo("b").wait() == [(2, "b", None), (0, "b", None)]
    for ranks in [(), (3,), (-1,), (1, 1)]:
        with pytest.raises(ValueError, match="Caller has ranks 0-2; pass some of them to execute_on"):
            callers.execute_on(*ranks)


def test_an_async_method_runs_to_completion(callers: WorkerGroup) -> None:
    assert callers.later().wait() == [0, 1, 2]


def test_max_concurrency_lets_calls_overlap(callers: WorkerGroup) -> None:
    first = callers.first_waits()
    callers.second_comes().wait()
    assert first.wait() == [True, True, True]


def test_a_call_continues_after_a_timeout(callers: WorkerGroup) -> None:
    some = callers.execute_on(0, 2)
    call = some.first_waits()
    message = r"Caller.first_waits\(\): 2 of 2 ranks have not answered after 0.1 s: ranks 0,2"
    with pytest.raises(TimeoutError, match=message):
        call.wait(timeout=0.1)
    with pytest.raises(TimeoutError, match="after 0 s"):
        call.wait(0)
    for timeout in (-1, float("nan"), "5"):
        with pytest.raises(ValueError, match="it must be a finite number of seconds above 0"):
            call.wait(timeout)  # type: ignore[arg-type]
    some.second_comes().wait()
    assert call.wait() == [True, True]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ecko", r"Caller has no method 'ecko'; did you mean 'echo'\?"),
        ("zzz", "Caller has no method 'zzz'; its methods are echo, first_waits, "),
        ("size", "Caller has no method 'size'"),
        ("limit", "Caller has no method 'limit'"),
        ("create_group", "Caller has no method 'create_group'"),
        ("_private", "object has no attribute '_private'"),
        ("__array__", "object has no attribute '__array__'"),
    ],
)
def test_a_wrong_method_name_is_refused_in_the_driver(callers: WorkerGroup, name: str, message: str) -> None:
    with pytest.raises(AttributeError, match=message):
        getattr(callers, name)
    assert not hasattr(callers.execute_on(0), name)


def test_a_group_can_be_copied_and_shown(callers: WorkerGroup) -> None:
    assert copy.copy(callers).world_size == 3
    assert repr(callers) == "<Caller: Caller on ranks 0-2>"
    assert repr(callers.echo(1)).startswith("<Caller.echo() on 3 ranks, ")


def test_verify_reports_where_every_rank_is(readers: WorkerGroup) -> None:
    reports = readers.verify()
    assert [report.pid for report in reports] == readers.pid().wait()
    assert [report.rank for report in reports] == [0, 1, 2, 3]
    assert [report.node_rank for report in reports] == [0, 1, 1, 1]
    assert [report.accelerators for report in reports] == [("0", "1"), ("0",), ("0",), ("2", "3")]


def test_verify_finds_what_changed(two_nodes: Cluster) -> None:
    with Reader.create_group().launch(two_nodes, PackedPlacementStrategy(3, 5), name="actor") as group:
        group.execute_on(1).set("CUDA_VISIBLE_DEVICES", "6").wait()
        group.execute_on(2).set("LOCAL_RANK", "5").wait()
        with pytest.raises(LaunchError) as caught:
            group.verify()
        assert (caught.value.component, caught.value.rank, caught.value.node) == ("actor", 1, 1)
        assert "CUDA_VISIBLE_DEVICES is '6', expected '0'" in str(caught.value)
        assert "LOCAL_RANK is '5', expected '0'" in str(caught.value)


def test_verify_reads_what_libraries_and_children_read(two_nodes: Cluster) -> None:
    with Reader.create_group().launch(two_nodes, PackedPlacementStrategy(3, 5), name="actor") as group:
        group.execute_on(1).put("CUDA_VISIBLE_DEVICES", "6").wait()
        with pytest.raises(LaunchError, match=r"actor differs from its plan:\n  rank 1 .* is '6', expected '0'$"):
            group.verify()


def test_the_environment_of_a_process_is_that_of_its_children() -> None:
    code = """
import os, subprocess, sys
from rankplan.environment import process_environment
assert process_environment() == dict(os.environ)
os.putenv("PUT", "a=b")
os.environ["BYTES"] = os.fsdecode(b"\\xff")
os.unsetenv("HOME")
inherited = subprocess.run(["env", "-0"], capture_output=True, check=True).stdout.split(b"\\0")[:-1]
assert process_environment() == dict(os.fsdecode(line).split("=", 1) for line in inherited)
os.environ.clear()
assert process_environment() == {"PUT": "a=b"}
os.unsetenv("PUT")
assert process_environment() == {}
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_default_timeout_grows_with_the_ranks_of_a_machine(
    two_nodes: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both nodes are one machine."""
    given: list[float | None] = []

    def noted(answers: Any, timeout: float | None, on_tick: Any = None) -> list[Any]:
        given.append(timeout)
        return collect(answers, timeout, on_tick)

    monkeypatch.setattr(launch, "collect", noted)
    for timeout in (None, 77):
        Reader.create_group().launch(two_nodes, PackedPlacementStrategy(3, 5), timeout=timeout).shutdown()
    assert given == [timeouts.launch_timeout(3), 77] == [306, 77]
    assert timeouts.launch_timeout(256) == 812


@pytest.mark.usefixtures("nothing_stays")
def test_a_rank_that_ray_starts_on_another_node_is_caught(two_nodes: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    here, elsewhere = two_nodes.node_ids
    monkeypatch.setattr(launch, "pinned", lambda node_id: pinned(elsewhere))
    with pytest.raises(LaunchError, match=rf"runs on Ray node {elsewhere}, expected {here}") as caught:
        Reader.create_group().launch(two_nodes, PackedPlacementStrategy(3, 4), name="actor")
    assert (caught.value.component, caught.value.rank, caught.value.node) == ("actor", 0, 0)
    assert len(str(caught.value).splitlines()) == 2, "rank 1 is where it should be"


def test_verify_finds_a_variable_that_overrides_the_mask() -> None:
    amd = Inventory.uniform(num_nodes=1, num_accelerators=4, accelerator_type="AMD_GPU")
    row = PackedPlacementStrategy(3, 3).get_placement(amd)[0]
    spec, environment = RankSpec("actor", row, {}, "here"), planned_environment(row)
    report = RankReport("actor", 0, 0, 1, ("3",), node_id="here", environment=environment)
    assert list(differences(spec, report)) == []
    environment["ROCR_VISIBLE_DEVICES"] = "1"
    assert list(differences(spec, report)) == ["ROCR_VISIBLE_DEVICES is '1', which overrides HIP_VISIBLE_DEVICES"]


def test_verify_finds_another_process_in_place_of_a_rank(two_nodes: Cluster) -> None:
    with Reader.create_group().launch(two_nodes, PackedPlacementStrategy(3, 4), name="actor") as group:
        pid = group.pid().wait()[1]
        group._crew.ranks[1] = replace(group._crew.ranks[1], pid=1)
        with pytest.raises(
            LaunchError, match=rf"rank 1 \(node 1, pid {pid}\): is not the process that was launched, which had pid 1"
        ):
            group.verify()


@pytest.mark.parametrize(
    ("how", "found"),
    [("wrong rank", "RANK is '99', expected '1'"), ("wrong devices", "CUDA_VISIBLE_DEVICES is '7', expected '1'")],
)
def test_a_launch_is_verified(two_nodes: Cluster, how: str, found: str) -> None:
    with pytest.raises(LaunchError, match=found) as caught:
        FailsToStart.create_group(how, 1).launch(two_nodes, PackedPlacementStrategy(0, 1), name="actor")
    assert (caught.value.component, caught.value.rank, caught.value.node) == ("actor", 1, 0)


def test_a_group_is_shut_down_once(two_nodes: Cluster) -> None:
    group = Reader.create_group().launch(two_nodes, PackedPlacementStrategy(0, 1))
    group.shutdown()
    group.shutdown()
    assert group.world_size == 0
    for use in (group.pid, group.verify):
        with pytest.raises(WorkerError, match="the group was shut down; launch it again"):
            use()


def test_a_worker_is_constructed_only_in_a_rank() -> None:
    with pytest.raises(LaunchError, match=r"use Reader.create_group\(...\).launch\(cluster"):
        Reader()


@pytest.mark.parametrize(
    ("worker", "args", "message"),
    [
        (Early, (), "the constructor of Early does not accept this: missing a required argument: 'base'"),
        (Early, (1, 2), "the constructor of Early does not accept this: too many positional arguments"),
        (Reader, (1,), "the constructor of Reader does not accept this: too many positional arguments"),
    ],
)
def test_constructor_arguments_are_checked_here(worker: type[Worker], args: tuple[Any, ...], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        worker.create_group(*args)


def test_a_class_of_the_driver_itself_can_be_launched(two_nodes: Cluster) -> None:
    class Local(Worker):
        def twice(self) -> int:
            return 2 * self.rank

    with Local.create_group().launch(two_nodes, NodePlacementStrategy([0, 1])) as group:
        assert group.twice().wait() == [0, 2]
