"""Launchers of other packages: their options, their files, and what fails of them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import rankplan
from rankplan import EmitOptions, PlacementError
from rankplan.launchers.launcher import Launcher
from rankplan.launchers.options import Form
from rankplan.launchers.table import LAUNCHERS
from support.commands import run
from support.guests import on_the_path, put_package

CONFIG = {"cluster": {"num_nodes": 1, "component_placement": {"actor": "0-7"}}}

HOSTS = """
import json
from rankplan.launchers import Draft, Emitted, Form, Launcher, Options, digest, plan_text
from rankplan import Plan

MARK = "# rankplan: "

def write(draft):
    if draft.options.own.get("fail"):
        raise KeyError("inside")
    text = plan_text(draft.plan)
    cloud = draft.options.own.get("cloud", "any")
    return f"{MARK}{digest(text)}\\n# hosts: {cloud}\\n{text}"

def recognises(text):
    return "# hosts: " in text

def read(file, text):
    _, hosts, plan = text.split("\\n", 2)
    own = {"cloud": hosts.removeprefix("# hosts: ")}
    return Emitted(Plan.from_dict(json.loads(plan)), Options(commands={"*": "x"}, own=own))

LAUNCHER = Launcher(
    name="hosts", write=write, recognises=recognises, read=read, options=("queue",),
    own={"cloud": Form("Cloud to use.", choices=("any", "aws")), "fail": Form("Fail.", types=bool)},
)
OTHER = Launcher(name="other", write=write, recognises=recognises, read=read)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    put_package(
        tmp_path, "hosts-guest", {"rankplan.launchers": {"hosts": "hosts_guest:LAUNCHER"}}, {"hosts_guest": HOSTS}
    )
    with on_the_path(tmp_path):
        yield tmp_path
    sys.modules.pop("hosts_guest", None)


def emitted(**own: object) -> str:
    return rankplan.emit(rankplan.plan(CONFIG, "1x8"), "hosts", EmitOptions(command="x", own=own))


@pytest.mark.parametrize("name", LAUNCHERS.builtin)
def test_every_launcher_of_rankplan_comes_through_the_same_door(name: str) -> None:
    launcher = LAUNCHERS[name]
    assert isinstance(launcher, Launcher) and launcher.name == name


def test_its_file_is_written_and_read(folder: Path) -> None:
    (file := folder / "hosts.txt").write_text(text := emitted(cloud="aws"))
    assert text.splitlines()[1] == "# hosts: aws"
    assert rankplan.plan(file) == rankplan.plan(CONFIG, "1x8")
    assert rankplan.emit(file, "hosts") == text
    assert rankplan.emit(file, "hosts", EmitOptions(own={"cloud": "any"})) == emitted(cloud="any")
    assert "rankplan exec" in rankplan.emit(file, "slurm", EmitOptions(command="x"))


def test_its_options_are_flags_of_the_command() -> None:
    plain, own = run("emit", "--help").output, run("emit", "--to", "hosts", "--help").output
    assert "--cloud" not in plain and "--to [kuberay|jobset|lws|kueue|slurm|torchrun|mpirun|hosts]" in plain
    assert "--cloud [any|aws]" in own and "Cloud to use." in own
    Path("conf.yaml").write_text("cluster: {num_nodes: 1, component_placement: {actor: 0-7}}\n")
    words = ["emit", "conf.yaml", "--nodes", "1x8", "--command", "x"]
    assert run(*words, "--to", "hosts", "--cloud", "aws").stdout == emitted(cloud="aws")
    assert run(*words, "--cloud=aws", "--to=hosts").stdout == emitted(cloud="aws")
    assert "'gcp' is not one of 'any', 'aws'" in run(*words, "--to", "hosts", "--cloud", "gcp").stderr
    assert "No such option" in run(*words, "--to", "slurm", "--cloud", "aws").stderr
    assert "'hosts' is not one of" in run(*words, "--to", "hosts", "--no-guests").stderr


def test_options_that_it_does_not_take() -> None:
    plan = rankplan.plan(CONFIG, "1x8")
    with pytest.raises(ValueError, match="hosts does not take --image and --cluod"):
        rankplan.emit(plan, "hosts", EmitOptions(command="x", queue="q", image="a:1", own={"cluod": "aws"}))
    with pytest.raises(ValueError, match="slurm does not take --cloud"):
        rankplan.emit(plan, "slurm", EmitOptions(command="x", own={"cloud": "aws"}))
    with pytest.raises(TypeError, match="own is of type str"):
        EmitOptions(own="aws")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="cloud is of type int; pass a text"):
        emitted(cloud=3)
    with pytest.raises(ValueError, match="cloud is 'gcp'; it must be one of any, aws"):
        emitted(cloud="gcp")
    with pytest.raises(ValueError, match="unknown target 'hsots'; did you mean `hosts`"):
        rankplan.emit(plan, "hsots")


def test_options_that_no_launcher_may_have() -> None:
    with pytest.raises(ValueError, match="cannot be named 'image'"):
        Launcher(name="x", write=str, own={"image": Form("")})
    with pytest.raises(ValueError, match="cannot be named 'a b'"):
        Launcher(name="x", write=str, own={"a b": Form("")})
    with pytest.raises(TypeError, match="cloud is of type str; pass a Form"):
        Launcher(name="x", write=str, own={"cloud": "Cloud to use."})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="unknown option 'port' in `options`; use some of image, cpus"):
        Launcher(name="x", write=str, options=("port",))


def test_an_error_in_its_code_is_a_fault() -> None:
    with pytest.raises(PlacementError) as caught:
        emitted(fail=True)
    (one,) = caught.value.diagnostics
    assert one.code == "guest-failed"
    assert (
        one.message == "the launcher `hosts` of the package hosts-guest raised KeyError: 'inside' (hosts_guest.py:10)"
    )


def test_a_guest_does_not_replace_a_launcher(folder: Path) -> None:
    put_package(folder, "rude-guest", {"rankplan.launchers": {"slurm": "hosts_guest:LAUNCHER"}})
    assert "#SBATCH" in rankplan.emit(rankplan.plan(CONFIG, "1x8"), "slurm", EmitOptions(command="x"))


def test_a_guest_that_fails_is_a_warning_beside_the_fault_of_a_file_of_no_launcher(folder: Path) -> None:
    put_package(folder, "broken-guest", {"rankplan.launchers": {"broken": "broken_guest:LAUNCHER"}})
    raising = "LAUNCHER = Launcher(name='x', write=write, recognises=lambda text: 1 / 0, read=read)"
    modules = {"raising": f"from hosts_guest import *\n{raising}"}
    put_package(folder, "raising-guest", {"rankplan.launchers": {"raising": "raising:LAUNCHER"}}, modules)
    (file := folder / "hosts.txt").write_text(text := emitted(cloud="aws"))
    assert rankplan.plan(file) == rankplan.plan(CONFIG, "1x8")  # the others do not matter
    file.write_text(text.replace("# hosts", "# unknown"))
    with pytest.raises(PlacementError) as caught:
        rankplan.plan(file)
    fault, *warnings = caught.value.diagnostics
    assert (fault.code, fault.warning) == ("emit-changed", False) and fault.help is not None
    assert fault.help.endswith("torchrun, mpirun, broken, hosts, raising")
    assert [(one.code, one.warning) for one in warnings] == [("guest-failed", True)] * 2
    assert "ModuleNotFoundError" in warnings[0].message and "ZeroDivisionError" in warnings[1].message
    assert run("check", str(file)).output.count("warning[guest-failed]: ") == 2


def test_two_guests_that_recognise_a_file(folder: Path) -> None:
    put_package(folder, "other-guest", {"rankplan.launchers": {"other": "hosts_guest:OTHER"}})
    (file := folder / "hosts.txt").write_text(emitted())
    with pytest.raises(PlacementError) as caught:
        rankplan.plan(file)
    (one,) = caught.value.diagnostics
    assert one.code == "guest-failed" and one.message.startswith("several launchers recognise this file: ")
    assert "hosts-guest" in one.message and "other-guest" in one.message
