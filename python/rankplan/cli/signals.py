"""Signals that end the command line: one word and an exit code instead of a traceback, and nothing left running."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGTERM, signal.SIGHUP)

_received: int | None = None


def exit_code() -> int:
    """Return the exit code for the signal that ended the program: 130 for Ctrl-C, 143 for SIGTERM, 129 for SIGHUP."""
    return 128 + (_received or signal.SIGINT)


@contextmanager
def at_once() -> Iterator[None]:
    """Let Ctrl-C end the process immediately, because nothing has been started: for imports.

    An exception could be lost there, or be raised as another one.
    """
    usual = signal.default_int_handler
    if not _in_main_thread() or signal.getsignal(signal.SIGINT) is not usual:
        yield
        return
    signal.signal(signal.SIGINT, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)


@contextmanager
def raised() -> Iterator[None]:
    """Let the first SIGTERM or SIGHUP raise ``KeyboardInterrupt``, and ignore more: a closing terminal sends several.

    A signal that is ignored, as SIGHUP under nohup, stays ignored.
    """
    before = {
        number: handler
        for number in _SIGNALS
        if (handler := signal.getsignal(number)) is not signal.SIG_IGN and _in_main_thread()
    }

    def end(number: int, frame: FrameType | None) -> None:
        global _received
        if _received is None:
            _received = number
            raise KeyboardInterrupt

    for number in before:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            # at its end, Python sets the default again for everything but ignored signals
            signal.signal(number, handler if _received is None else signal.SIG_IGN)


def _end(number: int, frame: FrameType | None) -> None:
    try:
        os.write(2, b"interrupted\n")
    finally:
        os._exit(128 + number)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
