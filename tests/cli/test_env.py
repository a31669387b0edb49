"""``rankplan env``: the environment of a launch, as shells, docker and python-dotenv read it."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import dotenv
import pytest
from click.testing import Result
from hypothesis import given
from hypothesis import strategies as st
from rankplan import ComponentPlacement, Inventory
from rankplan.cli.env import written
from rankplan.environment import expanded, rank_environment
from support.commands import run

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
            - LD_LIBRARY_PATH: "/opt/$NAME/lib"
            - CPATH: "$CPATH:/opt/include"
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
def files(own_folder: Path) -> None:
    Path("conf.yaml").write_text(CONFIG)
    Path("nodes.yaml").write_text(NODES)


def env(*arguments: str, inventory: bool = True) -> Result:
    options = ["--inventory", "nodes.yaml"] if inventory else []
    return run("env", "conf.yaml", *options, *arguments)


def launched(component: str, rank: int, here: dict[str, str]) -> dict[str, str]:
    """Return what a launch would set on a node with the environment ``here``."""
    plan = ComponentPlacement("conf.yaml", Inventory.load("nodes.yaml")).plan()
    row = plan[component][rank]
    env_vars, _ = plan.inventory.environment(row.cluster_node_rank, row.node_group_label)
    return rank_environment(row, master_addr="10.0.0.1", master_port=29500, env_vars=expanded(env_vars, here))


@pytest.mark.parametrize("shell", ["sh", "bash -u"])
@pytest.mark.parametrize("rank", [0, 3])
@pytest.mark.parametrize(
    "here", [{}, {"LIBS": "/usr/my lib", "NOPE": "x", "LD_LIBRARY_PATH": "/usr/my lib:/b", "CPATH": "/c"}]
)
def test_a_shell_sets_what_a_launch_would_set(shell: str, rank: int, here: dict[str, str]) -> None:
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


def test_a_value_keeps_its_escape_sequences() -> None:
    group = {"label": "g", "node_ranks": 0, "env_configs": [{"node_ranks": 0, "env_vars": [{"PS1": "\x1b[31m> "}]}]}
    actor = {"node_group": "g", "placement": 0}
    section = {"num_nodes": 1, "component_placement": {"actor": actor}, "node_groups": [group]}
    Path("colours.json").write_text(json.dumps({"cluster": section}))
    done = run("env", "colours.json", "--nodes", "1x1", "--rank", "0")
    assert "export PS1='\x1b[31m> '" in done.stdout.splitlines()


def test_comments_name_omitted_variables_and_the_interpreter() -> None:
    done = env("--component", "actor", "--rank", "3")
    assert [line for line in done.stdout.splitlines() if line.startswith("# ")] == [
        "# actor rank 3, on node 1 (b)",
        "# interpreter: /opt/venv/bin/python",
        "# from node group g: LD_LIBRARY_PATH CPATH LIBS AGAIN A-B ODD",
        "# from the plan: RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE NODE_RANK NODE_LOCAL_RANK NODE_LOCAL_WORLD_SIZE "
        "CLUSTER_NODE_RANK CUDA_VISIBLE_DEVICES RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES",
        "# MASTER_PORT is omitted: pass --master-port, the same for every rank of actor",
        "# A-B is omitted: a shell cannot set this name; use --format json",
    ]
    assert "MASTER_PORT=" not in done.stdout and "export MASTER_ADDR=10.0.0.1\n" in done.stdout
    assert "export CUDA_VISIBLE_DEVICES=5,4,3,2\n" in done.stdout
    assert 'export LD_LIBRARY_PATH="/opt/${NAME-\\$NAME}/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"\n' in done.stdout


def test_folders_replace_the_present_ones_on_request() -> None:
    Path("conf.yaml").write_text(
        CONFIG.replace("          env_vars:\n", "          path_env: replace\n          env_vars:\n")
    )
    done = env("--component", "actor", "--rank", "3")
    assert 'export LD_LIBRARY_PATH="/opt/${NAME-\\$NAME}/lib"\n' in done.stdout
    assert "export RLINF_PATH_ENV_MERGE_MODE=override\n" in done.stdout


def test_without_an_inventory_the_address_is_omitted() -> None:
    done = env("--component", "rollout", "--rank", "1", inventory=False)
    assert done.exit_code == 0 and "MASTER_ADDR=" not in done.stdout
    assert "# MASTER_ADDR is omitted: node 0 has no address in the inventory; pass --master-addr\n" in done.stdout
    assert "export MASTER_ADDR=me\n" in env("--component", "rollout", "--rank", "1", "--master-addr", "me").stdout


def test_a_host_name_cannot_end_a_comment() -> None:
    Path("nodes.yaml").write_text(NODES.replace("hostname: b", 'hostname: "b\\necho gotcha"'))
    done = env("--component", "actor", "--rank", "3")
    assert done.exit_code == 1 and done.stdout == ""
    assert r"`hostname` is 'b\necho gotcha'; it must have ASCII letters" in done.stderr


def test_json_and_dotenv() -> None:
    arguments = ["--component", "actor", "--rank", "3", "--master-port", "1", "--format"]
    done = env(*arguments, "json")
    values = json.loads(done.stdout)
    assert values["ODD"] == ODD and values["A-B"] == "1" and values["MASTER_ADDR"] == "10.0.0.1"
    assert done.stderr.startswith(
        "actor rank 3, on node 1 (b)\ninterpreter: /opt/venv/bin/python\nfrom node group g: LD"
    )
    assert values["LD_LIBRARY_PATH"] == "/opt/$NAME/lib:${LD_LIBRARY_PATH}"
    lines = env(*arguments, "dotenv").stdout.splitlines()
    assert "RANK=3" in lines and "CUDA_VISIBLE_DEVICES=5,4,3,2" in lines
    notes = [f"# {name} is omitted: shells, docker and dotenv would disagree" for name in ("LIBS", "AGAIN", "ODD")]
    assert [note for note in notes if any(line.startswith(note) for line in lines)] == notes
    assert not any(line.startswith(("LIBS=", "AGAIN=", "ODD=")) for line in lines)


def by_shell(*shell: str, locale: str = "C") -> Callable[[Path], dict[str, str]]:
    """Return a reader that sources the file."""

    def read(path: Path) -> dict[str, str]:
        command = [*shell, "-euc", "set -a; . ./variables; exec env -0"]
        here = {"PATH": "/usr/bin:/bin", "HOME": "/home/me", "LC_ALL": locale}
        done = subprocess.run(command, cwd=path.parent, env=here, capture_output=True, check=True)
        assert done.stderr == b""
        return dict(line.split("=", 1) for line in done.stdout.decode().split("\0") if line)

    return read


def by_docker(path: Path) -> dict[str, str]:
    """Read the file as ``docker run --env-file``: trim a line's left side, skip comments, take the value literally."""
    lines = [line.removesuffix("\r").lstrip() for line in path.read_bytes().decode().split("\n")]
    found = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    assert not any(set(name) & set(" \t") for name in found)
    return found


def by_dotenv(path: Path) -> dict[str, str | None]:
    return dict(dotenv.dotenv_values(path))


READERS = [
    *(by_shell("bash"), by_shell("bash", "--posix"), by_shell("bash", locale="C.UTF-8"), by_shell("dash")),
    *(by_docker, by_dotenv),
]
PIECES = [
    *"$(){}[]`'\"\\ #=~:*?!&|;<>^%@,./+-_a0\n\r\t\x1b\x81\xa0é世\u2028",
    "$HOME",
    "${HOME}",
    "$(touch x)",
    "`touch x`",
]


@given(st.lists(st.lists(st.sampled_from(PIECES), max_size=6).map("".join), min_size=1, max_size=20))
def test_every_reader_of_dotenv_reads_the_same_values_and_runs_nothing(values: list[str]) -> None:
    environment = {f"RP_{index}": value for index, value in enumerate(values)}
    lines, notes = written(environment, "dotenv")
    expected = {name: value for name, value in environment.items() if not any(f"{name} " in note for note in notes)}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "variables")
        path.write_bytes("".join(f"{line}\n" for line in lines).encode())
        for read in READERS:
            assert {name: value for name, value in read(path).items() if name.startswith("RP_")} == expected
        assert list(Path(folder).iterdir()) == [path]


@pytest.mark.parametrize(
    "value",
    [
        "",
        "0,1,2",
        "/opt/my-venv/bin:/home/josé",
        "^mlx5_0:1",
        "=mlx5_0",
        "#1",
        "*.local,10.0.?.1",
        "[::1]:80",
        "{1..3}!",
    ],
)
def test_dotenv_has_values_that_need_no_quotes(value: str) -> None:
    assert written({"NAME": value}, "dotenv") == ([f"NAME={value}"], [])


@pytest.mark.parametrize(
    "value", ["a b", "$HOME", "$(id)", "`id`", "it's", '"', "a\\b", "~/a", "a;b", "a\nb", "a\r", "\x1b"]
)
def test_dotenv_omits_values_that_need_quotes(value: str) -> None:
    note = "NAME is omitted: shells, docker and dotenv would disagree on its value; use sh or json"
    assert written({"NAME": value}, "dotenv") == ([], [note])


def test_a_saved_plan_has_its_own_nodes_and_its_own_isolation() -> None:
    options = ["--inventory", "nodes.yaml", "--no-isolate", "--save", "plan.json"]
    assert run("plan", "conf.yaml", *options).exit_code == 0
    arguments = ["env", "plan.json", "--component", "actor", "--rank", "3"]
    assert "CUDA_VISIBLE_DEVICES=9,8,7,6,5,4,3,2\n" in run(*arguments).stdout
    assert "CUDA_VISIBLE_DEVICES=5,4,3,2\n" in run(*arguments, "--isolate").stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--component", "acto", "--rank", "0"], "unknown component `acto` in conf.yaml; did you mean `actor`?"),
        (["--rank", "0"], "conf.yaml has 2 components; choose one: actor, rollout"),
        (["--component", "actor", "--rank", "4"], "actor has ranks 0-3"),
        (["--component", "actor", "--rank", "-1"], "actor has ranks 0-3"),
        (["--component", "actor"], "Missing option '--rank'"),
        (["--component", "actor", "--rank", "0", "--master-port", "0"], "0 is not in the range"),
    ],
)
def test_wrong_usage_names_the_alternatives(arguments: list[str], message: str) -> None:
    done = env(*arguments)
    assert done.exit_code == 2 and message in done.stderr and done.stdout == ""


def test_the_only_component_needs_no_name() -> None:
    Path("conf.yaml").write_text("cluster: {num_nodes: 1, component_placement: {actor: 0-3}}\n")
    assert "export RANK=2\n" in env("--rank", "2", inventory=False).stdout
