"""A real Slurm on the loopback device: its own daemons, nodes and accounting-free configuration in one folder."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_TOOL = Path(__file__).with_name("slurm_loopback.sh")
_NEEDED = ("sbatch", "srun", "slurmctld", "slurmd", "munged")


def why_no_slurm() -> str | None:
    """Return why Slurm cannot be started here, ``None`` if it can."""
    if missing := [program for program in _NEEDED if shutil.which(program) is None]:
        return f"Slurm is not installed (no {', '.join(missing)}); Debian: apt-get install slurm-wlm"
    return None if os.geteuid() == 0 else "only root can start Slurm's daemons"


class Slurm:
    """A running cluster; ``run`` submits a job and returns its output."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder, self.environment = folder, environment

    def tool(self, command: str, *words: str) -> str:
        """Return the output of a command of the tool."""
        shell = [str(_TOOL), command, str(self.folder), *words]
        done = subprocess.run(shell, env=self.environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def run(self, script: str) -> str:
        """Return what a batch script writes. Options that this release lacks are left out."""
        path = self.folder / "job.sbatch"
        path.write_text(self.accepted(script))
        self.tool("check", str(path))
        return self.tool("run", str(path))

    def accepted(self, script: str) -> str:
        """Return a script without ``--segment`` where Slurm is older than 24.05."""
        version = subprocess.run(["sbatch", "--version"], capture_output=True, text=True).stdout
        found = re.search(r"([0-9]+)\.([0-9]+)", version)
        if found is not None and (int(found[1]), int(found[2])) >= (24, 5):
            return script
        return re.sub(r"^#SBATCH --segment=[0-9]+\n", "", script, flags=re.M)


def own_rankplan(folder: Path) -> dict[str, str]:
    """Return an environment whose ``rankplan`` is the one under test."""
    program = folder / "bin" / "rankplan"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m rankplan "$@"\n')
    program.chmod(0o755)
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path}


@contextmanager
def slurm(folder: Path, nodes: str) -> Iterator[Slurm]:
    """Start Slurm with nodes such as ``2x8,1x4``, n0, n1 and so on, of so many GPUs; skip the test where it cannot."""
    if (why := why_no_slurm()) is not None:
        pytest.skip(why)
    found = Slurm(folder, {**own_rankplan(folder), "PORT": str(_free_ports(64)), "TMPDIR": str(folder)})
    found.tool("start", nodes)
    try:
        yield found
    finally:
        found.tool("stop")


def _free_ports(count: int) -> int:
    """Return the first of so many ports that nothing listens on, below those that the kernel hands out."""
    start = 17000 + os.getpid() % 100 * count
    for first in range(start, start + 100 * count, count):
        with socket.socket() as one, socket.socket() as other:
            try:
                one.bind(("127.0.0.1", first))
                other.bind(("127.0.0.1", first + count - 1))
            except OSError:
                continue
            return first
    raise OSError("no free ports")
