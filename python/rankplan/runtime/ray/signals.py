"""Signals of a driver: SIGTERM as an exception that leaves time for cleanup, and sections that no signal interrupts."""

from __future__ import annotations

import atexit
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

from rankplan.runtime.ray import internals

if TYPE_CHECKING:
    from typing_extensions import Self

_Value = TypeVar("_Value")

_DEFERRED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_ending = False  # whether SIGTERM has been raised, and must not interrupt the cleanup

_TURN = 0.1
"""Seconds that a signal may wait while a lock is awaited."""

_MESSAGE = b"ended by SIGTERM; its ranks and reservations end with it\n"


class TerminationHandler:
    """The handler of SIGTERM of a driver: that of the program, or else one that raises ``SystemExit`` (code 143).

    Ray's own handler would abort the program 3 seconds after the signal, in the middle of its cleanup. In other threads
    than the main one, Python can set no handlers, and the signal ends the program as before.
    """

    def __init__(self) -> None:
        global _ending
        _ending = False
        self._before = signal.getsignal(signal.SIGTERM)
        rays = str(getattr(self._before, "__module__", "")).startswith("ray.")
        own = self._before is signal.SIG_IGN or (callable(self._before) and not rays)
        self._handler = self._before if own else _exit
        internals.keep_handler(signal.SIGTERM)
        self.install()

    def install(self) -> None:
        """Set the handler; again after Ray has started: its C++ part puts another one before it."""
        if _in_main_thread():
            signal.signal(signal.SIGTERM, self._handler)

    def restore(self) -> None:
        """Set the handler that was there before, unless the program is ending by SIGTERM."""
        if not _ending and _in_main_thread() and self._before is not None:
            signal.signal(signal.SIGTERM, self._before)


def _exit(number: int, frame: FrameType | None) -> None:
    """Raise ``SystemExit`` once, and ignore more: schedulers repeat the signal while the program cleans up."""
    global _ending
    if not _ending:
        _ending = True
        # at its end, Python sets the default again for everything but ignored signals
        atexit.register(signal.signal, number, signal.SIG_IGN)
        with suppress(OSError):
            os.write(2, _MESSAGE)
        raise SystemExit(128 + number)


@contextmanager
def termination_kept() -> Iterator[None]:
    """Raise the ``SystemExit`` of SIGTERM around a function of Ray that waits: Ray itself turns it into one of code 1.

    Ray looks for signals while it waits, and replaces the exception that a handler raises.
    """
    before = _ending
    try:
        yield
    except SystemExit as replaced:
        if _ending and not before:
            raise SystemExit(128 + signal.SIGTERM) from replaced
        raise


class Uninterrupted:
    """A section that must not stop halfway: Ctrl-C, SIGTERM and SIGHUP take effect at its end. Keep it short."""

    def __enter__(self) -> Self:
        self._pending: list[int] = []
        self._handlers: dict[int, Any] = {}
        if _in_main_thread():  # no other thread is interrupted
            self._handlers = {number: found for number in _DEFERRED if callable(found := signal.getsignal(number))}
        try:
            for number in self._handlers:
                signal.signal(number, self._note)
        except BaseException:
            self._restore(_DEFERRED)
            raise
        return self

    def __exit__(self, *error: object) -> None:
        # Ctrl-C last: what it raises must leave no other handler behind, and the others end the program
        self._restore(reversed(_DEFERRED))
        for number in self._pending:
            signal.raise_signal(number)

    def _restore(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            if number in self._handlers:
                signal.signal(number, self._handlers[number])

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._pending.append(number)


def holding(lock: threading.Lock, seconds: float | None, late: str, work: Callable[[float | None], _Value]) -> _Value:
    """Return what ``work`` returns while the lock is held; it gets the seconds that are left of ``seconds``, if any.

    Raises ``TimeoutError`` with the message ``late``. A signal at any moment leaves the lock free: unlike a context
    manager, `finally` is in this function from before the lock is taken, and its first call frees it.
    """
    deadline = math.inf if seconds is None else time.monotonic() + seconds
    holds = False
    try:
        while not holds:
            left = max(0.0, deadline - time.monotonic())
            with Uninterrupted():  # in short turns, after each of which a signal takes effect
                holds = lock.acquire(timeout=min(_TURN, left))
            if not holds and left == 0:
                raise TimeoutError(late)
        return work(None if seconds is None else max(0.0, round(deadline - time.monotonic(), 3)))
    finally:
        if holds:
            lock.release()


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
