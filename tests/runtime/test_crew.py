"""The records of a group that changes, without Ray: the places that it uses, what its ranks know, their ports."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType
from typing import Any, cast

import pytest
from rankplan import Component, Inventory, Plan, Transition, Worker, WorkerError, plan, transition
from rankplan.runtime.group import crew as crew_module
from rankplan.runtime.group.crew import Crew, LiveRank, Master, Terms
from rankplan.runtime.group.group import Call, WorkerGroup
from rankplan.runtime.group.restart import answers_of
from rankplan.runtime.group.unfinished import Unfinished
from rankplan.runtime.nodes.nodes import Nodes
from rankplan.runtime.rank.ports import PORTS
from rankplan.runtime.rank.spec import RankSpec
from rankplan.runtime.reserve.groups import NamedGroups
from rankplan.runtime.reserve.reserve import Place, Reservation, Wanted

MACHINE = "a machine of this test"


class Owning:
    """A connection and a reservation of which nothing is asked."""

    is_current, has_launched = True, False

    def own(self, thing: object) -> None: ...
    def disown(self, thing: object) -> None: ...
    def leave(self, group: object) -> None: ...
    def check_open(self) -> None: ...

    def enter(self, component: str, group: object) -> list[object]:
        return []


def nodes_of(*addresses: int) -> Nodes:
    entries = [{"ranks": rank, "ip": f"10.0.0.{at}", "accelerators": 2} for rank, at in enumerate(addresses)]
    return Nodes(tuple(f"id{at}" for at in addresses), Inventory.from_dict({"nodes": entries}))


def on(nodes: Nodes) -> Component:
    """A process on each node."""
    count = nodes.inventory.num_nodes
    entry = {"rollout": ",".join(str(2 * node) for node in range(count))}
    return plan({"cluster": {"num_nodes": count, "component_placement": entry}}, nodes.inventory)["rollout"]


def crew_on(nodes: Nodes) -> Crew:
    """A group that has a rank on each node."""
    owner: Any = Owning()
    crew = Crew(Terms(lambda: nodes, (Worker, (), {}), None, on(nodes), "rollout", None, None), owner, nodes, owner)
    start(crew, nodes)
    crew.settle(list(crew.newcomers), on(nodes), nodes, None)
    return crew


@pytest.fixture(autouse=True)
def _no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crew_module, "_kill", lambda component, ranks: None)


def start(crew: Crew, nodes: Nodes, *ranks: int) -> None:
    """Start these ranks, or all, as newcomers."""
    component = on(nodes)
    crew.announce(list(component), nodes)
    for row in component:
        if not ranks or row.rank in ranks:
            make_actor: Any = object
            crew.add(RankSpec("rollout", row, [], nodes.ids[row.cluster_node_rank]), make_actor)


def test_newcomers_are_on_the_nodes_of_their_own_plan() -> None:
    """A node that has joined since, and one that has another node's rank now: the places tell them by Ray's ids."""
    crew = crew_on(nodes_of(1, 2))
    assert crew.places() == {("id1", 0), ("id2", 0)}
    start(crew, nodes_of(1, 3, 4), 1, 2)
    assert crew.places() == {("id1", 0), ("id2", 0), ("id3", 0), ("id4", 0)}
    crew.dismiss()
    assert crew.places() == {("id1", 0), ("id2", 0)}


@pytest.mark.parametrize("then", ["shrink", "end"])
def test_a_rank_that_starts_again_keeps_its_ports_until_it_leaves(then: str) -> None:
    nodes, machine = nodes_of(1, 2), MACHINE
    crew = crew_on(nodes)

    def replaced() -> list[LiveRank]:
        start(crew, nodes, 1)
        return [crew.ranks[0], *crew.newcomers]

    with PORTS.searching() as search:
        block = PORTS.choice(search, machine, 1)
        crew.hold(search, [(crew.ranks[1], machine, block)])
    for _ in range(2):
        crew.settle(replaced(), on(nodes), nodes, None)
        assert PORTS.taken(machine) == set(block)
    if then == "shrink":
        crew.retire(crew.ranks[1:])
        crew.settle(list(crew.ranks), on(nodes_of(1)), nodes, None)
    else:
        crew.end()
    assert not PORTS.taken(machine)
    crew.end()


def test_what_a_failed_growth_has_added_stays_while_another_group_uses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def granted(self: Reservation) -> None:
        (self._parent or self.connection).own(self)
        self._groups = dict.fromkeys(self._bundles, group)
        self._names = dict.fromkeys(self._bundles, "")

    group, owner, nodes = cast(Any, object()), cast(Any, Owning()), nodes_of(1, 2)
    monkeypatch.setattr(Reservation, "fill", granted)
    monkeypatch.setattr(NamedGroups, "remove", lambda self, name: None)
    first, second = on(nodes)
    held = Reservation(owner, nodes, {"rollout": Wanted([first])})
    held.fill()
    terms = Terms(lambda: nodes, (Worker, (), {}), None, on(nodes), "rollout", None, None)
    one, other = Crew(terms, owner, nodes, held), Crew(terms, owner, nodes, held)
    added: set[Place] = set()
    for crew in (one, other):
        crew.announce([first, second], nodes)
        added |= (lacked := held.extend(nodes, "rollout", Wanted([second])))
        assert lacked == ({("id2", 0)} if crew is one else set())
    for crew, stays in ((one, True), (other, False)):
        crew.dismiss()
        held.vacate(added)
        assert (held.place("id2", 0) is not None) is stays and held.place("id1", 0)
    one.announce([first, second], nodes)
    one.end()
    assert one.places() == set()


class Refreshed:
    """A restart that adds a rank, and a refresh of the environment, each with a beginning and an end."""

    def __init__(self) -> None:
        nodes = nodes_of(1, 2)
        self.crew, self.grown = crew_on(nodes), nodes_of(1, 2, 3)
        self.told: dict[Any, LiveRank] = {}  # what was sent to each actor last
        self.sent: list[LiveRank] = []
        self.kept: list[LiveRank] = []
        with self.meeting() as (master, search):
            self.crew.settle(list(self.crew.ranks), on(nodes), nodes, master, 1, search)

    @contextmanager
    def meeting(self) -> Iterator[tuple[Master, object]]:
        """Yield where newcomers meet, and the search that has the port."""
        with PORTS.searching() as search:
            port, *others = PORTS.choice(search, MACHINE, 1)
            PORTS.give_back(search, MACHINE, others)
            yield Master("10.0.0.1", port, MACHINE), search

    def refresh(self) -> None:
        self.sent, _ = self.crew.renew(self._send)

    def _send(self, ranks: Sequence[LiveRank]) -> None:
        self.told |= {rank.actor: rank for rank in ranks}

    def answered(self) -> None:
        self.crew.renewed(self.sent)

    def restart(self) -> None:
        self.kept = [replace(rank, placement=row) for rank, row in zip(self.crew.ranks, on(self.grown), strict=False)]

    def restarted(self) -> None:
        start(self.crew, self.grown, 2)
        with self.meeting() as (master, search):
            new = [replace(rank, masters=(master,)) for rank in self.crew.newcomers]
            self.crew.settle([*self.kept, *new], on(self.grown), self.grown, master, 2, search)


ORDERS = [
    ("refresh", "answered", "restart", "restarted"),
    ("refresh", "restart", "answered", "restarted"),
    ("refresh", "restart", "restarted", "answered"),
    ("restart", "refresh", "answered", "restarted"),
    ("restart", "refresh", "restarted", "answered"),
    ("restart", "restarted", "refresh", "answered"),
]


@pytest.mark.parametrize("order", ORDERS)
def test_what_ranks_know_and_their_rows_in_any_order_of_a_refresh_and_a_restart(order: tuple[str, ...]) -> None:
    both = Refreshed()
    for step in order:
        getattr(both, step)()
        for rank in both.crew.ranks:  # the record is what was sent, and the ports of what was sent are kept
            known = both.told.get(rank.actor)
            assert known is None or (rank.spec, rank.masters[-1]) == (known.spec, known.masters[-1])
            assert {master.port for master in rank.masters} <= PORTS.taken(MACHINE)
    assert [rank.placement for rank in both.crew.ranks] == list(on(both.grown))
    both.refresh()
    both.answered()
    assert [rank.spec.placement for rank in both.crew.ranks] == list(on(both.grown))
    assert both.crew.master is not None and PORTS.taken(MACHINE) == {both.crew.master.port}
    both.crew.end()
    assert not PORTS.taken(MACHINE)


def test_ranks_that_were_refreshed_before_they_were_to_leave_know_it_if_they_stay() -> None:
    both = Refreshed()
    before = list(both.crew.ranks)
    both.refresh()
    both.crew.retire(before[1:])
    both.crew.dismiss()
    assert [rank.spec for rank in both.crew.ranks] == [both.told[rank.actor].spec for rank in before]
    both.crew.end()


@pytest.mark.parametrize("then", ["removed", "replaced", "ended"])
def test_no_port_is_kept_for_a_rank_that_ends_while_ports_are_searched(then: str) -> None:
    nodes = nodes_of(1, 2)
    crew, words = crew_on(nodes), "a restart has removed or replaced rank 1 meanwhile; call it again"
    with PORTS.searching() as search:
        given = [(rank, MACHINE, PORTS.choice(search, MACHINE, 1)) for rank in crew.ranks]
        if then == "ended":
            crew.end()
            words = "the group was shut down; launch it again"
        elif then == "removed":
            crew.retire(crew.ranks[1:])
            crew.settle(list(crew.ranks), on(nodes_of(1)), nodes, None)
        else:
            start(crew, nodes, 1)
            crew.settle([crew.ranks[0], *crew.newcomers], on(nodes), nodes, None)
        with pytest.raises(WorkerError, match=rf"rollout\.free_ports\(\): {words}"):
            crew.hold(search, given)
    assert not PORTS.taken(MACHINE)
    crew.end()


def test_ranks_are_not_refreshed_while_their_reports_are_compared() -> None:
    """What a rank reports may be older or newer than what it was just sent, unless it has one call at a time."""
    crew = crew_on(nodes_of(1, 2))
    group = WorkerGroup(crew)
    with crew.comparing:
        for compare in (group.verify, group.refresh_environment):
            with pytest.raises(TimeoutError, match=rf"rollout\.{compare.__name__}\(\): another thread has verified or"):
                compare(timeout=0.01)
    crew.end()


def instructions(work: Callable[[], object]) -> int:
    """Count the instructions of Python that this takes."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def test_the_answers_of_ranks_that_leave_are_found_in_linear_time() -> None:
    """Twice the ranks with calls on all of them: twice the work."""

    def cost(count: int) -> int:
        answers: Any = [[object() for _ in range(count)] for _ in range(5)]
        row = next(iter(on(nodes_of(1))))
        make_actor: Any = object
        ranks = [LiveRank(RankSpec("rollout", row, [], "id1"), row, make_actor()) for _ in range(count)]
        calls = [Call("rollout", "run", ranks, one) for one in answers]
        found = answers_of(ranks[count // 2 :])
        expected = [one[index] for index in range(count // 2, count) for one in answers]
        assert len(calls) == 5 and list(map(id, found)) == list(map(id, expected))
        return instructions(lambda: answers_of(ranks[count // 2 :]))

    assert cost(100) > 200 and cost(200) < 2.2 * cost(100)


def moved() -> Transition:
    """Two engines that move to another node: each sends its weights to its successor before it is freed."""

    def engines(placement: str) -> Plan:
        entry = {"placement": placement, "parallel": {"tp": 2}}
        section = {"num_nodes": 2, "component_placement": {"rollout": entry}}
        return plan({"cluster": section}, Inventory.uniform(2, 4))

    return transition(engines("0-3:0-1"), engines("4-7:0-1"))


ARRIVES = ("load", "regroup", "sync", "verify", "route")


@pytest.mark.parametrize(
    ("done", "undone"),
    [
        ((), {("before", 0), ("before", 1), ("after", 0), ("after", 1)}),
        (("load 0", "regroup 0", "sync 0"), {("before", 0), ("before", 1), ("after", 0), ("after", 1)}),
        (("load 0", "regroup 0", "sync 0", "verify 0", "route 0"), {("before", 0), ("before", 1), ("after", 1)}),
        (("load 0", "regroup 0", "sync 0", "stop-routing 0", "drain 0", "free 0"), {("before", 1), ("after", 1)}),
        (("stop-routing 0", "drain 0"), {("before", 0), ("before", 1), ("after", 0), ("after", 1)}),
        (tuple(f"{do} {at}" for at in (0, 1) for do in ARRIVES), {("before", 0), ("before", 1)}),
    ],
)
def test_what_a_transition_that_stops_can_undo(done: tuple[str, ...], undone: set[tuple[str, int]]) -> None:
    """What has arrived stays, and so does what has got the last copy of a state."""
    ids = [text.replace(" ", " rollout/") for text in done]
    found = Unfinished(moved(), {}, ids)
    assert {key[1:] for key in found._undone} == undone
    assert found._done <= set(ids)
    kept = {step.id for step in moved().steps if (step.side, step.instance) not in undone}
    assert found._done == set(ids) & kept
