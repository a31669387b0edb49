"""The launchers, and those of other packages."""

from __future__ import annotations

from rankplan.guests.doors import Door, Table
from rankplan.launchers.launcher import Launcher

LAUNCHERS = Table(
    Door.LAUNCHERS,
    Launcher,
    {
        "kuberay": "rankplan.launchers.kuberay:LAUNCHER",
        "jobset": "rankplan.launchers.jobset:LAUNCHER",
        "lws": "rankplan.launchers.lws:LAUNCHER",
        "kueue": "rankplan.launchers.kueue:LAUNCHER",
        "slurm": "rankplan.launchers.slurm:LAUNCHER",
        "torchrun": "rankplan.launchers.torchrun:LAUNCHER",
        "mpirun": "rankplan.launchers.mpirun:LAUNCHER",
    },
)
"""By name, in the order in which they are asked whether a file is theirs."""
