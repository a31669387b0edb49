"""Repeats a command whenever one of its files changes."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import click

_INTERVAL = 0.3
"""Seconds between two looks at the files: below what a person notices, far above what a look costs."""


def watch(files: Sequence[str], command: Callable[[], object], rounds: int | None = None) -> None:
    """Run a command, and again after each change of a file, until it is interrupted.

    ``rounds`` ends it after so many runs.
    """
    done = 0
    while True:
        before = _states(files)
        if sys.stdout.isatty():
            click.clear()
        command()
        done += 1
        if done == rounds:
            return
        click.echo(f"watching {', '.join(files)}; Ctrl-C ends it", err=True)
        while _states(files) == before:
            time.sleep(_INTERVAL)


def _states(files: Sequence[str]) -> list[tuple[int, int] | None]:
    """Return what changes when a file is written, replaced or removed."""
    states: list[tuple[int, int] | None] = []
    for file in files:
        try:
            state = Path(file).stat()
            states.append((state.st_mtime_ns, state.st_ino))
        except OSError:
            states.append(None)
    return states
