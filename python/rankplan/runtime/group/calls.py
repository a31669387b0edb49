"""Calls on many ranks: sent to all at once and awaited together."""

from __future__ import annotations

import asyncio
import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from numbers import Real
from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import GetTimeoutError, RayError

from rankplan._core import Placement, RankSet
from rankplan.errors import WorkerError
from rankplan.runtime.ray import session, timeouts
from rankplan.runtime.ray.faults import Fault
from rankplan.words import shown

if TYPE_CHECKING:
    from ray.actor import ActorHandle


def as_timeout(value: Any) -> float:
    """Return a finite number of seconds above 0 as a float; raises ``ValueError`` for anything else."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) < math.inf:
        raise ValueError(f"timeout is {shown(value)}; it must be a finite number of seconds above 0")
    return float(value)


class Unanswered(Exception):
    """Some answers did not arrive in time; ``pending`` has their indices."""

    def __init__(self, pending: list[int]) -> None:
        super().__init__(pending)
        self.pending = pending


class Failed(Exception):
    """Some answers are exceptions; ``faults`` has at least one, by index, and the others that have arrived so far."""

    def __init__(self, faults: dict[int, Fault]) -> None:
        super().__init__(faults)
        self.faults = faults

    def culprit(self, placements: Sequence[Placement]) -> tuple[Placement, Fault, str]:
        """Return the row of the first rank that failed, its fault, and a note on the other ranks that failed.

        ``placements`` has the row of each answer.
        """
        first = min(self.faults)
        ranks = {placements[index].rank for index in self.faults} - {placements[first].rank}
        also = f" ({ranks_text(ranks)} failed too)" if ranks else ""
        return placements[first], self.faults[first], also


def collect(
    answers: Sequence[ray.ObjectRef[Any]], timeout: float | None, on_tick: Callable[[int], None] | None = None
) -> list[Any]:
    """Wait for all answers and return them in order; ``on_tick`` is called regularly with the number of answers.

    Raises ``Failed`` as soon as one answer is an exception, and ``Unanswered`` after ``timeout`` seconds.
    """
    deadline = math.inf if timeout is None else time.monotonic() + timeout
    while True:
        left = max(0.0, deadline - time.monotonic())
        # without ticks wait once: Ray fetches large answers anew for each ray.get
        patience = left if on_tick is None else min(timeouts.TICK, left)
        try:
            return list(ray.get(list(answers), timeout=None if patience == math.inf else patience))
        except GetTimeoutError:
            done = _done(answers)
            if patience == left and len(done) < len(answers):
                raise Unanswered(sorted(set(range(len(answers))) - set(done))) from None
            if on_tick is not None:
                on_tick(len(done))
        except RayError as error:
            raise Failed(_faults(answers) or {0: Fault.of(error)}) from None


def outcomes(answers: Sequence[ray.ObjectRef[Any]], timeout: float) -> list[Any]:
    """Wait at most ``timeout`` seconds; return each answer, its ``Fault`` if it is an exception, or else ``None``."""
    ray.wait(list(answers), num_returns=len(answers), timeout=timeout)
    done = set(_done(answers))
    faults = _faults(answers)
    return [faults.get(index) or (ray.get(answer) if index in done else None) for index, answer in enumerate(answers)]


def _done(answers: Sequence[ray.ObjectRef[Any]]) -> list[int]:
    ready, _ = ray.wait(list(answers), num_returns=len(answers), timeout=0)
    arrived = set(ready)
    return [index for index, answer in enumerate(answers) if answer in arrived]


def _faults(answers: Sequence[ray.ObjectRef[Any]]) -> dict[int, Fault]:
    faults = {}
    for index in _done(answers):
        try:
            ray.get(answers[index])
        except RayError as error:
            faults[index] = Fault.of(error)
    return faults


def ranks_text(ranks: Iterable[int]) -> str:
    """Return ranks as a message names them: ``rank 3``, ``ranks 0-3``."""
    found = RankSet(ranks)
    return f"rank{'s' if len(found) > 1 else ''} {found}"


async def collect_async(
    answers: Sequence[ray.ObjectRef[Any]], timeout: float | None, check: Callable[[], None]
) -> list[Any]:
    """Do the same as `collect` without blocking the event loop; ``check`` is called regularly, and may raise."""
    deadline = math.inf if timeout is None else time.monotonic() + timeout
    loop, arrived = asyncio.get_running_loop(), asyncio.Event()

    def tell(_: object) -> None:
        with suppress(RuntimeError):  # the loop has ended, and nobody waits any more
            loop.call_soon_threadsafe(arrived.set)

    futures = [answer.future() for answer in answers]
    for future in futures:
        future.add_done_callback(tell)
    while True:
        arrived.clear()
        done = {index: future for index, future in enumerate(futures) if future.done()}
        check()
        errors = {index: future.exception() for index, future in done.items()}
        if faults := {index: Fault.of(error) for index, error in errors.items() if isinstance(error, Exception)}:
            raise Failed(faults)
        if len(done) == len(futures):
            return [future.result() for future in futures]
        left = max(0.0, deadline - time.monotonic())
        # a future is set a moment after its answer has arrived
        if left == 0 and len(_done(answers)) < len(futures):
            raise Unanswered([index for index in range(len(futures)) if index not in done])
        with suppress(TimeoutError):
            await asyncio.wait_for(arrived.wait(), min(timeouts.TICK, left or timeouts.TICK))


_tickets = itertools.count()


class Call:
    """A call that was sent to some ranks of a group; ``wait`` returns the answers.

    ``hosts`` are those ranks, and ``ticket`` is their name of the call.
    """

    def __init__(
        self,
        component: str,
        method: str,
        placements: Sequence[Placement],
        answers: Sequence[ray.ObjectRef[Any]],
        ticket: int,
        hosts: Sequence[ActorHandle[Any]],
    ) -> None:
        self._component, self._method = component, method
        self._placements, self._answers = placements, answers
        self._ticket, self._hosts = ticket, hosts
        self._session = session.current()

    def __repr__(self) -> str:
        state = "closed" if self._session != session.current() else "done" if self.done() else "running"
        return f"<{self._component}.{self._method}() on {len(self._answers)} ranks, {state}>"

    def done(self) -> bool:
        """Whether every rank has answered or failed. Raises ``WorkerError`` if the cluster was closed."""
        with session.used():
            self._check_open()
            return len(_done(self._answers)) == len(self._answers)

    def wait(self, timeout: float | None = None) -> list[Any]:
        """Return what the ranks returned, in the order of the ranks; may be called again.

        Raises ``WorkerError`` as soon as one rank has failed or died (the others continue), or if the cluster was
        closed; ``TimeoutError`` if some ranks have not answered after ``timeout`` seconds (the call continues; 0 only
        checks); ``ValueError`` for an invalid timeout.
        """
        if timeout:
            timeout = as_timeout(timeout)
        with self._explained(timeout), session.used():
            self._check_open()
            return collect(self._answers, timeout)

    async def async_wait(self, timeout: float | None = None) -> list[Any]:
        """Return the same as `wait`, while other coroutines of the event loop run. Raises the same errors."""
        if timeout:
            timeout = as_timeout(timeout)
        with self._explained(timeout):
            self._check_open()
            return await collect_async(self._answers, timeout, self._check_open)

    def durations(self, timeout: float | None = None) -> dict[str, list[float]]:
        """Wait for the call, and return how long its timed functions took: seconds per rank, by name.

        A function is timed if it has the decorator `Worker.timer`. Several runs in one call are added up; 0.0 for a
        rank that did not run it. Ranks remember the durations of their latest 1,000 calls. Raises like `wait`.
        """
        self.wait(timeout)
        with self._explained(timeout), session.used():
            self._check_open()
            found = collect([host.durations.remote(self._ticket) for host in self._hosts], timeout)
        names = dict.fromkeys(name for durations in found for name in durations)
        return {name: [durations.get(name, 0.0) for durations in found] for name in names}

    @contextmanager
    def _explained(self, timeout: float | None) -> Iterator[None]:
        """Raise the errors of `wait` for answers that are missing or exceptions."""
        try:
            yield
        except Unanswered as unanswered:
            late = [self._placements[index].rank for index in unanswered.pending]
            raise TimeoutError(
                f"{self._component}.{self._method}(): {len(late)} of {len(self._answers)} ranks have not answered "
                f"after {timeout:g} s: {ranks_text(late)}"
            ) from None
        except Failed as failed:
            row, fault, also = failed.culprit(self._placements)
            error = WorkerError(
                f"{self._component} rank {row.rank} (node {row.cluster_node_rank}): {self._method}() "
                f"{fault.reason}{also}",
                self._component,
                row.rank,
                row.cluster_node_rank,
                fault.remote_traceback,
            )
            raise fault.noted(error) from fault.cause

    def _check_open(self) -> None:
        if self._session != session.current():
            where = f"{self._component}.{self._method}()"
            raise WorkerError(f"{where}: the cluster was closed before the answers were fetched", self._component)


def new_ticket() -> int:
    """Return the number by which ranks know a call."""
    return next(_tickets)
