"""``rankplan env``: what a rank would be launched with, as every shell and reader takes it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from rankplan import ComponentPlacement, Inventory
from rankplan.cli import main
from rankplan.environment import expanded, rank_environment

ODD = 'it\'s "$HOME" `id` $(id) \\ #x\n!'
CONFIG = (
    """\
cluster:
  num_nodes: 2
  component_placement:
    actor: {node_group: g, placement: "all:0-3"}
    rollout: 0-3
  node_groups:
    - label: g
      node_ranks: all
      env_configs:
        - node_ranks: 1
          python_interpreter_path: /opt/venv/bin/python
          env_vars:
            - LIBS: "/opt/lib:${LIBS}:$NOPE:${NOPE}:$1:${1}"
            - AGAIN: "$LIBS"
            - A-B: "1"
            - ODD: """
    + json.dumps(ODD)
    + "\n"
)
NODES = """\
nodes:
  - {ranks: 0, accelerators: 8, ip: 10.0.0.1}
  - {ranks: 1, hostname: b, accelerator_ids: [9, 8, 7, 6, 5, 4, 3, 2]}
"""


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("conf.yaml").write_text(CONFIG)
    Path("nodes.yaml").write_text(NODES)


def env(*arguments: str, inventory: bool = True) -> Result:
    options = ["--inventory", "nodes.yaml"] if inventory else []
    return CliRunner().invoke(main, ["env", "conf.yaml", *options, *arguments])


def launched(component: str, rank: int, here: dict[str, str]) -> dict[str, str]:
    """What a launch would set, on a node with the environment ``here``."""
    plan = ComponentPlacement("conf.yaml", Inventory.from_yaml("nodes.yaml")).plan()
    row = plan[component][rank]
    env_vars, _ = plan.inventory.environment(row.cluster_node_rank, row.node_group_label)
    return rank_environment(row, master_addr="10.0.0.1", master_port=29500, env_vars=expanded(env_vars, here))


@pytest.mark.parametrize("shell", ["sh", "bash -u"])
@pytest.mark.parametrize("rank", [0, 3])
@pytest.mark.parametrize("here", [{}, {"LIBS": "/usr/my lib", "NOPE": "x"}])
def test_a_shell_that_reads_it_has_what_a_launch_would_set(shell: str, rank: int, here: dict[str, str]) -> None:
    done = env("--component", "actor", "--rank", str(rank), "--master-port", "29500")
    assert done.exit_code == 0 and done.stderr == ""
    Path("rank.sh").write_text(done.stdout)
    here = {"PATH": "/usr/bin:/bin", **here}
    command = [*shell.split(), "-c", ". ./rank.sh; env -0"]
    shown = subprocess.run(command, env=here, capture_output=True, text=True, check=True)
    found = dict(line.split("=", 1) for line in shown.stdout.split("\0") if line)
    wanted = launched("actor", rank, here)
    wanted.pop("A-B", None)
    assert {name: found.get(name) for name in wanted} == wanted


@pytest.mark.parametrize(("form", "line"), [("sh", "export PS1='\x1b[31m> '"), ("dotenv", 'PS1="\x1b[31m> "')])
def test_a_value_with_colours_keeps_them(form: str, line: str) -> None:
    group = {"label": "g", "node_ranks": 0, "env_configs": [{"node_ranks": 0, "env_vars": [{"PS1": "\x1b[31m> "}]}]}
    actor = {"node_group": "g", "placement": 0}
    section = {"num_nodes": 1, "component_placement": {"actor": actor}, "node_groups": [group]}
    Path("colours.json").write_text(json.dumps({"cluster": section}))
    done = CliRunner().invoke(main, ["env", "colours.json", "--nodes", "1x1", "--rank", "0", "--format", form])
    assert line in done.stdout.splitlines()


def test_what_is_left_out_and_what_else_is_to_be_known_is_in_comments() -> None:
    done = env("--component", "actor", "--rank", "3")
    assert [line for line in done.stdout.splitlines() if line.startswith("# ")] == [
        "# actor rank 3, on node 1 (b)",
        "# its interpreter is /opt/venv/bin/python",
        "# no MASTER_PORT: give --master-port, the same to all ranks of actor",
        "# no A-B: not a name that can be set here; use json",
    ]
    assert "MASTER_PORT=" not in done.stdout and "export MASTER_ADDR=10.0.0.1\n" in done.stdout
    assert "export CUDA_VISIBLE_DEVICES=5,4,3,2\n" in done.stdout


def test_without_an_inventory_nothing_is_made_up() -> None:
    done = env("--component", "rollout", "--rank", "1", inventory=False)
    assert done.exit_code == 0 and "MASTER_ADDR=" not in done.stdout
    assert "# no MASTER_ADDR: the inventory has no address of node 0; give --master-addr\n" in done.stdout
    assert "export MASTER_ADDR=me\n" in env("--component", "rollout", "--rank", "1", "--master-addr", "me").stdout


def test_no_name_can_end_a_comment() -> None:
    Path("nodes.yaml").write_text(NODES.replace("hostname: b", 'hostname: "b\\necho gotcha"'))
    lines = env("--component", "actor", "--rank", "3").stdout.splitlines()
    assert lines[0] == "# actor rank 3, on node 1 (b?echo gotcha)"
    assert all(line.startswith(("# ", "export ", "!")) for line in lines)


def test_json_and_dotenv() -> None:
    arguments = ["--component", "actor", "--rank", "3", "--master-port", "1", "--format"]
    done = env(*arguments, "json")
    values = json.loads(done.stdout)
    assert values["ODD"] == ODD and values["A-B"] == "1" and values["MASTER_ADDR"] == "10.0.0.1"
    assert done.stderr == "actor rank 3, on node 1 (b)\nits interpreter is /opt/venv/bin/python\n"
    lines = env(*arguments, "dotenv").stdout.splitlines()
    assert "RANK=3" in lines and "CUDA_VISIBLE_DEVICES=5,4,3,2" in lines
    assert r'ODD="it' + r"""'s \"$HOME\" `id` $(id) \\ #x\n!""" + '"' in lines


def test_a_saved_plan_has_its_own_nodes_and_its_own_isolation() -> None:
    options = ["--inventory", "nodes.yaml", "--no-isolate", "--save", "plan.json"]
    assert CliRunner().invoke(main, ["plan", "conf.yaml", *options]).exit_code == 0
    arguments = ["env", "plan.json", "--component", "actor", "--rank", "3"]
    assert "CUDA_VISIBLE_DEVICES=9,8,7,6,5,4,3,2\n" in CliRunner().invoke(main, arguments).stdout
    assert "CUDA_VISIBLE_DEVICES=5,4,3,2\n" in CliRunner().invoke(main, [*arguments, "--isolate"]).stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--component", "acto", "--rank", "0"], "component `acto` is not in conf.yaml; did you mean `actor`?"),
        (["--rank", "0"], "conf.yaml has 2 components; the components are: actor, rollout"),
        (["--component", "actor", "--rank", "4"], "actor has the ranks 0-3"),
        (["--component", "actor", "--rank", "-1"], "actor has the ranks 0-3"),
        (["--component", "actor"], "Missing option '--rank'"),
        (["--component", "actor", "--rank", "0", "--master-port", "0"], "0 is not in the range"),
    ],
)
def test_wrong_usage_names_what_there_is(arguments: list[str], message: str) -> None:
    done = env(*arguments)
    assert done.exit_code == 2 and message in done.stderr and done.stdout == ""


def test_the_only_component_needs_no_name() -> None:
    Path("conf.yaml").write_text("cluster: {num_nodes: 1, component_placement: {actor: 0-3}}\n")
    assert "export RANK=2\n" in env("--rank", "2", inventory=False).stdout
