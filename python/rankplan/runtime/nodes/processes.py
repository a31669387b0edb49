"""The processes that were started with some variable, and their end. Uses nothing of rankplan, to run as a script.

As a script it waits for its parent to end, in whatever way, then ends the processes with the variable ``NAME=value``
(argument 2), and removes a folder (argument 3). Argument 1 is the parent.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from contextlib import suppress

import psutil

_POLL = 0.02  # reading /proc takes milliseconds
_PARENT_POLL = 0.5  # a killed driver is noticed this late
_KILL = 1.0  # SIGKILL takes effect within milliseconds


def family(variable: str) -> set[psutil.Process]:
    """Return the processes that were started with this ``NAME=value`` in their environment, and their descendants."""
    # a process that sets its title, as Ray's do, may overwrite the environment that the system shows
    name, _, value = variable.partition("=")
    parents, found = {}, set()
    for pid in psutil.pids():  # psutil.process_iter() would keep a process whose pid another one has now
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            if not _runs(process):
                continue
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
    left_after(left, _KILL)


def left_after(processes: set[psutil.Process], seconds: float) -> set[psutil.Process]:
    """Wait at most ``seconds`` until these processes have ended; return the ones that still run."""
    deadline = time.monotonic() + seconds
    while (left := set(filter(_runs, processes))) and time.monotonic() < deadline:
        time.sleep(_POLL)
    return left


def ancestors(pid: int) -> tuple[int, ...] | None:
    """Return the processes that a process descends from, the nearest first; ``None`` if it is not seen from here."""
    try:
        return tuple(parent.pid for parent in psutil.Process(pid).parents())
    except psutil.Error:
        return None


def _runs(process: psutil.Process) -> bool:
    """Whether a process still runs; a zombie, whose parent has not waited for it, does not."""
    try:
        return process.is_running() and process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False


def _users(folder: str) -> set[psutil.Process]:
    """Return the processes with open files in a folder: Ray's agents, whose parent is gone and environment hidden."""
    found = set()
    for pid in psutil.pids():
        with suppress(psutil.Error, OSError):
            process = psutil.Process(pid)
            if _runs(process) and any(file.path.startswith(f"{folder}/") for file in process.open_files()):
                found.add(process)
    return found


def _outlast(parent: int, variable: str, folder: str) -> None:
    while os.getppid() == parent:
        time.sleep(_PARENT_POLL)
    while processes := family(variable) | _users(folder):  # some may just be starting others
        end(processes, 0)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    _outlast(int(sys.argv[1]), *sys.argv[2:4])
