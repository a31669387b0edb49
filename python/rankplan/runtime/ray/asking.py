"""Asking the Ray head with a limit of time: Ray itself waits as long as a head exists that does not answer.

What blocks until the head answers: its tables, placement groups, and the first call of a task or an actor class, which
it stores. Creating and killing actors, calls on them, and the object store do not.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import ray

from rankplan.errors import LaunchError
from rankplan.runtime.ray import timeouts

_Value = TypeVar("_Value")

_limits = threading.local()


class HeadSilent(LaunchError):
    """The head does not answer in time."""


@contextmanager
def answers_within(seconds: float | None) -> Iterator[None]:
    """Let the head answer everything that this thread asks in the ``with`` by the end of so many seconds."""
    before = _deadline()
    own = None if seconds is None else time.monotonic() + seconds
    _limits.deadline = min((limit for limit in (before, own) if limit is not None), default=None)
    try:
        yield
    finally:
        _limits.deadline = before


def _deadline() -> float | None:
    deadline: float | None = getattr(_limits, "deadline", None)
    return deadline


def patience() -> float:
    """Return the seconds that the head may take to answer now."""
    deadline = _deadline()
    if deadline is None:
        return timeouts.ANSWER
    return min(timeouts.ANSWER, max(timeouts.LEAST_ANSWER, deadline - time.monotonic()))


def ask(function: Callable[[], _Value], undo: Callable[[_Value], object] | None = None) -> _Value:
    """Return what a function returns that asks the head. Raises `HeadSilent` if that takes longer than `patience`.

    The function runs in a thread, and is left there if it is late. Once it returns after all, ``undo`` gets its value.
    """
    answer = _Answer(function, undo)
    threading.Thread(target=answer.find, name="rankplan-ask", daemon=True).start()
    seconds = patience()
    if not answer.arrives(seconds):
        raise HeadSilent(silence(seconds))
    value: _Value = answer.value()
    return value


def silence(seconds: float) -> str:
    """Return that the head has not answered for so many seconds."""
    address = ray.get_runtime_context().gcs_address
    return f"the Ray head at {address} does not answer (for {seconds:.3g} s); check its machine and its GCS process"


class _Answer:
    """The value or the error of a function, which one thread finds and another awaits."""

    def __init__(self, function: Callable[[], Any], undo: Callable[[Any], object] | None) -> None:
        self._function, self._undo = function, undo
        self._done = threading.Event()
        self._lock = threading.Lock()
        self._abandoned = False
        self._value: Any = None
        self._error: BaseException | None = None

    def find(self) -> None:
        """Run the function."""
        try:
            self._value = self._function()
        except BaseException as error:
            self._error = error
        with self._lock:
            self._done.set()
            is_late = self._abandoned
        if is_late and self._error is None and self._undo is not None:
            with suppress(Exception):
                self._undo(self._value)

    def arrives(self, seconds: float) -> bool:
        """Wait; return whether the function has ended. If not, nobody awaits it any more."""
        if self._done.wait(seconds):
            return True
        with self._lock:
            self._abandoned = not self._done.is_set()
        return not self._abandoned

    def value(self) -> Any:
        """Return the value of the function, or raise its error."""
        if self._error is not None:
            raise self._error
        return self._value
