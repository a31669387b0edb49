"""All ranks of a node as child processes: signals are forwarded, and one failing rank ends the others."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType

from rankplan.frozen import frozen
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
    running = _Running()
    only_serving = all(rank.serves for rank, _ in ranks)
    code = 0
    is_ending = False
    with handled(dict.fromkeys(FORWARDED, running.send) | {signal.SIGALRM: running.kill}):
        running.start(ranks)
        while running.count:
            ended = running.wait()
            if ended is None or is_ending:
                continue
            has_succeeded = ended.code == 0 and (only_serving or not ended.rank.serves)
            if has_succeeded and (only_serving or not running.only_serve):
                continue
            is_ending = True
            if not has_succeeded:
                code = ended.exit_code
                others = f"; ending the other {running.count}" if running.count else ""
                tell(f"{ended.rank.component} rank {ended.rank.rank} ended with {ended.how}{others}")
            running.end(grace)
        signal.setitimer(signal.ITIMER_REAL, 0)
    return code


@frozen
class _Ended:
    """A rank that has ended, and how, as `os.waitstatus_to_exitcode` tells it: a signal is a negative number."""

    rank: RankProcess
    code: int

    @property
    def exit_code(self) -> int:
        """The exit code of a failure: a rank that serves fails with 0, too."""
        if self.code < 0:
            return 128 - self.code
        return self.code or 1

    @property
    def how(self) -> str:
        return f"signal {signal.Signals(-self.code).name}" if self.code < 0 else f"exit code {self.code}"


class _Running:
    """The ranks that run, by the ids of their processes."""

    def __init__(self) -> None:
        self._processes: dict[int, tuple[RankProcess, subprocess.Popen[bytes]]] = {}

    @property
    def count(self) -> int:
        return len(self._processes)

    @property
    def only_serve(self) -> bool:
        """Whether there are ranks, and all of them serve."""
        return bool(self._processes) and all(rank.serves for rank, _ in self._processes.values())

    def start(self, ranks: Sequence[tuple[RankProcess, Sequence[str]]]) -> None:
        """Start the commands of ranks; if one cannot be started, kill the others and wait for their end."""
        try:
            for rank, command in ranks:
                with _blocked():
                    process = _start(rank, command)
                    self._processes[process.pid] = rank, process
        except BaseException:
            self.send(signal.SIGKILL)
            while self._processes:
                self._processes.pop(os.wait()[0], None)
            raise

    def wait(self) -> _Ended | None:
        """Wait until a process ends; ``None`` for one that is no rank: adopted from a process that became this one."""
        pid, status = os.wait()
        if pid not in self._processes:
            return None
        rank, process = self._processes.pop(pid)
        process.returncode = os.waitstatus_to_exitcode(status)
        return _Ended(rank, process.returncode)

    def end(self, grace: float) -> None:
        """End all ranks: with SIGTERM, and with SIGKILL after ``grace`` seconds, when the alarm comes."""
        self.send(signal.SIGTERM)
        signal.setitimer(signal.ITIMER_REAL, grace)

    def send(self, number: int, _frame: FrameType | None = None) -> None:
        """Send a signal to all ranks and their children."""
        for pid in self._processes:
            with suppress(ProcessLookupError):
                os.killpg(pid, number)

    def kill(self, _number: int, _frame: FrameType | None) -> None:
        """Handle the alarm."""
        self.send(signal.SIGKILL)


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
