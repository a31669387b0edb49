"""Times of calls, measured on real ranks: of a group, by ``rankplan run --timings``, and in the example."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from rankplan import Cluster, PackedPlacementStrategy, Timing, Worker, WorkerError, load_config
from rankplan.cli import main
from rankplan.runtime.rank.timing import slowest_rank
from support.paths import EXAMPLES

pytestmark = pytest.mark.long


class Sleeper(Worker):
    def nap(self, seconds: float) -> None:
        time.sleep(seconds * (1 + self.rank))

    async def doze(self) -> None:
        pass

    def fail(self) -> None:
        raise ValueError("too early")


def test_timings_of_a_group(two_nodes: Cluster, nothing_stays: None) -> None:
    with Sleeper.create_group().launch(two_nodes, PackedPlacementStrategy(0, 1)) as group:
        assert group.timings() == []
        before = time.time()
        group.nap(0.01).wait()
        group.doze().wait()
        with pytest.raises(WorkerError, match="too early"):
            group.fail().wait()
        group.execute_on(1).nap(0.01).wait()
        found = group.timings()
    assert [(one.method, one.rank) for one in found] == [
        ("nap", 0), ("doze", 0), ("nap", 1), ("doze", 1), ("nap", 1),
    ]  # fmt: skip
    assert all(one.seconds >= 0.01 * (1 + one.rank) for one in found if one.method == "nap")  # it slept so long
    assert all(before - 1 < one.started for one in found)
    with pytest.raises(WorkerError, match="was shut down"):
        group.timings()


def test_the_slowest_rank_counts() -> None:
    found = [Timing("run", rank, 0, seconds) for rank, seconds in ((0, 3.0), (1, 2.0), (1, 2.5))]
    assert (slowest_rank(found), slowest_rank([])) == (4.5, 0)


def test_run_adds_measured_times_to_a_costs_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("conf.yaml").write_text(
        "cluster: {num_nodes: 1, component_placement: {actor: {placement: 0-1, parallel: {tp: 2}}, rollout: 1}}\n"
    )
    Path("costs.yaml").write_text("batches: 4\ncomponents:\n  actor: {seconds: {2: 99, 4: 0.5}, memory: 3}\n")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "rankplan",
            "run",
            "conf.yaml",
            "--nodes",
            "1x2",
            "--simulate",
            "--timings",
            "costs.yaml",
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    costs = load_config("costs.yaml").to_dict()
    actor, rollout = costs["components"]["actor"], costs["components"]["rollout"]
    assert list(actor["seconds"]) == ["2", "4"] and actor["seconds"]["2"] != 99 and actor["seconds"]["4"] == 0.5
    assert (actor["memory"], actor["parallel"], costs["batches"]) == (3, {"tp": 2}, 4)
    assert list(rollout["seconds"]) == ["1"] and "parallel" not in rollout
    tuned = CliRunner().invoke(main, ["tune", "conf.yaml", "--costs", "costs.yaml", "--nodes", "1x2"])
    assert tuned.exit_code == 0, tuned.output


TRAIN = """\
import sys
from types import ModuleType, SimpleNamespace

from rankplan import Worker


class Train(Worker):
    def run(self):
        torch = ModuleType("torch")
        peaks = [1 << 30, (2 + self.rank) << 30]
        torch.cuda = SimpleNamespace(
            is_initialized=lambda: True, device_count=lambda: 2, max_memory_reserved=lambda index: peaks[index]
        )
        sys.modules["torch"] = torch
"""


def test_tune_takes_the_file_of_a_run_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the order of the roles, the micro-batches of RLinf's config, and the most memory on an accelerator."""
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(TRAIN)
    Path("nodes.yaml").write_text("nodes: [{ranks: 0, accelerators: [{memory: 81920}, {memory: 81920}]}]\n")
    Path("conf.yaml").write_text(
        "cluster: {num_nodes: 1, component_placement: {rollout: 0-1, inference: 0-1, actor: 0-1:0-3, judge: 1}}\n"
        "data: {rollout_batch_size: 64}\n"
    )
    line = "run conf.yaml --nodes nodes.yaml --simulate --worker train:Train --timings costs.yaml"
    done = subprocess.run([sys.executable, "-m", "rankplan", *line.split()], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "costs.yaml: add what `judge` waits for to `after`; no role has this name" in done.stderr
    costs = load_config("costs.yaml").to_dict()
    assert costs["batches"] == 64 and costs["memory"] == 80
    assert costs["after"] == {"inference": ["rollout"], "actor": ["inference"]}
    memory = {name: dict(one["memory"]) for name, one in costs["components"].items()}
    assert memory == {"rollout": {"2": 3}, "inference": {"2": 3}, "actor": {"2": 9}, "judge": {"1": 2}}
    beside = {"rollout": 1, "inference": 1, "judge": 1}
    assert costs["components"]["actor"]["peak"] == [
        {"call": "run", "accelerators": 2, "reserved": 9 << 30, "beside": beside}
    ]
    tuned = CliRunner().invoke(main, ["tune", "--costs", "costs.yaml", "--nodes", "1x2"])
    assert tuned.exit_code == 0 and re.search("rollout .* inference .* actor", tuned.output), tuned.output


def test_the_example_measures_tunes_and_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """The measured period is reported, not asserted: other work on the machine prolongs it."""
    done = subprocess.run([sys.executable, str(EXAMPLES / "tune.py")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    *ranking, last = done.stdout.splitlines()
    assert ranking[0].startswith("1: ") and last.startswith("predicted ") and ", measured " in last
    with capsys.disabled():
        print(f"\nexamples/tune.py: {last}")
