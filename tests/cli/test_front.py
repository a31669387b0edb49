"""One front door: a command, its function and, for RLinf, the class give the same plan, byte for byte."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import rankplan
from rankplan.dialects import dialect_of
from rankplan.plans.spares import with_spares
from support.commands import run
from support.configs import from_overrides
from support.goldens import as_yaml, lines
from support.paths import EXAMPLES

CONFIGS = sorted([*EXAMPLES.glob("*.yaml"), *EXAMPLES.glob("*.sh"), EXAMPLES / "mixed" / "conf.yaml"])


def command(file: Path, saved: Path, *options: str) -> bytes | str:
    """Return the plan that the command saves, or the faults that it prints."""
    done = run("plan", str(file), "--save", str(saved), *options)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return saved.read_bytes() if done.exit_code == 0 else done.stderr


def function(config: Any, saved: Path, *arguments: Any, **more: Any) -> bytes | str:
    """Return the plan that the function saves, or the faults that it raises."""
    try:
        rankplan.plan(config, *arguments, **more).save(saved)
    except rankplan.PlacementError as error:
        return error.render()
    return saved.read_bytes()


def same(command: bytes | str, function: bytes | str) -> bool:
    """Whether both are the same plan, or the same faults: the command prints a note and a count besides."""
    return command == function or (isinstance(command, str) and isinstance(function, str) and function in command)


@pytest.mark.parametrize("nodes", [None, "3x8", "4x4"])
@pytest.mark.parametrize("file", CONFIGS, ids=lambda file: file.name)
def test_the_command_and_the_function_agree_on_every_example(file: Path, nodes: str | None, tmp_path: Path) -> None:
    printed = command(file, tmp_path / "command.json", *(["--nodes", nodes] if nodes else []))
    assert same(printed, function(file, tmp_path / "function.json", nodes))
    printed_pinned = command(file, tmp_path / "command.json", "--pinned", *(["--nodes", nodes] if nodes else []))
    assert same(printed_pinned, function(file, tmp_path / "function.json", nodes, pinned=True))
    checked = rankplan.check(file, nodes)
    assert bool(checked.plan) == isinstance(printed, bytes)
    done = run("check", str(file), *(["--nodes", nodes] if nodes else []), "--format", "json")
    assert json.loads(done.stdout) == [checked.plain()]


def golden() -> Iterator[tuple[str, Any]]:
    """Yield every recorded config, as the content of a file."""
    for line in lines("rlinf_configs"):
        yield line["config"], as_yaml({"cluster": line["cluster"]})
    for line in lines("rlinf_parallel"):
        yield line["id"], json.dumps(line["config"])
    for line in lines("roll_configs"):
        yield line["config"], as_yaml({"num_gpus_per_node": line["num_gpus_per_node"], **line["roles"]})
    for line in lines("nemo_rl_clusters"):
        if keys := line.get("keys"):
            yield line["id"], json.dumps(keys)
    for line in [*lines("verl_pools"), *lines("skyrl_sizes")]:
        if words := line.get("overrides"):
            yield line["id"], words
    for line in lines("openrlhf_sizes"):
        if words := line.get("flags"):
            yield line["id"], f"python3 -m openrlhf.cli.train_ppo_ray {' '.join(words)}\n"


@pytest.mark.long
def test_the_command_the_function_and_the_class_agree_on_every_recorded_config(tmp_path: Path) -> None:
    planned = classes = 0
    for name, content in golden():
        is_script = isinstance(content, str) and content.startswith("python3")
        file = tmp_path / ("run.sh" if is_script else "conf.yaml")
        config: Any = file
        if isinstance(content, str):
            file.write_text(content)
            printed = command(file, tmp_path / "command.json", "--nodes", "4x8")
        else:
            config = from_overrides(content)
            file.write_text(json.dumps(config, default=dict))
            printed = command(file, tmp_path / "command.json", "--nodes", "4x8")
        found = function(file, tmp_path / "function.json", "4x8")
        if isinstance(found, bytes) and isinstance(printed, str):  # the function returns plans that `check` refuses
            found = rankplan.PlacementError(rankplan.check(file, "4x8").faults).render()
        assert same(printed, found), name
        planned += isinstance(printed, bytes)
        if is_script or isinstance(printed, str):
            continue
        loaded = rankplan.load_config(file)
        if dialect_of(loaded).name == "rlinf":
            classes += 1
            nodes = rankplan.Inventory.uniform(4, 8)
            plan = rankplan.ComponentPlacement(loaded, nodes).plan()
            with_spares(plan, nodes).save(tmp_path / "class.json")  # the class knows no job
            assert (tmp_path / "class.json").read_bytes() == printed, name
    assert planned > 500 and classes > 300, (planned, classes)


def test_the_function_and_the_class_reject_groups_that_cross_what_the_config_forbids() -> None:
    actor = {"placement": "0-15", "parallel": {"tp": 16}}
    cluster = {"num_nodes": 2, "component_placement": {"actor": actor}, "topology": {"keep": {"actor": {"tp": "node"}}}}
    with pytest.raises(rankplan.PlacementError) as function:
        rankplan.plan({"cluster": cluster}, "2x8")
    placement = rankplan.ComponentPlacement({"cluster": cluster}, rankplan.Inventory.uniform(2, 8))
    with pytest.raises(rankplan.PlacementError) as found:
        placement.plan()
    assert function.value.code == "group-spans" and found.value.render() == function.value.render()
