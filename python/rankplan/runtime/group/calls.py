"""Calls on many ranks: sent to all at once and awaited together."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import ray

from rankplan.errors import WorkerError
from rankplan.runtime.group.crew import LiveRank
from rankplan.runtime.ray import session
from rankplan.runtime.ray.answers import Failed, Unanswered, as_timeout, collect, collect_async, done_in, ranks_text

_tickets = itertools.count()


class Call:
    """A call that was sent to some ranks of a group; ``wait`` returns the answers.

    The ranks know the call by its ``ticket``.
    """

    def __init__(
        self, component: str, method: str, ranks: Sequence[LiveRank], answers: Sequence[ray.ObjectRef[Any]], ticket: int
    ) -> None:
        self._component, self._method = component, method
        self._ranks, self._answers, self._ticket = ranks, answers, ticket
        self._session = session.current()

    def __repr__(self) -> str:
        state = "closed" if self._session != session.current() else "done" if self.done() else "running"
        return f"<{self._component}.{self._method}() on {len(self._answers)} ranks, {state}>"

    def done(self) -> bool:
        """Whether every rank has answered or failed. Raises ``WorkerError`` if the cluster was closed."""
        with session.used():
            self._check_open()
            return len(done_in(self._answers)) == len(self._answers)

    def wait(self, timeout: float | None = None) -> list[Any]:
        """Return the answers, in the order of the ranks; may be called again.

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
            found = collect([rank.actor.durations.remote(self._ticket) for rank in self._ranks], timeout)
        names = dict.fromkeys(name for durations in found for name in durations)
        return {name: [durations.get(name, 0.0) for durations in found] for name in names}

    @contextmanager
    def _explained(self, timeout: float | None) -> Iterator[None]:
        """Raise the errors of `wait` for answers that are missing or exceptions."""
        try:
            yield
        except Unanswered as unanswered:
            late = [self._ranks[index].placement.rank for index in unanswered.pending]
            raise TimeoutError(
                f"{self._component}.{self._method}(): {len(late)} of {len(self._answers)} ranks have not answered "
                f"after {timeout:g} s: {ranks_text(late)}"
            ) from None
        except Failed as failed:
            row, fault, also = failed.culprit([rank.placement for rank in self._ranks])
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
