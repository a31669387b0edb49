"""Progress on a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

Report: TypeAlias = Callable[[str], None]

_QUIET_SECONDS = 1.0
_LINE_SECONDS = 20.0


@contextmanager
def told(listener: Report | None, *, lines: bool = False) -> Iterator[Report]:
    """Yield a function to call with short progress messages.

    They go to ``listener``; without one, to stderr if that is a terminal, starting after one second. With ``lines``,
    any other stderr gets the current message as a line, at most every 20 seconds and only if it has changed.
    """
    if listener is not None or not sys.stderr.isatty():
        yield listener or (_lines() if lines else lambda message: None)
        return
    from rich.console import Console

    status = Console(stderr=True).status("")
    started = time.monotonic()

    def show(message: str) -> None:
        if time.monotonic() - started >= _QUIET_SECONDS:
            status.update(message)
            status.start()

    try:
        yield show
    finally:
        status.stop()


def _lines() -> Report:
    """Return a function that prints the message after every 20 seconds, unless it was the last one printed."""
    printed, at = "", time.monotonic()

    def show(message: str) -> None:
        nonlocal printed, at
        if message != printed and time.monotonic() - at >= _LINE_SECONDS:
            printed, at = message, time.monotonic()
            print(message, file=sys.stderr, flush=True)

    return show
