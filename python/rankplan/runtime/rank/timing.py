"""Durations: how long the timed functions of a rank took during a call."""

from __future__ import annotations

import functools
import inspect
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar, overload

_Function = TypeVar("_Function", bound=Callable[..., Any])

_MOST_CALLS = 1000
"""The number of calls with durations that a rank remembers: nobody may ask for them."""

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
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def measured_async(*args: Any, **kwargs: Any) -> Any:
            with _measured(name):
                return await function(*args, **kwargs)

        return measured_async

    @functools.wraps(function)
    def measured(*args: Any, **kwargs: Any) -> Any:
        with _measured(name):
            return function(*args, **kwargs)

    return measured


@contextmanager
def _measured(name: str) -> Iterator[None]:
    durations, start = _durations.get(), time.perf_counter()
    try:
        yield
    finally:
        if durations is not None:
            durations[name] = durations.get(name, 0.0) + time.perf_counter() - start


class Durations:
    """The durations of the latest calls of a rank, by the ticket of the call."""

    def __init__(self) -> None:
        self._of: OrderedDict[int, dict[str, float]] = OrderedDict()
        self._lock = threading.Lock()

    @contextmanager
    def measured(self, ticket: int) -> Iterator[None]:
        """Attribute what is timed in this context to a call."""
        durations = dict(self.of(ticket))
        token = _durations.set(durations)
        try:
            yield
        finally:
            _durations.reset(token)
            if durations:
                with self._lock:
                    self._of[ticket] = durations
                    if len(self._of) > _MOST_CALLS:
                        self._of.popitem(last=False)

    def of(self, ticket: int) -> dict[str, float]:
        """Return the seconds by name; empty if the call timed nothing, or was long ago."""
        return self._of.get(ticket, {})
