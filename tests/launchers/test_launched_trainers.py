"""Trainers that start themselves, in the files of launchers: Ray on every node, and the trainer's command once."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import rankplan
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from rankplan import EmitOptions, Plan
from rankplan.launchers.table import LAUNCHERS
from rankplan.launchers.trainer import command_words
from support.commands import run
from support.launchers import again, documents, places
from support.paths import ROOT

STARTING_THEMSELVES = ("areal.yaml", "nemo_rl.yaml", "openrlhf.sh", "roll.yaml", "skyrl.sh", "slime.yaml", "verl.yaml")
TARGETS = ("kuberay", "jobset", "lws", "slurm")
COMMAND = "bash run.sh"


def planned(name: str) -> Plan:
    return rankplan.plan(ROOT / "examples" / name, pinned=True)


VERL_PLAN = rankplan.plan(
    {"trainer": {"nnodes": 2, "n_gpus_per_node": 8}, "algorithm": {"adv_estimator": "grpo"}}, "2x8"
)


def emitted(plan: Plan, target: str, command: str = COMMAND) -> str:
    return rankplan.emit(plan, target, EmitOptions(command=command))


def scripts(value: Any) -> Iterator[str]:
    """Yield the scripts of the pods in an object, as the kubelet passes them on."""
    if isinstance(value, list):
        if value[:2] == ["bash", "-c"]:
            yield value[2].replace("$$", "$")
        for part in value:
            yield from scripts(part)
    elif isinstance(value, dict):
        for part in value.values():
            yield from scripts(part)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", STARTING_THEMSELVES)
def test_the_command_runs_once_under_pin(name: str, target: str) -> None:
    plan = planned(name)
    try:
        text = emitted(plan, target)
    except rankplan.PlacementError as refused:
        assert (refused.code, target) == ("emit-uneven", "lws")
        return
    assert "rankplan exec" not in text and "--component" not in text
    if target == "slurm":
        assert text.endswith(' rankplan pin "$plan.json" -- bash run.sh\n')
        found, again_text = read_script(text)
    else:
        _, started = documents(text)
        found, again_text = again(text, target)
        if target == "kuberay":
            assert started["spec"]["entrypoint"] == "rankplan pin /etc/rankplan/plan.json -- bash run.sh"
        else:
            assert {script.count("rankplan pin") for script in scripts(started)} == {1}
    assert places(found) == places(plan) and again_text == text
    assert [one.nodes for one in found.requests] == [one.nodes for one in plan.requests]


def read_script(text: str) -> tuple[Plan, str]:
    """Return the plan of a batch script, and the script that is written from it."""
    read = LAUNCHERS["slurm"].read
    assert read is not None
    found = read("train.sbatch", text)
    assert found.options.entrypoint == COMMAND
    return found.plan, rankplan.emit(found.plan, "slurm", EmitOptions(command=COMMAND))


@pytest.mark.parametrize("target", ["torchrun", "mpirun"])
@pytest.mark.parametrize("name", STARTING_THEMSELVES)
def test_launchers_of_ranks_name_the_four_that_start_ray(name: str, target: str) -> None:
    with pytest.raises(rankplan.PlacementError) as refused:
        emitted(planned(name), target)
    (fault,) = refused.value.diagnostics
    assert fault.code == "emit-ray" and fault.help == "use --to kuberay, jobset, lws or slurm"


def test_the_embedded_plan_is_the_pinned_one() -> None:
    """On nodes of 6, Ray alone tears an engine of AReaL; the plan to pin takes whole steps."""
    config = ROOT / "examples" / "areal.yaml"
    done = run("emit", str(config), "--nodes", "3x6", "--to", "kuberay", "--command", COMMAND)
    found, _ = again(done.stdout, "kuberay")
    pinned = rankplan.plan(config, "3x6", pinned=True)
    assert [one.nodes for one in found.requests] == [one.nodes for one in pinned.requests]
    assert [one.nodes for one in found.requests] != [one.nodes for one in rankplan.plan(config, "3x6").requests]


# ------------------------------------------------------------------------------------------------ what the shells read

STUBS = {
    "ray": """#!/bin/sh
case $1 in
  health-check) [ -e "$STATE/head" ] ;;
  start) case $2 in
    --head) touch "$STATE/head" ;;
    *) touch "$STATE/joined"; while [ -e "$STATE/head" ]; do sleep 0.05; done; exit 1 ;;
  esac ;;
esac
""",
    "rankplan": f"""#!{sys.executable}
import json, os, sys, time
while not os.path.exists(os.environ["STATE"] + "/joined"):
    time.sleep(0.05)
open(os.environ["STATE"] + "/ran", "a").write(json.dumps(sys.argv[1:]) + "\\n")
os.remove(os.environ["STATE"] + "/head")
sys.exit(int(os.environ.get("CODE", 0)))
""",
}


@pytest.fixture(scope="module")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment whose ``ray`` knows only whether there is a head, and whose ``rankplan`` notes its words."""
    folder = tmp_path_factory.mktemp("stubs")
    for name, text in STUBS.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}


def run_pods(script: str, nodes: list[str], environment: dict[str, str], state: Path) -> list[int]:
    """Run the script of the pods with these node ranks at the same time, and return their exit codes."""
    state.mkdir(exist_ok=True)
    pods = [
        subprocess.Popen(["bash", "-c", script], env={**environment, "RANKPLAN_NODE_RANK": node, "STATE": str(state)})
        for node in nodes
    ]
    return [pod.wait(timeout=60) for pod in pods]


@pytest.mark.parametrize("target", ["jobset", "lws"])
def test_the_pods_start_ray_once_and_end_with_the_command(target: str, stubs: dict[str, str], tmp_path: Path) -> None:
    """Workers end well with a command that succeeds, and with one that fails: the job has its exit code."""
    text = emitted(VERL_PLAN, target, "python3 train.py")
    (script,) = set(scripts(documents(text)[1]))
    script = script.replace("sleep infinity", "true").replace("sleep 2", "sleep 0.1")
    for code in (0, 3):
        state = tmp_path / str(code)
        codes = run_pods(script, ["0+0", "0+1"], {**stubs, "CODE": str(code)}, state)
        assert codes == [code, 0]
        (line,) = (state / "ran").read_text().splitlines()
        assert json.loads(line) == ["pin", "/etc/rankplan/plan.json", "--", "python3", "train.py"]


def test_a_node_that_ends_before_the_head_has_failed(stubs: dict[str, str], tmp_path: Path) -> None:
    (script,) = set(scripts(documents(emitted(VERL_PLAN, "jobset"))[1]))
    (tmp_path / "head").touch()
    broken = 'ray() { if [ "$1" = start ]; then return 1; else command ray "$@"; fi; }\n'
    assert run_pods(broken + script, ["0+1"], stubs, tmp_path) == [1]


COMMANDS = st.one_of(
    st.sampled_from(["cd /work && python3 t.py", "A=1 bash run.sh", "python3 t.py 'a b' \"$HOME\" $$", "a\nb"]),
    st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0\r"), min_size=1).filter(str.strip),
    st.lists(st.sampled_from(["bash", "run.sh", "+a.b=c", "--x", "1"]), min_size=1).map(" ".join),
)


@pytest.mark.long
@settings(max_examples=40)  # each starts bash several times
@given(COMMANDS)
def test_every_shell_passes_the_command_on(command: str) -> None:
    """The driver gets the words of the command, or bash gets its text, through each shell that reads the file."""
    plan = VERL_PLAN
    for target in ("kuberay", "jobset", "slurm"):
        try:
            text = emitted(plan, target, command)
        except ValueError as error:  # open quotes
            assert "cannot be split into words" in str(error) or "rankplan pin" in str(error)
            continue
        if target == "slurm":
            line = text.partition('--cpu-bind=none rankplan pin "$plan.json" -- ')[2]
        elif target == "kuberay":
            line = documents(text)[1]["spec"]["entrypoint"].partition(" -- ")[2]
        else:
            (script,) = set(scripts(documents(text)[1]))
            line = script.partition(" -- ")[2].partition("; fi\n")[0]
        show = "import json, sys; print(json.dumps(sys.argv[1:]))"
        shell = f"{sys.executable} -c '{show}' {line}"
        done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True)
        assert json.loads(done.stdout) == command_words(command), (target, line)
        if target != "slurm":
            assert again(text, target)[1] == text


# -------------------------------------------------------------------------------------------------- changes are found


def test_each_changed_line_of_the_pods_is_found(tmp_path: Path) -> None:
    text = emitted(VERL_PLAN, "jobset")
    lines = text.split("\n")
    first = next(index for index, line in enumerate(lines) if line.strip() == "set -e")
    last = next(index for index, line in enumerate(lines) if line.strip().startswith("! ray"))
    assert last - first == 11
    for index in range(first, last + 1):
        changed = [*lines[:index], lines[index] + "x", *lines[index + 1 :]]
        (file := tmp_path / "train.yaml").write_text("\n".join(changed))
        with pytest.raises(rankplan.PlacementError, match=r"train\.yaml:5[0-9]:23: `command` of main is "):
            rankplan.plan(file)


def test_a_trainer_without_pin_is_found(tmp_path: Path) -> None:
    file = tmp_path / "train.yaml"
    for target in ("kuberay", "jobset", "lws"):
        text = emitted(VERL_PLAN, target)
        file.write_text(text.replace("rankplan pin /etc/rankplan/plan.json -- ", ""))
        with pytest.raises(rankplan.PlacementError) as refused:
            rankplan.plan(file)
        assert {fault.code for fault in refused.value.diagnostics} == {"emit-changed"}
    batch = emitted(VERL_PLAN, "slurm").replace('rankplan pin "$plan.json" -- ', "")
    with pytest.raises(rankplan.PlacementError, match="is not what the plan says: 'rankplan'"):
        read_script(batch)


@pytest.mark.parametrize("target", TARGETS)
def test_the_command_is_the_users_to_change(target: str, tmp_path: Path) -> None:
    text = emitted(VERL_PLAN, target).replace("bash run.sh", "bash other.sh 'a b'")
    (file := tmp_path / "train").write_text(text)
    assert rankplan.plan(file) and rankplan.emit(file, target) == text


def test_the_entrypoint_of_a_base_must_pin_the_trainer(tmp_path: Path) -> None:
    (base := tmp_path / "base.yaml").write_text(
        "apiVersion: ray.io/v1\nkind: RayJob\nmetadata: {name: a}\nspec: {entrypoint: bash run.sh}\n"
    )
    with pytest.raises(rankplan.PlacementError) as refused:
        rankplan.emit(VERL_PLAN, "kuberay", EmitOptions(base=base))
    (fault,) = refused.value.diagnostics
    assert (fault.code, fault.line) == ("emit-conflict", 4) and "rankplan pin" in str(fault.help)
    base.write_text(base.read_text().replace("bash", "rankplan pin --timeout 9 /etc/rankplan/plan.json -- bash"))
    text = rankplan.emit(VERL_PLAN, "kuberay", EmitOptions(base=base))
    assert "entrypoint: rankplan pin --timeout 9 " in text


# ----------------------------------------------------------------------------------------------------------- commands

VERL = "python3 -m verl.trainer.main_ppo trainer.nnodes=2 trainer.n_gpus_per_node=8 $@\n"
SUBMITS = f"set -e\npkill -9 ray\nARGS=(a.b=1)\nray job submit --address=x -- {VERL.strip()} ${{ARGS[@]}} c=$MODEL\n"
IN_RAY = [
    ("ray start --head\n", 1, "ray start"),
    ("# ray start\n  ray stop --force\n", 2, "ray stop"),
    ("ssh h 'ray start --address x'\n", 1, "ray start"),
    ("echo ray start\npkill -9 python\n", 2, "pkill -9 python"),
    ("ray \t job submit -- x\n", 1, "ray job submit"),
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("lines", "line", "command"), IN_RAY)
def test_a_script_that_starts_ray_is_no_command(folder: Path, lines: str, line: int, command: str) -> None:
    Path("run.sh").write_text(lines + VERL)
    done = run("emit", "run.sh", "--nodes", "2x8", "--to", "slurm")
    assert done.exit_code == 1 and f"error[emit-command]: `{command}`" in done.stderr
    assert re.search(rf"--> run\.sh:{line}:", done.stderr) and not done.stdout
    stated = run("emit", "run.sh", "--nodes", "2x8", "--to", "slurm", "--command", "python3 t.py")
    assert stated.exit_code == 0 and stated.stdout.endswith("-- python3 t.py\n")


def test_the_words_behind_submit_are_named(folder: Path) -> None:
    Path("run.sh").write_text(SUBMITS)
    done = run("emit", "run.sh", "--nodes", "2x8", "--to", "kuberay")
    assert "run.sh:2:1" in done.stderr
    words = "python3 -m verl.trainer.main_ppo trainer.nnodes=2 trainer.n_gpus_per_node=8 a.b=1 c=$MODEL"
    assert f"`command` of a job file: {words}\n" in done.stderr


@pytest.mark.parametrize(
    ("overrides", "command"),
    [
        ([], "bash run.sh"),
        (["trainer.nnodes=1"], "bash run.sh trainer.nnodes=1"),
        (["SIZE=4", "+a=b c"], "SIZE=4 bash run.sh '+a=b c'"),
    ],
)
def test_a_script_gets_the_overrides_of_its_plan(folder: Path, overrides: list[str], command: str) -> None:
    """The same in a job file and behind ``--``; a job file keeps it in the plan."""
    Path("run.sh").write_text(f"{VERL.strip()} actor_rollout_ref.rollout.tensor_model_parallel_size=${{SIZE:-1}}\n")
    Path("run.job.yaml").write_text(yaml.safe_dump({"job": "run.sh", "nodes": "2x8", "overrides": overrides}))
    assert run("plan", "run.job.yaml", "--save", "plan.json").exit_code == 0
    assert json.loads(Path("plan.json").read_text())["job"]["command"] == command
    for words in (["run.sh", "--nodes", "2x8"], ["run.job.yaml"]):
        behind = overrides if words[0] == "run.sh" else []
        done = run("emit", *words, "--to", "kuberay", *(["--", *behind] if behind else []))
        assert (
            f"the job runs `{command}` under `rankplan pin`; the image must have rankplan, Ray and run.sh"
            in done.stderr
        )
        entrypoint = yaml.safe_load(done.stdout.split("\n---\n")[1])["spec"]["entrypoint"]
        assert shlex.split(entrypoint.partition(" -- ")[2]) == command_words(command)


def test_a_script_that_takes_no_arguments_cannot_get_overrides(folder: Path) -> None:
    Path("run.sh").write_text(VERL.replace(" $@", ""))
    done = run("emit", "run.sh", "--nodes", "2x8", "--to", "kuberay", "--", "trainer.nnodes=1")
    assert "error[emit-command]: the script does not pass on its arguments" in done.stderr


@pytest.mark.parametrize("name", ["roll.yaml", "areal.yaml", "nemo_rl.yaml"])
def test_a_config_states_no_command(name: str) -> None:
    done = run("emit", str(ROOT / "examples" / name), "--to", "kuberay")
    assert done.exit_code == 1 and "error[emit-command]: a config does not say what starts" in done.stderr
    assert "--command" in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--command", "actor=x"], "verl starts its components itself; pass one --command, without COMPONENT="),
        (["--command", "x", "--entrypoint", "y"], "use one of them"),
        (["--command", " "], "the command of the trainer is empty"),
        (["--command", "rankplan pin plan.json -- x"], "state the trainer's own command"),
    ],
)
def test_wrong_commands(words: list[str], message: str) -> None:
    done = run("emit", str(ROOT / "examples" / "verl.yaml"), "--to", "kuberay", *words)
    assert done.exit_code == 2 and message in done.stderr


@pytest.mark.parametrize("scheduler", ["slurm", "local", "ray"])
def test_areal_without_ray_is_warned(folder: Path, scheduler: str) -> None:
    text = (ROOT / "examples" / "areal.yaml").read_text()
    Path("grpo.yaml").write_text(f"{text}\nscheduler: {{type: {scheduler}}}\n")
    done = run("emit", "grpo.yaml", "--to", "kuberay", "--command", "python3 train.py")
    assert (f"warning[not-pinned]: `scheduler.type` is {scheduler}" in done.stderr) == (scheduler != "ray"), done.stderr


@pytest.mark.parametrize("first", ["exec", "time", ".", "source", "cd", "command", "export", "ulimit", "eval"])
def test_words_of_a_shell_run_in_one(first: str) -> None:
    assert command_words(f"{first} python3 t.py") == ["bash", "-c", f"{first} python3 t.py"]
    assert command_words(f"python3 {first}") == ["python3", first]
