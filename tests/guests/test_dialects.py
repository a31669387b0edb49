"""Dialects of other packages: when they are asked, and what happens if one fails."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import rankplan
from rankplan import PlacementError
from rankplan.dialects import DIALECTS, name_of
from rankplan.guests.doors import GuestError, without_guests
from support.commands import run
from support.guests import on_the_path, put_package

TINY = """
from rankplan.sdk import Dialect, Job, KeyTable, Program, size

GPUS = size("{name}.gpus", "the GPUs", default=1, tells="alone")
SHARED = size("shared.gpus", "the same", tells="tells")

class TinyJob(Job):
    def __init__(self, config):
        self.gpus, self.where = config[GPUS], config.where(GPUS)

    def size(self):
        return 1, self.gpus

    def place(self, placer):
        {place}
        placer.component("trainer", placer.take(self.gpus, "trainer", self.where), self.where)

DIALECT = Dialect(
    name="{name}",
    system="{name}",
    keys=KeyTable((GPUS, SHARED)),
    job=TinyJob,
    programs=(Program(r"{name}\\.train"), Program(r"{name}\\.score", "evaluation")),
    trainer="{name}.train",
    writers={{"": lambda plan: ({{"{name}": {{"gpus": len(plan["trainer"])}}}}, {{}})}},
)
"""


def package(folder: Path, name: str, place: str = "") -> None:
    """Write a package with a dialect."""
    text = TINY.format(name=name, place=place)
    put_package(
        folder, f"{name}-rankplan", {"rankplan.dialects": {name: f"{name}_door:DIALECT"}}, {f"{name}_door": text}
    )


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Path]:
    """Install the dialect `tiny`, one that cannot be imported, and one with another name than its entry point."""
    package(tmp_path / "tiny", "tiny")
    package(tmp_path / "other", "other")
    broken = {"broken": "broken_door:DIALECT"}
    put_package(
        tmp_path / "broken", "broken-rankplan", {"rankplan.dialects": broken}, {"broken_door": "import nowhere"}
    )
    wrong = {"wrong": "tiny_door:DIALECT"}
    put_package(tmp_path / "wrong", "wrong-rankplan", {"rankplan.dialects": wrong})
    with on_the_path(*(tmp_path / name for name in ("tiny", "other", "broken", "wrong"))):
        yield tmp_path


def test_a_guest_is_asked_if_no_dialect_of_rankplan_recognises_the_config(tiny: Path) -> None:
    assert name_of({"tiny": {"gpus": 4}}) == "tiny"
    assert name_of({"tiny": {"gpus": 4}, "actor_rollout_ref": {}}) == "verl"
    assert name_of({"tiny": {"gpus": 4}, "cluster": {"component_placement": {"actor": 0}}}) == "rlinf"
    assert len(rankplan.plan({"tiny": {"gpus": 4}}, "1x8")["trainer"]) == 4
    with without_guests():
        assert name_of({"tiny": {"gpus": 4}}) == "rlinf"


def test_guests_that_cannot_be_used_are_warnings(tiny: Path) -> None:
    report = rankplan.check({"tiny": {"gpus": 4}}, "1x8")
    assert report.plan is not None and not report.faults
    texts = [f"{one.code}: {one.message}" for one in report.warnings if one.code == "guest-failed"]
    assert texts == [
        "guest-failed: the dialect `broken` of the package broken-rankplan cannot be imported: "
        "ModuleNotFoundError: No module named 'nowhere'",
        "guest-failed: the dialect `wrong` of the package wrong-rankplan calls itself `tiny`; both must have one name",
    ]
    quiet = rankplan.check({"trainer": {"nnodes": 1, "n_gpus_per_node": 8}, "actor_rollout_ref": {}}, "1x8")
    assert "guest-failed" not in {one.code for one in quiet.diagnostics}
    with pytest.raises(GuestError, match="cannot be imported"):
        rankplan.plan({"tiny": {"gpus": 4}}, "1x8", dialect="broken")


def test_two_guests_that_recognise_a_config_are_a_fault(tiny: Path) -> None:
    config = {"shared": {"gpus": 4}}
    with pytest.raises(PlacementError) as caught:
        rankplan.plan(config, "1x8")
    (fault,) = caught.value.diagnostics
    assert (fault.code, fault.message) == ("invalid-value", "several dialects recognise this config: other, tiny")
    assert fault.help == "choose with --dialect other or --dialect tiny"
    assert list(rankplan.plan(config, "1x8", dialect="tiny")) == ["trainer"]


def test_what_the_code_of_a_guest_raises_is_a_fault_of_its_package(tmp_path: Path) -> None:
    package(tmp_path, "failing", place="raise KeyError('gone')")
    with on_the_path(tmp_path):
        report = rankplan.check({"failing": {"gpus": 4}}, "1x8")
        plan = rankplan.plan({"cluster": {"num_nodes": 1, "component_placement": {"trainer": "0-3"}}}, "1x8")
        with pytest.raises(GuestError, match="raised KeyError: 'gone'"):
            rankplan.convert(plan, to="failing")
    (fault,) = report.faults
    expected = r"the dialect `failing` of the package failing-rankplan raised KeyError: 'gone' \(failing_door.py:\d+\)"
    assert fault.code == "guest-failed" and re.fullmatch(expected, fault.message)


def test_the_script_of_a_guest_is_read(tiny: Path) -> None:
    path = tiny / "run.sh"
    path.write_text("echo start\npython -m tiny.train tiny.gpus=6\n")
    assert len(rankplan.plan(path, "1x8")["trainer"]) == 6
    path.write_text("python -m tiny.score tiny.gpus=6\n")
    with pytest.raises(PlacementError, match=r"(?s)`tiny.score` is evaluation, not an RL job.*passes to `tiny.train`"):
        rankplan.plan(path, "1x8")
    path.write_text("python -m tiny.train trainer.nnodes=1 trainer.n_gpus_per_node=8 actor_rollout_ref.x=1\n")
    assert "actor" in rankplan.plan(path, "1x8")


def test_a_typo_of_a_guests_key_is_a_fault(tiny: Path) -> None:
    report = rankplan.check({"tiny": {"gpus": 4, "gpsu": 1}}, "1x8")
    assert [(one.message, one.help) for one in report.faults] == [("unknown key `gpsu`", "did you mean `gpus`?")]


def test_commands_know_the_names_of_guests(tiny: Path) -> None:
    path = tiny / "conf.yaml"
    path.write_text("tiny: {gpus: 4}\n")
    last = list(DIALECTS.builtin)[-1]
    shown = run("check", "--help").stdout.replace("\n", "").replace(" ", "")
    assert f"|{last}|broken|other|tiny|wrong]" in shown
    assert run("plan", str(path), "--nodes", "1x8", "--dialect", "tiny").exit_code == 0
    converted = run("convert", str(path), "--nodes", "1x8", "--to", "tiny")
    assert (converted.exit_code, converted.stdout) == (0, "tiny:\n  gpus: 4\n")
    assert "[rlinf|verl|slime|roll|prime_rl|trl|other|tiny]" in run("convert", "--help").stdout
    kept_out = run("plan", str(path), "--nodes", "1x8", "--no-guests")
    assert kept_out.exit_code == 1 and "it has no key of a system that rankplan reads" in kept_out.stderr
    assert '"gpus"' in run("schema").stdout


def test_a_plan_of_a_missing_guest_is_still_a_plan(tiny: Path) -> None:
    saved = tiny / "plan.json"
    rankplan.plan({"tiny": {"gpus": 4}}, "1x8").save(saved)
    with without_guests():
        assert rankplan.check(saved).plan is not None
        assert run("show", str(saved)).exit_code == 0
    assert "tiny" in DIALECTS


SERVED = """
import tomllib
from rankplan.sdk import Dialect, Job, KeyTable, Program, size, switch

GPUS = size("learner.gpus", "the GPUs of the learner", default=1, tells="alone")
ENGINES = size("served.engines", "the engines of the server", default=1, tells="tells")

def ini(text):
    lines = {}
    section = ()
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("["):
            section = tuple(line.strip("[]").split("."))
        elif "=" in line:
            lines[(*section, line.partition("=")[0].strip())] = number
    return tomllib.loads(text), lines

class ServedJob(Job):
    def __init__(self, config):
        self.gpus, self.where = config[GPUS], config.where(GPUS)
        server = config.part("server")
        self.engines = 0 if server is None else server[ENGINES]

    def size(self):
        return 1, 8

    def place(self, placer):
        placer.component("learner", placer.take(self.gpus, "learner", self.where), self.where)
        placer.component("server", placer.take(self.engines, "server", self.where), self.where)

DIALECT = Dialect(
    name="served",
    system="Served",
    keys=KeyTable((GPUS, ENGINES)),
    job=ServedJob,
    programs=(
        Program("served learn", takes=("@", "flags")),
        Program("served serve", takes=("flags",), part="server"),
        Program(r"served\\.only_files", takes=("@",)),
    ),
    formats={".ini": ini},
)
"""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Path]:
    """Install a dialect with files of TOML, and with two programs in a job."""
    entries = {"rankplan.dialects": {"served": "served_door:DIALECT"}}
    put_package(tmp_path / "package", "served-rankplan", entries, {"served_door": SERVED})
    with on_the_path(tmp_path / "package"):
        yield tmp_path


def sizes(path: Path) -> dict[str, int]:
    return {name: len(component) for name, component in rankplan.plan(path, "1x8").items()}


def test_a_file_in_the_format_of_a_guest_is_read(served: Path) -> None:
    path = served / "job.ini"
    path.write_text("[learner]\n# GPUs\ngpus = 3\n")
    assert sizes(path) == {"learner": 3}
    path.write_text("[learner]\n# GPUs\ngpus = 'x'\n")
    (fault,) = rankplan.check(path, "1x8").faults
    assert (fault.line, fault.source, fault.path) == (3, "gpus = 'x'", "learner.gpus")
    path.write_text("[learner]\ngpus = \n")
    (fault,) = rankplan.check(path, "1x8").faults
    assert (fault.code, fault.line) == ("syntax", 2) and "Invalid value" in fault.message


def test_files_of_several_layers_and_the_parts_of_a_job_are_read(served: Path) -> None:
    (served / "a.toml").write_text("[learner]\ngpus = 2\nname = 'a'\n")
    (served / "b.toml").write_text("[learner]\ngpus = 3\n")
    path = served / "run.sh"
    path.write_text("served serve --served.engines 4 &\nserved learn @ a.toml @b.toml\n")
    assert sizes(path) == {"learner": 3, "server": 4}
    path.write_text('served serve --served.engines "$(count)" &\nserved learn @ b.toml\n')
    unknown = [warning for warning in rankplan.check(path, "1x8").warnings if warning.code == "not-run"]
    assert [(warning.path, warning.line) for warning in unknown] == [("served.engines", 1)]
    path.write_text("served learn @ b.toml @ a.toml --learner.gpus 5\n")
    assert sizes(path) == {"learner": 5}
    path.write_text("python -m served.only_files @ a.toml --learner.gpus 5\n")
    assert sizes(path) == {"learner": 2}
    (served / "a.toml").write_text("[learner]\ngpus = 9\n")
    (fault,) = rankplan.check(path, "1x8").faults
    assert str(fault.file).endswith("a.toml") and fault.line == 2
