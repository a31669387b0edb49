"""Shared by the tests with real Ray clusters, which never touch any other Ray cluster."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from rankplan import Cluster

# Ray reads these when it is imported: no usage reports, a token outside of the home folder, and a separate folder so
# that it finds no running cluster of this machine. The path is short because it contains sockets.
_FOLDER = tempfile.mkdtemp(prefix="rp-", dir="/tmp")
atexit.register(shutil.rmtree, _FOLDER, ignore_errors=True)
TOKEN = Path(_FOLDER, "auth_token")
TOKEN.write_text(uuid.uuid4().hex * 2)
os.environ.update(RAY_USAGE_STATS_ENABLED="0", RAY_AUTH_TOKEN_PATH=str(TOKEN), RAY_TMPDIR=_FOLDER)
for name in ("RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RANKPLAN_NODE_RANK", "RLINF_NODE_RANK"):
    os.environ.pop(name, None)

# No deadline, so that a slow machine fails no test. The examples are the same in each run, so that a change fails only
# by its own faults; HYPOTHESIS_PROFILE=deep tries many others.
settings.register_profile("quick", deadline=None, derandomize=True)
settings.register_profile("deep", deadline=None, max_examples=4000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the tests with Ray clusters first: the last ones, which run alone, should be short."""
    items.sort(key=lambda item: "runtime" not in item.path.parts)


@pytest.fixture(autouse=True)
def environment_stays() -> Iterator[None]:
    """Check that a test leaves the environment of this process as it was: the next test starts raylets from it."""
    before = _environment()
    yield
    after = _environment()
    assert after == before, f"changed: {sorted(name for name, _ in before.items() ^ after.items())}"


def _environment() -> dict[str, str]:
    """Return the environment without what pytest and ``ray.init()`` set."""
    theirs = ("PYTEST_", "PYTHONBREAKPOINT")
    return {name: value for name, value in os.environ.items() if not name.startswith(theirs)}


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run the test in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(autouse=True, scope="module")
def ports_stay() -> Iterator[None]:
    """Check that the groups of a module return their ports: this process hands each port out once."""
    before = _held_ports()
    yield
    assert _held_ports() == before


def _held_ports() -> dict[object, dict[str, set[int]]]:
    """Return the ports that this process has handed out, by holder and machine."""
    ports = sys.modules.get("rankplan.runtime.rank.ports")
    return {holder: held for holder, held in ports.PORTS._held.items() if any(held.values())} if ports else {}


@pytest.fixture(scope="module")
def two_nodes() -> Iterator[Cluster]:
    """Yield a cluster of two nodes with four accelerators each, shared by a module."""
    from rankplan import Cluster

    with Cluster.simulate("2x4") as cluster:
        yield cluster


@pytest.fixture
def nothing_stays(two_nodes: Cluster) -> Iterator[None]:
    """Check that no rank of the test keeps running; ranks that are ending get 20 seconds."""
    before = _ranks(two_nodes)
    yield
    deadline = time.monotonic() + 20.0
    while (left := _ranks(two_nodes) - before) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left


def _ranks(cluster: Cluster) -> set[int]:
    """Return the process ids of the ranks on a simulated cluster."""
    raylets = cluster._raylets
    assert raylets is not None
    return {pid for pid in (process.pid for process in raylets.processes()) if _title(pid).startswith(b"ray::Host")}


def _title(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
