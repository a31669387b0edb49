"""What `rankplan pin` refuses before it starts anything, and the environment that its command gets."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rankplan import ClusterError, PlacementError, pin, plan
from rankplan.cli import main
from rankplan.runtime.live import commands
from rankplan.runtime.live.commands import JOB_CONFIG, check_command, command_environment
from rankplan_hook.names import METADATA, VARIABLE, site

VERL = "trainer: {nnodes: 1, n_gpus_per_node: 2}\nalgorithm: {adv_estimator: grpo}\n"
PRIME_RL = "[orchestrator]\n[trainer]\n[inference.vllm]\n"
RLINF = "cluster: {num_nodes: 1, component_placement: {actor: 0-1}}\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    Path("verl.yaml").write_text(VERL)
    Path("rlinf.yaml").write_text(RLINF)
    Path("rl.toml").write_text(PRIME_RL)
    plan("verl.yaml", "1x2").save("plan.json")
    return tmp_path


def run(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, ["pin", *words])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.output


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["verl.yaml"], 2, "write the command after --: rankplan pin verl.yaml -- python3 train.py"),
        (["verl.yaml", "--timeout", "0", "--", "true"], 2, "0.0 is not in the range x>0"),
        (["verl.yaml", "--timeout", "inf", "--", "true"], 2, "inf is not a finite number"),
        (["verl.yaml", "--", "no-such-program", "x"], 127, "error: no-such-program: No such file or directory"),
        (["verl.yaml", "--", "./verl.yaml"], 126, "error: ./verl.yaml: Permission denied"),
        (["none.yaml", "--", "true"], 1, "none.yaml: No such file or directory"),
        (["rlinf.yaml", "--", "true"], 1, "error[plan-mismatch]: rlinf.yaml asks Ray for no placement groups"),
        (
            ["rl.toml", "--", "true"],
            1,
            "error[plan-mismatch]: rl.toml is a job of prime-rl, which starts its processes",
        ),
        (["verl.yaml", "--set", "trainer.nnodes=x", "--", "true"], 1, "error[invalid-value]"),
        (["verl.yaml", "--", "a.b=x"], 127, "error: a.b=x: No such file or directory; override the config with --set"),
        (["verl.yaml", "--", "true"], 1, "no Ray cluster answers at"),
        (["verl.yaml", "--ray", "ray://h:1", "--", "true"], 1, "ray://h:1 is a Ray Client address"),
        (
            ["verl.yaml", "--ray", "http://h:8265", "--", "true"],
            1,
            "http://h:8265 is the address of a job server; give",
        ),
        (["verl.yaml", "-o", "none/report", "--", "true"], 1, "error: none/report: No such file or directory"),
        (["train.py", "--", "true"], 2, "train.py is a program; FILE is its config or launch script, or a saved plan"),
        (["plan.json", "--set", "a=b", "--", "true"], 2, "plan.json is a saved plan; remove --dialect, --set and"),
        (["plan.json", "--node-order", "address", "--", "true"], 2, "plan.json is a saved plan; remove"),
    ],
)
def test_bad_input_is_reported_before_anything_starts(words: list[str], code: int, message: str) -> None:
    assert run(*words)[0] == code and message in run(*words)[1]


def test_run_refuses_a_system_without_ray() -> None:
    done = CliRunner().invoke(main, ["run", "rl.toml", "--nodes", "1x8", "--simulate"])
    assert done.exit_code == 1 and "rl.toml is a job of prime-rl, which starts its processes without Ray" in done.output
    assert "rankplan emit --to slurm" in done.output


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        ([], {}, ValueError, "the command is empty"),
        (["true"], {"others": "ask"}, ValueError, "others is .ask.; it must be refuse or pass"),
        (["true"], {"devices": 1}, ValueError, "devices is 1; it must be warn or require"),
        (["true"], {"timeout": -1.0}, ValueError, "timeout is -1.0; it must be a finite number of seconds above 0"),
        (["true"], {"timeout": float("nan")}, ValueError, "timeout is nan"),
        (["true"], {}, ClusterError, "no Ray cluster answers"),
    ],
)
def test_the_function_refuses_the_same(
    arguments: Sequence[str], options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        pin("verl.yaml", arguments, **options)


def test_a_pin_under_another_one_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "0123")
    told = f"this is under `rankplan pin` already ({VARIABLE} is set): leave out one of the two"
    code, output = run("verl.yaml", "--", "true")
    assert code == 1 and told in output


def test_a_plan_without_requests_is_refused() -> None:
    content = plan("verl.yaml", "1x2").to_dict()
    del content["dialect"], content["requests"]
    Path("plan.json").write_text(json.dumps(content))
    code, told = run("plan.json", "--", "true")
    assert code == 1 and "the plan does not know what its trainer asks Ray for" in told


def test_a_plan_of_an_unknown_trainer_is_refused() -> None:
    content = plan("verl.yaml", "1x2").to_dict()
    Path("plan.json").write_text(json.dumps(content | {"dialect": "verl9"}))
    code, told = run("plan.json", "--", "true")
    assert code == 1 and "the plan is of the unknown dialect 'verl9'; the dialects are " in told
    content["requests"][0]["component"] = "actr"
    Path("plan.json").write_text(json.dumps(content))
    code, told = run("plan.json", "--", "true")
    assert code == 1 and "error[plan-mismatch]: unknown component `actr`" in told and "did you mean `actor`?" in told


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("ray stop --force", "ray stop"),
        ("  ray start --head", "ray start"),
        ("pkill -9 ray", "pkill -9 ray"),
        ("sudo pkill -9 python3", "sudo pkill -9 python3"),
        ("killall -q ray", "killall -q ray"),
        ("# ray stop", None),
        ("echo ray stop", None),
        ("ray job submit -- python train.py", None),
        ("pkill -9 sglang", None),
        ("python ray_stop.py", None),
    ],
)
def test_a_script_that_ends_or_starts_ray_is_refused_with_its_line(line: str, found: str | None) -> None:
    Path("run.sh").write_text(f"set -x\n{line}\npython train.py\n")
    Path("tool").write_text(f"#!/bin/bash\n{line}\n")
    Path("tool").chmod(0o755)
    if found is None:
        check_command(["bash", "run.sh"])
        return
    for command, number in ((["bash", "run.sh"], 2), (["./tool"], 2)):
        with pytest.raises(PlacementError) as caught:
            check_command(command)
        assert caught.value.code == "plan-mismatch" and caught.value.line == number
        assert caught.value.message.startswith(f"`{found}` would change the Ray cluster")


def test_the_command_gets_the_hook_the_cluster_and_its_job() -> None:
    given = {"HOME": "/root", "PYTHONPATH": "/mine", "RAY_ADDRESS": "old"}
    found = command_environment(given, "1234", "10.0.0.1:6379")
    assert found[VARIABLE] == "1234" and found["HOME"] == "/root" and found["RAY_ADDRESS"] == "10.0.0.1:6379"
    assert found["PYTHONPATH"] == os.pathsep.join([site(), "/mine"])
    hook = {"worker_process_setup_hook": "rankplan_hook.install.run_1234"}
    assert json.loads(found[JOB_CONFIG]) == {"runtime_env": hook, "metadata": {METADATA: "1234"}}
    # `ray job submit` has set one; a run inside another one replaces the hook.
    job = {"runtime_env": {"env_vars": {"A": "1"}, **hook}, "metadata": {"job_name": "x"}, "ray_namespace": "n"}
    merged = json.loads(command_environment({JOB_CONFIG: json.dumps(job)}, "5678", "auto")[JOB_CONFIG])
    assert merged == {
        "runtime_env": {"env_vars": {"A": "1"}, "worker_process_setup_hook": "rankplan_hook.install.run_5678"},
        "metadata": {"job_name": "x", METADATA: "5678"},
        "ray_namespace": "n",
    }


@pytest.mark.parametrize("text", ["{", "[]", '{"runtime_env": {"worker_process_setup_hook": "mine.setup"}}', '"x"'])
def test_settings_of_a_job_that_cannot_be_merged_are_refused(text: str) -> None:
    with pytest.raises(PlacementError) as caught:
        command_environment({JOB_CONFIG: text}, "1234", "auto")
    assert caught.value.code == "not-pinned"


def test_a_hook_that_everybody_can_write_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (own := tmp_path / "rankplan_hook" / "site").mkdir(parents=True)
    monkeypatch.setattr(commands, "site", lambda: str(own))
    commands.check_hook_folder()
    own.chmod(own.stat().st_mode | stat.S_IWOTH)
    with pytest.raises(PlacementError, match="every user can write to"):
        commands.check_hook_folder()
