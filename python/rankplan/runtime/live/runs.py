"""The runs of ``rankplan pin`` in the head's store: the process that each belongs to, and the end of dead ones.

A run removes its keys when it ends, unless it is killed, or a job of it goes on. The next look at the cluster removes
them then.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import psutil
from rankplan_hook.names import METADATA, VARIABLE

from rankplan.frozen import frozen
from rankplan.runtime.nodes.processes import family
from rankplan.runtime.ray import timeouts
from rankplan.runtime.ray.head import Head
from rankplan.runtime.ray.tables import Tables

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_NAMESPACE = Path("/proc/self/ns/pid")


@frozen
class Owner:
    """The process that a run belongs to: ``rankplan pin``, or the program of `rankplan.pinned` with its ``job``.

    ``machine`` names the machine and the pid namespace in which ``pid`` is a number, empty if the system does not tell.
    ``started`` and ``seen`` are Unix times: when the process started, and when it last wrote this.
    """

    machine: str
    pid: int
    started: float
    seen: float
    job: str | None = None

    @classmethod
    def here(cls, job: str | None = None) -> Owner:
        """Return the record of this process."""
        return cls(_machine(), os.getpid(), psutil.Process().create_time(), time.time(), job)

    @classmethod
    def read(cls, content: bytes | None) -> Owner | None:
        """Return the record that `written` has made, ``None`` for anything else."""
        try:
            return cls(**json.loads(content or b"null"))
        except (ValueError, TypeError):
            return None

    def written(self) -> bytes:
        """Return the record for the store."""
        return json.dumps(asdict(self)).encode()

    def may_live(self, run: str) -> bool:
        """Whether this process, or the program that it has started, may still run.

        On its own machine the table of processes decides. Elsewhere it lives as long as it keeps writing.
        """
        if self.machine and self.machine == _machine():
            return self._is_process() or bool(family(f"{VARIABLE}={run}"))
        return time.time() - self.seen < timeouts.FORGOTTEN

    def _is_process(self) -> bool:
        try:
            process = psutil.Process(self.pid)
            is_same = abs(process.create_time() - self.started) < 1.0
            return bool(is_same and process.status() != psutil.STATUS_ZOMBIE)
        except psutil.NoSuchProcess:
            return False


def _machine() -> str:
    """Return a name of this machine, since its start, and of the pid namespace of this process."""
    try:
        return f"{_BOOT.read_text().strip()} {_NAMESPACE.readlink()}"
    except OSError:
        return ""


def owner_key(run: str) -> str:
    """Return the key with the owner of a run."""
    return f"{run}/owner"


def remove_ended(head: Head) -> None:
    """Remove the keys of runs whose process, program and jobs have all ended. Raises ``ClusterError``."""
    # the keys first: a job that joins later belongs to a run whose process or program is seen below
    runs = dict.fromkeys(key.partition("/")[0] for key in head.keys(""))
    if not runs:
        return
    tables = head.tables()
    owners = {run: Owner.read(head.get(owner_key(run))) for run in runs}
    for run, owner in owners.items():
        if not _has_job(tables, run, owner) and not (owner is not None and owner.may_live(run)):
            head.remove(f"{run}/")


def _has_job(tables: Tables, run: str, owner: Owner | None) -> bool:
    """Whether a job of a run has not ended."""
    own = None if owner is None else owner.job
    running: Mapping[str, str | None] = {job.job_id: job.metadata.get(METADATA) for job in tables.jobs if not job.ended}
    return run in running.values() or own in running
