"""Waiting for the answers of many tasks or ranks together, and saying in one sentence why one gave none."""

from __future__ import annotations

import asyncio
import errno
import math
import os
import pickle
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from numbers import Real
from typing import Any, TypeVar

import ray
from ray import cloudpickle
from ray.exceptions import (
    ActorUnavailableError,
    ActorUnschedulableError,
    GetTimeoutError,
    ObjectLostError,
    OutOfDiskError,
    OutOfMemoryError,
    RayActorError,
    RayError,
    RaySystemError,
    RayTaskError,
    TaskUnschedulableError,
)

from rankplan._core import Placement, RankSet
from rankplan.errors import LaunchError, printable
from rankplan.frozen import frozen
from rankplan.runtime.ray import timeouts
from rankplan.runtime.ray.internals import death, memory_shortage, unloadable
from rankplan.runtime.ray.signals import termination_kept
from rankplan.words import ranges_text, shown

_Error = TypeVar("_Error", bound=Exception)

_LONGEST_LINE = 1000  # characters; more is in the traceback
_LONGEST_TRACEBACK = 50_000


def launch_error(component: str, row: Placement, what: str) -> LaunchError:
    """Return the error for a rank that cannot be launched as planned: its name, followed by the cause ``what``."""
    where = component, row.rank, row.cluster_node_rank
    return LaunchError(f"{component} rank {row.rank} (node {row.cluster_node_rank}){what}", *where)


class RankFailure(Exception):
    """An exception of the user's code on its way to the driver: text, and bytes that the driver need not unpickle."""

    def __init__(self, summary: str, remote_traceback: str, pickled: bytes | None) -> None:
        super().__init__(summary, remote_traceback, pickled)
        self.summary, self.remote_traceback, self.pickled = summary, remote_traceback, pickled

    def __str__(self) -> str:
        return self.summary

    @classmethod
    def of(cls, error: BaseException) -> RankFailure:
        """Pack an exception that was just caught, without the frame that caught it."""
        caught = error.__traceback__
        lines = traceback.format_exception(type(error), error, caught.tb_next if caught else None)
        try:
            pickled = cloudpickle.dumps(error)
        except Exception:
            pickled = None
        return cls(_summary(error), _sendable("".join(lines)), pickled)

    def cause(self) -> BaseException | None:
        """Return the exception, or ``None`` if it cannot be loaded in this process."""
        with suppress(Exception):
            error = None if self.pickled is None else pickle.loads(self.pickled)
            return error if isinstance(error, BaseException) else None
        return None


@frozen
class Fault:
    """Why a rank gave no answer: one sentence, and the remote traceback and the exception if known."""

    reason: str
    remote_traceback: str | None = None
    cause: BaseException | None = None

    @classmethod
    def of(cls, error: Exception) -> Fault:
        """Describe an exception that Ray raised instead of returning an answer."""
        match error:
            case RayTaskError(cause=RankFailure() as found):
                return cls(f"raised {found.summary}", found.remote_traceback, found.cause())
            case RayTaskError():
                return cls(f"failed: {_summary(error)}", str(error), error.cause)
            case ActorUnschedulableError() | TaskUnschedulableError():
                reason = "could not start: its node has left the cluster"
            case ActorUnavailableError():  # Ray does not know why: it takes about 15 s to declare a node dead
                reason = "gave no answer, its process cannot be reached: the process, its node or the network is down"
            case OutOfMemoryError():
                reason = f"gave no answer, Ray has killed its process: {memory_shortage(error)}"
            case RayActorError():
                reason = f"gave no answer, its process is gone: {death(error)}"
            case ObjectLostError():
                reason = "gave an answer that is lost: the node that held it died before it was fetched"
            case RaySystemError() if (cause := unloadable(error)) is not None:
                return cls(f"gave an answer that cannot be unpickled by the driver: {_summary(cause)}", cause=cause)
            case _:
                reason = f"gave no answer: {_summary(error)}"
        return cls(reason, cause=error)

    @property
    def is_full_disk(self) -> bool:
        """Whether the cause is a disk without room, or a quota that is used up."""
        if isinstance(self.cause, OutOfDiskError):
            return True
        numbers = (errno.ENOSPC, errno.EDQUOT)
        of_system = isinstance(self.cause, OSError) and self.cause.errno in numbers
        return of_system or any(os.strerror(number) in self.reason for number in numbers)

    def noted(self, error: _Error) -> _Error:
        """Let Python print the remote traceback below an error, and return the error."""
        if self.remote_traceback is None:
            return error
        if sys.version_info >= (3, 11):
            error.add_note(self.remote_traceback)
        else:
            error.args = (f"{error}\n{self.remote_traceback}",)
        return error


def _summary(error: BaseException) -> str:
    """Return the type and the first line of the text of an exception."""
    if isinstance(error, RayTaskError):
        error = error.cause  # the first line of the error itself names Ray's task, in colour
    try:
        text = str(error).strip()
    except Exception:
        text = "its text cannot be read"
    line, name = plain(text.partition("\n")[0]), type(error).__name__
    return f"{name}: {line}" if line else name


def plain(line: str) -> str:
    """Return a line without control characters, shortened if it is very long."""
    return printable(line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]}...")


def _sendable(text: str) -> str:
    """Return a traceback without its middle if it is very long, and without lone surrogates: Ray ends their sender."""
    if (left_out := len(text) - _LONGEST_TRACEBACK) > 0:
        half = _LONGEST_TRACEBACK // 2
        text = f"{text[:half]}\n... {left_out} characters left out ...\n{text[-half:]}"
    return text.encode(errors="backslashreplace").decode()


def as_timeout(value: Any) -> float:
    """Return a finite number of seconds above 0 as a float; raises ``ValueError`` for anything else."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) < math.inf:
        raise ValueError(f"timeout is {shown(value)}; it must be a finite number of seconds above 0")
    return float(value)


def as_wait(value: Any) -> float | None:
    """Return how many seconds to wait, from 0 on, or ``None`` for no limit; raises ``ValueError`` like `as_timeout`."""
    if value is None:
        return None
    return 0.0 if isinstance(value, Real) and not isinstance(value, bool) and value == 0 else as_timeout(value)


@dataclass(eq=False)
class Unanswered(Exception):
    """Some answers did not arrive in time; ``pending`` has their indices."""

    pending: list[int]


@dataclass(eq=False)
class Failed(Exception):
    """Some answers are exceptions; ``faults`` has at least one, by index, and the others that have arrived so far."""

    faults: dict[int, Fault]

    def culprit(self, placements: Sequence[Placement]) -> tuple[Placement, Fault, str]:
        """Return the row of the first rank that failed, its fault, and a note on the others, given the row of each."""
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
            with termination_kept():
                return list(ray.get(list(answers), timeout=None if patience == math.inf else patience))
        except GetTimeoutError:
            done = done_in(answers)
            if patience == left and len(done) < len(answers):
                raise Unanswered(sorted(set(range(len(answers))) - set(done))) from None
            if on_tick is not None:
                on_tick(len(done))
        except RayError as error:
            faults = {index: found for index, found in _arrived(answers).items() if isinstance(found, Fault)}
            raise Failed(faults or {0: Fault.of(error)}) from None


def outcomes(answers: Sequence[ray.ObjectRef[Any]], timeout: float) -> list[Any]:
    """Wait at most ``timeout`` seconds; return each answer, its ``Fault`` if it is an exception, or else ``None``."""
    wait_for(answers, timeout, fetch=True)
    arrived = _arrived(answers)
    return [arrived.get(index) for index in range(len(answers))]


def wait_for(answers: Sequence[ray.ObjectRef[Any]], timeout: float, *, fetch: bool = False) -> list[ray.ObjectRef[Any]]:
    """Wait at most ``timeout`` seconds; return the answers that have arrived. ``fetch`` large ones to this machine."""
    if not answers:
        return []
    with termination_kept():
        arrived, _ = ray.wait(list(answers), num_returns=len(answers), timeout=timeout, fetch_local=fetch)
    return list(arrived)


def is_fault(answer: ray.ObjectRef[Any]) -> bool:
    """Whether an answer that has arrived is an exception."""
    try:
        with termination_kept():
            ray.get(answer)
    except RayError:
        return True
    return False


def done_in(answers: Sequence[ray.ObjectRef[Any]]) -> list[int]:
    """Return the indices of the answers that have arrived."""
    arrived = set(wait_for(answers, 0, fetch=True))
    return [index for index, answer in enumerate(answers) if answer in arrived]


def _arrived(answers: Sequence[ray.ObjectRef[Any]]) -> dict[int, Any]:
    """Return the answers that have arrived, by index; a `Fault` for an exception."""
    arrived: dict[int, Any] = {}
    for index in done_in(answers):
        try:
            with termination_kept():
                arrived[index] = ray.get(answers[index])
        except RayError as error:
            arrived[index] = Fault.of(error)
    return arrived


def ranks_text(ranks: Iterable[int]) -> str:
    """Return ranks as a message names them: ``rank 3``, ``ranks 0-3``."""
    numbers = RankSet(ranks)
    return f"rank{'s' if len(numbers) > 1 else ''} {ranges_text(numbers)}"


async def collect_async(
    answers: Sequence[ray.ObjectRef[Any]], timeout: float | None, check: Callable[[], None]
) -> list[Any]:
    """Do the same as `collect` without blocking the event loop; ``check`` is called regularly, and may raise."""
    deadline = math.inf if timeout is None else time.monotonic() + timeout
    loop = asyncio.get_running_loop()
    arrived = asyncio.Event()

    def tell(_: object) -> None:
        with suppress(RuntimeError):  # the loop has ended, and nobody waits any more
            loop.call_soon_threadsafe(arrived.set)

    futures = [answer.future() for answer in answers]
    for future in futures:
        future.add_done_callback(tell)
    while True:
        arrived.clear()
        done = [index for index, future in enumerate(futures) if future.done()]
        check()
        errors = {index: futures[index].exception() for index in done}
        faults = {index: Fault.of(error) for index, error in errors.items() if isinstance(error, Exception)}
        if faults:
            raise Failed(faults)
        if len(done) == len(futures):
            return [future.result() for future in futures]
        left = max(0.0, deadline - time.monotonic())
        # a future is set a moment after its answer has arrived
        if left == 0 and len(done_in(answers)) < len(futures):
            raise Unanswered(sorted(set(range(len(futures))) - set(done)))
        with suppress(TimeoutError):
            await asyncio.wait_for(arrived.wait(), min(timeouts.TICK, left or timeouts.TICK))
