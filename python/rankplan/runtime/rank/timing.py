"""How long the calls on a rank took, and the timed functions that they ran."""

from __future__ import annotations

import functools
import inspect
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar, overload

from rankplan.frozen import frozen

_Function = TypeVar("_Function", bound=Callable[..., Any])

_MOST_CALLS = 10_000  # calls of a rank that are remembered
_MOST_DURATIONS = 1000  # calls with durations that a rank remembers, as the driver may never ask for them

_durations: ContextVar[dict[str, float] | None] = ContextVar("rankplan_durations", default=None)


@overload
def timer(name: _Function) -> _Function: ...
@overload
def timer(name: str) -> Callable[[_Function], _Function]: ...
def timer(name: Any) -> Any:
    """Measure how long a function takes, plain or ``async``: ``@timer``, or ``@timer("name")`` for another name.

    ``call.durations()`` returns the seconds spent during a call, by name. Runs of one name are added up. Outside a call
    of a group nothing is measured.
    """
    if isinstance(name, str):
        return functools.partial(_timed, name)
    if not callable(name):
        raise TypeError(f"timer() takes a function or a name, not {name!r}")
    return _timed(name.__name__, name)


def _timed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    if not inspect.iscoroutinefunction(function):
        return _measured(name)(function)

    @functools.wraps(function)
    async def measured(*args: Any, **kwargs: Any) -> Any:
        with _measured(name):
            return await function(*args, **kwargs)

    return measured


@contextmanager
def _measured(name: str) -> Iterator[None]:
    durations, start = _durations.get(), time.perf_counter()
    try:
        yield
    finally:
        if durations is not None:
            durations[name] = durations.get(name, 0.0) + time.perf_counter() - start


@frozen
class Timing:
    """A finished call on a rank: ``started`` is in seconds since 1970 by the clock of its node, ``seconds`` its length.

    The time includes waiting inside the method, but not the time before the rank began it.
    """

    method: str
    rank: int
    started: float
    seconds: float


class Stopwatch:
    """The latest calls of a rank, in the order in which they ended, and what they timed, by the ticket of the call.

    ``running`` counts the calls that have begun and not ended.
    """

    def __init__(self) -> None:
        self.running = 0
        self.calls: deque[tuple[str, float, float]] = deque(maxlen=_MOST_CALLS)
        self.durations: OrderedDict[int, dict[str, float]] = OrderedDict()
        self._lock = threading.Lock()

    @contextmanager
    def timing(self, method: str) -> Iterator[None]:
        """Remember how long a call takes; a call that raises is not remembered."""
        started, before = time.time(), time.perf_counter()
        with self._lock:
            self.running += 1
        try:
            yield
            self.calls.append((method, started, time.perf_counter() - before))
        finally:
            with self._lock:
                self.running -= 1

    @contextmanager
    def measured(self, ticket: int) -> Iterator[None]:
        """Count the functions that are timed in this context for a call."""
        durations = dict(self.durations.get(ticket, {}))
        token = _durations.set(durations)
        try:
            yield
        finally:
            _durations.reset(token)
            if durations:
                with self._lock:
                    self.durations[ticket] = durations
                    if len(self.durations) > _MOST_DURATIONS:
                        self.durations.popitem(last=False)


def slowest_rank(timings: Iterable[Timing]) -> float:
    """Return the seconds of all calls of the rank with the longest, 0 without calls."""
    ranks: dict[int, float] = {}
    for timing in timings:
        ranks[timing.rank] = ranks.get(timing.rank, 0.0) + timing.seconds
    return max(ranks.values(), default=0.0)
