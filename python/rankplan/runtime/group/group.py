"""Running groups: the ranks of a launched component, and calls on them."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from rankplan._core import Placement
from rankplan.errors import LaunchError, WorkerError
from rankplan.plans.component import Component
from rankplan.plans.plan import Plan
from rankplan.runtime.group.crew import Answer, Crew, Failure, LiveRank, wait_for_failure
from rankplan.runtime.group.launch import verified
from rankplan.runtime.group.restart import renewals, restart
from rankplan.runtime.rank.host import OfRank
from rankplan.runtime.rank.memory import MemoryUse
from rankplan.runtime.rank.ports import PORTS
from rankplan.runtime.rank.spec import RankReport
from rankplan.runtime.rank.timing import Timing, timer
from rankplan.runtime.ray.answers import (
    Failed,
    Unanswered,
    as_timeout,
    as_wait,
    collect,
    collect_async,
    done_in,
    ranks_text,
)
from rankplan.runtime.ray.connection import current_session, using_session
from rankplan.runtime.ray.internals import sending_fault
from rankplan.runtime.ray.signals import holding
from rankplan.words import as_int, shown

if TYPE_CHECKING:
    from typing_extensions import Self

_tickets = itertools.count()


class Call:
    """A call that was sent to some ranks of a group; ``wait`` returns the answers.

    The ranks know the call by its ``ticket``, if they measure it.
    """

    def __init__(
        self, component: str, method: str, ranks: Sequence[LiveRank], answers: Sequence[Answer], ticket: int = -1
    ) -> None:
        self._component = component
        self._method = method
        self._ranks = ranks
        self._answers = answers
        self._ticket = ticket
        self._session = current_session()
        for rank, answer in zip(ranks, answers, strict=True):
            rank.calls[self] = answer

    def __repr__(self) -> str:
        state = "running"
        if self._session != current_session():
            state = "closed"
        elif self.done():
            state = "done"
        return f"<{self._component}.{self._method}() on {len(self._answers)} ranks, {state}>"

    def done(self) -> bool:
        """Whether every rank has answered or failed. Raises ``WorkerError`` if the cluster was closed."""
        with using_session():
            self._check_open()
            return len(done_in(self._answers)) == len(self._answers)

    def wait(self, timeout: float | None = None) -> list[Any]:
        """Return the answers, in the order of the ranks; may be called again.

        Raises ``WorkerError`` as soon as one rank has failed or died (the others continue), or if the cluster was
        closed; ``TimeoutError`` if some ranks have not answered after ``timeout`` seconds (the call continues; 0 only
        checks); ``ValueError`` for an invalid timeout.
        """
        with using_session(), self._explained(timeout) as seconds:
            return collect(self._answers, seconds)

    async def async_wait(self, timeout: float | None = None) -> list[Any]:
        """Return the same as `wait`, while other coroutines of the event loop run. Raises the same errors."""
        with self._explained(timeout) as seconds:
            return await collect_async(self._answers, seconds, self._check_open)

    def durations(self, timeout: float | None = None) -> dict[str, list[float]]:
        """Wait for the call, and return how long its timed functions took: seconds per rank, by name.

        A function is timed if it has the decorator `Worker.timer`. Several runs in one call are added up; 0.0 for a
        rank that did not run it. Ranks remember the durations of their latest 1,000 calls. Raises like `wait`.
        """
        self.wait(timeout)
        with using_session(), self._explained(timeout) as seconds:
            of_ranks = collect([rank.actor.durations.remote(self._ticket) for rank in self._ranks], seconds)
        names = dict.fromkeys(itertools.chain.from_iterable(of_ranks))
        return {name: [durations.get(name, 0.0) for durations in of_ranks] for name in names}

    @contextmanager
    def _explained(self, timeout: float | None) -> Iterator[float | None]:
        """Raise the errors of `wait`: for an invalid timeout, a closed cluster, and missing or failed answers."""
        seconds = as_wait(timeout)
        self._check_open()
        try:
            yield seconds
        except Unanswered as unanswered:
            late = [self._ranks[index].placement.rank for index in unanswered.pending]
            raise TimeoutError(
                f"{self._component}.{self._method}(): {len(late)} of {len(self._answers)} ranks have not answered "
                f"after {timeout:g} s: {ranks_text(late)}"
            ) from None
        except Failed as failed:
            row, fault, also = failed.culprit([rank.placement for rank in self._ranks])
            node, what = row.cluster_node_rank, f"{self._method}() {fault.reason}{also}"
            message = f"{self._component} rank {row.rank} (node {node}): {what}"
            error = WorkerError(message, self._component, row.rank, node, fault.remote_traceback)
            raise fault.noted(error) from fault.cause

    def _check_open(self) -> None:
        if self._session != current_session():
            where = f"{self._component}.{self._method}()"
            raise WorkerError(f"{where}: the cluster was closed before the answers were fetched", self._component)


class RankSelection:
    """Some ranks of a component. Every method of the worker class can be called on it and returns a ``Call``."""

    def __init__(self, crew: Crew, ranks: Sequence[int] | None = None) -> None:
        self._crew, self._worker_class, self._selected = crew, crew.terms.worker[0], ranks

    def _some(self, all_ranks: Sequence[LiveRank]) -> Sequence[LiveRank]:
        """Return the selected ones of all ranks that run now: a restart replaces some."""
        ranks = all_ranks if self._crew.is_running else []
        if self._selected is None:
            return ranks
        by_number = {rank.number: rank for rank in ranks}
        return [by_number[number] for number in self._selected if number in by_number]

    @property
    def _ranks(self) -> Sequence[LiveRank]:
        return self._some(list(self._crew.ranks))

    def __repr__(self) -> str:
        ranks = [rank.placement.rank for rank in self._ranks]
        state = f"on {ranks_text(ranks)}" if ranks else "shut down"
        return f"<{self._crew.component}: {self._worker_class.__name__} {state}>"

    def __getattribute__(self, name: str) -> Any:
        """Return a name of the group before a method of the worker; the other way round for RLinf's workers."""
        own = super().__getattribute__
        if not name.startswith("_") and own("_worker_class")._hides_group and is_method(own("_worker_class"), name):
            return partial(own("_send"), name)
        return own(name)

    def __getattr__(self, name: str) -> Callable[..., Call]:
        # pickle, copy and notebooks look up private names, some before __init__ has run
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return partial(self._send, self._method(name))

    def call(self, method: str, /, *args: Any, **kwargs: Any) -> Call:
        """Run the method of the worker that has this name. Raises ``AttributeError`` if there is none."""
        return self._send(self._method(method), *args, **kwargs)

    def _method(self, name: str) -> str:
        """Return the name of a method of the worker; raises ``AttributeError`` for any other name."""
        if isinstance(name, str) and is_method(self._worker_class, name):
            return name
        known = methods(self._worker_class)
        close = difflib.get_close_matches(str(name), known, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"its methods are {', '.join(known)}"
        raise AttributeError(f"{self._worker_class.__name__} has no method {name!r}; {hint}")

    def _send(self, method: str, /, *args: Any, **kwargs: Any) -> Call:
        ticket = next(_tickets)
        with using_session(), self._sending(method) as ranks:
            try:
                answers = [rank.actor.call.remote(ticket, method, *args, **kwargs) for rank in ranks]
            except TypeError as error:
                call, why = f"{self._crew.component}.{method}()", sending_fault(error)
                raise TypeError(f"{call}: an argument cannot be sent to the ranks: {why}") from error
            return Call(self._crew.component, method, ranks, answers, ticket)

    def _asked(self, task: str, doing: str, timeout: float | None) -> tuple[Sequence[LiveRank], list[Any]]:
        """Run a task of the host in every rank; return the ranks and their answers."""
        with using_session(), self._sending(doing) as ranks:
            call = Call(self._crew.component, doing, ranks, [getattr(rank.actor, task).remote() for rank in ranks])
        return ranks, call.wait(timeout)

    @contextmanager
    def _sending(self, method: str) -> Iterator[Sequence[LiveRank]]:
        """Yield the ranks, to send them a call; none of them is removed before it has finished that call."""
        with self._crew.sending() as all_ranks:
            yield self._running(method, all_ranks)

    def _running(self, method: str, all_ranks: Sequence[LiveRank] | None = None) -> Sequence[LiveRank]:
        component = self._crew.component
        ranks = self._ranks if all_ranks is None else self._some(all_ranks)
        if not self._crew.is_running:
            raise WorkerError(f"{component}.{method}(): the group was shut down; launch it again", component)
        if self._selected is not None and len(ranks) < len(self._selected):
            gone = ranks_text(set(self._selected) - {rank.placement.rank for rank in ranks})
            raise WorkerError(f"{component}.{method}(): a restart has removed {gone}; select other ranks", component)
        return ranks


class WorkerGroup(RankSelection):
    """The ranks of a launched component. A method called on it runs in every rank::

        values = group.method(1, key=2).wait()       # one value per rank, in rank order
        group.execute_on(0, 3).method()              # on some ranks only

        group.call("method", 1, key=2)               # by its name

    ``shutdown()``, leaving ``with``, releasing its reservation or closing the cluster ends the ranks.
    """

    @property
    def component(self) -> str:
        """The name of the component."""
        return self._crew.component

    @property
    def world_size(self) -> int:
        """The number of ranks; 0 after the shutdown."""
        return len(self._ranks)

    @property
    def placements(self) -> list[Placement]:
        """The rows of the plan for these ranks, in rank order."""
        return [rank.placement for rank in self._ranks]

    def execute_on(self, *ranks: int) -> RankSelection:
        """Return some ranks, to call methods on; answers come in the order given here.

        Raises ``ValueError`` for an unknown or repeated rank, and ``WorkerError`` after the shutdown.
        """
        running = self._running("execute_on")
        numbers = {rank.number for rank in running}
        unknown = [rank for rank in ranks if as_int(rank) not in numbers]
        if unknown or not ranks or len(set(ranks)) < len(ranks):
            given = ", ".join(map(shown, ranks)) or "none"
            raise ValueError(
                f"{self._crew.component} has {ranks_text(numbers)}; pass some of them to execute_on(), "
                f"each once, not {given}"
            )
        return RankSelection(self._crew, ranks)

    def verify(self, timeout: float | None = None) -> list[RankReport]:
        """Ask every rank where it is and what it sees, and return the reports in rank order.

        A rank answers once the calls it received before are done, or at once if its class has ``async`` methods. Raises
        ``LaunchError`` if anything differs from the plan, ``WorkerError`` if a rank is dead, ``TimeoutError`` after
        ``timeout`` seconds.
        """
        return self._comparing("verify", timeout, self._verified)

    def _verified(self, timeout: float | None) -> list[RankReport]:
        return verified(self._crew.component, *self._asked("look", "verify", timeout))

    def restart(self, plan: Plan | Component | None = None, timeout: float | None = None) -> list[RankReport]:
        """Start the ranks that are dead, new, or that another plan changes, and return their reports.

        A plan changes a rank that has another place, or other sizes or coordinates of its parallel groups.

        ``plan`` is a new plan, or its component for this group: ``replan(plan, cluster.refresh()).plan["rollout"]``.
        Without one, dead ranks start again at their places. The other ranks continue their calls, in their processes.
        Every rank that starts gets ``MASTER_ADDR``, a new ``MASTER_PORT`` and the number of restarts as
        ``RANKPLAN_RESTART``; `refresh_environment` gives these to the others, with the new ``WORLD_SIZE``.

        A plan with more ranks adds the last ones. One with fewer removes the last ones: they get no new calls, finish
        those that they have received, and end. While other ranks are dead they end at once, as their calls may wait for
        these. With another number of ranks, the others must stay where they are, unless they are dead or the plan marks
        their hardware as lost.

        All or nothing, as in a launch: raises ``LaunchError``, and leaves the group as it was, if a rank does not come
        up within ``timeout`` seconds (default: that of `GroupSpec.launch`) or differs from the plan, or if a rank that
        leaves does not finish its calls within ``timeout`` seconds (default: 300). A rank that is alive but moves ends
        only once its successor is verified. A group with a reservation also reserves the new places. With
        ``reserve=True``, a node is returned to Ray once removed ranks have left all its places; with
        ``Cluster.reserve``, only a node that a restart has added. Everything else stays reserved until the reservation
        is released. Raises ``PlacementError`` if the component does not fit the cluster, ``ValueError`` for the
        component of another group and a change of size that moves others, ``WorkerError`` after the shutdown.
        """
        self._running("restart")
        return restart(self._crew, plan, None if timeout is None else as_timeout(timeout))

    def refresh_environment(self, timeout: float | None = None) -> list[RankReport]:
        """Send all ranks the changes of restarts, and return their reports.

        Each rank gets the same ``MASTER_ADDR``, ``MASTER_PORT`` and ``RANKPLAN_RESTART`` in its environment, and its
        row of the new plan. A rank answers once the calls it received before are done, or at once if its class has
        ``async`` methods. Raises like `verify`.
        """
        return self._comparing("refresh_environment", timeout, self._refreshed)

    def _refreshed(self, timeout: float | None) -> list[RankReport]:
        with using_session(), self._sending("refresh_environment"):
            ranks, answers = renewals(self._crew)
            call = Call(self.component, "refresh_environment", ranks, answers)
        reports = verified(self.component, ranks, call.wait(timeout))
        self._crew.renewed(ranks)
        return reports

    def _comparing(
        self, doing: str, timeout: float | None, compare: Callable[[float | None], list[RankReport]]
    ) -> list[RankReport]:
        """Compare reports of the ranks once no other thread does, in the seconds that are left then."""
        seconds = as_wait(timeout)
        why = "another thread has verified or refreshed the ranks all this time"
        late = "" if seconds is None else f"{self.component}.{doing}(): {why} ({seconds:g} s)"
        return holding(self._crew.comparing, seconds, late, compare)

    def wait_for_failure(self, timeout: float | None = None) -> Failure | None:
        """Wait until a rank or its node has died, and return which; ``None`` after ``timeout`` seconds.

        No call needs to be in flight. A dead process is noticed within a second; a node once Ray knows of it: at once
        if its raylet ends in order, else after 15 s with Ray's default settings. Returns at once while ranks are dead.
        Raises ``WorkerError`` if the group is shut down meanwhile, or the head does not answer when the time is over,
        and ``ValueError`` for an invalid timeout.
        """
        self._running("wait_for_failure")
        return wait_for_failure(self._crew, as_wait(timeout), set())

    def timings(self, timeout: float | None = None) -> list[Timing]:
        """Return how long the finished calls took on each rank, by rank and then in the order in which they ended.

        The times are wall-clock times on the ranks, without the way there and back. The last 10,000 calls of a rank are
        remembered. A rank answers once the calls it received before are done. Raises ``WorkerError`` and
        ``TimeoutError`` like other calls.
        """
        ranks, answers = self._asked("timings", "timings", timeout)
        timings = []
        for rank, calls in zip(ranks, answers, strict=True):
            timings += [Timing(method, rank.number, started, seconds) for method, started, seconds in calls]
        return timings

    def peak_memory(self, timeout: float | None = None) -> list[int | None]:
        """Return the most bytes that each rank has had on one of its accelerators, in rank order.

        PyTorch counts them (``max_memory_reserved``); ``None`` for a rank that has not used an accelerator with it. A
        rank answers once the calls it received before are done. Raises ``WorkerError`` and ``TimeoutError`` like other
        calls.
        """
        return [None if use is None else use.reserved for use in self._used("peak_memory", timeout)]

    def memory_use(self, timeout: float | None = None) -> list[MemoryUse | None]:
        """Return what each rank has used of one of its accelerators, in rank order: PyTorch's numbers and the driver's.

        ``None`` for a rank of which nothing is known. Answers and errors are those of `peak_memory`.
        """
        return self._used("memory_use", timeout)

    def _used(self, doing: str, timeout: float | None) -> list[MemoryUse | None]:
        return self._asked("memory_use", doing, timeout)[1]

    def free_ports(self, count: int = 1, timeout: float | None = None) -> list[range]:
        """Find, for every rank, ``count`` consecutive ports that are free on its node; return them in rank order.

        The ranks find them themselves, avoiding the ports of Ray's workers and, if possible, the system's ephemeral
        ports. They are not handed out again in this program until a restart removes the rank or the group is shut down.
        A rank answers once the calls it received before are done. Raises ``LaunchError`` if a node has too few,
        ``ValueError`` for a ``count`` below 1, ``WorkerError`` and ``TimeoutError`` like other calls, and
        ``WorkerError`` if a restart ends a rank meanwhile; all ports found are returned then.
        """
        if (as_int(count) or 0) < 1:
            raise ValueError(f"count is {shown(count)}; it must be a whole number of 1 or more")
        self._running("free_ports")
        located = self._crew.located()
        given: list[tuple[LiveRank, str, range]] = []
        try:
            with PORTS.searching() as search:
                blocks = self._free_blocks(search, located, count, timeout)
                given += [(rank, machine, block) for (rank, machine), block in zip(located, blocks, strict=True)]
                self._crew.hold(search, given)
            return blocks
        except BaseException:
            self._crew.drop(given)
            raise

    def _free_blocks(
        self, search: object, located: Sequence[tuple[LiveRank, str]], count: int, timeout: float | None
    ) -> list[range]:
        """Return the block of free ports that each of these ranks has found on its machine.

        In each round, every rank without a block tries other ports, as far as the search has some to try.
        """
        blocks: dict[int, range] = {}
        while missing := [index for index in range(len(located)) if index not in blocks]:
            choices: dict[int, range] = {}
            for index in missing:
                try:
                    choices[index] = PORTS.choice(search, located[index][1], count)
                except LaunchError:
                    if index == missing[0]:
                        raise
                    break  # the others in the next round
            starts = self._find_ports([located[index][0] for index in choices], list(choices.values()), count, timeout)
            for (index, choice), start in zip(choices.items(), starts, strict=True):
                block = range(0) if start is None else range(start, start + count)
                PORTS.give_back(search, located[index][1], set(choice) - set(block))
                if block:
                    blocks[index] = block
        return [blocks[index] for index in range(len(located))]

    def _find_ports(
        self, ranks: Sequence[LiveRank], choices: Sequence[range], count: int, timeout: float | None
    ) -> list[int | None]:
        """Let each of these ranks find ``count`` consecutive free ports among its choice; return the first of each."""
        with using_session(), self._sending("free_ports") as present:
            self._crew.check_present("free_ports", ranks, present)
            answers = [rank.actor.free_block.remote(choice, count) for rank, choice in zip(ranks, choices, strict=True)]
            call = Call(self._crew.component, "free_ports", ranks, answers)
        return call.wait(timeout)

    def shutdown(self) -> None:
        """End the ranks, even during a call; may be called again. A reservation passed to ``launch`` stays.

        Logs a warning with ranks that may still run: a head that does not answer cannot end those in a call.
        """
        self._crew.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._crew.end()


def is_method(worker_class: type, name: str) -> bool:
    """Whether this can be called on a group of this class."""
    if name.startswith("_") or name == "create_group":
        return False
    # as written in a class: reading a fact of a rank fails here, and metaclasses have methods of their own
    found = next((vars(base)[name] for base in worker_class.__mro__ if name in vars(base)), None)
    if found is None or isinstance(found, OfRank) or (isinstance(found, staticmethod) and found.__func__ is timer):
        return False
    return callable(getattr(worker_class, name, None))


def methods(worker_class: type) -> list[str]:
    """Return the names of everything that can be called on a group of this class."""
    return [name for name in dir(worker_class) if is_method(worker_class, name)]


def check_names(worker_class: type[Any]) -> None:
    """Raise ``TypeError`` for a worker class that defines a method with a name of its group."""
    taken = [name for name in methods(worker_class) if hasattr(WorkerGroup, name)]
    if taken and not worker_class._hides_group:
        name, also = worker_class.__name__, "".join(f", and so is {other}" for other in taken[1:])
        raise TypeError(
            f"{name}.create_group(): {taken[0]} is a name of the group itself{also}; rename the method of {name}, or "
            "derive the class from rankplan.rlinf.Worker, whose methods come before those of the group"
        )
