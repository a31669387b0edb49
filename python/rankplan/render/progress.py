"""What is being waited for, on a terminal."""

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
    """Yield what is to be called with a few words on what is being waited for, now and then.

    The ``listener`` gets all of them. Without one they are shown on the standard error stream, if that is a terminal,
    from a second on.
    """
    if listener is not None or not sys.stderr.isatty():
        yield listener or _nobody
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


def _nobody(message: str) -> None:
    """Where there is no terminal, nobody is told."""
