"""What the tests with real Ray clusters share. Nothing here touches a Ray cluster that is not the tests' own."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from rankplan import Cluster

# Ray reads these when it is imported: no reports to its makers, no token in the home folder, and a folder of our own so
# that no running cluster of this machine is found. Its path is short, for the sockets in it.
_FOLDER = tempfile.mkdtemp(prefix="rp-", dir="/tmp")
atexit.register(shutil.rmtree, _FOLDER, ignore_errors=True)
os.environ.update(RAY_USAGE_STATS_ENABLED="0", RAY_AUTH_MODE="disabled", RAY_TMPDIR=_FOLDER)
for name in ("RAY_ADDRESS", "RANKPLAN_NODE_RANK", "RLINF_NODE_RANK"):
    os.environ.pop(name, None)

# A slow machine makes no example wrong; HYPOTHESIS_PROFILE=deep looks longer.
settings.register_profile("quick", deadline=None)
settings.register_profile("deep", deadline=None, max_examples=4000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


@pytest.fixture(scope="module")
def two_nodes() -> Iterator[Cluster]:
    """Two nodes with four accelerators each, for the tests of a module."""
    from rankplan import Cluster

    with Cluster.simulate("2x4") as cluster:
        yield cluster


@pytest.fixture
def nothing_stays(two_nodes: Cluster) -> Iterator[None]:
    """Hold that no rank is left of what the test launched; those that are about to end have a moment for it."""
    before = _ranks(two_nodes)
    yield
    deadline = time.monotonic() + 20.0
    while (left := _ranks(two_nodes) - before) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left


def _ranks(cluster: Cluster) -> set[int]:
    """The process ids of the ranks on a simulated cluster."""
    raylets = cluster._raylets
    assert raylets is not None
    return {pid for pid in (process.pid for process in raylets.processes()) if _title(pid).startswith(b"ray::Host")}


def _title(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
