"""The processes of this machine, as /proc shows them; on a system without it none are found."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_POLL_SECONDS = 0.02
_KILLED_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Process:
    """A process. ``started`` (in clock ticks) tells it from a later one that got the same ``pid``."""

    pid: int
    started: int


def family(variable: str) -> set[Process]:
    """Return the processes that were started with this ``NAME=value`` in their environment, and all below them.

    Those below count because a process that sets its title, as Ray's do, may overwrite what shows its environment.
    """
    running = _running()
    found = {process for process in running if _started_with(process.pid, variable.encode())}
    newest = {process.pid for process in found}
    while newest:
        below = {process for process, parent in running.items() if parent in newest} - found
        found |= below
        newest = {process.pid for process in below}
    return found


def end(processes: set[Process], patience: float) -> None:
    """Wait ``patience`` seconds for these processes to end by themselves, and kill those that are left."""
    left = left_after(processes, patience)
    for process in left:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
    left_after(left, _KILLED_SECONDS)


def left_after(processes: set[Process], seconds: float) -> set[Process]:
    """Wait until these processes have ended, but not longer than ``seconds``; return those that have not."""
    deadline = time.monotonic() + seconds
    while (left := _running().keys() & processes) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    return left


def _running() -> dict[Process, int]:
    """Return the processes that have not ended, each with the process id of its parent."""
    running = {}
    for stat in _PROC.glob("[0-9]*/stat"):
        with suppress(OSError):
            # the name before the last ")" may hold anything
            state, parent, *rest = stat.read_text().rpartition(")")[2].split()
            if state not in "ZX":
                running[Process(int(stat.parent.name), int(rest[17]))] = int(parent)
    return running


def _started_with(pid: int, variable: bytes) -> bool:
    try:
        return variable in (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return False
