"""The formats of ``rankplan plan`` for other launchers and programs agree with the plan."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
from click.testing import Result
from rankplan import ComponentPlacement, Inventory, Plan
from support.commands import run

CONFIG = """\
cluster:
  num_nodes: 3
  component_placement:
    actor: 0-9:0-4
    rollout: 8-15
    again: {node_group: "late,early", placement: all}
    back: {node_group: "late,early,arms", placement: "0-23,24"}
  node_groups:
    - {label: early, node_ranks: 0}
    - {label: late, node_ranks: 1-2}
    - {label: arms, node_ranks: 1, hardware: {type: Arm, configs: [{node_rank: 1}]}}
"""
NODES = """\
nodes:
  - {ranks: 0, accelerators: 8, ip: 10.0.0.7}
  - {ranks: 1, accelerators: 8, hostname: b}
  - {ranks: 2, accelerators: 8, ip: "fd00::3", hostname: c}
"""
HOSTS = ["10.0.0.7", "b", "fd00::3"]


@pytest.fixture(autouse=True)
def files(own_folder: Path) -> None:
    Path("conf.yaml").write_text(CONFIG)
    Path("nodes.yaml").write_text(NODES)


def plan(*arguments: str, nodes: str = "--inventory=nodes.yaml") -> Result:
    return run("plan", "conf.yaml", nodes, *arguments)


def expected() -> Plan:
    return ComponentPlacement("conf.yaml", Inventory.load("nodes.yaml")).plan()


@pytest.mark.parametrize("component", ["actor", "rollout", "again"])
def test_filling_the_hostfile_in_order_gives_the_plan(component: str) -> None:
    done = plan("--format", "hostfile", "--component", component)
    assert done.exit_code == 0, done.stderr
    hosts = []
    for line in done.stdout.splitlines():
        host, count = line.split(" slots=")
        hosts += [host] * int(count)
    assert hosts == [HOSTS[row.cluster_node_rank] for row in expected()[component]]


def test_a_hostfile_needs_consecutive_ranks_and_addresses() -> None:
    done = plan("--format", "hostfile", "--component", "back", "-o", "hosts")
    assert done.exit_code == 1 and "ranks of back on host b are not consecutive" in done.stderr
    assert "use a rankfile" in done.stderr and not Path("hosts").exists()
    done = plan("--format", "hostfile", "--component", "actor", nodes="--nodes=3x8")
    assert done.exit_code == 1 and "node 0 has no address" in done.stderr and "`ip` or a `hostname`" in done.stderr


@pytest.mark.parametrize("form", ["hostfile", "rankfile"])
@pytest.mark.parametrize("host", ["a b", "x slots=9", "#a", "a\nb", "a=b"])
def test_an_invalid_host_name_is_rejected(form: str, host: str) -> None:
    Path("odd.yaml").write_text(json.dumps({"nodes": [{"ranks": "0-2", "accelerators": 8, "hostname": host}]}))
    done = plan("--format", form, "--component", "actor", nodes="--inventory=odd.yaml")
    assert (done.exit_code, done.stdout) == (1, "") and f"`hostname` is {host!r}; it must have" in done.stderr


@pytest.mark.parametrize(
    ("nodes", "hosts"), [("--inventory=nodes.yaml", HOSTS), ("--nodes=3x8", ["+n0", "+n1", "+n2"])]
)
def test_a_rankfile_has_every_rank_on_its_host(nodes: str, hosts: list[str]) -> None:
    done = plan("--format", "rankfile", "--component", "back", nodes=nodes)
    found = re.findall(r"^rank (\d+)=(\S+) slot=(\d+)$", done.stdout, re.MULTILINE)
    rows = [(str(row.rank), hosts[row.cluster_node_rank], str(row.local_rank)) for row in expected()["back"]]
    assert found == rows and len(done.stdout.splitlines()) == len(rows)


def test_an_npz_has_the_columns_of_every_component() -> None:
    assert plan("--format", "numpy", "-o", "plan.npz").stdout == ""
    with numpy.load("plan.npz", allow_pickle=False) as columns:
        wanted = {
            f"{name}.{key}": column for name, one in expected().items() for key, column in one.rows.to_numpy().items()
        }
        assert set(columns.files) == set(wanted)
        assert all(numpy.array_equal(columns[name], column) for name, column in wanted.items())


@pytest.mark.parametrize("form", ["json", "csv", "rankfile"])
def test_a_file_equals_the_printed_output(form: str) -> None:
    arguments = ["--format", form, "--component", "actor"]
    assert plan(*arguments, "-o", "out").stdout == ""
    assert Path("out").read_text() == plan(*arguments).stdout != ""


@pytest.mark.parametrize(("name", "form"), [("p.CSV", "csv"), ("p.npz", "numpy")])
def test_the_suffix_of_the_file_selects_the_format(name: str, form: str) -> None:
    assert plan("-o", name).exit_code == plan("--format", form, "-o", "stated").exit_code == 0
    assert Path(name).read_bytes() == Path("stated").read_bytes()
    assert plan("--format", "csv", "-o", "p.json").exit_code == 0 and Path("p.json").read_text()[:10] == "component,"


def test_a_component_alone_and_a_saved_plan() -> None:
    whole = plan("--format", "csv", "--save", "plan.json").stdout.splitlines()
    alone = plan("--format", "csv", "--component", "rollout").stdout.splitlines()
    assert alone == [whole[0], *(line for line in whole if line.startswith("rollout,"))]
    saved = run("plan", "plan.json", "--format", "csv")
    assert saved.stdout.splitlines() == whole and saved.stderr == ""


def test_a_config_can_come_through_a_pipe() -> None:
    command = f"{sys.executable} -m rankplan plan <(cat conf.yaml) --nodes 3x8 --format csv --component actor"
    done = subprocess.run(["bash", "-c", command], text=True, capture_output=True)
    assert done.stdout == plan("--format", "csv", "--component", "actor").stdout, done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--format", "numpy"], "--format numpy requires -o PATH"),
        (["-o", "table.txt"], "json, csv, hostfile, rankfile, numpy"),
        (["--format", "rankfile"], "conf.yaml has 4 components; choose one: actor, rollout, again, back"),
        (["--component", "rolout"], "did you mean `rollout`?"),
    ],
)
def test_wrong_usage_says_what_to_do(arguments: list[str], message: str) -> None:
    done = plan(*arguments)
    assert done.exit_code == 2 and message in done.stderr and done.stdout == ""
