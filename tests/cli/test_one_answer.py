"""Every command gives the same answer about a job: the faults of its config, its rules and its memory."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import rankplan
import yaml
from rankplan.plans.rules import Rules
from support.commands import run
from support.paths import ROOT

JOB = {
    "job": "verl.yaml",
    "nodes": "nodes.yaml",
    "overrides": ["reward.reward_model.enable=False"],
    "command": "python3 train.py",
}
COSTS = """\
batches: 1
after: {actor: [rollout]}
components: {rollout: {seconds: {4: 1}}, actor: {seconds: {4: 1}}}
"""
WRONG = {
    "config": {"overrides": ["trainer.nnodes=0"]},
    "rules": {"topology": {"segment": {"actor": 8}}},
    "memory": {"memory": {"model": "Qwen/Qwen3-32B"}},
}
COMMANDS = [
    "plan run.job.yaml",
    "plan run.job.yaml --save new.json",
    "plan run.job.yaml --pinned",
    "arrange run.job.yaml",
    "arrange run.job.yaml --save new.json -o new.yaml",
    "emit run.job.yaml --to kuberay --image me/rl:1 -o new.yaml",
    "run run.job.yaml --nodes nodes.yaml --simulate",
]
OF_PLANS = [
    "plan plan.json",
    "plan plan.json --save new.json",
    "arrange plan.json --save new.json",
    "emit plan.json --to kuberay --image me/rl:1 -o new.yaml",
    "replan plan.json --save new.json",
    "run plan.json --nodes nodes.yaml --simulate",
]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("verl.yaml").write_bytes((ROOT / "examples" / "verl.yaml").read_bytes())
    Path("costs.yaml").write_text(COSTS)
    nodes = [
        {"ranks": rank, "accelerators": 4, "accelerator_model": "A10", "hostname": f"n{rank}", "labels": {"rack": rack}}
        for rank, rack in enumerate("abab")
    ]
    Path("nodes.yaml").write_text(yaml.safe_dump({"levels": ["rack"], "nodes": nodes}))


def write_job(wrong: str) -> list[str]:
    """Write a job with a fault; return the faults that ``check`` finds."""
    Path("run.job.yaml").write_text(yaml.safe_dump(JOB | WRONG[wrong]))
    faults = [fault.code for fault in rankplan.check("run.job.yaml").faults]
    assert faults
    return faults


def faults_in(text: str) -> list[str]:
    return re.findall(r"error\[([a-z-]+)\]", text)


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("command", [*COMMANDS, "tune run.job.yaml --costs costs.yaml"])
def test_a_command_refuses_what_check_refuses(command: str, wrong: str) -> None:
    if command.startswith("tune") and wrong != "config":
        pytest.skip("the placements that are ranked are others than the config's own")
    faults = write_job(wrong)
    answer = run(*command.split())
    assert (answer.exit_code, faults_in(answer.stderr)) == (1, faults), answer.output
    assert answer.stdout == "" and not list(Path().glob("new.*")), "nothing is printed or written"


@pytest.mark.parametrize("wrong", ["rules", "memory"])
@pytest.mark.parametrize("command", OF_PLANS)
def test_a_command_refuses_a_saved_plan_that_check_refuses(command: str, wrong: str) -> None:
    Path("run.job.yaml").write_text(yaml.safe_dump(JOB | (WRONG[wrong] if wrong == "memory" else {})))
    plan = rankplan.plan("run.job.yaml")
    if wrong == "rules":
        plan = plan.placed(plan.inventory, plan.values(), Rules(segment={"actor": 8}))
    plan.save("plan.json")
    faults = [fault.code for fault in rankplan.check("plan.json").faults]
    answer = run(*command.split())
    assert faults and (answer.exit_code, faults_in(answer.stderr)) == (1, faults), answer.output
    assert answer.stdout == "" and not list(Path().glob("new.*"))


def test_a_program_is_not_pinned_to_a_plan_that_check_refuses() -> None:
    write_job("memory")
    rankplan.plan("run.job.yaml", pinned=True).save("plan.json")
    command = [sys.executable, "-m", "rankplan", "pin", "plan.json", "--", "true"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (answer.returncode, faults_in(answer.stderr)) == (1, ["memory-exceeded"])


@pytest.mark.parametrize("wrong", ["rules", "memory"])
def test_a_refused_plan_is_drawn_compared_and_converted(wrong: str) -> None:
    faults = write_job(wrong)
    Path("fine.yaml").write_text(yaml.safe_dump(JOB))
    shown = run("show", "run.job.yaml")
    assert (shown.exit_code, faults_in(shown.stderr)) == (1, faults) and "actor 8" in shown.stdout
    assert run("show", "run.job.yaml", "-o", "map.svg").exit_code == 1 and Path("map.svg").exists()
    compared = run("diff", "fine.yaml", "run.job.yaml")
    assert (compared.exit_code, faults_in(compared.stderr)) == (1, faults) and compared.stdout
    same = run("diff", "run.job.yaml", "run.job.yaml")
    assert same.exit_code == 1 and same.stdout == "no difference\n" and faults_in(same.stderr) == faults * 2
    converted = run("convert", "run.job.yaml", "--to", "rlinf", "-o", "rlinf.yaml")
    assert (converted.exit_code, faults_in(converted.stderr)) == (1, faults) and Path("rlinf.yaml").exists()


def test_a_config_without_a_plan_is_not_drawn() -> None:
    faults = write_job("config")
    for command in ("show run.job.yaml", "convert run.job.yaml --to rlinf"):
        answer = run(*command.split())
        assert (answer.exit_code, faults_in(answer.stderr), answer.stdout) == (1, faults, "")
    assert run("diff", "run.job.yaml", "run.job.yaml").exit_code == 2


def test_the_table_of_memory_comes_before_its_faults() -> None:
    faults = write_job("memory")
    answer = run("plan", "run.job.yaml", "--memory", "--save", "new.json")
    assert (answer.exit_code, faults_in(answer.stderr)) == (1, faults)
    assert "refused" in answer.stdout and not Path("new.json").exists()
