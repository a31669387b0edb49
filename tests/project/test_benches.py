"""The benchmarks run. No test depends on a measured time."""

from __future__ import annotations

import subprocess
import sys

import pytest
from support.paths import ROOT


def test_the_table_of_the_bounds_of_memory() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "benches" / "memory.py")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    table = {line[:26].strip(): line[26:].split() for line in done.stdout.splitlines()[1:]}
    assert table["ran"][1] == table["did not fit"][2] == "0"
    for name in ("measured peaks", "measured steady states", "measured caches", "weights in logs", "sleeping engines"):
        assert table[name][0] == table[name][1], name


@pytest.mark.long
def test_the_large_cluster_benchmark_runs() -> None:
    command = [sys.executable, str(ROOT / "benches" / "large_cluster.py"), "--largest", "1024", "--seconds", "0"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    planned, refused, beside, _ = done.stdout.split("\n\n")
    assert len(planned.splitlines()) == len(refused.splitlines()) == 9 and "first call" in planned
    assert beside.startswith("before and after, 1,024\n")
