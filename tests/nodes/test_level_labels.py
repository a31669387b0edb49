"""Levels of an inventory that state the node label of the cluster: files of launchers have it."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import rankplan
import yaml
from rankplan import Inventory, PlacementError, Plan
from support.commands import run

LEVELS = [{"name": "block", "label": "example.com/block"}, {"name": "rack", "label": "example.com/rack"}]
NODES = [
    {"ranks": 0, "accelerators": 8, "hostname": "n0", "labels": {"block": "x", "rack": "a"}},
    {"ranks": 1, "accelerators": 8, "hostname": "n1", "labels": {"block": "x", "example.com/rack": "b"}},
    {"ranks": 2, "accelerators": 8, "hostname": "n2", "labels": {"block": "x", "example.com/rack": "a"}},
]
CONFIG = "cluster: {num_nodes: 2, component_placement: {actor: 0-15}, topology: {keep: {actor: {world: block}}}}\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("nodes.yaml").write_text(yaml.safe_dump({"levels": LEVELS, "nodes": NODES}))
    Path("conf.yaml").write_text(CONFIG)
    Path("run.job.yaml").write_text("job: conf.yaml\nnodes: nodes.yaml\n")


def test_nodes_have_the_labels_of_a_level_by_its_name_or_as_the_cluster_has_them() -> None:
    inventory = Inventory.load("nodes.yaml")
    assert inventory.levels == ("block", "rack")
    assert [inventory.node(rank).labels["rack"] for rank in range(3)] == ["a", "b", "a"]
    assert inventory.level_labels == {"block": "example.com/block", "rack": "example.com/rack"}
    for again in (pickle.loads(pickle.dumps(inventory)), Inventory.from_dict(inventory.to_dict())):
        assert again == inventory and again.level_labels == inventory.level_labels
    inventory.reordered([2, 0, 1]).save("other.yaml")
    assert Inventory.load("other.yaml").level_labels == inventory.level_labels


@pytest.mark.parametrize("file", ["run.job.yaml", "conf.yaml --inventory nodes.yaml"])
def test_a_file_of_a_launcher_needs_no_option_for_the_labels(file: str) -> None:
    options = ["--to", "jobset", "--image", "me/rl:1", "--command", "run", "--queue", "research"]
    answer = run("emit", *file.split(), *options)
    assert answer.exit_code == 0 and "podset-required-topology: example.com/block" in answer.stdout
    assert run("plan", *file.split(), "--save", "plan.json").exit_code == 0
    assert run("emit", "plan.json", *options).stdout == answer.stdout
    assert (
        run("replan", "plan.json", "--without", "n0", "--inventory", "nodes.yaml", "--save", "new.json").exit_code == 0
    )
    assert "podset-required-topology: example.com/block" in run("emit", "new.json", *options).stdout
    other = run("emit", *file.split(), *options, "--level", "block=example.com/row")
    assert "podset-required-topology: example.com/row" in other.stdout
    assert "does not take" not in run("emit", "plan.json", "--to", "slurm", "--command", "run").stderr
    assert Plan.load("plan.json").inventory.levels == ("block", "rack")


def test_without_labels_an_option_is_needed() -> None:
    Path("nodes.yaml").write_text(
        yaml.safe_dump({"levels": ["block", "rack"], "nodes": [NODES[0], {**NODES[0], "ranks": 1}]})
    )
    answer = run(
        "emit", "run.job.yaml", "--to", "jobset", "--image", "me/rl:1", "--command", "run", "--queue", "research"
    )
    assert answer.exit_code == 1 and "emit-level-key" in answer.stderr


WRONG: list[tuple[Any, str, str]] = [
    ([{"name": "block", "lable": "x"}], "levels[0].lable", "unknown key `lable`"),
    ([{"name": "block"}], "levels[0]", "the level has no `label`"),
    ([{"name": 1, "label": "x"}], "levels[0].name", "`name` of a level is 1; it must be a text"),
    ([{"name": "block", "label": "x"}, {"name": "rack", "label": "x"}], "levels", "have the same label 'x'"),
]


@pytest.mark.parametrize(("levels", "path", "message"), WRONG)
def test_a_wrong_level_has_its_place(levels: Any, path: str, message: str) -> None:
    with pytest.raises(PlacementError) as refused:
        Inventory.from_dict({"levels": levels, "nodes": NODES})
    assert any(fault.path == path and message in fault.message for fault in refused.value.diagnostics), [
        (fault.path, fault.message) for fault in refused.value.diagnostics
    ]
    Path("nodes.yaml").write_text(yaml.safe_dump({"levels": levels, "nodes": NODES}))
    assert all(fault.line is not None for fault in rankplan.check("run.job.yaml").faults)
