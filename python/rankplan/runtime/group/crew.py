"""The ranks of a component, from their first process on, and the ports that they were given."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

import ray

from rankplan._core import Placement, RankSet
from rankplan.errors import LaunchError, WorkerError
from rankplan.frozen import frozen
from rankplan.plans.component import Component, Visibility
from rankplan.runtime.group import faults
from rankplan.runtime.nodes.nodes import Nodes, live_nodes
from rankplan.runtime.rank.ports import PORTS
from rankplan.runtime.rank.spec import RankSpec
from rankplan.runtime.ray import timeouts
from rankplan.runtime.ray.answers import Fault, is_fault, outcomes, ranks_text, wait_for
from rankplan.runtime.ray.asking import HeadSilent, answers_within
from rankplan.runtime.ray.connection import Connection, using_session
from rankplan.runtime.ray.internals import actor_id, dead_actors, lost_connection
from rankplan.runtime.ray.signals import Uninterrupted
from rankplan.runtime.reserve.notices import Notice, Overlap, overlap_lines
from rankplan.runtime.reserve.reserve import Place, Reservation, places
from rankplan.words import nodes_text

if TYPE_CHECKING:
    from ray.actor import ActorHandle


_logger = logging.getLogger("rankplan")

_Sent = TypeVar("_Sent")

Answer: TypeAlias = "ray.ObjectRef[Any]"  # older versions of Ray cannot subscript it


@frozen
class Master:
    """The address and the port at which ranks meet, and the machine that has the port."""

    address: str
    port: int
    machine: str


@frozen
class Home:
    """The component, and the nodes in the order of its plan, that the row of a rank is of."""

    component: Component
    nodes: Nodes


@frozen
class LiveRank:
    """A rank that was started: its spec, its row in the plan that the group runs, its actor, and its pid once up.

    ``masters`` are those that its environment may have, the latest one last. ``ports`` are the blocks that it was
    given, with their machine, and ``calls`` those that the program still refers to, with its answers. Copies share
    these two. ``home`` is what the row is of, if it is not the plan that the group runs: during a transition.
    """

    spec: RankSpec
    placement: Placement
    actor: ActorHandle[Any]
    pid: int | None = None
    masters: tuple[Master, ...] = ()
    ports: list[tuple[str, range]] = field(default_factory=list, compare=False)
    calls: WeakKeyDictionary[object, Answer] = field(default_factory=WeakKeyDictionary, compare=False)
    home: Home | None = None

    @property
    def number(self) -> int:
        """Its process rank."""
        return self.placement.rank


@dataclass(slots=True)
class Terms:
    """The arguments of a launch, which a restart needs again.

    ``nodes`` returns the nodes of the cluster as they are now. ``worker`` is a class with its arguments. ``component``
    is on the nodes and named like the group, ``planned`` is its name in the plan, and ``visibility`` and ``prove``
    override the plan.
    """

    nodes: Callable[[], Nodes]
    worker: tuple[type, tuple[Any, ...], Mapping[str, Any]]
    max_concurrency: int | None
    component: Component
    planned: str
    visibility: Visibility | None
    prove: str | None


class Crew:
    """The ranks of a component in rank order; ended by its reservation or its connection, if not before.

    It is owned before its first rank starts, so that closing the cluster at any moment leaves no rank behind. Ranks
    are ``newcomers`` until all of them are verified, and ``leaving`` while they finish their calls before they end.
    ``nodes`` are in the order of its plan, and ``master`` is where the latest newcomers meet.
    """

    def __init__(self, terms: Terms, connection: Connection, nodes: Nodes, reservation: Reservation | None) -> None:
        self.terms, self.component = terms, terms.component.name
        self.connection, self.nodes, self.reservation = connection, nodes, reservation
        self.ranks: list[LiveRank] = []
        self.newcomers: list[LiveRank] = []
        self.leaving: list[LiveRank] = []
        self.master: Master | None = None
        self.restarts = 0
        self.restarting = threading.Lock()
        self.comparing = threading.Lock()  # while reports of ranks are on the way: what they know must not change
        self.ended = False
        self._announced: tuple[Sequence[Placement], Nodes] = [], nodes
        self._owner = reservation or connection
        self._notices: list[Notice] = []
        self._sending: set[object] = set()
        self._lock = threading.Lock()
        self._owner.own(self)
        connection.has_launched = True

    def __str__(self) -> str:
        rows = [rank.placement for rank in self.ranks]
        if not rows:
            return f"{self.component}, which is being launched"
        nodes = nodes_text(RankSet({row.cluster_node_rank for row in rows}))
        return f"{self.component} with {ranks_text({row.rank for row in rows})} on {nodes}"

    def announce(self, rows: Sequence[Placement], nodes: Nodes) -> None:
        """Record the accelerators of these ranks, and warn of other jobs and of another group that overlap.

        Until they run, or are dismissed, their places count as used.
        """
        overlaps: list[Overlap] = []
        with self._lock:
            self.check_open()
            self._announced = rows, nodes
            namesakes = [] if self.ranks else self.connection.enter(self.component, self)
            if self.reservation is None:  # a reservation has its own record, and has refused other jobs
                notice = Notice(self.connection, nodes, {self.component: rows})
                self._notices.append(notice)
                notice.post()
                overlaps = notice.overlaps()
        for other in namesakes:
            _logger.warning(
                "%s: this program already runs a group of this name: %s; shut that down first, or pass another name to "
                "launch(name=...)",
                self.component,
                other,
            )
        for overlap in overlap_lines(overlaps):
            _logger.warning(
                "%s: another job uses the same accelerators: %s; end it, use other accelerators, or pass reserve=True "
                "(rankplan run --reserve) to make this an error",
                self.component,
                overlap,
            )

    @property
    def is_running(self) -> bool:
        """Whether its ranks can be called: it has not ended, and this program still has its connection to Ray."""
        return not self.ended and self.connection.is_current

    def check_open(self) -> None:
        """Raise ``LaunchError`` if the cluster was closed or the reservation was released."""
        self._owner.check_open()

    def add(self, spec: RankSpec, create: Callable[[], ActorHandle[Any]]) -> LiveRank:
        """Create the actor of a rank, and return the rank; raises ``LaunchError`` if the crew has ended."""
        with Uninterrupted(), self._lock:
            if not self.ended:
                self.newcomers.append(LiveRank(spec, spec.placement, create()))
                return self.newcomers[-1]
        self.check_open()
        raise self._shut_down()

    @contextmanager
    def sending(self) -> Iterator[list[LiveRank]]:
        """Yield the ranks, to send them something; `retire` waits until that is done."""
        token = object()
        try:
            self._sending.add(token)  # before the ranks are read
            yield list(self.ranks)
        finally:
            self._sending.discard(token)

    def retire(self, ranks: Sequence[LiveRank]) -> None:
        """Send no more calls to these ranks; return when those on the way to them have been sent."""
        with Uninterrupted(), self._lock:
            actors = {rank.actor for rank in ranks}
            self.leaving += [rank for rank in self.ranks if rank.actor in actors]
            self.ranks[:] = [rank for rank in self.ranks if rank.actor not in actors]
        before = set(self._sending)
        while not before.isdisjoint(self._sending):
            time.sleep(timeouts.SENDING)

    def settle(
        self,
        ranks: Sequence[LiveRank],
        component: Component,
        nodes: Nodes,
        master: Master | None,
        restarts: int = 0,
        search: object = None,
    ) -> None:
        """Make these the ranks, and end those they replace; take over the ports of a search, if there was one.

        Of a rank that stays, only the row changes: what it knows may have changed since its record was read. Ranks
        that leave return their ports; those that start again keep them. Raises ``LaunchError`` if the crew has ended.
        """
        with Uninterrupted(), self._lock:
            if not self.ended:
                self._become(ranks, component, nodes, master, restarts, search)
                return
        self.check_open()
        raise self._shut_down()

    def _become(
        self,
        ranks: Sequence[LiveRank],
        component: Component,
        nodes: Nodes,
        master: Master | None,
        restarts: int,
        search: object,
    ) -> None:
        """Do what `settle` says, with the lock."""
        before = [*self.ranks, *self.leaving]
        masters_before = self._masters()
        records = {rank.actor: rank for rank in before}
        actors = {rank.actor for rank in ranks}
        replaced = [rank for rank in [*before, *self.newcomers] if rank.actor not in actors]
        self.ranks[:] = [replace(records.get(rank.actor, rank), placement=rank.placement, home=None) for rank in ranks]
        self.terms.component = component
        self.nodes = nodes
        self.master = master
        self.restarts = restarts
        self.newcomers = []
        self.leaving = []
        self._announced = [], nodes
        PORTS.move(search, self)
        self._return_masters(masters_before)
        outdated, self._notices = self._notices[:-1], self._notices[-1:]
        if self.connection.is_current:
            _kill(self.component, replaced)
        self._pass_ports(replaced, {rank.placement.rank: rank for rank in ranks})
        for notice in outdated:
            notice.withdraw()

    def _pass_ports(self, replaced: Iterable[LiveRank], heirs: Mapping[int, LiveRank]) -> None:
        """Give the ports of ranks to those that start again in their place, by process rank; return the others."""
        for rank in replaced:
            heir = heirs.get(rank.placement.rank)
            if heir is None:
                self._return_ports(rank)
            else:
                heir.ports.extend(rank.ports)

    def _masters(self) -> set[Master]:
        """Return those that a rank knows, or is to know."""
        of_ranks = {master for rank in [*self.ranks, *self.leaving, *self.newcomers] for master in rank.masters}
        return of_ranks if self.master is None else {self.master, *of_ranks}

    def _return_masters(self, before: set[Master]) -> None:
        """Return the ports of those that ranks knew before, and none knows any more."""
        for master in before - self._masters():
            PORTS.give_back(self, master.machine, [master.port])

    def _return_ports(self, rank: LiveRank) -> None:
        """Return the ports that a rank was given."""
        for machine, block in rank.ports:
            PORTS.give_back(self, machine, block)

    def home_of(self, rank: LiveRank) -> Home:
        """Return what the row of a rank is of."""
        return rank.home or Home(self.terms.component, self.nodes)

    def places_of(self, ranks: Iterable[LiveRank]) -> set[Place]:
        """Return the places that these ranks use."""
        return {place for rank in ranks for place in places([rank.placement], self.home_of(rank).nodes)}

    def places(self) -> set[Place]:
        """Return the places that its ranks use, and those that are about to start; none after its end."""
        with self._lock:
            if self.ended:
                return set()
            arrived = [rank for rank in self.newcomers if rank.home is not None]
            return self.places_of([*self.ranks, *self.leaving, *arrived]) | places(*self._announced)

    def _shut_down(self) -> LaunchError:
        return LaunchError(f"{self.component}: the group was shut down meanwhile", self.component)

    def renew(self, send: Callable[[Sequence[LiveRank]], _Sent]) -> tuple[list[LiveRank], _Sent]:
        """Let the ranks know their rows of the plan and the latest master; return them, and what ``send`` returns.

        Ranks also keep the masters that they knew before, until they are `renewed`. Raises ``LaunchError`` if the crew
        has ended.
        """
        with Uninterrupted(), self._lock:
            if self.ended:
                raise self._shut_down()
            latest = () if self.master is None else (self.master,)
            for index, rank in enumerate(self.ranks):
                spec = spec_at(rank, self.home_of(rank).component)
                earlier = tuple(master for master in rank.masters if master not in latest)
                self.ranks[index] = replace(rank, spec=spec, masters=earlier + latest)
            return list(self.ranks), send(self.ranks)

    def renewed(self, ranks: Sequence[LiveRank]) -> None:
        """Forget the masters that these ranks knew before those that they have been sent."""
        with self._lock:
            latest, before = {rank.actor: rank.masters[-1:] for rank in ranks}, self._masters()
            for present in (self.ranks, self.leaving):
                for index, rank in enumerate(present):
                    if (sent := latest.get(rank.actor)) and sent[0] in rank.masters:
                        masters = rank.masters[rank.masters.index(sent[0]) :]
                        present[index] = replace(rank, masters=masters)
            self._return_masters(before)

    def arrive(self, up: Sequence[LiveRank], search: object) -> None:
        """Take note that these newcomers are up, and take over the ports of the search; they get no calls yet."""
        with Uninterrupted(), self._lock:
            if not self.ended:
                running = {rank.actor: rank for rank in up}
                self.newcomers = [running.get(rank.actor, rank) for rank in self.newcomers]
                PORTS.move(search, self)
                return
        self.check_open()
        raise self._shut_down()

    def admit(self, ranks: Sequence[LiveRank], search: object = None) -> None:
        """Send calls to these newcomers from now on, or give ranks their new rows; take over the ports of a search.

        Raises ``LaunchError`` if the crew has ended.
        """
        with Uninterrupted(), self._lock:
            if self.ended:
                raise self._shut_down()
            before, admitted = self._masters(), {rank.actor for rank in ranks}
            others = [rank for rank in self.ranks if rank.actor not in admitted]
            self.newcomers = [rank for rank in self.newcomers if rank.actor not in admitted]
            self.ranks[:] = sorted([*others, *ranks], key=lambda rank: rank.number)
            if search is not None:
                PORTS.move(search, self)
            self._return_masters(before)

    def remove(self, ranks: Sequence[LiveRank]) -> None:
        """End these ranks, which get no more calls, and return their ports."""
        with Uninterrupted(), self._lock:
            if self.ended:
                return
            before, removed = self._masters(), {rank.actor for rank in ranks}
            self.leaving = [rank for rank in self.leaving if rank.actor not in removed]
            if self.connection.is_current:
                _kill(self.component, ranks)
            for rank in ranks:
                self._return_ports(rank)
            self._return_masters(before)

    def dismiss(self, keep: Collection[ActorHandle[Any]] = ()) -> None:
        """End the newcomers, and withdraw their notice; the ranks stay, also those that were leaving.

        Newcomers and leaving ranks with one of the actors ``keep`` stay as they are, without calls.
        """
        with Uninterrupted(), self._lock:
            if self.ended:
                return
            masters = self._masters()
            back = [rank for rank in self.leaving if rank.actor not in keep]
            self.ranks[:] = sorted([*self.ranks, *back], key=lambda rank: rank.number)
            self.leaving = [rank for rank in self.leaving if rank.actor in keep]
            gone = [rank for rank in self.newcomers if rank.actor not in keep]
            self.newcomers = [rank for rank in self.newcomers if rank.actor in keep]
            if self.connection.is_current:
                _kill(self.component, gone)
            self._announced = [], self.nodes
            self._return_masters(masters)
            if any(rank.home is not None for rank in [*self.ranks, *self.leaving, *self.newcomers]):
                return  # some have the places of the new notice
            while len(self._notices) > 1:
                self._notices.pop().withdraw()

    def end(self) -> None:
        """Kill the ranks and return their ports; returns when all ranks are dead, or warns of those that may not be."""
        with Uninterrupted():
            with self._lock:
                if self.ended:
                    return
                self.ended = True
                self.connection.leave(self)
                if self.connection.is_current:
                    _kill(self.component, [*self.ranks, *self.newcomers, *self.leaving])
                PORTS.give_back_all(self)
                for notice in self._notices:
                    notice.withdraw()
            self._owner.disown(self)

    def hold(self, search: object, given: Sequence[tuple[LiveRank, str, range]]) -> None:
        """Take over the ports of a search, given to ranks on machines, until the rank is removed or the crew ends.

        Raises ``WorkerError``, and leaves all to the search, if one of these ranks has ended since.
        """
        with Uninterrupted(), self._lock:
            self.check_present("free_ports", [rank for rank, _, _ in given], [*self.ranks, *self.leaving])
            PORTS.move(search, self)
            for rank, machine, block in given:
                rank.ports.append((machine, block))

    def drop(self, given: Iterable[tuple[LiveRank, str, range]]) -> None:
        """Return those of these ports that `hold` has taken over."""
        with Uninterrupted(), self._lock:
            for rank, machine, block in given:
                if (machine, block) in rank.ports:
                    rank.ports.remove((machine, block))
                    PORTS.give_back(self, machine, block)

    def located(self) -> list[tuple[LiveRank, str]]:
        """Return the ranks, each with the machine that it runs on."""
        with self._lock:
            return [(rank, self.home_of(rank).nodes.machine(rank.placement.cluster_node_rank)) for rank in self.ranks]

    def check_present(self, method: str, ranks: Iterable[LiveRank], present: Iterable[LiveRank]) -> None:
        """Raise ``WorkerError`` if the crew has ended, or some of these ranks are not present any more."""
        where = f"{self.component}.{method}()"
        if not self.is_running:
            raise WorkerError(f"{where}: the group was shut down; launch it again", self.component)
        actors = {rank.actor for rank in present}
        if gone := [rank.placement.rank for rank in ranks if rank.actor not in actors]:
            text = f"{where}: a restart has removed or replaced {ranks_text(gone)} meanwhile; call it again"
            raise WorkerError(text, self.component)


def spec_at(rank: LiveRank, component: Component) -> RankSpec:
    """Return the spec of a rank in its row of a component."""
    return replace(rank.spec, placement=rank.placement, coordinates=component.coordinates(rank.number))


def _kill(component: str, ranks: Sequence[LiveRank]) -> None:
    """Kill these ranks, wait until they are dead, and warn of those that may not be.

    The head kills them. Without it, each is asked to end itself, which it does once it is in no call.
    """
    for rank in ranks:
        ray.kill(rank.actor)
    left = _outliving(ranks, timeouts.KILL, by_head=True)
    if not left:
        return
    lost = lost_connection(timeouts.REMOVE)
    if lost is not None:
        for rank in left:
            rank.actor.leave.remote()
        left = _outliving(left, timeouts.LEAVE, by_head=False)
    if left:
        rows = [rank.placement for rank in left]
        _logger.warning("%s", faults.may_run(component, rows, lost, timeouts.ORPHAN))


def _outliving(ranks: Sequence[LiveRank], seconds: float, *, by_head: bool) -> list[LiveRank]:
    """Wait until these ranks are dead; return those that are not known to be. A rank that answers is alive.

    ``by_head``: the head has to kill them, so the wait is over once it does not answer.
    """
    questions: dict[Answer, LiveRank] = {rank.actor.is_alive.remote(): rank for rank in ranks}
    deadline = time.monotonic() + seconds
    while questions and (left := deadline - time.monotonic()) > 0:
        for answer in wait_for(list(questions), min(timeouts.TICK, left)):
            rank = questions.pop(answer)
            if not is_fault(answer):
                questions[rank.actor.is_alive.remote()] = rank
        if questions:
            if by_head and lost_connection(timeouts.REMOVE) is not None:
                break
            time.sleep(timeouts.KILL_POLL)
    return list(questions.values())


@frozen
class Failure:
    """Ranks of a group that are dead.

    ``ranks`` are their process ranks and ``nodes`` the node ranks that they ran on, of the plan that the group runs.
    ``dead_nodes`` are the ones among these nodes that have left the cluster; on the others, only processes have died.
    ``reason`` is why the first of the ranks is gone.
    """

    component: str
    ranks: RankSet
    nodes: RankSet
    dead_nodes: RankSet
    reason: str

    def __str__(self) -> str:
        verb = "is" if len(self.ranks) == 1 else "are"
        where = f"({nodes_text(self.nodes)})"
        return f"{self.component} {ranks_text(self.ranks)} {where} {verb} gone: {self.reason}"


def dead_ranks(ranks: Sequence[LiveRank]) -> list[LiveRank]:
    """Return the ranks that are dead, or on a node that has left the cluster."""
    dead, present = dead_actors(), live_nodes()
    return [rank for rank in ranks if actor_id(rank.actor) in dead or rank.spec.node_id not in present]


def wait_for_failure(crew: Crew, timeout: float | None, known: set[str]) -> Failure | None:
    """Return which ranks are dead as soon as some are; ``None`` after ``timeout`` seconds.

    ``known`` are the actors that do not count; those found are added. Raises ``WorkerError`` if the group ends, and if
    the head has not answered at the end of that time.
    """
    deadline = math.inf if timeout is None else time.monotonic() + timeout
    while True:
        try:
            with using_session(), answers_within(None if timeout is None else deadline - time.monotonic()):
                if (failure := _new_failure(crew, known)) is not None:
                    return failure
        except HeadSilent as silent:
            if time.monotonic() >= deadline:
                raise WorkerError(f"{crew.component}: {silent}", crew.component) from None
        left = deadline - time.monotonic()
        if left <= 0:
            return None
        time.sleep(min(timeouts.WATCH, left))


def _new_failure(crew: Crew, known: set[str]) -> Failure | None:
    """Return which ranks have died that are not ``known``, if any, and add them."""
    _check_running(crew)
    dead = [rank for rank in dead_ranks(list(crew.ranks)) if actor_id(rank.actor) not in known]
    if not dead:
        return None
    _check_running(crew)  # its end kills its ranks
    failure = _failure(crew.component, dead)
    known.update(actor_id(rank.actor) for rank in dead)
    return failure


def watch(crew: Crew, on_failure: Callable[[Failure], object]) -> None:
    """Call a function in a thread of its own whenever ranks have died, until the group ends."""

    def run() -> None:
        known: set[str] = set()
        while True:
            try:
                failure = wait_for_failure(crew, None, known)
            except WorkerError:
                return
            except Exception as error:
                _logger.warning("%s: no failure will be reported any more: %s", crew.component, error)
                return
            try:
                if failure is not None:
                    on_failure(failure)
            except Exception:
                if not crew.ended:
                    _logger.exception("%s: on_failure has failed", crew.component)

    threading.Thread(target=run, name=f"rankplan-watch-{crew.component}", daemon=True).start()


def _check_running(crew: Crew) -> None:
    if not crew.is_running:
        raise WorkerError(f"{crew.component}: the group was shut down; launch it again", crew.component)


def _failure(component: str, dead: Sequence[LiveRank]) -> Failure:
    present = live_nodes()
    (word,) = outcomes([dead[0].actor.look.remote()], timeouts.ANSWER)
    rows = [rank.placement for rank in dead]
    gone = {rank.placement.cluster_node_rank for rank in dead if rank.spec.node_id not in present}
    reason = word.reason if isinstance(word, Fault) else "its node has left the cluster"
    return Failure(
        component,
        RankSet(row.rank for row in rows),
        RankSet(row.cluster_node_rank for row in rows),
        RankSet(gone),
        reason.removeprefix("gave no answer, ").removeprefix("its process is gone: "),
    )
