"""What a worker can do and knows: async methods, names of its own, durations, coordinates, the driver's cluster."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from rankplan import Cluster, ComponentPlacement, Inventory, NodePlacementStrategy, Worker, WorkerError, WorkerGroup
from support.workers import Caller, Looper, Nested, Reader

SECTION = {
    "num_nodes": 2,
    "component_placement": {"looper": {"placement": "0,4", "parallel": {"tp": 2}}, "two": {"placement": "0-1:0"}},
    "node_groups": [
        {"label": "second", "node_ranks": 1, "env_configs": [{"node_ranks": 1, "env_vars": [{"MODE": "fast"}]}]},
        {"label": "first", "node_ranks": 0},
    ],
}


@pytest.fixture(scope="module")
def cluster(two_nodes: Cluster) -> Iterator[Cluster]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EXPORTED", "by the driver")
        with Cluster(SECTION) as cluster:
            yield cluster


@pytest.fixture(scope="module")
def loopers(cluster: Cluster) -> Iterator[WorkerGroup]:
    plan = ComponentPlacement({"cluster": SECTION}, cluster).plan()
    with Looper.create_group().launch(cluster, plan["looper"]) as group:
        yield group


def test_a_plain_method_stops_an_async_loop(loopers: WorkerGroup) -> None:
    loop, event = loopers.loop(), loopers.until_stopped()
    loopers.halt().wait(timeout=30)
    assert all(turns > 0 for turns in loop.wait(timeout=30))
    assert event.wait(timeout=30) == ["row 0", "row 1"], "an asyncio.Event that a plain method sets wakes the loop"


def test_a_thousand_async_calls_run_at_a_time(loopers: WorkerGroup) -> None:
    first = loopers.execute_on(0)
    calls = [first.meet(1000) for _ in range(1000)]
    assert calls[0].wait(timeout=60) == [1000]
    assert calls[-1].wait(timeout=60) == [1000]


def test_plain_methods_beside_async_ones_run_one_at_a_time(loopers: WorkerGroup) -> None:
    calls = [loopers.alone() for _ in range(5)]
    assert [call.wait() for call in calls] == [[True, True]] * 5


def test_an_async_failure_has_its_traceback(loopers: WorkerGroup) -> None:
    with pytest.raises(WorkerError, match=r"looper rank \d \(node \d\): fail\(\) raised KeyError: 'enough'") as caught:
        loopers.fail().wait()
    traceback = caught.value.remote_traceback or ""
    assert traceback.count("  File ") == 1 and "support/workers.py" in traceback


def test_the_names_of_the_group_never_hide_those_of_an_rlinf_worker(loopers: WorkerGroup) -> None:
    assert loopers.shutdown().wait() == loopers.call("shutdown").wait() == ["of the worker"] * 2  # type: ignore[func-returns-value]
    assert loopers.world_size().wait() == ["of the worker"] * 2
    assert loopers.execute_on(1).verify(rank=7).wait() == [7]
    assert [report.node_rank for report in WorkerGroup.verify(loopers)] == [0, 1]
    assert [row.rank for row in loopers.placements] == [0, 1]


class Hides(Worker):
    """Has methods that groups have too."""

    def restart(self) -> None: ...

    def shutdown(self) -> None: ...


def test_a_worker_may_not_hide_the_names_of_the_group() -> None:
    message = (
        r"Hides.create_group\(\): restart is a name of the group itself, and so is shutdown; rename the method of Hides"
    )
    with pytest.raises(TypeError, match=message):
        Hides.create_group()


def test_a_method_is_called_by_its_name(loopers: WorkerGroup) -> None:
    assert loopers.execute_on(1).call("verify", rank=7).wait() == [7]
    with pytest.raises(AttributeError, match="Looper has no method 'thunk'; did you mean 'think'"):
        loopers.call("thunk")


def test_other_coroutines_run_while_one_waits(loopers: WorkerGroup) -> None:
    async def both() -> Any:
        slow, quick = loopers.until_stopped(), loopers.nothing()
        loopers.halt()
        return await asyncio.gather(slow.async_wait(), quick.async_wait(timeout=30))

    assert asyncio.run(both()) == [["row 0", "row 1"], [None, None]]


def test_async_wait_raises_like_wait(loopers: WorkerGroup) -> None:
    with pytest.raises(WorkerError, match="raised KeyError: 'enough'"):
        asyncio.run(loopers.fail().async_wait())
    call = loopers.execute_on(1).meet(10**6)
    with pytest.raises(TimeoutError, match=r"looper.meet\(\): 1 of 1 ranks have not answered after 0.2 s: rank 1"):
        asyncio.run(call.async_wait(timeout=0.2))
    with pytest.raises(ValueError, match="it must be a finite number of seconds above 0"):
        asyncio.run(call.async_wait(timeout=-1))


def test_timed_functions_have_durations(loopers: WorkerGroup) -> None:
    call, other = loopers.train(), loopers.step(0.001)
    durations = call.durations(timeout=30)
    assert list(durations) == ["step", "thought"]
    assert all(seconds >= 0.03 for seconds in durations["step"]), "both runs count, and no other call"
    assert durations["thought"][0] >= 0.01 and durations["thought"][1] >= 0.02
    assert call.wait() == ["trained"] * 2
    assert list(other.durations()) == ["step"] and loopers.nothing().durations() == {}


def test_a_timer_needs_a_function() -> None:
    with pytest.raises(TypeError, match=r"timer\(\) takes a function or a name, not 3"):
        Worker.timer(3)  # type: ignore[call-overload]

    @Worker.timer
    def timed(value: int) -> int:
        return value

    assert timed(3) == 3, "outside a call, nothing is measured"


def test_a_worker_knows_the_devices_of_pytorch_without_importing_it(loopers: WorkerGroup) -> None:
    assert loopers.facts().wait() == [("NV_GPU", "cuda", "NV_GPU", False)] * 2
    for name in ("accelerator_type", "torch_device_type", "torch_platform"):
        with pytest.raises(AttributeError, match=rf"Looper.{name} is known only in the ranks of a group"):
            getattr(Looper, name)
        with pytest.raises(AttributeError, match=rf"Looper has no method '{name}'"):
            getattr(loopers, name)


def test_a_worker_knows_its_coordinates(cluster: Cluster, loopers: WorkerGroup) -> None:
    assert loopers.where().wait() == [[{"tp": 0, "dp": 0}], [{"tp": 1, "dp": 0}]]
    plan = ComponentPlacement({"cluster": SECTION}, cluster).plan()
    with Looper.create_group().launch(cluster, plan["two"]) as group:
        assert group.where().wait() == [[{"dp": 0}, {"dp": 1}]], "one for each slot"
        with pytest.raises(WorkerError, match=r"its process is gone: it exited$"):
            group.leave().wait(timeout=60)


def test_max_concurrency_has_a_limit(cluster: Cluster) -> None:
    for number in (0, 1001, 2**31, "2", True):
        with pytest.raises(ValueError, match=r"it must be a whole number from 1 to 1000, the most calls that a rank"):
            Caller.create_group().launch(cluster, max_concurrency=number)  # type: ignore[arg-type]


def test_a_rank_survives_the_limit(cluster: Cluster) -> None:
    with Reader.create_group().launch(cluster, NodePlacementStrategy([0]), max_concurrency=1000) as group:
        assert len(group.environment("RANK").wait()) == 1


def test_a_rank_knows_the_cluster_of_the_driver(cluster: Cluster) -> None:
    with Nested.create_group().launch(cluster, NodePlacementStrategy([1])) as group:
        assert group.known().wait() == [(cluster.node_ids, cluster.inventory)]
        assert group.part(1).wait() == [(cluster.node_ids[:1], ["cluster", "node", "first"])]
        assert group.launch().wait() == [[("1", "1", "fast", "by the driver")]], "with its groups and exports"
        with pytest.raises(WorkerError, match="num_nodes is 3, but the driver's cluster has 2 nodes"):
            group.part(3).wait()


def test_without_accelerators_there_is_a_process_for_each_node(cluster: Cluster) -> None:
    bare = copy.copy(cluster)
    addresses = [{"ranks": rank, "ip": cluster.inventory.node(rank).ip, "hostname": "here"} for rank in (0, 1)]
    bare.nodes = replace(cluster.nodes, inventory=Inventory.from_dict({"nodes": addresses}))
    with Caller.create_group().launch(bare) as group:
        assert [row.cluster_node_rank for row in group.placements] == [0, 1]
        assert [report.node_rank for report in group.verify()] == [0, 1]


def test_configs_need_not_repeat_the_node_groups_of_the_cluster(cluster: Cluster) -> None:
    env = {"node_group": "second", "placement": "0-3"}
    placement = ComponentPlacement({"cluster": {"num_nodes": 2, "component_placement": {"env": env}}}, cluster)
    assert [row.cluster_node_rank for row in placement.plan()["env"]] == [1] * 4
    assert placement.inventory == cluster.inventory
    own = {"num_nodes": 2, "component_placement": {"env": env}, "node_groups": [{"label": "second", "node_ranks": 0}]}
    placement = ComponentPlacement({"cluster": own}, cluster)
    assert [row.cluster_node_rank for row in placement.plan()["env"]] == [0] * 4, "the config's own group counts"
    assert placement.inventory.group_labels == ["cluster", "node", "second", "first"]
