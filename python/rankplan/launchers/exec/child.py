"""A program as a child process in a process group of its own, to which signals are passed on."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from types import FrameType

from rankplan.launchers.exec.node import FORWARDED, handled


def run_child(
    command: Sequence[str],
    environment: Mapping[str, str],
    watch: Callable[[], None],
    interval: float,
    passed_on: Callable[[int], None] = lambda number: None,
) -> int:
    """Run a command until it ends, and call ``watch`` every ``interval`` seconds; return the exit code.

    A command that a signal ended counts as ``128 + signal``. Signals are passed on to its process group, if this is the
    main thread, and ``passed_on`` is called with each. It goes on if this process dies. Its stdin is this one's, unless
    that is a terminal, from which a process group in the background cannot read. Raises ``OSError`` if it cannot be
    started.
    """
    stdin = subprocess.DEVNULL if sys.__stdin__ is None or sys.__stdin__.isatty() else None
    groups: list[int] = []
    early: list[int] = []

    def send(number: int, _frame: FrameType | None = None) -> None:
        passed_on(number)
        if not groups:
            early.append(number)
        for group in groups:
            with suppress(ProcessLookupError):
                os.killpg(group, number)

    in_main = threading.current_thread() is threading.main_thread()
    with handled(dict.fromkeys(FORWARDED, send)) if in_main else nullcontext():
        process = _started(command, environment, stdin)
        groups.append(process.pid)
        for number in list(early):
            send(number)
        try:
            while process.poll() is None:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(interval)
                    break
                watch()
        finally:
            code = process.wait()  # whatever happens to the watch, signals are passed on until the end
        return code if code >= 0 else 128 - code


def _started(command: Sequence[str], environment: Mapping[str, str], stdin: int | None) -> subprocess.Popen[bytes]:
    """Start a command in a process group of its own."""
    if sys.version_info >= (3, 11):
        return subprocess.Popen(list(command), env=environment, stdin=stdin, process_group=0)
    return subprocess.Popen(list(command), env=environment, stdin=stdin, preexec_fn=os.setpgrp)
