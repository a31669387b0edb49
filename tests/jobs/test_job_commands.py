"""Job files in the commands: folders, what holds, precedence, and the outputs for machines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import rankplan
from rankplan import Inventory
from support.commands import run
from support.paths import ROOT

RACKS = """\
levels: [rack]
nodes:
  - {ranks: 0-1, accelerators: 8, labels: {rack: a}}
  - {ranks: 2-3, accelerators: 8, labels: {rack: b}}
"""
JOB = (
    "job: verl.sh\nnodes: nodes.yaml\ntopology: {keep: {rollout: {tp: rack}}, segment: {actor: 1}}\nexclude: [node-3]\n"
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "nodes.yaml").write_text(RACKS)
    (tmp_path / "verl.sh").write_bytes((ROOT / "examples" / "verl.sh").read_bytes())
    (tmp_path / "run.job.yaml").write_text(JOB)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "command", ["check", "plan", "arrange", "show", "convert --to rlinf", "env --component actor --rank 1"]
)
def test_a_command_takes_a_job_file(command: str) -> None:
    name, *options = command.split()
    done = run(name, "run.job.yaml", *options)
    plain = run(name, "verl.sh", *options, "--inventory", "nodes.yaml", "--without", "node-3")
    assert done.exit_code == plain.exit_code == (1 if name == "convert" else 0), done.stderr
    if name in ("plan", "env"):
        assert done.stdout == plain.stdout


@pytest.mark.parametrize("config", ["roll.yaml", "quickstart.yaml", "slime.yaml"])
def test_nodes_that_the_job_may_use_besides_its_own_are_spares(config: str) -> None:
    """Also for a trainer that counts its nodes: they are on the map, and no warning."""
    Path(config).write_bytes((ROOT / "examples" / config).read_bytes())
    each = rankplan.plan(config).inventory.node(0).num_accelerators
    Path("nodes.yaml").write_text(RACKS.replace("2-3", "2-7").replace("accelerators: 8", f"accelerators: {each}"))
    Path("wide.job.yaml").write_text(f"job: {config}\nnodes: nodes.yaml\n")
    checked = run("check", "wide.job.yaml")
    assert " of 8 nodes" in checked.stdout and "idle-nodes" not in checked.stdout
    assert run("plan", "wide.job.yaml", "--save", "plan.json").exit_code == 0
    shown = run("show", "wide.job.yaml").stdout
    assert "spare" in shown
    assert run("show", "plan.json").stdout == shown


def without_plan(text: str) -> list[str]:
    """Return the lines of a file without what the plan in it knows of its job."""
    return [line for line in text.splitlines() if "sha256:" not in line and '"job": ' not in line]


def test_the_file_of_a_launcher_has_the_options_of_the_job() -> None:
    Path("conf.yaml").write_bytes((ROOT / "examples" / "conf.yaml").read_bytes())
    options = "emit: {to: jobset, image: me/rl:1, name: mine, command: run}\n"
    Path("emit.job.yaml").write_text(f"job: conf.yaml\nnodes: 2x8\n{options}")
    done = run("emit", "emit.job.yaml")
    given = ("--to", "jobset", "--image", "me/rl:1", "--name", "mine", "--command", "run")
    plain = run("emit", "conf.yaml", "--nodes", "2x8", *given)
    assert done.exit_code == 0 and without_plan(done.stdout) == without_plan(plain.stdout), done.stderr
    other = run("emit", "emit.job.yaml", "--image", "me/rl:2")
    assert "image: me/rl:2" in other.stdout and "image: me/rl:1" not in other.stdout
    assert run("emit", "emit.job.yaml", "--to", "lws").stdout != done.stdout
    assert run("emit", "run.job.yaml").exit_code == 2


def test_rules_on_the_command_line_replace_those_of_their_key() -> None:
    Path("run.job.yaml").write_text(JOB.replace("segment: {actor: 1}", "cap: {rak: 2}"))
    assert "unknown level `rak`" in run("arrange", "run.job.yaml").stderr
    done = run("arrange", "run.job.yaml", "--cap", "rack=2")
    assert done.exit_code == 0, done.stderr
    assert "unknown level `rac`" in run("arrange", "run.job.yaml", "--cap", "rack=2", "--keep", "rollout.tp=rac").stderr


def test_verbose_lists_what_holds_and_where() -> None:
    Path("top.job.yaml").write_text(
        "job: run.job.yaml\noverrides: [trainer.nnodes=2]\ntopology: {segment: {actor: 2}}\n"
    )
    done = run("check", "top.job.yaml", "--verbose", "--nodes", "4x8", "--without", "node-2")
    lines = [line.split() for line in done.stdout.splitlines()]
    held = {words[0]: words[1:] for words in lines if len(words) == 3}
    assert held["topology.segment.actor"] == ["2", "top.job.yaml:3"]
    assert held["topology.keep.rollout.tp"] == ["rack", "run.job.yaml:3"]
    assert held["nodes"] == ["4x8", "--nodes"] and held["exclude[1]"] == ["node-2", "--without"]
    assert held["exclude[0]"] == ["node-3", "run.job.yaml:4"]
    assert held["overrides[0]"] == ["trainer.nnodes=2", "top.job.yaml:2"]
    assert "where" not in run("check", "top.job.yaml").stdout


EVERY_KEY = """\
job: conf.yaml
dialect: rlinf
overrides: [cluster.num_nodes=2]
nodes: nodes.yaml
exclude: [node-3/7]
topology: {levels: [rack], order: given, prefer: {actor: {world: rack}}, cap: {rack: 2}}
node_groups: [{label: g, node_ranks: 0-1}]
pools: [{name: q, components: [actor], max_accelerators: 16}]
beside: [other.json]
memory: {accelerator: H100, model: Qwen/Qwen3-8B, reserve: 2 GiB, costs: costs.yaml}
visibility: own
binding: node
cpus_per_process: 2
host_memory_per_process: 100
environment: {NCCL_DEBUG: INFO}
command: bash run.sh
emit: {to: kuberay, pin: true}
"""


def stated_lines(*words: str) -> list[list[str]]:
    """Return the lines of the table of what holds, each as its three columns."""
    printed = run("check", *words, "--verbose").stdout
    return [line.split() for line in printed[printed.index("\nstated ") :].splitlines()[2:]]


def test_verbose_lists_every_key_with_its_line() -> None:
    pools = "pools: [{name: p, components: [rollout], max_accelerators: 8}]"
    Path("conf.yaml").write_text(
        f"cluster:\n  num_nodes: 2\n  component_placement: {{actor: 0-3, rollout: 4-7}}\n  {pools}\n"
    )
    elsewhere = Inventory.from_dict({"nodes": [{"ranks": 0, "accelerators": 1, "ip": "10.0.0.9"}]})
    rankplan.plan({"cluster": {"num_nodes": 1, "component_placement": {"a": 0}}}, elsewhere).save("other.json")
    Path("costs.yaml").write_text("components: {actor: {seconds: {2: 3}}}\n")
    Path("every.job.yaml").write_text(EVERY_KEY)
    lines = stated_lines("every.job.yaml")
    for number, line in enumerate(EVERY_KEY.splitlines(), 1):
        key = line.partition(":")[0]
        places = {words[-1] for words in lines if words[0].split(".")[0].split("[")[0] == key}
        assert f"every.job.yaml:{number}" in places, line
    held = {words[0]: words[1:] for words in lines}
    assert held["pools[0].name"] == ["p", "conf.yaml:4"] and held["pools[1].name"] == ["q", "every.job.yaml:8"]
    assert held["memory.reserve"] == ["2", "GiB", "every.job.yaml:10"] and held["emit.pin"][0] == "true"
    options = ["--reserve", "1GiB", "--costs", "./costs.yaml", "--model", "gpt2", "--dialect", "rlinf"]
    held = {words[0]: words[1:] for words in stated_lines("every.job.yaml", *options)}
    assert held["memory.reserve"] == ["1.0", "GiB", "--reserve"] and held["memory.costs"] == ["./costs.yaml", "--costs"]
    assert held["memory.model"] == ["gpt2", "--model"] and held["dialect"] == ["rlinf", "--dialect"]


def test_verbose_lists_what_a_saved_plan_states() -> None:
    Path("top.job.yaml").write_text("job: run.job.yaml\noverrides: [trainer.nnodes=1]\nemit: {to: kuberay, image: a}\n")
    rankplan.plan("top.job.yaml").save("plan.json")
    Path("plan.job.yaml").write_text("job: plan.json\ntopology: {segment: {actor: 2}}\nemit: {image: b}\n")
    held = {words[0]: words[1:] for words in stated_lines("plan.job.yaml", "--without", "node-2")}
    assert held["exclude[0]"] == ["node-3", "plan.json"] and held["exclude[1]"] == ["node-2", "--without"]
    assert held["topology.keep.rollout.tp"] == ["rack", "plan.json"]
    assert held["topology.segment.actor"] == ["2", "plan.job.yaml:2"]
    assert held["overrides[0]"] == ["trainer.nnodes=1", "plan.json"]
    assert held["emit.image"] == ["b", "plan.job.yaml:3"] and held["emit.to"] == ["kuberay", "plan.json"]


def test_a_folder_checks_the_config_once_under_its_job_file() -> None:
    Path("top.job.yaml").write_text("job: run.job.yaml\n")
    (found,) = json.loads(run("check", ".", "--format", "json").stdout)
    assert found["file"] == "top.job.yaml" and found["fine"]
    files = [one["file"] for one in json.loads(run("check", ".", "verl.sh", "--format", "json").stdout)]
    assert files == ["top.job.yaml", "verl.sh"]
    Path("other.job.yaml").write_text("job: missing.sh\n")
    files = [one["file"] for one in json.loads(run("check", ".", "--format", "json").stdout)]
    assert files == ["other.job.yaml", "top.job.yaml"]


def test_a_fault_is_in_the_file_that_states_it() -> None:
    Path("verl.sh").write_text(Path("verl.sh").read_text().replace("NNODES:-1", "NNODES:-x"))
    Path("top.job.yaml").write_text("job: run.job.yaml\n")
    (result,) = json.loads(run("check", "top.job.yaml", "--format", "sarif").stdout)["runs"][0]["results"]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "verl.sh"
    assert run("check", "top.job.yaml", "--format", "github").stdout.startswith("::error file=verl.sh,")
    Path("run.job.yaml").write_text(JOB.replace("rollout:", "rollou:"))
    Path("verl.sh").write_bytes((ROOT / "examples" / "verl.sh").read_bytes())
    (report,) = json.loads(run("check", "top.job.yaml", "--format", "json").stdout)
    assert [(one["file"], one["line"]) for one in report["faults"]] == [("run.job.yaml", 3)]
    assert report["file"] == "top.job.yaml"


def test_a_job_of_a_saved_plan_takes_no_nodes() -> None:
    rankplan.plan("verl.sh", "nodes.yaml").save("plan.json")
    Path("plan.job.yaml").write_text("job: plan.json\ntopology: {keep: {rollout: {tp: rack}}}\n")
    assert run("check", "plan.job.yaml").exit_code == 0
    assert "plan.job.yaml is a saved plan" in run("check", "plan.job.yaml", "--nodes", "4x8").stderr
    assert run("show", "plan.job.yaml").exit_code == 0
    assert run("arrange", "plan.job.yaml").exit_code == 0


def test_a_difference_is_one_of_rules() -> None:
    assert run("diff", "run.job.yaml", "run.job.yaml").exit_code == 0


@pytest.mark.parametrize(
    ("rules", "named"),
    [
        ("keep: {rollout: {tp: rack}}, cap: {zone: 2}", "rack and zone"),
        ("segment: {actor: 1}", "segments of actor"),
        ("segment: 1", "segments of all components"),
        ("segment: {actor: 1}, cap: {zone: 2}", "zone and segments of actor"),
        ("segment: {actor: 1, rollout: 1}, keep: {rollout: {tp: rack}}", "rack and segments of actor and rollout"),
        ("keep: {rollout: {tp: node}}", None),
    ],
)
@pytest.mark.parametrize("nodes", ["4x4", "nodes.yaml"])
def test_rules_that_nodes_without_labels_cannot_show_are_named(rules: str, named: str | None, nodes: str) -> None:
    inventory = RACKS.replace("levels: [rack]", "levels: [zone, rack]").replace("labels: {", "labels: {zone: z, ")
    Path("nodes.yaml").write_text(inventory)
    Path("run.job.yaml").write_text(f"job: verl.sh\nnodes: {nodes}\ntopology: {{{rules}}}\n")
    done = run("check", "run.job.yaml")
    assert done.exit_code == 0
    note = f"run.job.yaml: rules about {named} are not checked on nodes without labels"
    assert (note in done.stderr) == (nodes == "4x4" and named is not None)
    assert ("not checked" in done.stderr) == (nodes == "4x4" and named is not None)
