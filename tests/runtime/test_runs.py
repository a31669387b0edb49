"""Which runs of `rankplan pin` are over, by their keys and the jobs of the head, without a cluster."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import replace
from typing import Any

import pytest
from rankplan.runtime.live.runs import Owner, owner_key, remove_ended
from rankplan.runtime.ray import timeouts
from rankplan.runtime.ray.tables import JobEntry, Tables
from rankplan_hook.names import METADATA, VARIABLE

RUN, OTHER = "0" * 16, "1" * 16
HERE = Owner.here()


class Head:
    """The store of a head with two runs, and its jobs."""

    def __init__(self, owner: Owner | None, *jobs: JobEntry) -> None:
        self._jobs = jobs
        self.store = {f"{run}/{key}": b"{}" for run in (RUN, OTHER) for key in ("plan", "claim/0/0")}
        self.store[owner_key(OTHER)] = HERE.written()
        if owner is not None:
            self.store[owner_key(RUN)] = owner.written()

    def keys(self, prefix: str) -> list[str]:
        return [key for key in self.store if key.startswith(prefix)]

    def get(self, key: str) -> bytes | None:
        return self.store.get(key)

    def tables(self) -> Tables:
        return Tables((), (), (), self._jobs, {})

    def remove(self, prefix: str) -> None:
        for key in self.keys(prefix):
            del self.store[key]


def job(run: str = RUN, *, ended: bool = False, job_id: str = "02000000") -> JobEntry:
    return JobEntry(job_id, ended, "train.py", "10.0.0.9", 1, {METADATA: run})


@pytest.fixture(scope="module")
def ended() -> Owner:
    """A process of this machine that has ended."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return replace(HERE, pid=process.pid)


REMOTE = replace(HERE, machine="another")
SILENT = replace(REMOTE, seen=time.time() - timeouts.FORGOTTEN - 1)
REUSED = replace(HERE, started=HERE.started - 1000)
"""The number of its process is that of another one now."""


@pytest.mark.parametrize(
    ("owner", "jobs", "stays"),
    [
        (HERE, [], True),
        (REUSED, [], False),
        (REUSED, [job()], True),
        (REUSED, [job(ended=True)], False),
        (REUSED, [job(OTHER)], False),
        (replace(REUSED, job="02000000"), [job(OTHER)], True),
        (REMOTE, [], True),
        (SILENT, [], False),
        (SILENT, [job()], True),
        (None, [], False),
        (None, [job()], True),
    ],
)
def test_only_runs_that_are_over_are_removed(owner: Owner | None, jobs: list[Any], stays: bool) -> None:
    head = Head(owner, *jobs)
    before = head.keys("")
    remove_ended(head)  # type: ignore[arg-type]
    left = head.keys("")
    assert left == (before if stays else [key for key in before if not key.startswith(RUN)])


def test_a_program_that_has_lost_its_pin_keeps_the_run(ended: Owner) -> None:
    head = Head(ended)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env={**os.environ, VARIABLE: RUN}):
        remove_ended(head)  # type: ignore[arg-type]
        assert head.keys(RUN)
    remove_ended(head)  # type: ignore[arg-type]
    assert not head.keys(RUN) and head.keys(OTHER)


def test_what_is_no_record_is_none() -> None:
    assert Owner.read(HERE.written()) == HERE
    for content in (None, b"", b"[1]", b"{}", b'{"pid": 1}', b"\xff"):
        assert Owner.read(content) is None
