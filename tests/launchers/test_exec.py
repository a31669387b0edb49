"""``rankplan exec`` with real processes: environment, binding, signals, failures and exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import rankplan
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from rankplan import Plan
from rankplan.cli import main
from rankplan.environment import planned_environment

CONFIG = """\
cluster:
  num_nodes: 3
  component_placement:
    actor: 0-7:0-3
    rollout: {node_group: late, placement: "2-5:0-3"}
  node_groups:
    - {label: late, node_ranks: 1-2, env_configs: [{node_ranks: 1-2, env_vars: [{MODE: "$HOME/x"}, {PATH: /opt/late}]}]}
"""
SHOW = "import json, os; os.write(1, (json.dumps(dict(os.environ)) + chr(10)).encode())"


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    monkeypatch.chdir(tmp_path)
    Path("conf.yaml").write_text(CONFIG)
    made = rankplan.plan("conf.yaml", "3x4")
    made.save("plan.json")
    return made


def exec_(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "rankplan", "exec", "plan.json", *words],
        env=os.environ | env,
        capture_output=True,
        text=True,
        timeout=60,
    )


def wait_for(path: Path, count: int = 1) -> None:
    end = time.monotonic() + 30
    while len(list(path.parent.glob(path.name))) < count:
        assert time.monotonic() < end, f"{path} does not appear"
        time.sleep(0.02)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until_gone(pids: list[int]) -> None:
    end = time.monotonic() + 30
    while any(map(alive, pids)):
        assert time.monotonic() < end, "a rank outlives its launcher"
        time.sleep(0.02)


# ----------------------------------------------------------------------------------------------------------- one rank


@pytest.mark.parametrize(("component", "rank"), [("actor", 0), ("actor", 3), ("rollout", 0), ("rollout", 3)])
def test_a_rank_has_the_environment_of_the_plan(plan: Plan, component: str, rank: int) -> None:
    done = exec_(
        "--component", component, "--rank", str(rank), "--master", "10.0.0.1:29500", "--", sys.executable, "-c", SHOW
    )
    assert done.returncode == 0, done.stderr
    environment = json.loads(done.stdout)
    expected = planned_environment(plan[component][rank]) | {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}
    assert {name: environment.get(name) for name in expected} == expected
    late = component == "rollout"
    assert environment.get("MODE") == (f"{os.environ['HOME']}/x" if late else None)
    assert environment["PATH"].startswith("/opt/late:") == late


def test_the_rank_may_come_from_a_launcher_whose_rendezvous_stays(plan: Plan) -> None:
    given = {"SLURM_PROCID": "2", "MASTER_ADDR": "elsewhere", "MASTER_PORT": "1234", "RANK": "7"}
    done = exec_("--component", "actor", "--rank-from", "SLURM_PROCID", "--", sys.executable, "-c", SHOW, **given)
    environment = json.loads(done.stdout)
    assert (environment["RANK"], environment["MASTER_ADDR"], environment["MASTER_PORT"]) == ("2", "elsewhere", "1234")


def test_it_becomes_the_command(plan: Plan) -> None:
    words = ["exec", "plan.json", "--component", "actor", "--rank", "0", "--"]
    script = "import os, sys; print(os.getpid(), flush=True); sys.exit(41)"
    with subprocess.Popen(
        [sys.executable, "-m", "rankplan", *words, sys.executable, "-c", script], stdout=subprocess.PIPE, text=True
    ) as process:
        said, _ = process.communicate(timeout=60)
    assert (int(said), process.returncode) == (process.pid, 41)


def test_it_is_bound_before_the_command_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cpus = sorted(os.sched_getaffinity(0))
    Path("nodes.yaml").write_text(
        f"nodes:\n  - ranks: 0\n    accelerators: [{{id: 0, numa: 0}}]\n    numa: {{0: '{cpus[-1]}'}}\n"
    )
    Path("conf.yaml").write_text("cluster: {num_nodes: 1, binding: node, component_placement: {a: 0}}")
    rankplan.plan("conf.yaml", rankplan.Inventory.load("nodes.yaml")).save("plan.json")
    done = exec_("--rank", "0", "--", sys.executable, "-c", "import os; print(sorted(os.sched_getaffinity(0)))")
    assert done.stdout.strip() == f"[{cpus[-1]}]"


def test_an_interpreter_of_a_node_group_runs_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    interpreter = tmp_path / "python-of-the-group"
    interpreter.write_text('#!/bin/sh\necho "group $@"\n')
    interpreter.chmod(0o755)
    Path("conf.yaml").write_text(
        "cluster:\n  num_nodes: 1\n  component_placement: {a: {node_group: g, placement: 0}}\n  node_groups:\n"
        f"    - {{label: g, node_ranks: 0, env_configs: [{{node_ranks: 0, python_interpreter_path: {interpreter}}}]}}\n"
    )
    rankplan.plan("conf.yaml", "1x4").save("plan.json")
    assert exec_("--rank", "0", "--", "python", "train.py", "--lr", "1").stdout == "group train.py --lr 1\n"
    assert exec_("--rank", "0", "--", "echo", "python").stdout == "python\n"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "use --rank R, --rank-from VARIABLE or --node N"),
        (["--rank", "0", "--node", "0"], "use --rank R, --rank-from VARIABLE or --node N"),
        (["--rank", "4", "--component", "actor", "--", "true"], "actor has ranks 0-3; there is no rank 4"),
        (["--rank", "0", "--component", "actor"], "write the command of the rank after --"),
        (["--rank", "0", "--", "true"], "2 components"),
        (["--rank-from", "NOT_SET", "--component", "actor", "--", "true"], "NOT_SET is not set"),
        (["--rank", "0", "--component", "actor", "--master", "h", "--", "true"], "'h' is not HOST:PORT"),
        (["--node", "0-1", "--run", "actor=true"], "0-1 is a range of node ranks; it must be one node rank"),
        (["--node", "none", "--run", "actor=true"], "none is a node outside the plan; it must be one node rank"),
        (["--node", "1+2*1", "--run", "actor=true"], "the plan has nodes 0-2; there is no node 3"),
        (["--node", "0", "--run", "rollout=true"], "no rank of rollout runs on node 0"),
        (["--node", "0", "--run", "critic=true"], "unknown component `critic`"),
        (["--node", "0", "--run", "actor"], "'actor' is not NAME=VALUE"),
        (["--node", "0", "--run", "actor='"], "No closing quotation"),
        (["--node", "0", "--run", "actor="], "the command of actor is empty"),
        (["--node", "0", "--run", "actor=true", "--run", "actor=true"], "actor is given twice"),
    ],
)
def test_wrong_usage(plan: Plan, words: list[str], says: str) -> None:
    done = CliRunner().invoke(main, ["exec", "plan.json", *words])
    assert done.exit_code == 2
    assert says in " ".join(done.stderr.split())


def test_overrides_are_set_as_the_words_after_dashes_are_the_command(plan: Plan) -> None:
    words = ["conf.yaml", "--nodes", "3x4", "--component", "actor", "--set", "cluster.component_placement.actor=0-5"]
    shown = [sys.executable, "-m", "rankplan", "exec", *words, "--rank", "0", "--", sys.executable, "-c", SHOW]
    done = subprocess.run(shown, capture_output=True, text=True, timeout=60)
    assert json.loads(done.stdout)["WORLD_SIZE"] == "6", done.stderr
    refused = exec_("--component", "actor", "--set", "a=b", "--rank", "0", "--", "true")
    assert refused.returncode == 2 and "is a saved plan with its own nodes" in refused.stderr
    helped = exec_("--component", "actor", "--rank", "0", "--", "cluster.num_nodes=4")
    assert (helped.returncode, "override the config with --set" in helped.stderr) == (127, True)


def test_an_index_that_the_launcher_did_not_fill_in(plan: Plan) -> None:
    done = CliRunner().invoke(main, ["exec", "plan.json", "--node", "4+", "--run", "actor=true"])
    assert done.exit_code == 1
    assert done.stderr.startswith("error[bad-node-rank]: --node is '4+', which lacks a number")


def test_a_command_that_cannot_start(plan: Plan) -> None:
    Path("no-program").write_text("")
    for command, code in (("not-there", 127), ("./no-program", 126)):
        one = ["--component", "actor", "--rank", "0", "--", command]
        for words in (one, ["--node", "0", "--run", f"actor={command}"]):
            done = exec_(*words)
            assert done.returncode == code, done.stderr
            assert command in done.stderr
            assert "Traceback" not in done.stderr


# -------------------------------------------------------------------------------------------------- all ranks of a node


@pytest.mark.parametrize("node", ["0", "1", "0+1*1+0", "2"])
def test_a_node_starts_its_ranks_and_no_others(plan: Plan, node: str) -> None:
    number = eval(node)
    show = f"{sys.executable} -c '{SHOW}'"
    runs = [word for name in plan for word in ("--run", f"{name}={show}")]
    if number == 0:
        runs = runs[:2]
    done = exec_("--node", node, *runs, "--master", "actor=h:1", "--master", "rollout=h:2")
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    rows = [(name, row) for name in plan for row in plan[name] if row.cluster_node_rank == number]
    assert len(found) == len(rows) > 0
    keys = ["RANK", "WORLD_SIZE", "CUDA_VISIBLE_DEVICES", "MASTER_PORT", "CLUSTER_NODE_RANK"]
    ports = {"actor": "1", "rollout": "2"}
    expected = [planned_environment(row) | {"MASTER_PORT": ports[name]} for name, row in rows]
    assert sorted([one[key] for key in keys] for one in found) == sorted([one[key] for key in keys] for one in expected)


@pytest.mark.parametrize(("end", "code"), [("sys.exit(3)", 3), ("os.kill(os.getpid(), 9)", 137)])
def test_one_failing_rank_ends_the_others(plan: Plan, tmp_path: Path, end: str, code: int) -> None:
    script = tmp_path / "rank.py"
    script.write_text(
        "import os, pathlib, sys, time\n"
        "pathlib.Path(f'new-{os.environ[\"RANK\"]}').write_text(str(os.getpid()))\n"
        "os.rename(f'new-{os.environ[\"RANK\"]}', f'up-{os.environ[\"RANK\"]}')\n"
        "while len(list(pathlib.Path().glob('up-*'))) < 2: time.sleep(0.01)\n"
        f"if os.environ['RANK'] == '1': {end}\n"
        "time.sleep(100)\n"
    )
    done = exec_("--node", "0", "--run", f"actor={sys.executable} {script}")
    assert done.returncode == code
    assert "actor rank 1 ended with" in done.stderr
    assert "ending the other 1" in done.stderr
    assert not any(alive(int(path.read_text())) for path in tmp_path.glob("up-*"))


def heed_signals() -> None:
    """Undo what ``nohup`` and shells without job control do to background processes."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


def started(tmp_path: Path, body: str) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    script = tmp_path / "rank.py"
    script.write_text(
        "import os, pathlib, signal, sys, time\n"
        f"{body}\n"
        "name = f'pid-{os.environ[\"RANK\"]}'\n"
        "pathlib.Path(f'.{name}').write_text(str(os.getpid()))\n"
        "pathlib.Path(f'.{name}').rename(name)\n"
        "time.sleep(100)\n"
    )
    words = ["exec", "plan.json", "--node", "0", "--run", f"actor={sys.executable} {script}"]
    with subprocess.Popen(
        [sys.executable, "-m", "rankplan", *words], stderr=subprocess.PIPE, text=True, preexec_fn=heed_signals
    ) as process:
        wait_for(tmp_path / "pid-*", 2)
        yield process, [int(path.read_text()) for path in tmp_path.glob("pid-*")]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_are_forwarded(plan: Plan, tmp_path: Path, number: signal.Signals) -> None:
    for process, pids in started(tmp_path, ""):
        process.send_signal(number)
        assert process.wait(30) == 128 + number
        wait_until_gone(pids)


def test_a_rank_may_finish_its_work_after_sigterm(plan: Plan, tmp_path: Path) -> None:
    body = (
        "def end(*_):\n"
        "    time.sleep(0.5)\n"
        "    pathlib.Path(f'saved-{os.environ[\"RANK\"]}').touch()\n"
        "    sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, end)"
    )
    for process, _ in started(tmp_path, body):
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert len(list(tmp_path.glob("saved-*"))) == 2


def test_ranks_do_not_outlive_a_killed_launcher(plan: Plan, tmp_path: Path) -> None:
    for process, pids in started(tmp_path, ""):
        process.kill()
        process.wait(30)
        wait_until_gone(pids)


@given(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=3), min_size=1, max_size=3))
def test_node_expressions_are_sums_of_products(terms: list[list[int]]) -> None:
    from rankplan.cli.exec import _node_rank

    text = "+".join("*".join(map(str, factors)) for factors in terms)
    assert _node_rank(text) == eval(text)
