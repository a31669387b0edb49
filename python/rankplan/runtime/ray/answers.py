"""Waiting for the answers of many tasks or ranks together."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from numbers import Real
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError

from rankplan._core import Placement, RankSet
from rankplan.runtime.ray import timeouts
from rankplan.runtime.ray.faults import Fault
from rankplan.words import shown


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
            done = done_in(answers)
            if patience == left and len(done) < len(answers):
                raise Unanswered(sorted(set(range(len(answers))) - set(done))) from None
            if on_tick is not None:
                on_tick(len(done))
        except RayError as error:
            raise Failed(_faults(answers) or {0: Fault.of(error)}) from None


def outcomes(answers: Sequence[ray.ObjectRef[Any]], timeout: float) -> list[Any]:
    """Wait at most ``timeout`` seconds; return each answer, its ``Fault`` if it is an exception, or else ``None``."""
    ray.wait(list(answers), num_returns=len(answers), timeout=timeout)
    done = set(done_in(answers))
    faults = _faults(answers)
    return [faults.get(index) or (ray.get(answer) if index in done else None) for index, answer in enumerate(answers)]


def done_in(answers: Sequence[ray.ObjectRef[Any]]) -> list[int]:
    """Return the indices of the answers that have arrived."""
    ready, _ = ray.wait(list(answers), num_returns=len(answers), timeout=0)
    arrived = set(ready)
    return [index for index, answer in enumerate(answers) if answer in arrived]


def _faults(answers: Sequence[ray.ObjectRef[Any]]) -> dict[int, Fault]:
    faults = {}
    for index in done_in(answers):
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
        if left == 0 and len(done_in(answers)) < len(futures):
            raise Unanswered([index for index in range(len(futures)) if index not in done])
        with suppress(TimeoutError):
            await asyncio.wait_for(arrived.wait(), min(timeouts.TICK, left or timeouts.TICK))
