"""Machine-readable output of ``rankplan check``, overrides on the command line, mixed dialects, and --watch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from rankplan.cli.check import watch
from rankplan.cli.commands import COMMANDS
from rankplan.dialects import writers
from support.commands import run
from support.paths import ROOT

FAULTY = "trainer: {nnodes: 2}\nactor_rollout_ref:\n  rollout: {tensor_model_parallel_size: 6}\n"
SCRIPT = "python3 train.py trainer.nnodes=$(nproc) trainer.n_gpus_per_node=8\n"


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(own_folder: Path) -> None:
    Path("verl.yaml").write_text(FAULTY)
    Path("run.sh").write_text(SCRIPT)


def result(*words: str) -> tuple[int, str]:
    done = run(*words)
    return done.exit_code, done.stdout


def test_sarif_has_a_result_per_diagnostic() -> None:
    code, text = result("check", "verl.yaml", "run.sh", "none.yaml", "--format", "sarif")
    log = json.loads(text)
    (only,) = log["runs"]
    rules = [rule["id"] for rule in only["tool"]["driver"]["rules"]]
    found = [(one["ruleId"], one["level"]) for one in only["results"]]
    assert (code, log["version"]) == (1, "2.1.0")
    assert found == [
        ("spans-nodes", "error"),
        ("parallel-idle", "error"),
        ("not-run", "warning"),
        ("not-read", "warning"),
        ("unreadable", "error"),
    ]
    assert [rules[one["ruleIndex"]] for one in only["results"]] == [rule for rule, _ in found]
    place = only["results"][0]["locations"][0]
    assert place["physicalLocation"] == {
        "artifactLocation": {"uri": "verl.yaml"},
        "region": {"startLine": 3, "startColumn": 41, "endColumn": 42},
    }
    assert place["logicalLocations"] == [{"fullyQualifiedName": "actor_rollout_ref.rollout.tensor_model_parallel_size"}]
    assert result("check", "run.sh", "--format", "sarif", "--", "trainer.nnodes=1")[0] == 0


def test_github_annotates_lines() -> None:
    code, text = result("check", "verl.yaml", "run.sh", "--format", "github")
    lines = text.splitlines()
    assert code == 1 and len(lines) == 4
    assert lines[0].startswith(
        "::error file=verl.yaml,line=3,col=41,endColumn=42,title=rankplan%3A spans-nodes::engine 1 of the rollout would"
    )
    assert lines[0].endswith("%0Ahelp: use 4 per engine")
    assert lines[2].startswith("::warning file=run.sh,line=1,col=33,endColumn=41,title=rankplan%3A not-run::")


def test_overrides_follow_dashes() -> None:
    fixed = "actor_rollout_ref.rollout.tensor_model_parallel_size=4"
    assert result("check", "verl.yaml", "--nodes", "2x8", "--", fixed)[0] == 0
    code, text = result("plan", "verl.yaml", "--format", "json", "--", fixed, "trainer.nnodes=1", "~algorithm")
    assert (code, text) == (1, "")  # there is no algorithm to remove
    code, text = result("plan", "verl.yaml", "--format", "json", "--", fixed, "trainer.nnodes=1")
    assert (code == 0 and text.count('"component": "rollout"')) or json.loads(text)
    done = run("run", "verl.yaml", "--nodes", "2x8", "--simulate", "--", "trainer.nnodes=two")
    assert done.exit_code == 1 and "command line:1:16" in done.stderr  # before anything starts
    for name in ("pin", "exec"):
        assert "The words after -- are the command." in " ".join(run(name, "--help").stdout.split())
    assert result("explain", "syntax", "--", "a=1")[0] == 2
    assert result("diff", "verl.yaml", "verl.yaml", "--", "a=1")[0] == 2


MIXED = [
    (
        "actor_rollout_ref: {}\nactor_num_nodes: 2\n",
        "`actor_num_nodes` is a key of slime, but the config has keys of verl",
        2,
    ),
    (
        "cluster: {num_nodes: 1, component_placement: {actor: 0}}\nallocation_mode: fsdp:d4\n",
        "`cluster.component_placement` is a key of rlinf, but the config has keys of areal",
        1,
    ),
    ("actor_train: {device_mapping: '[0]'}\nvllm: {num_engines: 1}\n", "`actor_train` is a key of roll", 1),
]


@pytest.mark.parametrize(("text", "message", "line"), MIXED, ids=[message for _, message, _ in MIXED])
def test_keys_of_two_dialects_are_a_fault(text: str, message: str, line: int) -> None:
    Path("mixed.yaml").write_text(text)
    code, shown = result("check", "mixed.yaml", "--format", "github")
    assert code == 1 and shown.startswith(f"::error file=mixed.yaml,line={line},")
    assert f"::{message}" in shown and "choose with --dialect" in shown


def test_a_dialect_that_can_only_be_read_says_so() -> None:
    done = run("convert", "verl.yaml", "--to", "areal")
    assert done.exit_code == 2
    assert f"rankplan reads areal, but cannot write it; use {', '.join(writers())}" in done.stderr


def test_watch_runs_again_after_each_change() -> None:
    seen: list[str] = []

    def look() -> None:
        seen.append(Path("verl.yaml").read_text() if Path("verl.yaml").exists() else "")
        if len(seen) == 1:
            Path("verl.yaml").write_text("changed: 1\n")
        elif len(seen) == 2:
            Path("verl.yaml").unlink()

    watch(["verl.yaml"], look, rounds=3)
    assert seen == [FAULTY, "changed: 1\n", ""]


def test_the_pre_commit_hook_is_this_command() -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    program, command = hook["entry"].split()
    assert program == "rankplan" and command in COMMANDS


def test_nodes_can_be_ordered_as_verl_orders_them() -> None:
    nodes = "".join(f"  - {{ranks: {rank}, accelerators: 8, ip: 10.0.0.{rank + 9}}}\n" for rank in range(2))
    Path("nodes.yaml").write_text(f"nodes:\n{nodes}")
    Path("verl.yaml").write_text(FAULTY.replace("size: 6", "size: 4"))
    orders = {}
    for order in ("given", "text"):
        code, text = result(
            "plan",
            "verl.yaml",
            "--inventory",
            "nodes.yaml",
            "--component",
            "actor",
            "--node-order",
            order,
            "--format",
            "hostfile",
        )
        assert code == 0
        orders[order] = [text.index("10.0.0.9"), text.index("10.0.0.10")]
    assert orders["given"] == sorted(orders["given"]) and orders["text"] != sorted(orders["text"])
    assert result("check", "verl.yaml", "--nodes", "2x8", "--node-order", "text")[0] == 2
    Path("nodes.yaml").write_text("nodes: [{ranks: 0-1, accelerators: 8}]\n")
    code, text = result("check", "verl.yaml", "--inventory", "nodes.yaml", "--node-order", "text", "--format", "github")
    assert code == 1 and "node 0 has no address to order it by" in text
