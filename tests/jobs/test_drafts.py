"""``rankplan init``: a job file whose comments are true of the job."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import rankplan
import yaml
from rankplan.jobs.keys import OF_PROCESSES
from support.commands import run
from support.paths import ROOT

EXAMPLES = [
    "areal.yaml",
    "nemo_rl.yaml",
    "openrlhf.sh",
    "roll.yaml",
    "ms_swift.yaml",
    "skyrl.sh",
    "slime.yaml",
    "verl.sh",
    "verl.yaml",
]
NODES = "levels: [row, rack]\nnodes: [{ranks: 0-3, accelerators: 8, labels: {row: r, rack: a}}]\n"


@pytest.fixture(params=[*EXAMPLES, "conf.yaml"])
def config(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a config in the working directory, beside an inventory."""
    (tmp_path / request.param).write_bytes((ROOT / "examples" / request.param).read_bytes())
    (tmp_path / "nodes.yaml").write_text(NODES)
    monkeypatch.chdir(tmp_path)
    return str(request.param)


def test_a_draft_is_checked_like_the_config_itself(config: str) -> None:
    plain = rankplan.check(config)
    done = run("init", config)
    name = f"{Path(config).stem}.job.yaml"
    assert done.exit_code == 0 and done.stdout.startswith(f"{name}: written; ")
    assert yaml.safe_load(Path(name).read_text()) == {"job": config}
    assert rankplan.check(name).plan == plain.plan
    again = run("init", config)
    assert again.exit_code == 1 and "error[exists]: " in again.stderr


def test_each_line_can_be_uncommented(config: str) -> None:
    assert run("init", config, "--inventory", "nodes.yaml", "-o", "other.job.yaml").exit_code == 0
    text = Path("other.job.yaml").read_text()
    assert "# nodes: nodes.yaml\n" in text and "{world: rack}" in text and "#   levels: [row, rack]" in text
    stated = yaml.safe_load(re.sub(r"^# (?=  |[a-z_]+:)", "", text, flags=re.MULTILINE))
    left_out = set() if config == "conf.yaml" else {*OF_PROCESSES}
    assert set(stated) == {*rankplan_keys()} - {"dialect"} - left_out
    components = set(rankplan.plan(config, "nodes.yaml"))
    assert set(stated["topology"]["keep"]) <= components
    for key in stated.keys() - {"job", "beside", "environment"}:
        Path("one.job.yaml").write_text(yaml.safe_dump({"job": config, "nodes": "nodes.yaml", key: stated[key]}))
        report = rankplan.check("one.job.yaml")
        wrong = [one for one in report.faults if one.code not in RULES]
        assert wrong == [], (key, report.render())


RULES = {"group-spans", "segment-incomplete", "domain-too-small", "memory-exceeded", "excluded-resource"}
"""An example may be stricter than the job allows, but never wrong."""


def rankplan_keys() -> list[str]:
    schema = yaml.safe_load(run("schema").stdout)
    return list(schema["$defs"]["JobFile"]["properties"])


def test_paths_are_those_of_the_folder_of_the_draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "verl.sh").write_bytes((ROOT / "examples" / "verl.sh").read_bytes())
    (tmp_path / "nodes.yaml").write_text(NODES)
    monkeypatch.chdir(tmp_path)
    assert run("init", "conf/verl.sh", "--inventory", "nodes.yaml").exit_code == 0
    text = Path("conf/verl.job.yaml").read_text()
    assert "\njob: verl.sh\n" in text and "\n# nodes: ../nodes.yaml\n" in text
    assert run("init", "conf/verl.sh", "-o", "run.job.yaml").exit_code == 0
    assert "\njob: conf/verl.sh\n" in Path("run.job.yaml").read_text()
    assert rankplan.check("run.job.yaml").plan is not None


def test_a_wrong_config_has_no_draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("conf.yaml").write_text("cluster: {num_nodes: 1, component_placement: {actor: 0-8}}\n")
    assert run("init", "conf.yaml").exit_code == 1 and not Path("conf.job.yaml").exists()
    assert run("init", "missing.yaml").exit_code == 1


def test_a_saved_plan_takes_fewer_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rankplan.plan(ROOT / "examples" / "verl.sh", "2x8").save("plan.json")
    assert run("init", "plan.json").exit_code == 0
    text = Path("plan.job.yaml").read_text()
    assert "# nodes:" not in text and "# topology:" in text and "job: plan.json" in text
    assert rankplan.check("plan.job.yaml").plan is not None
