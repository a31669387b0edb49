"""Readings of drivers during a pinned program, from a library in place of NVML, and what is written of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
import rankplan
from rankplan import Costs, Plan
from rankplan.hardware import nvml
from rankplan.memory.settings import GIB
from rankplan.runtime.live.peaks import Ending, peak_lines, write_peaks
from rankplan.runtime.nodes.sampler import Metered, Sampler
from support.cards import libraries
from support.libraries import python
from support.paths import TESTS

HOLD = str(TESTS / "gpu" / "hold.py")
# This process stands for the raylet: its parent is no raylet, and what it starts later descends from it.
SAMPLES = """
import json, os, subprocess, sys, time
from pathlib import Path
from rankplan.runtime.nodes import sampler as sampling

def hold(*words):
    holder = subprocess.Popen([sys.executable, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline() == "held\\n"
    return holder

def until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)

sampling.os = type(os)("os")
sampling.os.getppid = os.getpid
before = hold(HOLD, "1000")
os.environ["CUDA_VISIBLE_DEVICES"] = "1"
sampler = sampling.Sampler(["0", "1", "2"])
own = hold(HOLD, "5000")
until(lambda: sampler.cards()[1].used)
own.communicate()
small = hold(HOLD, "2000")
until(lambda: small.pid in sampler._is_strange)
rows = [[one.used >> 20, one.total >> 20, [pid == before.pid for pid in one.strangers]]
        for one in sampler.cards()]
told = sampler.problem()
sampling.os.getppid = None
sampler._raylet = 1 << 30                        # nothing descends from it
other = hold(HOLD, "1")
until(lambda: other.pid in sampler._is_strange)
strangers = sampler.cards()[1].strangers == (other.pid,)
Path(os.environ["FAKE_USES"], "broken").touch()
until(sampler.problem)
print(json.dumps([rows, told, strangers, sampler.cards(), sampler.problem()]))
for holder in (before, small, other):
    holder.communicate()
"""


def test_the_most_that_each_accelerator_has_used_is_kept(tmp_path: Path) -> None:
    folder = libraries(tmp_path)
    (uses := tmp_path / "uses").mkdir()
    program = SAMPLES.replace("HOLD", repr(HOLD))
    found = json.loads(python(program, folder, FAKE_CARDS="3", FAKE_USES=str(uses), CUDA_VISIBLE_DEVICES="0"))
    rows, told, strangers, after, problem = found
    assert rows == [[1000, 81559, [True]], [5000, 81559, []], [0, 81559, []]]
    assert told == "" and strangers
    assert after == [None] * 3 and problem.startswith("NVML does not")


def test_a_stranger_counts_on_every_accelerator_that_it_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    opened, ended = Event(), Event()
    strangers = {1: (7,), 2: (7, 8), 3: (8,)}

    def loads(ids: list[str]) -> Iterator[list[nvml.Load | None]]:
        yield [nvml.Load(1, 8, ())] * 4
        yield [nvml.Load(1, 8, strangers.get(index, ())) for index in range(4)]
        yield [nvml.Load(1, 8, (7,)), *[nvml.Load(1, 8, ())] * 3]
        opened.set()
        ended.wait(60)

    monkeypatch.setattr(nvml, "loads", loads)
    monkeypatch.setattr("rankplan.runtime.nodes.sampler.ancestors", lambda pid: [])
    sampler = Sampler(["0", "1", "2", "3"])
    assert opened.wait(60)
    cards = sampler.cards()
    ended.set()
    assert [card and card.strangers for card in cards] == [(7,), (7,), (7, 8), (8,)]


def _plan() -> Plan:
    memory = {"training": "fsdp", "length": 4096, "micro_batch": 1}
    placement = {
        "actor": {"placement": "0-1", "memory": memory},
        "rollout": {"placement": "2-3", "memory": {"resident": "1 GiB"}},
    }
    return rankplan.plan({"cluster": {"num_nodes": 2, "component_placement": placement}}, "2x2")


def _plain(peaks: Any) -> dict[str, Any]:
    return {name: [peak.plain() for peak in found] for name, found in peaks.items()}


def _written(file: Path, cards: dict[tuple[int, int], Metered], **ending: Any) -> tuple[dict[str, Any], list[str]]:
    """Write the peaks of a run that ended like this; return what was written and the notes."""
    usual = {"code": 0, "seconds": 9.4, "is_over": True, "live": SimpleNamespace(compared=None)}
    binding: Any = SimpleNamespace(plan=_plan(), name=lambda rank: f"node {rank} (n{rank})")
    notes: list[str] = []
    peaks = write_peaks(file, binding, cards, Ending(**{**usual, **ending}), notes.append)
    return dict(peaks), notes


def _cards(*used: int, strangers: tuple[int, ...] = ()) -> dict[tuple[int, int], Metered]:
    """Return what four accelerators used at most, in GiB; the first one has strangers."""
    places = [(0, 0), (0, 1), (1, 0), (1, 1)]
    return {
        place: Metered(size * GIB, 80 * GIB, () if index else strangers)
        for index, (place, size) in enumerate(zip(places, used, strict=False))
    }


def test_peaks_of_a_finished_run_are_added_to_the_file(tmp_path: Path) -> None:
    file = tmp_path / "costs.yaml"
    file.write_text("batches: 4\ncomponents: {actor: {seconds: {2: 7}}}\n")
    peaks, notes = _written(file, _cards(30, 40, 20, 10))
    costs = Costs.load(file)
    assert _plain(costs.peaks) == _plain(peaks) and costs.batches == 4 and costs.components["actor"].written == (2,)
    assert {name: costs.components[name].memory for name in peaks} == {"actor": {2: 40}, "rollout": {2: 20}}
    assert notes == []
    assert list(peak_lines(peaks)) == [
        "memory of actor: at most 40.0 of 80.0 GiB of an accelerator",
        "memory of rollout: at most 20.0 of 80.0 GiB of an accelerator",
    ]
    _, notes = _written(file, _cards(31, 41, 21, 11), code=1, signals=(2,))
    assert Costs.load(file).components["actor"].memory == {2: 41}
    assert notes == [f"{file}: the program was interrupted after 9 s; its peaks count as those of a whole step"]


UNTOLD = SimpleNamespace(compared=SimpleNamespace(places={}, untold=1))


@pytest.mark.parametrize(
    ("ending", "note"),
    [
        ({"code": 1}, "the command failed with exit code 1, and may have needed more than it used"),
        ({"code": 137}, "the command failed with exit code 137, and may have needed more than it used"),
        ({"live": None}, "the ranks of the plan were not seen as planned"),
        ({"is_over": False}, "a job of the command is still running"),
        ({"live": UNTOLD}, "Ray does not tell which accelerators some ranks have"),
    ],
)
def test_a_file_stays_as_it_is_if_the_run_says_nothing(tmp_path: Path, ending: dict[str, Any], note: str) -> None:
    file = tmp_path / "costs.yaml"
    file.write_text("batches: 4\n")
    assert _written(file, _cards(30, 40, 20, 10), **ending) == ({}, [f"{file} is unchanged: {note}"])
    assert file.read_text() == "batches: 4\n"


def test_a_file_is_not_written_if_no_peak_is_known(tmp_path: Path) -> None:
    file = tmp_path / "costs.yaml"
    peaks, notes = _written(file, {})
    assert peaks == {} and notes[-1] == f"{file} is unchanged: no peak is known" and not file.exists()


def test_a_run_is_reported_though_its_peaks_cannot_be_written(tmp_path: Path) -> None:
    peaks, (note,) = _written(tmp_path, _cards(30, 40, 20, 10))
    assert peaks == {} and note.startswith(f"{tmp_path} is unchanged: ")


def test_what_others_use_is_no_peak_of_a_component(tmp_path: Path) -> None:
    peaks, notes = _written(tmp_path / "costs.yaml", _cards(30, 40, 20, 10, strangers=(7, 8)))
    assert list(peaks) == ["rollout"]
    place = "accelerator 0 of node 0 (n0)"
    assert notes == [f"no peak of `actor`: {place} also has processes 7, 8, which Ray did not start"]
    peaks, notes = _written(tmp_path / "costs.yaml", _cards(30, 40, 20))
    assert list(peaks) == ["actor"]
    place = "accelerator 1 of node 1 (n1)"
    assert notes == [f"no peak of `rollout`: the driver no longer tells what {place} uses"]


def test_the_peak_is_that_of_the_accelerators_that_the_ranks_were_given(tmp_path: Path) -> None:
    """Ray gave the second node's accelerators to the actor."""
    places = {"actor": {0: ((1, 0),), 1: ((1, 1),)}, "rollout": {0: ((0, 0),), 1: ((0, 1),)}}
    live = SimpleNamespace(compared=SimpleNamespace(places=places, untold=0))
    peaks, _ = _written(tmp_path / "costs.yaml", _cards(30, 40, 20, 10), live=live)
    assert {name: one.used for name, (one,) in peaks.items()} == {"actor": 20 * GIB, "rollout": 40 * GIB}
