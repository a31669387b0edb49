"""Progress on a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

Report: TypeAlias = Callable[[str], None]

_QUIET_SECONDS = 1.0


@contextmanager
def told(listener: Report | None) -> Iterator[Report]:
    """Yield a function to call with short progress messages.

    They go to ``listener``; without one, to stderr if that is a terminal, starting after one second.
    """
    if listener is not None or not sys.stderr.isatty():
        yield listener or (lambda message: None)
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
