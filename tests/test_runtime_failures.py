"""What goes wrong on a real Ray cluster: one error that names who, where and why, and no process that stays behind."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator

import pytest
from rankplan import (
    Cluster,
    Inventory,
    LaunchError,
    NodePlacementStrategy,
    PackedPlacementStrategy,
    WorkerError,
    WorkerGroup,
)
from runtime_broken_module import Broken
from runtime_workers import FailsToStart, Faulty, Reader

FOUR = PackedPlacementStrategy(2, 5)


@pytest.fixture(scope="module")
def faulty(two_nodes: Cluster) -> Iterator[WorkerGroup]:
    with Faulty.create_group().launch(two_nodes, FOUR, name="faulty") as group:
        yield group


@pytest.fixture
def mortal(two_nodes: Cluster) -> Iterator[WorkerGroup]:
    with Faulty.create_group().launch(two_nodes, FOUR, name="mortal") as group:
        yield group


def who(error: LaunchError | WorkerError) -> tuple[str | None, int | None, int | None]:
    return error.component, error.rank, error.node


def test_a_failing_rank_is_named_with_its_traceback(faulty: WorkerGroup) -> None:
    with pytest.raises(WorkerError) as caught:
        faulty.fail(3).wait()
    error = caught.value
    assert who(error) == ("faulty", 3, 1)
    assert str(error) == "faulty rank 3 (node 1): fail() raised KeyError: 'rank 3 had enough'"
    assert error.remote_traceback is not None
    assert 'raise KeyError(f"rank {self.rank} had enough")' in error.remote_traceback
    assert "host.py" not in error.remote_traceback
    assert error.__notes__ == [error.remote_traceback]
    assert isinstance(error.__cause__, KeyError)


def test_the_first_of_several_failing_ranks_is_named_and_the_others_listed(faulty: WorkerGroup) -> None:
    call = faulty.fail(1, 2, 3)
    while not call.done():
        time.sleep(0.01)
    with pytest.raises(WorkerError, match=r"had enough' \(rank 2-3 failed too\)") as caught:
        call.wait()
    assert caught.value.rank == 1


def test_a_failing_rank_is_told_while_others_work_on(mortal: WorkerGroup) -> None:
    started = time.monotonic()
    with pytest.raises(WorkerError, match="mortal rank 2"):
        mortal.fail_while_others_wait(2).wait()
    assert time.monotonic() - started < 10


def test_the_group_is_usable_after_a_failure(faulty: WorkerGroup) -> None:
    with pytest.raises(WorkerError):
        faulty.fail(0).wait()
    assert faulty.fail().wait() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("method", "reason"), [("unloadable", "Unloadable: one"), ("unpicklable", "Unpicklable: holds a lock")]
)
def test_exceptions_that_cannot_travel_are_told_in_words(faulty: WorkerGroup, method: str, reason: str) -> None:
    with pytest.raises(WorkerError, match=reason) as caught:
        getattr(faulty.execute_on(1), method)().wait()
    assert who(caught.value) == ("faulty", 1, 0)
    assert caught.value.__cause__ is None


def test_a_value_that_cannot_travel_is_an_error_of_its_rank(faulty: WorkerGroup) -> None:
    with pytest.raises(WorkerError, match=r"faulty rank 2 \(node 1\): returns_a_lock\(\) failed: .*lock"):
        faulty.execute_on(2).returns_a_lock().wait()
    assert faulty.fail().wait() == [0, 1, 2, 3]


def test_a_rank_that_dies_is_named(mortal: WorkerGroup, two_nodes: Cluster) -> None:
    with pytest.raises(
        WorkerError, match=r"die\(\) got no answer, its process is gone: it ended without a word"
    ) as caught:
        mortal.die(2).wait()
    assert who(caught.value) == ("mortal", 2, 1)
    with pytest.raises(WorkerError, match=r"mortal rank 2 \(node 1\): fail\(\) got no answer"):
        mortal.fail().wait()
    with pytest.raises(WorkerError, match="mortal rank 2"):
        mortal.verify()
    assert mortal.execute_on(0, 1, 3).fail().wait() == [0, 1, 3]
    mortal.shutdown()
    with Reader.create_group().launch(two_nodes, FOUR, name="mortal") as again:
        assert len(again.verify()) == 4


def test_a_rank_that_is_killed_at_work_is_named(mortal: WorkerGroup) -> None:
    pids = mortal.pid().wait()
    call = mortal.fail_while_others_wait(-1)
    os.kill(pids[1], signal.SIGKILL)
    with pytest.raises(WorkerError) as caught:
        call.wait(30)
    assert who(caught.value) == ("mortal", 1, 0)


def test_a_rank_that_leaves_is_named(mortal: WorkerGroup) -> None:
    with pytest.raises(WorkerError, match=r"leave\(\) got no answer, its process is gone: .*exit code 4"):
        mortal.leave(0).wait(30)


@pytest.mark.usefixtures("nothing_stays")
def test_shutdown_ends_ranks_that_are_at_work(two_nodes: Cluster) -> None:
    group = Faulty.create_group().launch(two_nodes, FOUR)
    group.fail_while_others_wait(-1)
    group.shutdown()


@pytest.mark.usefixtures("nothing_stays")
@pytest.mark.parametrize(
    ("how", "timeout", "message"),
    [
        ("raise", 60, r"did not come up, so the group is not launched: it raised ValueError: no weights for rank 2"),
        ("die", 60, r"did not come up, so the group is not launched: it got no answer, its process is gone"),
        ("hang", 4, r"1 of 4 ranks did not come up within 4 s, so the group is not launched: rank 2 on node 1"),
    ],
)
def test_a_launch_is_all_or_nothing(two_nodes: Cluster, how: str, timeout: float, message: str) -> None:
    with pytest.raises(LaunchError, match=message) as caught:
        FailsToStart.create_group(how, 2).launch(two_nodes, FOUR, name="actor", timeout=timeout)
    assert who(caught.value) == ("actor", 2, 1)
    assert (how == "raise") == isinstance(caught.value.__cause__, ValueError)
    assert (how == "raise") == any("no weights" in note for note in getattr(caught.value, "__notes__", ()))


@pytest.mark.usefixtures("nothing_stays")
def test_rank_zero_that_dies_is_not_blamed_on_those_that_wait_for_it(two_nodes: Cluster) -> None:
    with pytest.raises(LaunchError) as caught:
        FailsToStart.create_group("die", 0).launch(two_nodes, FOUR, name="actor")
    assert who(caught.value) == ("actor", 0, 0)


@pytest.mark.usefixtures("nothing_stays")
def test_a_module_that_cannot_be_imported_in_one_rank(two_nodes: Cluster) -> None:
    with pytest.raises(LaunchError, match=r"it raised ImportError: libmodel\.so\.2 is not there") as caught:
        Broken.create_group().launch(two_nodes, FOUR, name="actor")
    assert who(caught.value) == ("actor", 1, 0)


@pytest.mark.usefixtures("nothing_stays")
def test_arguments_that_cannot_travel_start_nothing(two_nodes: Cluster) -> None:
    with pytest.raises(LaunchError, match=r"FailsToStart or its arguments cannot be sent to the ranks: .*lock"):
        FailsToStart.create_group(threading.Lock(), 1).launch(two_nodes, FOUR)


@pytest.mark.usefixtures("nothing_stays")
def test_rows_for_a_larger_cluster_start_nothing(two_nodes: Cluster) -> None:
    rows = PackedPlacementStrategy(6, 9).get_placement(Inventory.uniform(num_nodes=4, accelerators=4))
    with pytest.raises(LaunchError, match=r"actor rank 2 is planned on node 2, but the cluster has only the nodes 0-1"):
        Reader.create_group().launch(two_nodes, rows, name="actor")


@pytest.mark.usefixtures("nothing_stays")
def test_an_interpreter_that_is_not_there_starts_nothing(two_nodes: Cluster) -> None:
    group = {"label": "old", "node_ranks": 1}
    group["env_configs"] = [{"node_ranks": 1, "python_interpreter_path": "/opt/nowhere/bin/python"}]
    with (
        Cluster(cluster_cfg={"num_nodes": 2, "node_groups": [group]}) as same,
        pytest.raises(LaunchError, match=r"interpreter /opt/nowhere/bin/python of node group 'old' is no executable"),
    ):
        Reader.create_group().launch(same, NodePlacementStrategy([0], "old"), name="actor")
