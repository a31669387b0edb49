"""Ctrl-C at every point where Python handles signals leaves no placement group, record, rank or port behind.

HYPOTHESIS_PROFILE=deep tries all points; otherwise one at each place of the code.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import rankplan.runtime
from rankplan import (
    Cluster,
    ComponentPlacement,
    NodePlacementStrategy,
    Transition,
    TransitionError,
    WorkerGroup,
    apply,
    transition,
)
from rankplan.runtime.rank.ports import PORTS
from rankplan.runtime.ray.internals import available_resources
from rankplan.runtime.ray.signals import Uninterrupted
from rankplan.runtime.reserve import groups, reserve
from ray.util.placement_group import placement_group_table
from support.workers import Reader

pytestmark = [
    pytest.mark.usefixtures("interruptible", "nothing_stays"),
    # Python loses an exception that is raised while it closes a generator
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

DEEP = os.environ.get("HYPOTHESIS_PROFILE") == "deep"
SECTION = {"num_nodes": 2, "component_placement": {"actor": "2-5"}}
SOURCES = (str(Path(rankplan.runtime.__file__).parent), str(sys.modules["ray.util.placement_group"].__file__))
"""What starts anything in Ray."""


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Ctrl-C has its usual effect, also where the tests run in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class CtrlC:
    """Ctrl-C at one of the points at which Python handles signals: when a function begins, or one in C has returned."""

    def __init__(self, point: int | None) -> None:
        self.point = point
        self.places: list[tuple[str, int, str]] = []

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        file = frame.f_code.co_filename
        if event not in ("call", "c_return") or not file.startswith(SOURCES):
            return
        self.places.append((file, frame.f_lineno, event))
        if len(self.places) - 1 == self.point:
            sys.setprofile(None)
            handler = signal.getsignal(signal.SIGINT)
            assert callable(handler)
            handler(signal.SIGINT, frame)

    def during(self, work: Callable[[], Any]) -> Any:
        """Return what the work returns, ``None`` if it was interrupted."""
        try:
            sys.setprofile(self)
            return work()
        except KeyboardInterrupt:
            return None
        finally:
            sys.setprofile(None)

    def cause(self, work: Callable[[], Any]) -> BaseException | None:
        """Do the work, and return the cause of the interrupt, if there is one."""
        try:
            sys.setprofile(self)
            work()
        except KeyboardInterrupt as interrupt:
            return interrupt.__cause__
        finally:
            sys.setprofile(None)
        return None


def points(work: Callable[[], Any], most: int) -> list[int]:
    """Do the work once; return the points at which to interrupt it: one at each place of the code, at most so many."""
    counting = CtrlC(None)
    assert counting.during(work) is not None
    if DEEP:
        return list(range(len(counting.places)))
    first = {place: point for point, place in reversed(list(enumerate(counting.places)))}
    return sorted(first.values())[:: -(-len(first) // most)]


def present() -> list[str]:
    """Return the names of the placement groups."""
    return [entry["name"] for entry in placement_group_table().values() if entry["state"] != "REMOVED"]


def left(cluster: Cluster) -> tuple[Any, ...]:
    """Return everything that may be left behind; Ray may remove placement groups and free accelerators later."""
    deadline = time.monotonic() + 60
    while any((names := present(), held := held_accelerators())) and time.monotonic() < deadline:
        time.sleep(0.01)
    return names, held, dict(reserve._claimed), PORTS.taken(socket.gethostname()), cluster.connection._groups


def held_accelerators() -> float:
    """Return how many accelerators Ray counts as taken."""
    return 8 - sum(amounts.get("GPU", 0) for amounts in available_resources().values())


NOTHING: tuple[Any, ...] = ([], 0, {}, set(), [])


@pytest.mark.long
def test_an_interrupted_reservation(two_nodes: Cluster) -> None:
    plan = ComponentPlacement({"cluster": SECTION}, two_nodes).plan()
    found = points(lambda: two_nodes.reserve(plan), 200)
    two_nodes.connection._owned[-1].end()
    for point in found:
        reservation = CtrlC(point).during(lambda: two_nodes.reserve(plan))
        if reservation is not None:
            reservation.release()
        assert left(two_nodes) == NOTHING, point


@pytest.mark.long
def test_an_interrupted_release(two_nodes: Cluster) -> None:
    plan = ComponentPlacement({"cluster": SECTION}, two_nodes).plan()
    first = two_nodes.reserve(plan)
    for point in points(lambda: [first.release()], 100):
        reservation = two_nodes.reserve(plan)
        CtrlC(point).during(reservation.release)
        reservation.release()
        assert left(two_nodes) == NOTHING, point


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_an_interrupted_launch(two_nodes: Cluster) -> None:
    def launch() -> WorkerGroup:
        return Reader.create_group().launch(two_nodes, NodePlacementStrategy([0, 1]), name="actor", reserve=True)

    found = points(launch, 50)
    two_nodes.connection._owned[-1].end()
    for point in found:
        group = CtrlC(point).during(launch)
        if group is not None:
            group.shutdown()
        assert left(two_nodes) == NOTHING, point


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_an_interrupted_change_of_size(two_nodes: Cluster) -> None:
    """The group is as it was, or as it should be."""
    section = {"num_nodes": 2, "component_placement": {"actor": "0-3:0", "large": "0-7:0-1"}}
    small = ComponentPlacement({"cluster": section}, two_nodes).plan()["actor"]
    large = replace(ComponentPlacement({"cluster": section}, two_nodes).plan()["large"], name="actor")

    def grow() -> list[Any]:
        return [group.restart(large)]

    def shrink() -> list[Any]:
        return [group.restart(small)]

    group = Reader.create_group().launch(two_nodes, small, name="actor", reserve=True)
    (pid,), names = group.pid().wait(), len(present())
    for work, back in ((grow, shrink), (shrink, grow)):
        found = points(work, 8)
        for point in found:
            back()
            CtrlC(point).during(work)
            size = group.world_size
            assert [report.rank for report in group.verify()] == list(range(size)), point
            assert group.execute_on(0).pid().wait() == [pid]
            deadline = time.monotonic() + 60
            while len(present()) != size * names and time.monotonic() < deadline:
                time.sleep(0.01)
            taken = len(PORTS.taken(socket.gethostname()))
            assert (len(present()), len(reserve._claimed)) == (size * names, size * 4), point
            assert taken <= 2, point
    group.shutdown()
    assert left(two_nodes) == NOTHING


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_an_interrupted_transition(two_nodes: Cluster) -> None:
    """The group runs what the cause of the interrupt says, and the rest of the transition goes on from there."""
    section = {"num_nodes": 2, "component_placement": {"actor": "0-3:0"}}
    small = ComponentPlacement({"cluster": section}, two_nodes).plan()
    section["component_placement"] = {"actor": "0-7:0-1"}
    large = ComponentPlacement({"cluster": section}, two_nodes).plan()
    group = Reader.create_group().launch(two_nodes, small["actor"], reserve=True)
    (pid,), names = group.pid().wait(), len(present())

    def change(changed: Transition) -> list[Any]:
        return [apply(changed, {"actor": group}, calls={"sync": lambda step: step.ranks.pid().wait()})]

    grow, shrink = transition(small, large), transition(large, small)
    with pytest.raises(KeyboardInterrupt) as interrupt:
        apply(grow, {"actor": group}, calls={"sync": lambda step: os.kill(os.getpid(), signal.SIGINT)})
    cause = interrupt.value.__cause__
    assert isinstance(cause, TransitionError) and cause.at == ("sync actor/1",) and cause.plan == small
    assert group.pid().wait() == [pid] and len(present()) == names
    stopped = 0
    for changed, back in ((grow, shrink), (shrink, grow)):
        found = points(partial(change, changed), 2)
        for point in found:
            change(back)
            error = CtrlC(point).cause(partial(change, changed))
            size = group.world_size
            assert [report.rank for report in group.verify()] == list(range(size)), point
            assert group.execute_on(0).pid().wait() == [pid]
            if isinstance(error, TransitionError):
                stopped += 1
                assert [one.state for one in error.running] == ["running"] * size, point
                change(error.rest)
            elif size == len(changed.before["actor"]):
                change(changed)
            assert group.world_size == len(changed.after["actor"]), point
            deadline = time.monotonic() + 60
            while len(present()) != group.world_size * names and time.monotonic() < deadline:
                time.sleep(0.01)
            assert len(present()) == group.world_size * names, point
            assert len(reserve._claimed) == group.world_size * 4 and len(PORTS.taken(socket.gethostname())) <= 2, point
    assert stopped
    group.shutdown()
    assert left(two_nodes) == NOTHING


def test_an_interrupted_search_for_ports(two_nodes: Cluster) -> None:
    with Reader.create_group().launch(two_nodes, NodePlacementStrategy([0, 1])) as group:
        before = PORTS.taken(socket.gethostname())
        found = points(lambda: group.free_ports(3), 100)
        mine = PORTS.taken(socket.gethostname()) - before
        assert len(mine) == 6
        before |= mine
        for point in found:
            ports = CtrlC(point).during(lambda: group.free_ports(3)) or []
            taken = {port for block in ports for port in block}
            assert PORTS.taken(socket.gethostname()) == before | taken, point
            before |= taken
    assert left(two_nodes) == NOTHING


def test_an_interrupted_comparison_of_reports(two_nodes: Cluster) -> None:
    """No thread has to wait for one that was interrupted, whoever still has the exception."""
    with Reader.create_group().launch(two_nodes, NodePlacementStrategy([0, 1])) as group:
        interrupted = []
        for work in (group.verify, group.refresh_environment):
            for point in points(work, 60):
                try:
                    sys.setprofile(CtrlC(point))
                    work()
                except KeyboardInterrupt as error:
                    interrupted.append(error)
                finally:
                    sys.setprofile(None)
                assert not group._crew.comparing.locked(), point
        assert interrupted


@pytest.mark.long
def test_groups_that_are_removed_at_once(two_nodes: Cluster) -> None:
    """Ray keeps the accelerators of a group that is removed while it places it."""
    asked = groups.NamedGroups(two_nodes.connection)
    for turn in range(400):
        for part in ("a", "b"):
            asked.create(f"{part}{turn}", [{"GPU": 1}] * 2)
        asked.end()
    assert left(two_nodes) == NOTHING


def test_an_interrupt_between_a_placement_group_and_its_handle(
    two_nodes: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray has made the group, but its handle is lost."""

    def interrupted(*args: Any, **options: Any) -> None:
        made(*args, **options)
        raise KeyboardInterrupt

    made = groups.placement_group
    plan = ComponentPlacement({"cluster": SECTION}, two_nodes).plan()
    monkeypatch.setattr(groups, "placement_group", interrupted)
    with pytest.raises(KeyboardInterrupt):
        two_nodes.reserve(plan)
    assert left(two_nodes) == NOTHING


def test_signals_wait_for_the_end_of_a_section() -> None:
    steps = []
    with pytest.raises(KeyboardInterrupt):
        with Uninterrupted():
            with Uninterrupted():
                os.kill(os.getpid(), signal.SIGINT)
                steps.append("inner")
            steps.append("outer")
        steps.append("never")
    assert steps == ["inner", "outer"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
