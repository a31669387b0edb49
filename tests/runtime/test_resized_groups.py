"""Groups that grow and shrink while they work: what joins, what leaves, and what fails, on one cluster."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any
from xml.etree import ElementTree

import pytest
from rankplan import (
    ActiveStep,
    Cluster,
    ComponentPlacement,
    LaunchError,
    Plan,
    TransitionError,
    WorkerError,
    WorkerGroup,
    apply,
    launch,
    transition,
)
from rankplan.runtime.group import launch as launch_module
from rankplan.runtime.rank.ports import PORTS
from rankplan.runtime.reserve import reserve
from ray.util.placement_group import placement_group_table
from support.paths import DOCS, EXAMPLES
from support.workers import AsyncCounting, Counting, Reader, has_ended, stuck

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("nothing_stays")]

SVG = "{http://www.w3.org/2000/svg}"
VARIABLES = ("WORLD_SIZE", "RANKPLAN_RESTART", "CLUSTER_NODE_RANK", "CUDA_VISIBLE_DEVICES", "MASTER_ADDR")


def engines(cluster: Cluster, placement: str, tp: int = 2) -> Plan:
    """Return a plan of engines with two accelerators each."""
    entry = {"placement": placement, "parallel": {"tp": tp}}
    return ComponentPlacement({"cluster": {"num_nodes": 2, "component_placement": {"rollout": entry}}}, cluster).plan()


def posted() -> list[str]:
    """Return the names of the placement groups: reservations and notices."""
    return sorted(entry["name"] for entry in placement_group_table().values() if entry["state"] != "REMOVED")


def state() -> tuple[list[str], dict[Any, Any], set[int]]:
    """Return everything of a group that Ray and this program know besides its ranks."""
    return posted(), dict(reserve._claimed), PORTS.taken(socket.gethostname())


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def beside() -> Iterator[Callable[[Callable[[], Any]], Future[Any]]]:
    """Yield a function that does something in another thread."""
    with ThreadPoolExecutor() as threads:
        yield threads.submit


@contextmanager
def answering(group: WorkerGroup) -> Iterator[list[list[int]]]:
    """Yield the answers of two ranks, which are asked again and again."""
    answers: list[list[int]] = []
    end = Event()

    def ask() -> None:
        while not end.is_set():
            answers.append(group.execute_on(0, 1).answer().wait())

    with ThreadPoolExecutor() as threads:
        asking = threads.submit(ask)
        try:
            yield answers
        finally:
            end.set()
            asking.result()


def test_engines_join_and_leave_while_the_others_answer(two_nodes: Cluster, tmp_path: Path, beside: Any) -> None:
    """A reservation of the group alone grows and shrinks with it, and no port is kept."""
    small, large = engines(two_nodes, "0-3:0-1"), engines(two_nodes, "0-7:0-3")
    with Counting.create_group(tmp_path).launch(two_nodes, small["rollout"], reserve=True) as group:
        pids, before = group.pid().wait(), state()
        (first_port,) = set(group.environment("MASTER_PORT").wait())
        with answering(group) as answers:
            growing = beside(lambda: group.restart(large))
            stuck(tmp_path, 2), stuck(tmp_path, 3)
            asked = len(answers)
            until(lambda: len(answers) > asked + 3)
            assert (group.world_size, growing.done()) == (2, False)
            (tmp_path / "go").touch()
            assert [(report.rank, report.node_rank) for report in growing.result(120)] == [(2, 1), (3, 1)]
            asked = len(answers)
            until(lambda: len(answers) > asked)
            assert group.restart(large) == []
        assert answers == [[number, number] for number in range(1, len(answers) + 1)]
        grown = group.pid().wait()
        assert grown[:2] == pids and len(set(grown)) == 4
        assert group.environment(*VARIABLES).wait() == [
            ("2", None, "0", "0,1", "127.0.0.2"),
            ("2", None, "0", "2,3", "127.0.0.2"),
            ("4", "1", "1", "0,1", "127.0.0.2"),
            ("4", "1", "1", "2,3", "127.0.0.2"),
        ]
        ports = [port for (port,) in group.environment("MASTER_PORT").wait()]
        assert ports[:2] == [*first_port, *first_port] and ports[2] == ports[3] != ports[0]
        assert len(state()[0]) == len(before[0]) + 2 and len(state()[1]) == 8
        given = [port for block in group.free_ports(3) for port in block]

        leaving = group.execute_on(2, 3)
        calls = [leaving.wait_for(tmp_path / "done"), leaving.answer()]
        leaving.write_after(tmp_path / "done", "nobody waits")
        shrinking = beside(lambda: group.restart(small))
        until(lambda: group.world_size == 2)
        with pytest.raises(
            WorkerError, match=r"rollout.answer\(\): a restart has removed ranks 2-3; select other ranks"
        ):
            leaving.answer()
        assert group.answer().wait() == [len(answers) + 1] * 2 and not shrinking.done()
        (tmp_path / "done").touch()
        assert shrinking.result(120) == []
        assert [call.wait(120) for call in calls] == [grown[2:], [1, 1]] and (tmp_path / "nobody waits").exists()
        assert all(map(has_ended, grown[2:])) and group.pid().wait() == pids
        names, claimed, taken = state()
        assert (names, claimed) == before[:2]
        assert not taken & {*given[6:], int(ports[2])} and taken > {*given[:6], int(ports[0])}

        assert [report.pid for report in group.refresh_environment()] == pids
        assert {(*of_rank[:2],) for of_rank in group.environment(*VARIABLES).wait()} == {("2", "2")}
        (port,) = set(group.environment("MASTER_PORT").wait())
        assert state()[2] == {*given[:6], int(port[0])} and port != first_port
        for sizes in (4, 2):
            group.restart(large if sizes == 4 else small)
            assert group.world_size == len(group.verify()) == sizes
        assert state()[:2] == before[:2] and len(state()[2]) == 6 + 2
    assert state() == ([], {}, set())


@pytest.mark.parametrize(
    ("worker", "at_a_time", "method"),
    [(Counting, None, "wait_for"), (Counting, 3, "wait_for"), (AsyncCounting, None, "wait_long")],
)
def test_a_rank_that_leaves_finishes_its_calls(
    two_nodes: Cluster, tmp_path: Path, beside: Any, worker: type[Counting], at_a_time: int | None, method: str
) -> None:
    """One at a time, several in threads, or in an event loop; also a call whose answer nobody waits for.

    What a restart adds to a reservation of the user is returned, and the reservation stays.
    """
    both, one = engines(two_nodes, "0-3:0-1"), engines(two_nodes, "0-1:0")
    made = worker.create_group(tmp_path)
    with (
        two_nodes.reserve(one) as held,
        made.launch(two_nodes, one["rollout"], reservation=held, max_concurrency=at_a_time) as group,
    ):
        before = state()[:2]
        assert len(before[1]) == 2 and [report.rank for report in group.restart(both["rollout"])] == [1]
        assert len(state()[1]) == 4
        last = group.pid().wait()[1]
        calls = [group.call(method, tmp_path / "done") for _ in range(2)]
        group.write_after(tmp_path / "done", "nobody waits")
        shrinking = beside(lambda: group.restart(one))
        until(lambda: group.world_size == 1)
        assert not shrinking.done()
        (tmp_path / "done").touch()
        assert shrinking.result(120) == []
        assert [call.wait(120)[1] for call in calls] == [last, last] and (tmp_path / "nobody waits").exists()
        assert has_ended(last) and state()[:2] == before
        group.restart(both)
        group.restart(one.on(one.inventory))
        assert state()[:2] == before and group.world_size == 1


def test_a_change_that_fails_leaves_the_group_as_it_was(two_nodes: Cluster, tmp_path: Path, beside: Any) -> None:
    small, large = engines(two_nodes, "0-3:0-1"), engines(two_nodes, "0-7:0-3")
    with Counting.create_group(tmp_path).launch(two_nodes, small["rollout"]) as group:
        pids, before = group.pid().wait(), state()
        with answering(group) as answers:
            growing = beside(lambda: group.restart(large))
            newcomers = [stuck(tmp_path, rank) for rank in (2, 3)]
            os.kill(newcomers[1], signal.SIGKILL)
            with pytest.raises(
                LaunchError, match=r"rollout rank 3 \(node 1\) did not come up, so the group is not resta"
            ):
                growing.result(120)
            assert all(map(has_ended, newcomers)) and state() == before
            asked = len(answers)
            until(lambda: len(answers) > asked)
        assert answers == [[number, number] for number in range(1, len(answers) + 1)] and group.pid().wait() == pids

        (tmp_path / "go").touch()
        assert len(group.restart(large)) == 2
        grown, before = group.pid().wait(), state()
        busy = group.execute_on(3, 0).wait_for(tmp_path / "done")
        late = "rollout: calls on rank 3, which the plan lacks, did not end within 0.5 s, so the group is not restarted"
        with pytest.raises(LaunchError, match=late):
            group.restart(small, timeout=0.5)
        assert group.world_size == 4 and state()[:2] == before[:2] and group.execute_on(1, 2).pid().wait() == grown[1:3]

        shrinking = beside(lambda: group.restart(small))
        until(lambda: group.world_size == 2)
        os.kill(pids[0], signal.SIGKILL)
        with pytest.raises(
            LaunchError, match="rollout: rank 0 died while ranks 2-3 finished their calls, so the group"
        ):
            shrinking.result(120)
        assert (group.world_size, state()[:2]) == (4, before[:2])
        # calls may wait for the dead rank, so nobody waits for them
        assert [report.rank for report in group.restart(small)] == [0]
        assert all(map(has_ended, grown[2:])) and group.pid().wait()[1] == pids[1]
        with pytest.raises(WorkerError, match="its process is gone"):
            busy.wait(120)
        assert [report.rank for report in group.restart(large)] == [2, 3]
        leaving, grown = group.execute_on(3), group.pid().wait()
        leaving.wait_for(tmp_path / "never")
        shrinking = beside(lambda: group.restart(small))
        until(lambda: group.world_size == 2)
        group.shutdown()
        with pytest.raises(LaunchError, match="rollout: the group was shut down meanwhile"):
            shrinking.result(120)
        assert all(map(has_ended, grown))
    assert state() == ([], {}, set())


def test_a_node_that_a_group_leaves_while_another_is_to_start_there(
    two_nodes: Cluster, beside: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stays reserved; and once both have left it, it is returned."""

    def late(*given: Any) -> Any:
        reached.set()
        assert go.wait(120)
        return created(*given)

    def both(first: str, second: str) -> Plan:
        entries = {"first": first, "second": second}
        return ComponentPlacement({"cluster": {"num_nodes": 2, "component_placement": entries}}, two_nodes).plan()

    reached, go, created = Event(), Event(), launch_module._created
    job = launch(both("0-7:0-1", "0-3:0"), two_nodes, Reader, reserve=True)
    first, second, before = job["first"], job["second"], len(posted())
    monkeypatch.setattr(launch_module, "_created", late)
    growing = beside(lambda: second.restart(both("0-3:0", "0-7:0-1")))
    assert reached.wait(120)
    first.restart(both("0-3:0", "0-7:0-1"))
    assert len(posted()) == before
    go.set()
    assert [report.node_rank for report in growing.result(120)] == [1]
    assert [report.rank for report in second.verify()] == [0, 1] and len(posted()) == before
    second.restart(both("0-3:0", "0-3:0"))
    assert len(posted()) < before
    first.shutdown(), second.shutdown()
    assert state() == ([], {}, set())


def test_a_transition_starts_and_ends_whole_instances(two_nodes: Cluster, tmp_path: Path, beside: Any) -> None:
    """It goes on, and back, from where it has stopped. Those that stay answer all the time, those that leave finish."""
    (tmp_path / "go").touch()
    small, large = engines(two_nodes, "0-3:0-1"), engines(two_nodes, "0-7:0-3")
    grow, shrink = transition(small, large), transition(large, small)
    broken, seen = [3], list[tuple[Any, ...]]()
    with Counting.create_group(tmp_path).launch(two_nodes, small["rollout"], reserve=True) as group:
        groups, pids, before = {"rollout": group}, group.pid().wait(), state()

        def sync(step: ActiveStep) -> None:
            (pid,), moves = step.ranks.pid().wait(), {(move.slot, move.state) for move in step.moves}
            seen.append((step.id, pid not in pids, len(moves), group.world_size))
            if step.instance in broken:
                os.kill(pid, signal.SIGKILL)
                step.ranks.wait_for(tmp_path / "nothing").wait(60)

        with (
            answering(group) as answers,
            pytest.raises(TransitionError, match="the transition stopped at `sync rollout/3`: rollout rank 3") as error,
        ):
            apply(grow, groups, calls={"sync": sync})
        assert answers and all(len(answer) == 2 for answer in answers)
        assert seen == [("sync rollout/2", True, 2, 2), ("sync rollout/3", True, 2, 3)]
        half = error.value
        assert isinstance(half.__cause__, WorkerError) and group.world_size == 3
        assert (half.at, len(half.done)) == (("sync rollout/3",), 5)
        states = [(one.component, one.instance, one.plan, list(one.ranks), one.state) for one in half.running]
        assert states == [
            *(("rollout", number, "before", [number], "running") for number in (0, 1)),
            ("rollout", 2, "after", [2], "running"),
        ]
        assert half.plan is not None and [row.rank for row in half.plan["rollout"]] == [0, 1, 2]
        assert str(half).endswith(
            "5 of 10 steps are done\n  running: rollout/0-1 as before, rollout/2 as after\n"
            "  apply(error.rest, groups) goes on, apply(error.back, groups) goes back"
        )
        assert group.pid().wait()[:2] == pids and [report.rank for report in group.verify()] == [0, 1, 2]
        with pytest.raises(ValueError, match="rollout rank 2 runs at a place, or with coordinates, that the plan"):
            apply(grow, groups, calls={"sync": sync})
        assert half.back is not None
        assert [step.id for step in half.back.steps] == ["stop-routing rollout/2", "drain rollout/2", "free rollout/2"]
        apply(half.back, groups)
        assert group.pid().wait() == pids and state()[:2] == before[:2]

        with pytest.raises(TransitionError):
            apply(grow, groups, calls={"sync": sync})
        broken.clear()
        times = apply(half.rest, groups, calls={"sync": sync})
        assert [time.do for time in times] == ["load", "regroup", "sync", "verify", "route"]
        grown = group.pid().wait()
        assert grown[:2] == pids and len(set(grown)) == 4 and len(state()[1]) == 8
        assert group.environment(*VARIABLES).wait()[3] == ("4", "4", "1", "2,3", "127.0.0.2")

        busy = group.execute_on(2, 3).wait_for(tmp_path / "done")
        with pytest.raises(TransitionError, match="calls on rank 3, which the plan lacks, did not end within") as error:
            apply(shrink, groups, timeout=0.5)
        assert error.value.done == () and error.value.plan == large and group.world_size == 4
        shrinking = beside(lambda: apply(shrink, groups))
        until(lambda: group.world_size == 2)
        with pytest.raises(ValueError, match="rollout has ranks 0-1; pass some of them"):
            group.execute_on(3)
        assert not shrinking.done()
        (tmp_path / "done").touch()
        ended = [time.id for time in shrinking.result(120) if time.do == "free"]
        assert ended == ["free rollout/3", "free rollout/2"] and busy.wait(120) == grown[2:]
        assert all(map(has_ended, grown[2:])) and group.pid().wait() == pids and state()[:2] == before[:2]

        os.kill(pids[1], signal.SIGKILL)
        assert group.wait_for_failure(60) is not None
        with pytest.raises(ValueError, match="rollout rank 1 is dead, and the transition does not count it as lost"):
            apply(grow, groups, calls={"sync": sync})
    assert state() == ([], {}, set())


def test_a_transition_of_a_trainer_forms_its_world_again(two_nodes: Cluster) -> None:
    """Ranks that stay get their new rows with those that start; and its accelerators are lent by functions alone."""

    def job(actor: str, **memory: Any) -> Plan:
        memory = {"training": "megatron", "params": 1e6, **memory}
        entries = {
            "actor": {"placement": actor, "parallel": {"tp": 2}, "memory": memory},
            "rollout": {"placement": "4-7:0-1", "parallel": {"tp": 2}},
        }
        return ComponentPlacement({"cluster": {"num_nodes": 2, "component_placement": entries}}, two_nodes).plan()

    small, large = (job(actor, distributed_optimizer=False) for actor in ("0-1", "0-3"))
    called: list[tuple[str, int]] = []

    def note(step: ActiveStep) -> None:
        called.append((step.id, len(step.ranks.pid().wait())))

    calls = dict.fromkeys(("regroup", "sync", "sleep", "wake"), note)
    groups = launch(small, two_nodes, Reader)
    actor = groups["actor"]
    (pids, first) = actor.pid().wait(), actor.environment("MASTER_PORT").wait()[0]
    for plans, names in (((small, large), range(4)), ((large, small), range(2))):
        called.clear()
        changed = transition(*plans)
        apply(changed, groups, calls=calls)
        assert ("regroup actor/0", len(names)) in called
        worlds = actor.environment("WORLD_SIZE", "RANK", "MASTER_PORT").wait()
        assert [world[:2] for world in worlds] == [(str(len(names)), str(rank)) for rank in names]
        assert len({world[2] for world in worlds}) == 1 and worlds[0][2] != first
        assert actor.pid().wait()[:2] == pids
    assert actor.world_size == 2

    def senders(step: ActiveStep) -> None:  # the optimizer is divided by other numbers, so all ranks start again
        assert step.senders["actor"].pid().wait() == pids and actor.world_size == 0
        assert not set(step.ranks.pid().wait()) & set(pids)

    apply(transition(job("0-1"), job("0-3")), groups, calls={"sync": senders})
    assert [report.rank for report in actor.verify()] == [0, 1, 2, 3] and all(map(has_ended, pids))
    apply(transition(large, small), groups)
    pids = actor.pid().wait()

    lend = transition(small, small, asleep=(["rollout/1"], ["actor"]))
    called.clear()
    apply(lend, groups, calls=calls)
    assert sorted(called) == [("sleep actor/0", 2), ("wake rollout/1", 1)]

    def fails(step: ActiveStep) -> None:
        raise RuntimeError("it does not wake")

    turned = transition(small, small, asleep=(["actor"], ["rollout/1"]))
    with pytest.raises(TransitionError, match="it does not wake") as error:
        apply(turned, groups, calls={**calls, "wake": fails})
    assert {str(one) for one in error.value.running} == {
        *("actor/0 as before (asleep)", "rollout/0 as before", "rollout/1 as before (asleep)"),
    }
    assert error.value.back is not None and [step.id for step in error.value.back.steps] == ["wake rollout/1"]

    stranger = engines(two_nodes, "0-3:0-1")
    larger = transition(small, large)
    for refused, changes in [
        ("sync actor/0: only the trainer can do that", lambda: apply(larger, groups)),
        ("calls has 'snyc', which is no step", lambda: apply(larger, groups, calls={"snyc": note})),
        ("groups lacks actor, which changes", lambda: apply(larger, {}, calls=calls)),
        ("groups has the group of rollout as actor", lambda: apply(larger, {"actor": groups["rollout"]}, calls=calls)),
        (
            "rollout rank 0 runs at a place",
            lambda: apply(transition(stranger, stranger), {"rollout": groups["rollout"]}),
        ),
        (
            "actor is only in the plan after",
            lambda: apply(transition(small.only("rollout"), small), groups, calls=calls),
        ),
        ("timeout is 0", lambda: apply(larger, groups, calls=calls, timeout=0)),
    ]:
        with pytest.raises(ValueError, match=refused):
            changes()
    with pytest.raises(TypeError, match="transition"):
        apply(small, groups)  # type: ignore[arg-type]
    assert actor.pid().wait() == pids
    apply(transition(small, small.only("actor")), groups)
    assert groups["rollout"].world_size == 0 and actor.world_size == 2
    with pytest.raises(WorkerError, match=r"rollout.apply\(\): the group was shut down"):
        apply(lend, groups, calls=calls)
    actor.shutdown()
    assert state() == ([], {}, set())


def test_the_example_grows_and_shrinks() -> None:
    """Its output is that on the page."""
    done = subprocess.run([sys.executable, str(EXAMPLES / "growth.py")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"```text\n{done.stdout}```" in (DOCS / "failures.md").read_text()


def test_the_example_lends(tmp_path: Path) -> None:
    """Its output is that on the page, and its picture has a bar for all that is done."""
    picture = tmp_path / "timeline.svg"
    done = subprocess.run([sys.executable, str(EXAMPLES / "lend.py"), str(picture)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"```text\n{done.stdout}```" in (DOCS / "lending.md").read_text()
    titles = Counter(title.text.partition(",")[0] for title in ElementTree.parse(picture).iter(f"{SVG}title"))
    assert titles["loads"] == titles["gets weights"] == 1 and titles["trains"] == 4 and titles["generates (lent)"] == 6
    assert (DOCS / "lend.svg").read_text().count("generates (lent)") == 7


def test_ranks_that_stay_must_not_change(two_nodes: Cluster) -> None:
    small = engines(two_nodes, "0-3:0-1")
    with Reader.create_group().launch(two_nodes, small["rollout"]) as group:
        before = group.pid().wait(), state()
        for plan, why in [
            (
                engines(two_nodes, "4-7:0-3"),
                r"moves rank 0 from 127.0.0.2 \(accelerators 0-1\) to 127.0.0.3 \(accelerators 0",
            ),
            (
                engines(two_nodes, "0-7:0-7"),
                r"moves rank 0 from 127.0.0.2 \(accelerators 0-1\) to 127.0.0.2 \(accelerators 0",
            ),
            (engines(two_nodes, "0-7:0-3", tp=4), "has other parallel sizes"),
        ]:
            with pytest.raises(
                ValueError, match=rf"rollout: the plan has . ranks, the group 2, and it {why}"
            ) as refused:
                group.restart(plan)
            advice = (
                "plan with replan(plan, nodes, grow={'rollout': N}) or shrink={'rollout': N}, or shut the group down"
            )
            assert advice in str(refused.value)
        assert (group.pid().wait(), state()) == before
