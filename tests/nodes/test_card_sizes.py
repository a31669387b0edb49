"""Sizes such as ``4x8:H100``: parsed in one place, wherever a size is taken."""

from __future__ import annotations

from pathlib import Path

import pytest
import rankplan
from rankplan import Inventory, PlacementError
from support.commands import run

CONF = {"cluster": {"num_nodes": 2, "component_placement": {"actor": "0-15"}}}


@pytest.mark.parametrize("model", ["H100", "h100", "A100-40GB", "A100", "NVIDIA H100 80GB HBM3", "80GiB", "910B"])
def test_a_size_may_state_the_accelerators(model: str) -> None:
    inventory = Inventory.parse(f"2x8:{model}")
    assert inventory == Inventory.uniform(2, 8, accelerator_model=model)
    assert rankplan.plan(CONF, f"2x8:{model}").inventory.node(1).accelerator_model == model


@pytest.mark.parametrize("text", ["2x8:", "2x8:H101", "2x8:80", "2x8:GeForce", "2x8:80 XiB"])
def test_an_unknown_accelerator_is_refused_with_those_known(text: str) -> None:
    for parse in (Inventory.parse, lambda size: rankplan.plan(CONF, size)):
        with pytest.raises(PlacementError) as refused:
            parse(text)
        assert "H100" in str(refused.value) or text == "2x8:"
        assert not isinstance(refused.value, OSError)


@pytest.mark.parametrize("text", ["four", "4x", "x8", "4*8", "H100"])
def test_a_text_that_is_no_size_is_no_missing_file(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PlacementError, match="is neither a size nor an inventory file"):
        rankplan.plan(CONF, text)
    with pytest.raises(FileNotFoundError):
        rankplan.plan(CONF, f"{text}.yaml")
    (tmp_path / text).write_text("nodes: [{ranks: 0-1, accelerators: 8}]\n")
    assert rankplan.plan(CONF, text).inventory.num_nodes == 2


def test_the_command_and_a_job_file_take_the_same_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("conf.yaml").write_text("cluster: {num_nodes: 2, component_placement: {actor: 0-15}}\n")
    assert run("plan", "conf.yaml", "--nodes", "2x8:A100-40GB", "--save", "plan.json").exit_code == 0
    Path("run.job.yaml").write_text("job: conf.yaml\nnodes: 2x8:A100-40GB\n")
    saved = rankplan.Plan.load("plan.json")
    assert rankplan.plan("run.job.yaml") == saved
    Path("run.job.yaml").write_text("job: conf.yaml\nnodes: 2x8\nmemory: {accelerator: A100-40GB}\n")
    assert rankplan.plan("run.job.yaml") == saved
    done = run("plan", "conf.yaml", "--nodes", "2x8:H101")
    assert done.exit_code == 2 and "unknown accelerator 'H101'" in done.stderr
    Path("run.job.yaml").write_text("job: conf.yaml\nnodes: 2x8:H101\n")
    (fault,) = rankplan.check("run.job.yaml").faults
    assert (fault.line, fault.column) == (2, 8)


def test_a_model_is_no_type() -> None:
    with pytest.raises(PlacementError) as refused:
        Inventory.uniform(2, 8, accelerator_type="NVIDIA H100")
    assert "`accelerator_model`" in str(refused.value.help)


@pytest.mark.parametrize(("model", "fits"), [("A100-40GB", False), ("A100", True), ("80GiB", True), ("40GiB", False)])
def test_the_memory_of_a_size_decides(model: str, fits: bool) -> None:
    memory = {"resident": "60 GiB"}
    placed = {"actor": {"placement": "0-15", "memory": memory}}
    report = rankplan.check({"cluster": {"num_nodes": 2, "component_placement": placed}}, f"2x8:{model}")
    assert bool(report) is fits, report.render()
