"""A program as a child process: its exit code, and what is watched meanwhile."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from rankplan.launchers.exec.child import run_child


def nothing() -> None:
    pass


@pytest.mark.parametrize(
    ("program", "code"), [("pass", 0), ("exit(7)", 7), ("import os; os.kill(os.getpid(), 9)", 137)]
)
def test_the_exit_code_is_that_of_the_program(program: str, code: int) -> None:
    assert run_child([sys.executable, "-c", program], dict(os.environ), nothing, 0.05) == code


def test_a_program_that_does_not_exist_is_not_started() -> None:
    with pytest.raises(FileNotFoundError):
        run_child(["no-such-program"], dict(os.environ), nothing, 0.05)


def test_it_is_watched_until_it_ends_and_signals_reach_it(tmp_path: Path) -> None:
    program = (
        "import pathlib, signal, sys, time\nsignal.signal(signal.SIGUSR1, lambda *_: sys.exit(3))\n"
        f"pathlib.Path({str(tmp_path / 'up')!r}).touch()\nwhile True: time.sleep(0.05)\n"
    )
    before = signal.getsignal(signal.SIGUSR1)
    looks = []

    def watch() -> None:
        looks.append(1)
        if (tmp_path / "up").exists():
            os.kill(os.getpid(), signal.SIGUSR1)

    assert run_child([sys.executable, "-c", program], dict(os.environ), watch, 0.05) == 3
    assert looks and signal.getsignal(signal.SIGUSR1) is before


def test_a_fault_of_the_watch_does_not_leave_the_program_alone(tmp_path: Path) -> None:
    def watch() -> None:
        raise RuntimeError("broken")

    done = tmp_path / "done"
    program = f"import pathlib, time\ntime.sleep(0.5)\npathlib.Path({str(done)!r}).touch()\n"
    with pytest.raises(RuntimeError, match="broken"):
        run_child([sys.executable, "-c", program], dict(os.environ), watch, 0.05)
    assert done.exists()
