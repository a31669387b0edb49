"""All ranks of a node as child processes: signals are forwarded, and one failing rank ends the others."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType

from rankplan.launchers.exec.process import RankProcess

GRACE = 15.0
"""Seconds between SIGTERM and SIGKILL for the ranks that a failed one leaves behind."""

FORWARDED = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
_SET_DEATH_SIGNAL = 1
"""``PR_SET_PDEATHSIG`` of ``prctl``."""


def run_ranks(
    ranks: Sequence[tuple[RankProcess, Sequence[str]]], tell: Callable[[str], None], grace: float = GRACE
) -> int:
    """Run the commands of ranks until all have ended; return the exit code of the first that failed, or 0.

    A rank that serves ends with the others: it gets SIGTERM once these have ended well. If it ends before, it has
    failed. A rank that a signal ended counts as ``128 + signal``. If a rank fails, ``tell`` gets a line about it, and
    the others get SIGTERM, and SIGKILL after ``grace`` seconds. If this process dies, its ranks get SIGTERM, on Linux.
    Raises ``OSError`` if a command cannot be started; those already started are ended.
    """
    running: dict[int, tuple[RankProcess, subprocess.Popen[bytes]]] = {}

    def send(number: int, _frame: FrameType | None = None) -> None:
        for pid in running:
            with suppress(ProcessLookupError):
                os.killpg(pid, number)

    def kill(_number: int, _frame: FrameType | None) -> None:
        send(signal.SIGKILL)

    code, only_serving = 0, all(rank.serves for rank, _ in ranks)
    is_over = False
    with handled(dict.fromkeys(FORWARDED, send) | {signal.SIGALRM: kill}):
        try:
            for rank, command in ranks:
                with _blocked():
                    process = _start(rank, command)
                    running[process.pid] = rank, process
        except BaseException:
            send(signal.SIGKILL)
            while running:
                running.pop(os.wait()[0], None)
            raise
        while running:
            pid, status = os.wait()
            ended = os.waitstatus_to_exitcode(status)
            if pid not in running:
                continue  # adopted from a process that became this one
            rank, process = running.pop(pid)
            process.returncode = ended
            if code or is_over:
                continue
            is_lost = ended == 0 and rank.serves and not only_serving
            if ended == 0 and not is_lost:
                is_over = bool(running) and not only_serving and all(rank.serves for rank, _ in running.values())
                if is_over:
                    send(signal.SIGTERM)
                    signal.setitimer(signal.ITIMER_REAL, grace)
                continue
            code = ended if ended > 0 else 128 - ended if ended else 1
            how = f"signal {signal.Signals(-ended).name}" if ended < 0 else f"exit code {ended}"
            rest = f"; ending the other {len(running)}" if running else ""
            tell(f"{rank.component} rank {rank.rank} ended with {how}{rest}")
            send(signal.SIGTERM)
            signal.setitimer(signal.ITIMER_REAL, grace)
        signal.setitimer(signal.ITIMER_REAL, 0)
    return code


def _start(rank: RankProcess, command: Sequence[str]) -> subprocess.Popen[bytes]:
    parent = os.getpid()

    def prepare() -> None:
        os.setpgrp()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGTERM)
            if os.getppid() != parent:
                os._exit(128 + signal.SIGTERM)
        rank.bind()

    return subprocess.Popen(
        rank.arguments(command),
        env=rank.environment,
        stdin=subprocess.DEVNULL,
        preexec_fn=prepare,  # there is one thread
    )


@contextmanager
def _blocked() -> Iterator[None]:
    """Delay the forwarded signals: between the start of a process and its entry in the table, none would reach it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def handled(handlers: dict[signal.Signals, Callable[[int, FrameType | None], None]]) -> Iterator[None]:
    """Handle signals; one that is ignored, as SIGHUP under nohup, stays ignored."""
    before = {number: signal.getsignal(number) for number in handlers}
    used = {number: handler for number, handler in before.items() if handler is not signal.SIG_IGN}
    for number in used:
        signal.signal(number, handlers[number])
    try:
        yield
    finally:
        for number, handler in used.items():
            signal.signal(number, handler)
