"""The memory of placements to tune: what is filled in, what is marked, and what is dropped with its reason."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import rankplan
from rankplan import Tuning
from rankplan.errors import PlacementError
from rankplan.memory.settings import GIB
from rankplan.render.tuning import reason_lines, tuning_json
from rankplan.tuning.memory import HOST_BANDWIDTH
from support.commands import run

TRAINER = {"training": "megatron", "gradients": "fp32", "recompute": "full", "tokens": 4096, "sleep": "host"}
ENGINE = {"engine": "vllm", "share": 0.6, "length": 4096, "sleep": "host"}
SECONDS: dict[str, Any] = {"rollout": {"seconds": {8: 60, 16: 34}}, "actor": {"seconds": {8: 50, 16: 30}}}


def _config(card: str | None = "80 GiB", *, model: str | None = "Qwen/Qwen2.5-7B", **changes: Any) -> dict[str, Any]:
    components = {
        "actor": {"placement": "0-15", "parallel": {"tp": 8}, "memory": TRAINER | changes},
        "rollout": {"placement": "0-15", "parallel": {"tp": 4}, "memory": ENGINE},
    }
    section = {"num_nodes": 2, "model": model, "accelerator_memory": card}
    stated = {key: value for key, value in section.items() if value is not None}
    if model is None:
        components = {name: {**entry} for name, entry in components.items()}
        for entry in components.values():
            del entry["memory"]
    return {"cluster": stated | {"component_placement": components}}


def _tuned(config: dict[str, Any], **costs: Any) -> Tuning:
    content = {"after": {"actor": ["rollout"]}, "components": SECONDS} | costs
    return rankplan.tune(content, "2x8", config)


def test_memory_and_switch_are_filled_in_from_the_lower_bound() -> None:
    costs = _tuned(_config()).costs
    actor, rollout = costs.components["actor"], costs.components["rollout"]
    bounds = rankplan.plan(_config(), "2x8").memory()
    own = sum(low for name, (low, _) in bounds["actor",]["train"].parts.items() if "asleep" not in name)
    assert actor.memory[16] == own / GIB
    assert actor.memory[8] > actor.memory[16]  # twice the part of the optimizer
    assert actor.switch == 2 * own / HOST_BANDWIDTH
    assert set(rollout.memory.values()) == {rollout.memory[4]}  # more engines, not smaller ones
    assert (costs.capacity, costs.estimated) == (80, ("rollout", "actor"))


def test_what_is_stated_wins() -> None:
    stated = {"actor": SECONDS["actor"] | {"memory": 30, "switch": 0}, "rollout": SECONDS["rollout"]}
    costs = _tuned(_config(), components=stated, memory=70).costs
    assert dict(costs.components["actor"].memory) == {0: 30}
    assert costs.components["actor"].switch == 0
    assert (costs.capacity, costs.estimated) == (70, ("rollout",))
    other_unit = _tuned(_config(), memory=80e9).costs
    assert (other_unit.capacity, other_unit.estimated, other_unit.components["actor"].memory) == (80e9, (), {})


@pytest.mark.parametrize("config", [_config(model=None), _config(None)])
def test_without_a_model_or_an_accelerator_nothing_changes(config: dict[str, Any]) -> None:
    tuning = _tuned(config)
    assert (tuning.costs.capacity, tuning.costs.estimated) == (None, ())
    assert "memory" not in "".join(reason_lines(tuning))


def test_each_placement_is_marked() -> None:
    assert {one.memory for one in _tuned(_config()).ranking} <= {"fits", "likely fits"}
    assert {one.memory for one in _tuned(_config(tokens=100_000, recompute="none")).ranking} == {"likely exceeds"}
    assert {one.memory for one in _tuned(_config(model=None)).ranking} == {None}
    assert all(entry["memory"].endswith("fits") for entry in json.loads(tuning_json(_tuned(_config())))["ranking"])


def test_what_is_refused_is_dropped_with_its_reason() -> None:
    """On half of the accelerators the optimizer has half as many parts; a stated memory lets them be searched."""
    components = {name: one | {"memory": 1} for name, one in SECONDS.items()}
    tuning = _tuned(_config("60 GiB", model="Qwen/Qwen2.5-32B"), components=components, memory=80)
    assert {one.sharing for one in tuning.ranking} == {"collocated"}
    (refused,) = tuning.rejected
    assert refused.sharing == "disaggregated"
    assert refused.diagnostics[0].code == "memory-exceeded"
    assert refused.diagnostics[0].help
    assert any(
        line.startswith("rejected: disaggregated, ") and "memory-exceeded" in line for line in reason_lines(tuning)
    )
    with pytest.raises(PlacementError) as caught:
        _tuned(_config("20 GiB", model="Qwen/Qwen2.5-32B"), components=components, memory=80)
    assert {fault.code for fault in caught.value.diagnostics} >= {"engine-share", "memory-exceeded"}


def _best(tuning_costs: dict[str, Any], config: dict[str, Any], nodes: str) -> dict[str, float]:
    """Return the seconds of the best placement of each way to share, nothing if all are refused."""
    try:
        tuning = rankplan.tune(
            {"after": {"actor": ["rollout"]}, "memory": 80, "components": tuning_costs}, nodes, config
        )
    except PlacementError:
        return {}
    return {one.sharing: one.seconds for one in tuning.ranking}


@pytest.mark.parametrize(
    ("card", "changes", "ways"),
    [
        ("60 GiB", {}, {"collocated", "disaggregated"}),  # the actor needs 16 accelerators
        ("70 GiB", {"sleep": "none"}, {"collocated", "disaggregated"}),  # and more, where it shares them
        ("90 GiB", {"sleep": "none"}, {"collocated", "disaggregated"}),
        ("20 GiB", {}, set()),  # nothing fits
    ],
)
def test_a_slower_schedule_takes_the_place_of_a_refused_one(card: str, changes: dict[str, Any], ways: set[str]) -> None:
    """The oracle tunes every pair of sizes on its own."""
    sizes = (8, 16, 24)
    seconds = {"rollout": {8: 90, 16: 34, 24: 30}, "actor": {8: 30, 16: 28, 24: 27}}
    config = _config(card, model="Qwen/Qwen2.5-32B", **changes)
    alone: dict[str, float] = {}
    for pair in itertools.product(sizes, sizes):
        costs = {
            name: {"seconds": seconds[name], "memory": 1, "sizes": [size]}
            for name, size in zip(("rollout", "actor"), pair, strict=True)
        }
        for sharing, one in _best(costs, config, "3x8").items():
            alone[sharing] = min(alone.get(sharing, one), one)
    costs = {name: {"seconds": one, "memory": 1, "sizes": list(sizes)} for name, one in seconds.items()}
    assert _best(costs, config, "3x8") == alone
    assert alone.keys() == ways


def test_the_keys_of_a_trainer_tell_the_memory_of_a_placement() -> None:
    verl = {
        "trainer": {"nnodes": 2, "n_gpus_per_node": 8},
        "algorithm": {"adv_estimator": "grpo"},
        "actor_rollout_ref": {
            "model": {"path": "Qwen/Qwen2.5-32B"},
            "actor": {"strategy": "fsdp2"},
            "rollout": {"name": "vllm", "tensor_model_parallel_size": 4},
        },
    }
    content = {"after": {"actor": ["rollout"]}, "components": SECONDS}
    plain = rankplan.tune(content, "2x8", verl)
    assert {one.memory for one in plain.ranking} == {"unknown"}  # no accelerator is known
    cards = rankplan.Inventory.from_dict({"nodes": [{"ranks": "0-1", "accelerators": 8, "accelerator_model": "L4"}]})
    with pytest.raises(PlacementError) as caught:
        rankplan.tune(content, cards, verl)
    assert {one.code for one in caught.value.diagnostics} <= {"memory-exceeded", "engine-share", "size-does-not-fit"}


def test_a_passed_model_tells_the_memory_of_a_placement(tmp_path: Path) -> None:
    config = _config(None, model=None)
    for entry, memory in zip(config["cluster"]["component_placement"].values(), (TRAINER, ENGINE), strict=True):
        entry["memory"] = memory
    files = [str(tmp_path / "conf.yaml"), "--costs", str(tmp_path / "costs.yaml"), "--nodes", "2x8:L4"]
    Path(files[0]).write_text(json.dumps(config))
    Path(files[2]).write_text(json.dumps({"after": {"actor": ["rollout"]}, "components": SECONDS}))
    assert run("tune", *files).exit_code == 0
    refused = run("tune", *files, "--model", "Qwen/Qwen2.5-32B")
    assert refused.exit_code == 1 and "[memory-exceeded]" in refused.output
    job = tmp_path / "run.job.yaml"
    job.write_text("job: conf.yaml\nmemory: {model: Qwen/Qwen2.5-32B}\n")
    assert run("tune", str(job), *files[1:]).output == refused.output.replace("conf.yaml", "run.job.yaml")
    without_file = run("tune", *files[1:], "--model", "Qwen/Qwen2.5-32B")
    assert without_file.exit_code == 2 and "--model names the model of the components of FILE" in without_file.output


def test_the_placement_keeps_what_its_components_state(tmp_path: Path) -> None:
    tuning = _tuned(_config())
    section = tuning.best.config["cluster"]
    assert section["component_placement"]["actor"]["memory"] == TRAINER
    assert tuning.plan.memory()["actor",]["train"].answer == "likely fits"
    (tmp_path / "conf.yaml").write_text(json.dumps(_config()))
    (tmp_path / "costs.yaml").write_text(json.dumps({"after": {"actor": ["rollout"]}, "components": SECONDS}))
    files = [str(tmp_path / "conf.yaml"), "--costs", str(tmp_path / "costs.yaml")]
    done = run("tune", *files, "--nodes", "2x8")
    assert done.exit_code == 0, done.output
    assert done.output.splitlines()[0].split()[-1] == "memory"
    assert "memory and switch of rollout and actor: from the least that they keep, where not stated" in done.output
