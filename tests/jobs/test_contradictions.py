"""Job files that contradict their config, their nodes or a saved plan."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import rankplan
from rankplan import Plan
from rankplan.cli.pin import _own_words
from support.commands import run
from support.paths import ROOT

RLINF = "cluster: {num_nodes: 2, component_placement: {actor: 0-7, rollout: 8-15}}\n"
GROUPS = """\
cluster:
  num_nodes: 2
  node_groups: [{label: a, node_ranks: 0-1}]
  component_placement: {actor: {node_group: a, placement: 0-7}}
"""
VERL = """\
trainer: {nnodes: 2, n_gpus_per_node: 7}
actor_rollout_ref: {rollout: {tensor_model_parallel_size: 1, name: vllm}}
"""
SHUFFLED = """\
nodes:
  - {ranks: 0, accelerators: 8, ip: 10.0.0.3}
  - {ranks: 1, accelerators: 8, ip: 10.0.0.2}
  - {ranks: 2, accelerators: 8, ip: 10.0.0.1}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("conf.yaml").write_text(RLINF)
    Path("groups.yaml").write_text(GROUPS)
    Path("verl.yaml").write_text(VERL)
    Path("nodes.yaml").write_text(SHUFFLED)


def faults(text: str) -> list[str]:
    """Return the faults of a job file, each with its line, column and code."""
    Path("run.job.yaml").write_text(text)
    return [f"{one.line}:{one.column} {one.code}: {one.message}" for one in rankplan.check("run.job.yaml").faults]


@pytest.mark.parametrize(
    ("excluded", "used"),
    [
        ("node-0/0", {"10.0.0.3": set(range(1, 8)), "10.0.0.2": set(range(7))}),
        ("node-0", {"10.0.0.2": set(range(7)), "10.0.0.1": set(range(7))}),
    ],
)
def test_excluded_hardware_stays_the_same_machine_in_the_trainers_order(
    excluded: str, used: dict[str, set[int]]
) -> None:
    Path("run.job.yaml").write_text(f"job: verl.yaml\nnodes: nodes.yaml\nexclude: [{excluded}]\n")
    plan = rankplan.plan("run.job.yaml", pinned=True)
    placed: dict[str, set[int]] = {}
    for place in plan["actor"]:
        machine = plan.inventory.node(place.cluster_node_rank).ip
        assert machine is not None
        placed.setdefault(machine, set()).update(map(int, place.visible_accelerators))
    assert placed == used
    assert not rankplan.check(plan).faults


def test_pools_that_their_config_contradicts() -> None:
    assert faults("job: conf.yaml\nnodes: 2x8\npools: [{name: a, components: [nobody]}]\n") == [
        "3:32 unknown-component: unknown component `nobody`"
    ]
    reserve = "pools: [{name: a, components: [actor], node_ranks: 0}]\n"
    place = "3:52 invalid-value: pool `a` has components; only a reserve without components has node_ranks"
    assert faults(f"job: conf.yaml\nnodes: 2x8\n{reserve}") == [place]
    rankplan.plan("conf.yaml").save("plan.json")
    assert faults(f"job: plan.json\n\n{reserve}")[0].startswith("3:")


def test_node_groups_that_the_config_states_otherwise() -> None:
    same = "job: groups.yaml\nnodes: 2x8\nnode_groups: [{label: a, node_ranks: 0-1}]\n"
    assert faults(same) == []
    assert faults(same.replace("0-1", "0")) == [
        "3:15 job-conflict: node group `a` is node 0 here, but nodes 0-1 in the trainer's config"
    ]


def test_a_node_group_may_have_more_nodes_than_the_config_counts() -> None:
    Path("roll.yaml").write_bytes((ROOT / "examples" / "roll.yaml").read_bytes())
    for nodes in ("0-1", "1-3", "0-5", "3-5"):
        text = f"job: roll.yaml\nnodes: 6x8\nnode_groups: [{{label: first, node_ranks: {nodes}}}]\n"
        assert faults(text) == []


def test_the_model_of_a_saved_plan_is_its_own() -> None:
    rankplan.plan("conf.yaml").save("plan.json")
    assert faults("job: plan.json\nmemory: {model: Qwen/Qwen3-8B}\n") == [
        "2:17 job-conflict: `memory.model` is stated, but `job` is a saved plan"
    ]


def test_a_number_keeps_the_place_where_it_is_written() -> None:
    assert faults("job: conf.yaml\nnodes: 2x8\ntopology: {cap: {rack: 1.5}}\n") == [
        "3:24 invalid-value: `rack` is 1.5; it must be a whole number of 1 or more"
    ]


def test_a_reserved_variable_of_a_node_group_is_refused_before_it_is_saved() -> None:
    groups = "node_groups: [{label: a, node_ranks: 0, env_configs: [{node_ranks: 0, env_vars: [RANK: 1]}]}]\n"
    (fault,) = faults(f"job: verl.yaml\nnodes: 2x8\n{groups}")
    assert "RANK" in fault and fault.startswith("3:"), fault


def test_options_of_a_launcher_keep_absolute_commands() -> None:
    Path("run.job.yaml").write_text(
        "job: conf.yaml\nnodes: 2x8\nemit: {to: jobset, image: me/rl:1, name: mine, command: /opt/run.sh}\n"
    )
    done = run("plan", "run.job.yaml", "--save", "plan.json")
    assert done.exit_code == 0, done.stderr
    assert Plan.load("plan.json").job == rankplan.plan("run.job.yaml").job
    written = run("emit", "plan.json")
    assert written.exit_code == 0 and "/opt/run.sh" in written.stdout, written.stderr


def test_a_job_on_one_line_is_a_job() -> None:
    Path("run.json").write_text('{"nodes": "2x8", "job": "conf.yaml"}')
    assert [*rankplan.plan("run.json")] == ["actor", "rollout"]
    assert run("check", "run.json").stdout.startswith("run.json: fine")


@pytest.mark.parametrize("output", ["json", "sarif", "github"])
def test_a_wrong_job_file_has_its_faults_in_every_output(output: str) -> None:
    Path("run.job.yaml").write_text("job: conf.yaml\nnodes: 2x8\ntopology: {cap: {rack: 1.5}}\n")
    done = run("check", "run.job.yaml", "--format", output)
    assert done.exit_code == 1 and "`rack` is 1.5" in done.stdout.replace("%60", "`")
    if output == "json":
        (report,) = json.loads(done.stdout)
        assert [(fault["line"], fault["column"]) for fault in report["faults"]] == [(3, 24)]


def test_nothing_reserved_on_the_command_line_replaces_what_the_job_file_reserves() -> None:
    job = "job: verl.yaml\nnodes: 2x8\nmemory: {accelerator: H100, model: Qwen/Qwen3-8B, reserve: 70 GiB}\n"
    Path("run.job.yaml").write_text(job)
    stated = json.loads(run("check", "run.job.yaml", "--memory", "--format", "json").stdout)
    nothing = json.loads(run("check", "run.job.yaml", "--memory", "--reserve", "0", "--format", "json").stdout)
    Path("run.job.yaml").write_text(job.replace(", reserve: 70 GiB", ""))
    without = json.loads(run("check", "run.job.yaml", "--memory", "--format", "json").stdout)
    assert nothing == without != stated


def test_a_component_may_be_called_job() -> None:
    config = {"cluster": {"num_nodes": 1, "component_placement": {"actor": "0-3", "job": "4-7"}}}
    plan = rankplan.plan(config, "1x8")
    assert rankplan.plan(plan) == plan and not rankplan.check(plan).faults


def test_a_job_file_from_a_pipe_gets_the_model_of_the_option() -> None:
    content = f"job: {Path('verl.yaml').absolute()}\nnodes: 2x8:H100\n"
    piped = subprocess.run(
        [sys.executable, "-m", "rankplan", "check", "/dev/stdin", "--model", "Qwen/Qwen3-8B", "--memory"],
        input=content,
        capture_output=True,
        text=True,
    )
    Path("run.job.yaml").write_text(content)
    done = run("check", "run.job.yaml", "--model", "Qwen/Qwen3-8B", "--memory")
    assert piped.stdout.replace("/dev/stdin", "run.job.yaml") == done.stdout and "actor" in piped.stdout


def piped(text: str, *words: str) -> str:
    """Return what a command prints that reads a text from a pipe; its path is ``PIPE`` there."""
    reading, writing = os.pipe()
    path = f"/dev/fd/{reading}"
    try:
        os.write(writing, text.encode())
        os.close(writing)
        done = run(*(word.replace("PIPE", path) for word in words))
    finally:
        os.close(reading)
    assert done.exit_code == 0, done.stdout + done.stderr
    return done.stdout.replace(path, "PIPE")


def test_a_job_file_from_a_pipe_is_one_of_the_working_directory() -> None:
    content = "job: verl.yaml\nnodes: nodes.yaml\nmemory: {reserve: 1 GiB}\n"
    Path("run.job.yaml").write_text(content)
    for words in (["plan", "PIPE"], ["plan", "PIPE", "--", "trainer.nnodes=1"], ["check", "PIPE", "--verbose"]):
        named = run(*(word.replace("PIPE", "run.job.yaml") for word in words))
        assert piped(content, *words).replace("PIPE", "run.job.yaml") == named.stdout
    plain = run("plan", "run.job.yaml", "--without", "node-0").stdout
    job = {"job": "run.job.yaml", "exclude": ["node-0"]}
    assert piped(json.dumps(job), "plan", "PIPE") == plain
    rankplan.plan("run.job.yaml").save("plan.json")
    assert piped(Path("plan.json").read_text(), "plan", "PIPE") == run("plan", "plan.json").stdout
    assert piped(VERL, "plan", "PIPE", "--nodes", "2x8") == run("plan", "verl.yaml", "--nodes", "2x8").stdout


def test_a_job_file_may_name_a_pipe() -> None:
    reading, writing = os.pipe()
    os.write(writing, b"job: verl.yaml\nnodes: nodes.yaml\n")
    os.close(writing)
    Path("below.job.yaml").write_text(f"job: /dev/fd/{reading}\nexclude: [node-0]\n")
    done = run("plan", "below.job.yaml")
    os.close(reading)
    Path("run.job.yaml").write_text("job: verl.yaml\nnodes: nodes.yaml\nexclude: [node-0]\n")
    assert done.exit_code == 0 and done.stdout == run("plan", "run.job.yaml").stdout, done.stderr


def test_pin_runs_the_script_that_is_named() -> None:
    """Its own folder may have another one with the same name."""
    script = Path("elsewhere", "run.sh").absolute()
    script.parent.mkdir()
    script.write_text("python3 -m verl.trainer.main_ppo trainer.nnodes=1 trainer.n_gpus_per_node=8\n")
    assert _own_words(str(script), None) == ("bash", str(script))
    Path("run.job.yaml").write_text(f"job: {script}\nnodes: 1x8\n")
    assert _own_words("run.job.yaml", None) == ("bash", str(script))


RACKS = """\
levels: [rack]
nodes:
  - {ranks: 0, accelerators: 8, labels: {rack: a}}
  - {ranks: 1, accelerators: 8, labels: {rack: b}}
  - {ranks: 2, accelerators: 8, labels: {rack: a}}
"""


def test_nodes_without_names_are_arranged_but_not_saved() -> None:
    Path("racks.yaml").write_text(RACKS)
    rankplan.plan("conf.yaml").save("plan.json")
    for config in ("conf.yaml", "plan.json"):
        arranged = run("arrange", config, "--inventory", "racks.yaml", "--segment", "2")
        assert arranged.exit_code == 0 and "0  node 0\n" in arranged.stdout.replace("node-0", "node 0"), arranged.stderr
        for option in ("-o", "--save"):
            done = run("arrange", config, "--inventory", "racks.yaml", "--segment", "2", option, "out.json")
            assert done.exit_code == 1 and "error[invalid-value]" in done.stderr and not Path("out.json").exists()
