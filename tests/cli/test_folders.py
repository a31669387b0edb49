"""``rankplan check`` on folders: every job of a tree, what is no job counted, and a table at the end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import Result
from rankplan.cli.check import watch
from rankplan.cli.folders import files_in
from support.commands import run

GOOD = "cluster: {num_nodes: 2, component_placement: {actor: 0-7, rollout: 8-15}}\n"
BAD = "cluster: {num_nodes: 1, component_placement: {actor: 0-8}}\n"
NO_JOB = "hidden_size: 4096\nlayers: 32\n"


@pytest.fixture(autouse=True)
def tree(own_folder: Path) -> None:
    files = {
        "configs/good.yaml": GOOD,
        "configs/deep/er/bad.yml": BAD,
        "configs/deep/model.yaml": NO_JOB,
        "configs/run.sh": "python -m verl.trainer.main_ppo trainer.nnodes=2 trainer.n_gpus_per_node=8\n",
        "configs/sft.sh": "torchrun -m verl.trainer.fsdp_sft_trainer data.train_files=x\n",
        "configs/nodes.yaml": "nodes: [{ranks: 0-1, accelerators: 8}]\n",
        "configs/hooks.yaml": "- repo: local\n  id: cluster\n",
        "configs/empty.yaml": "# nothing yet\n",
        "configs/notes.txt": BAD,
        "configs/.git/hidden.yaml": BAD,
    }
    for name, text in files.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)


def check(*words: str) -> Result:
    return run("check", *words)


def test_faults_then_a_table_of_all_jobs() -> None:
    done = check("configs")
    assert done.exit_code == 1
    assert done.stdout.count("error[") == 1
    assert "configs/deep/er/bad.yml:1:" in done.stdout
    assert "skipped 5 files that are no jobs" in done.stderr
    assert "assuming" not in done.stderr
    lines = done.stdout[done.stdout.index("file ") :].splitlines()
    assert [line.split()[0] for line in lines] == [
        "file",
        "configs/deep/er/bad.yml",
        "configs/good.yaml",
        "configs/run.sh",
    ]
    assert lines[1].split()[1:] == ["1"]
    assert lines[2].split()[1:] == ["16", "2"]


def test_a_folder_without_faults_is_fine() -> None:
    Path("configs/deep/er/bad.yml").unlink()
    assert check("configs").exit_code == 0
    assert check("configs/deep").exit_code == 0


def test_links_that_lead_in_a_circle_and_folders_without_permission() -> None:
    Path("configs/deep/loop").symlink_to(Path("configs").absolute())
    assert check("configs").stdout.count("error[") == 1
    Path("configs/closed.yaml").mkdir(mode=0)
    done = check("configs")
    assert isinstance(done.exception, SystemExit)


def test_a_file_that_is_named_is_never_skipped() -> None:
    done = check("configs", "configs/sft.sh")
    assert "skipped 4 files that are no jobs" in done.stderr
    assert "sft.sh" in done.stdout


@pytest.mark.parametrize("form", ["json", "sarif", "github"])
def test_every_format_has_the_jobs_alone(form: str) -> None:
    done = check("configs", "--format", form)
    assert done.exit_code == 1
    assert "bad.yml" in done.stdout and "model.yaml" not in done.stdout and "sft.sh" not in done.stdout
    if form == "json":
        assert [Path(one["file"]).name for one in json.loads(done.stdout)] == ["bad.yml", "good.yaml", "run.sh"]


def test_watching_a_folder_sees_new_files(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[list[str]] = []

    def command() -> None:
        runs.append([Path(file).name for file in files_in("configs")])
        Path("configs/new.yaml").write_text(GOOD)

    watch(["configs"], command, rounds=2)
    assert "new.yaml" not in runs[0] and "new.yaml" in runs[1]


TEMPLATES = {
    "helm.yaml": "{{- if .Values.x }}\nkind: Deployment\nmodels: 2\n{{- end }}\n",
    "jinja.yml": "a: {% if x %}\nb: 2\n",
    "tagged.yaml": "task: x\nprocess: !function utils.f\n",
    "two.yaml": "a: 1\n---\nb: 2\n",
    "quote.sh": 'echo "\n',
}
JOBS = {
    "broken.yaml": "trainer: {nnodes: 1\nactor_rollout_ref: x\n",
    "template.yaml": "{% if x %}\ntrainer: {n_gpus_per_node: 8}\n{% endif %}\n",
    "twice.yaml": "cluster: {gpus_per_node: 8, gpus_per_node: 8}\n",
    "flags.sh": 'python3 train.py --actor-num-nodes 1 "\n',
    "one.job.yaml": "job: conf.yaml\na: [\n",
}


def test_files_that_cannot_be_parsed_are_skipped_unless_they_have_a_key_of_a_job(own_folder: Path) -> None:
    folder = own_folder / "parts"
    folder.mkdir()
    for name, text in {**TEMPLATES, **JOBS}.items():
        (folder / name).write_text(text)
    done = check("parts", "--format", "json")
    assert sorted(Path(one["file"]).name for one in json.loads(done.stdout)) == sorted(JOBS)
    assert done.exit_code == 1 and done.stderr.endswith("skipped 5 files that are no jobs\n")
    named = check("parts/helm.yaml", "--format", "json")
    assert json.loads(named.stdout)[0]["faults"][0]["code"] == "invalid-yaml"


@pytest.mark.parametrize(
    ("patterns", "left"),
    [
        (["parts/sub"], ["parts/a.yaml", "parts/b_test.yaml"]),
        (["sub/", "*_test.yaml"], ["parts/a.yaml"]),
        (["parts/*.yaml"], []),
        (["other"], ["parts/a.yaml", "parts/b_test.yaml", "parts/sub/c.yaml"]),
    ],
)
def test_files_and_folders_can_be_left_out(patterns: list[str], left: list[str], own_folder: Path) -> None:
    for name in ("a.yaml", "b_test.yaml", "sub/c.yaml"):
        path = own_folder / "parts" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("trainer: {nnodes: 1, n_gpus_per_node: 8}\n")
    words = [word for pattern in patterns for word in ("--exclude", pattern)]
    done = check("parts", "--format", "json", *words)
    assert [one["file"] for one in json.loads(done.stdout)] == left
