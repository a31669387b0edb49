"""The example of a trainer in a package of its own: built as a wheel, and used in a fresh environment."""

from __future__ import annotations

import ast
import inspect
import json
import re
import shlex
import shutil
import subprocess
import textwrap
from collections import Counter
from pathlib import Path

import pytest
from rankplan import sdk
from support.paths import EXAMPLES, ROOT
from support.wheels import Environment, build_wheel

GUEST = EXAMPLES / "guest"
SOURCES = sorted(GUEST.rglob("*.py"))


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    folder = tmp_path_factory.mktemp("fresh")
    environment = Environment(folder / "venv")
    environment.install(build_wheel(GUEST, folder))
    return environment


def rankplan(environment: Environment, *words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command of rankplan in an environment."""
    return environment.run(shlex.join(["rankplan", *words]), folder)


def python(environment: Environment, program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a program in an environment; a warning is an error."""
    return environment.run(shlex.join(["python", "-W", "error", "-c", program]), folder)


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A folder with the config and the script of a job."""
    for name in ("tinyrl.yaml", "run.sh"):
        shutil.copy(GUEST / name, tmp_path)
    return tmp_path


def test_the_interface_has_at_most_30_names_with_documentation() -> None:
    assert len(sdk.__all__) <= 30
    for name in sdk.__all__:
        value = getattr(sdk, name)
        assert inspect.getdoc(value) or name in ("EFFECT", "NodeOrder"), name  # which have a text below them
    assert dir(sdk) == sdk.__all__
    with pytest.raises(AttributeError, match=r"module 'rankplan.sdk' has no attribute 'Reader'"):
        sdk.Reader  # noqa: B018


def test_the_guest_imports_the_interface_and_public_names_only_and_uses_all_of_it() -> None:
    used = set()
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                own = ("__future__", "typing", "rankplan", "rankplan.launchers")
                assert node.module in own or "tinyrl_rankplan" in str(node.module)
            elif isinstance(node, ast.Import):
                assert {alias.name for alias in node.names} <= {"click", "rankplan"}
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "sdk":
                used.add(node.attr)
    assert used == set(sdk.__all__)


def test_a_launcher_tells_the_processes_of_the_learner(environment: Environment, tmp_path: Path) -> None:
    (tmp_path / "four.yaml").write_text("distributed_type: MULTI_GPU\nnum_processes: 4\n")
    for command, count in (
        ("torchrun --nproc_per_node 2 -m tinyrl.train", 2),
        ("accelerate launch --config_file four.yaml -m tinyrl.train", 4),
        ("TINYRL_ACCELERATE=four.yaml python -m tinyrl.train", 4),
        ("torchrun --nproc_per_node 2 -m tinyrl.train learner.gpus=8", 8),
    ):
        words = "tinyrl.nodes=2 sampler.engines=0"
        (tmp_path / "run.sh").write_text(f"{command} {words}\n")
        planned = rankplan(environment, "plan", "run.sh", "--format", "json", folder=tmp_path)
        assert planned.returncode == 0, planned.stdout + planned.stderr
        assert len(json.loads(planned.stdout)) == count, command
    (tmp_path / "run.sh").write_text(f"CUDA_VISIBLE_DEVICES=9 torchrun -m tinyrl.train {words}\n")
    checked = rankplan(environment, "check", "run.sh", folder=tmp_path)
    assert "CUDA_VISIBLE_DEVICES=9 has device 9, but node 0 has" in checked.stdout, checked.stdout
    step = "srun --nodes=2 torchrun --nnodes 2 --nproc_per_node 2 --node_rank 0 -m tinyrl.train tinyrl.nodes=2"
    (tmp_path / "run.sh").write_text(f"{step}\n")
    assert "bad-node-rank" in rankplan(environment, "check", "run.sh", folder=tmp_path).stdout


def test_check_plan_and_show_know_the_trainer(environment: Environment, job: Path) -> None:
    for name in ("tinyrl.yaml", "run.sh"):
        checked = rankplan(environment, "check", name, "--nodes", "2x8", folder=job)
        assert checked.returncode == 0, checked.stdout + checked.stderr
        planned = rankplan(environment, "plan", name, "--nodes", "2x8", "--format", "json", folder=job)
        processes = Counter(row["component"] for row in json.loads(planned.stdout))
        assert (processes["learner"], processes["sampler"]) == (8, 4)
    shown = rankplan(environment, "show", "tinyrl.yaml", folder=job).stdout
    assert "sampler      [     0     ] [     1     ]" in shown
    memory = rankplan(environment, "check", "tinyrl.yaml", "--memory", folder=job).stdout
    assert re.search(r"^learner +train +[0-9.]+ GiB", memory, re.MULTILINE)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("gpus: 8,", "gpsu: 8,"), "unknown key `gpsu`\n --> tinyrl.yaml:2:11"),
        (
            ("engines: 4", "engines: 40"),
            "sampler needs 80 accelerators, more than what is left of the cluster: 8\n --> tinyrl.yaml:3:20",
        ),
        (("tensor: 2, model", "tensor: 3, model"), "parallel-not-divisible"),
        (("gpus: 8,", "gpus: eight,"), "`gpus` is 'eight'; it must be a whole number"),
        (("engines: 4,", "colocated: true, engines: 0,"), "`engines` is 0; it must be 1 or more"),
        (("engines: 4,", "colocated: true, engines: 8,"), "8 engines of 2 GPUs do not fit on the learner's 8"),
    ],
)
def test_faults_have_their_place(environment: Environment, job: Path, change: tuple[str, str], message: str) -> None:
    path = job / "tinyrl.yaml"
    path.write_text(path.read_text().replace(*change))
    checked = rankplan(environment, "check", "tinyrl.yaml", "--nodes", "2x8", folder=job)
    assert checked.returncode == 1 and message in checked.stdout, checked.stdout


def test_the_config_is_written_and_read_again(environment: Environment, job: Path) -> None:
    written = rankplan(environment, "convert", "run.sh", "--nodes", "2x8", "--to", "tinyrl", folder=job)
    assert written.returncode == 0, written.stderr
    (job / "again.yaml").write_text(written.stdout)
    assert rankplan(environment, "diff", "run.sh", "again.yaml", "--nodes", "2x8", folder=job).returncode == 0


def test_schema_completion_and_help_have_its_names(environment: Environment, job: Path) -> None:
    schema = json.loads(rankplan(environment, "schema", folder=job).stdout)
    assert schema["else"]["properties"]["learner"]["properties"]["tensor"]
    assert "tinyrl" in rankplan(environment, "check", "--help", folder=job).stdout
    program = """
from rankplan.editor.checked import Options, checked
from rankplan.editor.completion import cursor_at, proposals
from rankplan.editor.keys import dialect_at, keys_at
text = open("tinyrl.yaml").read()
buffer = checked(text, "tinyrl.yaml", Options())
assert buffer.report.is_job and not buffer.report.faults
assert dialect_at(buffer.config) == "tinyrl"
assert keys_at("tinyrl", ("sampler",))["colocated"] == "whether the engines are on the learner's GPUs"
"""
    done = python(environment, program, job)
    assert done.returncode == 0, done.stderr


def test_what_ray_is_asked_for_is_known_to_pin(environment: Environment, job: Path) -> None:
    program = """
import rankplan
from rankplan.front.pinning import check_requests
plan = rankplan.plan("tinyrl.yaml", "2x8", pinned=True)
check_requests(plan)
print([(one.component, one.name, len(one.accelerators), one.order) for one in plan.requests])
"""
    done = python(environment, program, job)
    assert done.stdout == "[('learner', 'tinyrl_learner', 8, 'text'), ('sampler', 'tinyrl_sampler', 8, 'text')]\n", (
        done.stdout + done.stderr
    )


def test_its_launcher_writes_a_plan(environment: Environment, job: Path) -> None:
    shutil.copy(GUEST / "nodes.yaml", job)
    command = ("emit", "run.sh", "--to", "tinyhosts")
    done = rankplan(environment, *command, "--inventory", "nodes.yaml", "--user", "ada", folder=job)
    assert done.stdout == "ada@10.0.0.1 learner=8 sampler=0\nada@10.0.0.2 learner=0 sampler=4\n", done.stderr
    refused = rankplan(environment, *command, "--nodes", "2x8", folder=job)
    assert refused.returncode == 1 and "node 1 has no address for the list of hosts" in refused.stderr
    assert "tinyhosts" in rankplan(environment, "emit", "--help", folder=job).stdout


def test_its_command_runs(environment: Environment, job: Path) -> None:
    done = rankplan(environment, "tinyrl-nodes", "tinyrl.yaml", "--nodes", "2x8", folder=job)
    assert done.stdout == "learner: 0\nsampler: 1\njudge: 0, 1\n", done.stderr
    assert "tinyrl-nodes" in rankplan(environment, "--help", folder=job).stdout


@pytest.mark.long
def test_a_saved_plan_outlives_its_guest(tmp_path: Path, job: Path) -> None:
    environment = Environment(tmp_path / "venv")
    environment.install(build_wheel(GUEST, tmp_path))
    save = rankplan(environment, "plan", "tinyrl.yaml", "--nodes", "2x8", "--save", "plan.json", folder=job)
    assert save.returncode == 0, save.stderr
    environment.uninstall("tinyrl-rankplan")
    assert rankplan(environment, "check", "plan.json", folder=job).returncode == 0
    assert rankplan(environment, "show", "plan.json", folder=job).returncode == 0
    command = ("emit", "plan.json", "--to", "slurm", "--command", "train.py")
    assert rankplan(environment, *command, folder=job).returncode == 0
    program = """
import rankplan
from rankplan.front.pinning import check_requests
check_requests(rankplan.Plan.load("plan.json"))
"""
    refused = python(environment, program, job)
    assert "the plan is of the unknown dialect 'tinyrl'" in refused.stderr
    gone = rankplan(environment, "check", "tinyrl.yaml", folder=job)
    assert gone.returncode == 1 and "no key of a system that rankplan reads" in gone.stdout


def _steps() -> dict[str, str]:
    """Return the files of the guide, and the session at its end, by their first lines."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    section = page.partition("### How to add a trainer\n")[2].partition("\n### ")[0]
    blocks = [textwrap.dedent(block) for block in re.findall(r"^ *```text\n(.*?)^ *```$", section, re.M | re.S)]
    return {block.partition("\n")[0].lstrip("#$ "): block for block in blocks}


@pytest.fixture(scope="module")
def guide(tmp_path_factory: pytest.TempPathFactory) -> tuple[Environment, Path, dict[str, str]]:
    """The packages of the guide, a trainer and a fork of verl, in an environment; their folder; its sessions."""
    steps = _steps()
    sessions = {first: steps.pop(first).partition("\n")[2] for first in list(steps) if first.startswith("rankplan ")}
    modules = {f"minirl_rankplan/{name}.py" for name in ("keys", "job", "dialect")}
    fork = {f"farmrl/{name}" for name in ("pyproject.toml", "farmrl_rankplan.py", "run.sh")}
    assert set(steps) == {"pyproject.toml", "conf.yaml", *modules, *fork}
    folder = tmp_path_factory.mktemp("minirl")
    for name, text in steps.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    environment = Environment(tmp_path_factory.mktemp("guide") / "venv")
    for package in (folder, folder / "farmrl"):
        environment.install(build_wheel(package, tmp_path_factory.mktemp("wheels")))
    return environment, folder, sessions


def test_the_steps_of_the_guide_make_a_trainer_in_an_empty_folder(
    guide: tuple[Environment, Path, dict[str, str]],
) -> None:
    environment, folder, sessions = guide
    command = "rankplan check conf.yaml --nodes 2x8"
    assert rankplan(environment, *command.split()[1:], folder=folder).stdout == sessions[command]
    (folder / "run.sh").write_text("python -m minirl.train minirl.nodes=2 learner.gpus=8 sampler.gpus=4\n")
    assert rankplan(environment, "check", "run.sh", "--nodes", "2x8", folder=folder).returncode == 0


def test_the_guide_makes_a_fork_of_verl(guide: tuple[Environment, Path, dict[str, str]]) -> None:
    environment, folder, sessions = guide
    command = "rankplan check run.sh --nodes 1x8"
    assert rankplan(environment, *command.split()[1:], folder=folder / "farmrl").stdout == sessions[command]
    run = "python3 -m farmrl.main algorithm.adv_estimator={} trainer.n_gpus_per_node=8 {}\n"
    for estimator, words, expected in (
        ("vtrace", "farm.tensor=2", {"actor": 8, "critic": 8, "rollout": 4}),
        ("grpo", "", {"actor": 8, "rollout": 8}),
        ("gae", "critic.enable=false", {"actor": 8, "critic": 8, "rollout": 8}),
    ):
        (folder / "own.sh").write_text(run.format(estimator, words))
        planned = rankplan(environment, "plan", "own.sh", "--format", "json", folder=folder)
        assert Counter(row["component"] for row in json.loads(planned.stdout)) == expected, planned.stderr
    (folder / "own.yaml").write_text("farm: {tensor: 2}\ntrainer: {n_gpus_per_node: 8}\n")
    planned = rankplan(environment, "plan", "own.yaml", "--dialect", "farmrl", "--format", "json", folder=folder)
    assert Counter(row["component"] for row in json.loads(planned.stdout)) == {"actor": 8, "rollout": 4}
