"""The processes of this machine: which belong together, how they were started, and ending them."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from contextlib import suppress

import psutil

from rankplan.runtime.ray import timeouts


def inherited() -> dict[str, str]:
    """Return the environment that this process was started with: Ray may have changed it for a task."""
    try:
        found: dict[str, str] = psutil.Process().environ()
    except (psutil.Error, OSError):
        return dict(os.environ)
    return found


def family(variable: str) -> set[psutil.Process]:
    """Return the processes that were started with this ``NAME=value`` in their environment, and their descendants.

    A process that sets its title, as Ray's do, may overwrite the environment that the system shows.
    """
    name, _, value = variable.partition("=")
    parents, found = {}, set()
    for process in _running():
        with suppress(psutil.NoSuchProcess):
            parents[process] = process.ppid()
            with suppress(psutil.AccessDenied):
                if process.environ().get(name) == value:
                    found.add(process)
    newest = {process.pid for process in found}
    while newest:
        below = {process for process, parent in parents.items() if parent in newest} - found
        found |= below
        newest = {process.pid for process in below}
    return found


def end(processes: set[psutil.Process], patience: float) -> None:
    """Wait ``patience`` seconds for these processes to end by themselves, then kill the others."""
    left = left_after(processes, patience)
    for process in left:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    left_after(left, timeouts.PROCESS_KILL)


def left_after(processes: set[psutil.Process], seconds: float) -> set[psutil.Process]:
    """Wait at most ``seconds`` until these processes have ended; return the ones that still run."""
    deadline = time.monotonic() + seconds
    while (left := set(filter(_runs, processes))) and time.monotonic() < deadline:
        time.sleep(timeouts.PROCESS_POLL)
    return left


def age(pid: int) -> float:
    """Return the seconds since a process started, infinity if unknown."""
    try:
        started = float(psutil.Process(pid).create_time() - psutil.boot_time())
        return time.clock_gettime(time.CLOCK_BOOTTIME) - started  # the time of the boot is in whole seconds
    except (psutil.Error, AttributeError):
        return math.inf


def _running() -> Iterator[psutil.Process]:
    for pid in psutil.pids():  # psutil.process_iter() would keep a process whose pid another one has now
        with suppress(psutil.NoSuchProcess):
            if _runs(process := psutil.Process(pid)):
                yield process


def _runs(process: psutil.Process) -> bool:
    """Whether a process still runs; a zombie, whose parent has not waited for it, does not."""
    try:
        return process.is_running() and process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False
