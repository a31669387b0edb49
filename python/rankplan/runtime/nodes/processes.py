"""The processes of this machine, read from /proc; none are found on a system without it."""

from __future__ import annotations

import math
import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rankplan.runtime.ray import timeouts

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Process:
    """A process. ``started`` (in clock ticks since boot) distinguishes it from a later process with the same pid."""

    pid: int
    started: int


def inherited() -> dict[str, str]:
    """Return the environment that this process was started with: Ray may have changed it for a task."""
    try:
        block = (_PROC / "self/environ").read_bytes()
    except OSError:
        return dict(os.environ)
    entries = (os.fsdecode(entry).partition("=") for entry in block.split(b"\0"))
    return {name: value for name, _, value in entries}


def family(variable: str) -> set[Process]:
    """Return the processes that were started with this ``NAME=value`` in their environment, and their descendants.

    A process that sets its title, as Ray's do, may overwrite the environment that /proc shows.
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
    """Wait ``patience`` seconds for these processes to end by themselves, then kill the others."""
    left = left_after(processes, patience)
    for process in left:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
    left_after(left, timeouts.PROCESS_KILL)


def left_after(processes: set[Process], seconds: float) -> set[Process]:
    """Wait at most ``seconds`` until these processes have ended; return those that have not."""
    deadline = time.monotonic() + seconds
    while (left := _running().keys() & processes) and time.monotonic() < deadline:
        time.sleep(timeouts.PROCESS_POLL)
    return left


def _running() -> dict[Process, int]:
    """Return the running processes, each with the process id of its parent."""
    running = {}
    for stat in _PROC.glob("[0-9]*/stat"):
        with suppress(OSError):
            state, parent, started = _stat(stat)
            if state not in "ZX":
                running[Process(int(stat.parent.name), started)] = parent
    return running


def _stat(file: Path) -> tuple[str, int, int]:
    """Return the state, the parent and the start of a process."""
    # the name in parentheses may contain anything
    state, parent, *rest = file.read_text().rpartition(")")[2].split()
    return state, int(parent), int(rest[17])


def age(pid: int) -> float:
    """Return the seconds since a process started, infinity if unknown."""
    try:
        uptime = float((_PROC / "uptime").read_text().split()[0])
        return uptime - _stat(_PROC / str(pid) / "stat")[2] / os.sysconf("SC_CLK_TCK")
    except OSError:
        return math.inf


def _started_with(pid: int, variable: bytes) -> bool:
    try:
        return variable in (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return False
