"""Measured peaks of memory: what a run writes, and when it replaces the bounds of a phase."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import rankplan
from rankplan import Costs, Plan
from rankplan.memory.need import Need
from rankplan.memory.peaks import Peak
from rankplan.memory.settings import GIB
from rankplan.parallel import NO_SIZES
from rankplan.read.text.load import load_config
from rankplan.runtime.rank.memory import MemoryUse, memory_use
from rankplan.tuning.measurements import DriverPeak, Measurement, Run, add_measurements, driver_peaks, peak

TRAINER = {"training": "megatron", "tokens": 16384, "length": 4096, "sleep": "host"}
REWARD = {"resident": "10 GiB", "sleep": "none"}
RUN = Run({}, (), 1, None)
TIMES = {"components": {"actor": {"seconds": {8: 1}}}}
USE = MemoryUse(allocated=30 * GIB, reserved=40 * GIB, kept=38 * GIB, used=52 * GIB, total=80 * GIB)


def _plan(card: str = "80 GiB", placement: str = "0-7", *, reward: bool = True, **changes: Any) -> Plan:
    components: dict[str, Any] = {
        "actor": {"placement": placement, "parallel": {"tp": changes.pop("tp", 4)}, "memory": TRAINER | changes}
    }
    if reward:
        components["reward"] = {"placement": "0-7", "memory": REWARD}
    section = {"num_nodes": 1, "model": "Qwen/Qwen2.5-7B", "accelerator_memory": card}
    return rankplan.plan({"cluster": section | {"component_placement": components}}, "1x8")


def _costs(file: Path, plan: Plan, uses: Sequence[MemoryUse | None]) -> Costs:
    found = peak(plan, "actor", "run", uses)
    measured = {
        name: Measurement(8, 12.0, plan[name].parallel, (found,) if found and name == "actor" else ()) for name in plan
    }
    add_measurements(file, measured, Run.of(plan, None))
    return Costs.load(file)


def _train(plan: Plan, costs: Costs) -> Need:
    return plan.memory(costs)["actor",]["train"]


def test_a_measured_peak_replaces_both_bounds(tmp_path: Path) -> None:
    plan = _plan()
    costs = _costs(tmp_path / "costs.yaml", plan, [USE] * 8)
    need = _train(plan, costs)
    assert need.measured
    assert need.lower == need.upper == (52 + 40 - 38) * GIB
    assert need.answer == "fits"
    assert plan.memory()["actor",]["train"].answer == "likely fits"
    assert not plan.memory(costs)["reward",]["resident"].measured


def test_other_settings_are_not_measured(tmp_path: Path) -> None:
    costs = _costs(tmp_path / "costs.yaml", _plan(), [USE] * 8)
    others = [
        _plan(tp=8),
        _plan("141 GiB"),
        _plan(placement="0-3"),
        _plan(tokens=8192),
        _plan(recompute="full"),
        _plan(length=8192),
    ]
    for other in others:
        assert _train(other, costs) == _train(other, Costs.from_dict({"components": {"actor": {"seconds": {8: 1}}}}))
        assert not _train(other, costs).measured


def test_a_shorter_sequence_has_an_upper_bound_only(tmp_path: Path) -> None:
    costs = _costs(tmp_path / "costs.yaml", _plan(), [USE] * 8)
    shorter = _plan(length=2048)
    need, before = _train(shorter, costs), shorter.memory()["actor",]["train"]
    assert need.lower == before.lower
    assert need.upper == 54 * GIB < before.upper


def test_the_least_peak_of_longer_sequences_is_the_upper_bound(tmp_path: Path) -> None:
    peaks = {8192: 52, 16384: 48, 32768: 60}
    before = _plan(length=4096).memory()["actor",]["train"]
    for index, lengths in enumerate(itertools.permutations(peaks)):
        for length in lengths:
            use = replace(USE, used=peaks[length] * GIB)
            costs = _costs(tmp_path / f"costs{index}.yaml", _plan(length=length), [use] * 8)
        need = _train(_plan(length=4096), costs)
        assert need.measured
        assert (need.lower, need.upper) == (before.lower, (48 + 40 - 38) * GIB)


def test_the_peak_of_a_longer_sequence_never_widens_the_bounds(tmp_path: Path) -> None:
    before = _plan("400 GiB").memory()["actor",]["train"]
    for used, bounds in ((1, (3 * GIB, 3 * GIB)), (390, (before.lower, before.upper))):
        use = replace(USE, used=used * GIB, total=400 * GIB)
        longer = _plan("400 GiB", length=8192)
        need = _train(_plan("400 GiB"), _costs(tmp_path / f"{used}.yaml", longer, [use] * 8))
        assert (need.lower, need.upper) == bounds
        assert need.measured == (need.upper < before.upper)


def test_beside_other_processes_only_what_pytorch_counts_is_known(tmp_path: Path) -> None:
    costs = _costs(tmp_path / "costs.yaml", _plan(), [USE] * 8)
    alone = _plan(reward=False)
    need = _train(alone, costs)
    assert need.parts["measured"] == (40 * GIB, 40 * GIB)
    assert need.parts["communication"][1] == 4 * GIB
    assert need.lower == 40 * GIB < need.upper < 46 * GIB
    without_driver = MemoryUse(reserved=40 * GIB, total=80 * GIB)
    costs = _costs(tmp_path / "other.yaml", _plan(), [without_driver] * 8)
    need = _train(_plan(), costs)
    assert need.parts["reward asleep"] == (10 * GIB, 10 * GIB)
    assert need.lower == 50 * GIB


def test_the_fullest_accelerator_counts_with_all_its_processes() -> None:
    plan = _plan(placement="0-3:0-7", tp=8)
    uses = [MemoryUse(reserved=size * GIB) for size in (1, 1, 2, 3, 1, 1, 4, 0)]
    found = peak(plan, "actor", "run", uses)
    assert found is not None
    assert (found.reserved, found.used, found.of, found.allocated) == (5 * GIB, None, None, None)
    assert found.beside == {"reward": 1}
    assert peak(plan, "actor", "run", [None] * 8) is None
    assert peak(plan, "actor", "run", [MemoryUse(used=GIB, total=GIB)] * 8) is None  # not the process's own


def test_what_others_use_meanwhile_never_exceeds_the_accelerator() -> None:
    full = MemoryUse(allocated=GIB, reserved=40 * GIB, kept=0, used=79 * GIB, total=80 * GIB)
    found = peak(_plan(), "actor", "run", [full] * 8)
    assert found is not None
    assert found.used == 80 * GIB


def test_a_second_run_replaces_the_first(tmp_path: Path) -> None:
    file = tmp_path / "costs.yaml"
    _costs(file, _plan(), [USE] * 8)
    _costs(file, _plan(), [MemoryUse(GIB, 2 * GIB, 2 * GIB, 3 * GIB, 80 * GIB)] * 8)
    costs = _costs(file, _plan(tokens=1024), [USE] * 8)
    peaks = costs.peaks["actor"]
    assert [one.reserved // GIB for one in peaks] == [2, 40]
    assert Costs.from_dict(costs.to_dict()).peaks == costs.peaks
    plain = load_config(file).to_dict()["components"]["actor"]
    assert plain["memory"] == {"8": 40}
    stated = {key: value for key, value in TRAINER.items() if key != "length"}
    assert plain["peak"][0]["memory"] == {"model": "Qwen/Qwen2.5-7B", **stated}


@pytest.mark.parametrize(
    "bad",
    [
        3,
        [3],
        [{"call": "run"}],
        [{"call": "run", "accelerators": 8, "reserved": -1}],
        [{"call": "run", "accelerators": 8}],
    ],
)
def test_a_peak_that_is_none_is_a_fault_with_a_place(bad: Any) -> None:
    with pytest.raises(rankplan.PlacementError) as caught:
        Costs.from_dict({"components": {"actor": {"seconds": {8: 1}, "peak": bad}}})
    assert all(str(fault.path).startswith("components.actor.peak") and fault.help for fault in caught.value.diagnostics)


def test_what_a_process_has_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert memory_use([]) is None
    torch = ModuleType("torch")
    monkeypatch.setitem(sys.modules, "torch", torch)
    torch.cuda = SimpleNamespace(  # type: ignore[attr-defined]
        is_initialized=lambda: True,
        device_count=lambda: 2,
        max_memory_reserved=lambda index: (40 + index) * GIB,
        max_memory_allocated=lambda index: 30 * GIB,
        memory_reserved=lambda index: 38 * GIB,
        mem_get_info=lambda index: (28 * GIB, 80 * GIB),
    )
    assert memory_use([]) == MemoryUse(30 * GIB, 41 * GIB, 38 * GIB, 52 * GIB, 80 * GIB)
    del torch.cuda.mem_get_info
    assert memory_use([]) == MemoryUse(reserved=41 * GIB)


def test_the_driver_counts_for_a_process_without_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {0: (5, 80), 1: (7, 80)}
    nvml = ModuleType("pynvml")
    vars(nvml).update(
        NVMLError=type("NVMLError", (Exception,), {}),
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetHandleByUUID=lambda name: {"GPU-b": 1}[name],
        nvmlDeviceGetMemoryInfo=lambda index: SimpleNamespace(used=sizes[index][0], total=sizes[index][1]),
    )
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert memory_use(["0", "GPU-b"]) == MemoryUse(used=7, total=80)


def _whole_run(plan: Plan, *used: int) -> dict[str, tuple[Peak, ...]]:
    """Return the peaks of a plan whose accelerators used so many GiB at most."""
    return driver_peaks(plan, "pin", {(0, index): DriverPeak(size * GIB, 80 * GIB) for index, size in enumerate(used)})


def test_a_whole_run_bounds_every_phase_of_components_that_share_from_above(tmp_path: Path) -> None:
    plan = _plan()
    peaks = _whole_run(plan, 50, 51, 57, 50, 50, 50, 50, 50)
    assert {name: [(one.used, one.beside, one.whole_run) for one in found] for name, found in peaks.items()} == {
        "actor": [(57 * GIB, {"reward": 1}, True)],
        "reward": [(57 * GIB, {"actor": 1}, True)],
    }
    file = tmp_path / "costs.yaml"
    add_measurements(file, {name: Measurement(8, None, NO_SIZES, found) for name, found in peaks.items()}, RUN)
    costs = Costs.load(file)
    for name, found in peaks.items():
        assert [one.plain() for one in costs.peaks[name]] == [one.plain() for one in found]
    assert not costs.components["actor"].memory, "nobody knows which part is the actor's"
    before = plan.memory()
    need = _train(plan, costs)
    assert (need.lower, need.upper, need.measured) == (_train(plan, Costs.from_dict(TIMES)).lower, 57 * GIB, True)
    assert (before["actor",]["train"].answer, need.answer) == ("likely fits", "fits")
    assert not _train(_plan(reward=False), costs).measured  # with others beside it, the number says nothing


def test_a_component_alone_on_its_accelerators_has_their_peak(tmp_path: Path) -> None:
    plan = _plan(reward=False)
    peaks = _whole_run(plan, 50, 51, 57, 50, 50, 50, 50, 50)
    file = tmp_path / "costs.yaml"
    add_measurements(file, {"actor": Measurement(8, None, NO_SIZES, peaks["actor"])}, RUN)
    costs = Costs.load(file)
    assert costs.components["actor"].memory == {8: 57}
    assert _train(plan, costs).parts == {"measured": (57 * GIB, 57 * GIB)}
    assert _whole_run(plan, 50, 51, 57) == {}, "an accelerator is unknown"
    with pytest.raises(rankplan.PlacementError, match="component `actor` has no times"):
        rankplan.tune(costs, "1x8")


def test_a_switch_is_bounded_by_a_whole_run_only() -> None:
    engine = {"placement": "0-7:0-1", "memory": {"engine": "vllm", "share": 0.6, "sleep": "host"}}
    actor = {"placement": "0-7", "parallel": {"tp": 4}, "memory": TRAINER}
    section = {"num_nodes": 1, "model": "Qwen/Qwen2.5-7B", "accelerator_memory": "80 GiB"}
    plan = rankplan.plan({"cluster": section | {"component_placement": {"actor": actor, "rollout": engine}}}, "1x8")
    [whole] = _whole_run(plan, *[30] * 8)["actor"]
    both = "actor", "rollout"
    before = plan.memory()[both]["switch"]
    for measured, upper in ((whole, 30 * GIB), (replace(whole, whole_run=False), before.upper)):
        content = {"components": {"actor": {"seconds": {8: 1}, "peak": [measured.plain()]}}}
        assert plan.memory(Costs.from_dict(content))[both]["switch"].upper == min(upper, before.upper)
