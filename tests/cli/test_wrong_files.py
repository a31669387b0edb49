"""Every option that takes a file, with every kind of file that it does not take: the message names both kinds."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path

import pytest
import rankplan
from support.commands import run
from support.outcomes import some

CONFIG = "cluster: {num_nodes: 2, component_placement: {actor: 0-7, rollout: 8-15}}\n"
COSTS = "components: {actor: {seconds: {8: 4}}, rollout: {seconds: {8: 3}}}\n"
LAUNCHER = ["--command", "x"]

# The words of an option, and what its file must be.
OPTIONS = {
    "plan": (["plan", "FILE"], "the config of a job"),
    "tune": (["tune", "FILE", "--costs", "costs.yaml", "--nodes", "2x8"], "the config of a job"),
    "exec": (["exec", "FILE", "--component", "actor", "--rank", "0", "--", "true"], "the config of a job"),
    "plan --inventory": (["plan", "conf.yaml", "--inventory", "FILE"], "an inventory"),
    "inventory --inventory": (["inventory", "--inventory", "FILE"], "an inventory"),
    "run --nodes": (["run", "conf.yaml", "--nodes", "FILE", "--simulate"], "an inventory"),
    "replan": (["replan", "FILE"], "a saved plan"),
    "arrange --beside": (["arrange", "conf.yaml", "--nodes", "8x8", "--beside", "FILE"], "a saved plan"),
    "replan --beside": (["replan", "plan.json", "--beside", "FILE"], "a saved plan"),
    "show --beside": (["show", "conf.yaml", "--nodes", "8x8", "--beside", "FILE"], "a saved plan"),
    "tune --from": (["tune", "--costs", "costs.yaml", "--nodes", "2x8", "--from", "FILE"], "a saved plan"),
    "tune --costs": (["tune", "--costs", "FILE", "--nodes", "2x8"], "a costs file"),
    "plan --costs": (["plan", "conf.yaml", "--nodes", "2x8", "--memory", "--costs", "FILE"], "a costs file"),
    "run --timings": (["run", "conf.yaml", "--nodes", "2x8", "--simulate", "--timings", "FILE"], "a costs file"),
    "inventory --kubernetes": (["inventory", "--kubernetes", "FILE"], "nodes of Kubernetes"),
    "inventory --kueue": (["inventory", "--inventory", "nodes.yaml", "--kueue", "FILE"], "a Topology object of Kueue"),
    "inventory --slurm": (["inventory", "--slurm", "FILE"], "a topology of Slurm"),
    "emit --base slurm": (["emit", "plan.json", "--to", "slurm", *LAUNCHER, "--base", "FILE"], "a script"),
    "emit --base jobset": (["emit", "plan.json", "--to", "jobset", *LAUNCHER, "--base", "FILE"], "an object"),
}
CONTENTS = {
    "list.yaml": b"- a\n- b\n",
    "empty.yaml": b"",
    "scalar.yaml": b"hello\n",
    "number.yaml": b"5\n",
    "binary.yaml": bytes(range(256)),
    "latin.yaml": "nodes: caf\xe9\n".encode("latin-1"),
    "conf.yaml": CONFIG.encode(),
    "costs.yaml": COSTS.encode(),
    "nodes.yaml": b"nodes: [{ranks: 0-1, accelerators: 8}]\n",
    "slurm.json": json.dumps({"nodes": [{"name": "a"}], "meta": {"slurm": {"release": "24.05"}}}).encode(),
    "topology.conf": b"# leaf switches\nSwitchName=s0 Nodes=n[0-1]\n",
    "pod.yaml": b"apiVersion: v1\nkind: Pod\nmetadata: {name: x}\n",
}
SPECIAL = {"missing.yaml": "No such file or directory", "folder": "Is a directory", "secret.yaml": "Permission denied"}
KINDS = {
    "conf.yaml": "the config of a job",
    "costs.yaml": "a costs file",
    "nodes.yaml": "an inventory",
    "plan.json": "a saved plan",
    "slurm.json": "nodes of Slurm",
    "topology.conf": "a topology of Slurm",
    "pod.yaml": "a Pod of Kubernetes",
}
OF_A_PLAN = {"plan", "exec"}
"""These take a saved plan, too."""


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with chdir(tmp_path_factory.mktemp("files")):
        for name, content in CONTENTS.items():
            Path(name).write_bytes(content)
        rankplan.plan("conf.yaml", "2x8").save(Path("plan.json"))
        Path("folder").mkdir()
        yield


def message(option: str, file: str) -> str:
    """Return what an option says about a file that it does not take: one fault, without a traceback."""
    done = run(*(file if word == "FILE" else word for word in OPTIONS[option][0]))
    assert done.exit_code in (1, 2), done.output
    return done.output


@pytest.mark.parametrize("option", OPTIONS)
def test_a_file_that_is_not_utf_8_has_one_message(option: str) -> None:
    for file, place, position in (("binary.yaml", 2, 128), ("latin.yaml", 1, 10)):
        said = message(option, file)
        assert f"error[invalid-yaml]: the file is not UTF-8: invalid byte at position {position}\n" in said
        assert f"--> {file}:{place}\n" in said and "= help: save the file as UTF-8\n" in said


@pytest.mark.parametrize("option", OPTIONS)
def test_a_file_that_cannot_be_opened_is_named_with_the_reason(option: str) -> None:
    refused = dict(SPECIAL)
    if os.geteuid() == 0:
        del refused["secret.yaml"]  # may read everything
    else:
        Path("secret.yaml").touch(mode=0)
    if option == "run --timings":
        del refused["missing.yaml"]  # it would be created
    for file, reason in some(refused.items()):
        if option == "run --simulate" and file != "secret.yaml":
            assert f"'{file}' is not nodes x accelerators" in message(option, file)
        else:
            assert message(option, file) == f"error: {file}: {reason}\n"


def takes(option: str, file: str) -> bool:
    """Whether an option takes a file."""
    wanted = OPTIONS[option][1]
    if KINDS.get(file) == wanted or (option in OF_A_PLAN and file == "plan.json"):
        return True
    # A script with nothing to add, and the nodes of Slurm.
    return (wanted, file) in (("a script", "empty.yaml"), ("a topology of Slurm", "slurm.json"))


FILES = ["list.yaml", "empty.yaml", "scalar.yaml", "number.yaml", *KINDS]
REFUSED = [(file, option) for option in OPTIONS for file in FILES if not takes(option, file)]


@pytest.mark.parametrize(("file", "option"), REFUSED, ids=["-".join(names) for names in REFUSED])
def test_the_message_says_what_the_file_is_and_what_it_must_be(file: str, option: str) -> None:
    wanted = OPTIONS[option][1]
    said = message(option, file)
    assert "= help: " in said and "traceback" not in said.lower()
    if wanted == "a script":
        assert "the base has commands and no first line that starts a shell" in said
    elif wanted == "an object":
        assert "it must be an object of Kubernetes" in said or "it must have a JobSet" in said
    elif file in KINDS:
        asked = "nodes of Slurm" if option == "inventory --slurm" and file.endswith("json") else wanted
        are = "these are" if KINDS[file].startswith("nodes") else "this is"
        assert f"{are} {KINDS[file]}, not {asked}\n" in said or "saved plan, not a config" in said
    elif file == "empty.yaml":
        assert f"the file is empty: it is not {wanted}\n" in said
    elif (option, file) == ("inventory --slurm", "list.yaml"):
        assert "'a' is not a topology" in said
    else:
        assert f"; it must be {wanted}\n" in said
    assert said.count("error[") == 1


def test_a_file_of_slurm_says_how_it_becomes_an_inventory() -> None:
    topology = message("plan --inventory", "topology.conf")
    assert "this is a topology of Slurm, not an inventory" in topology
    assert "`rankplan inventory --slurm FILE --inventory NODES -o nodes.yaml`" in topology
    assert run("inventory", "--slurm", "topology.conf", "--inventory", "nodes.yaml").exit_code == 0
    assert "`rankplan inventory --slurm FILE -o nodes.yaml`" in message("plan --inventory", "slurm.json")
