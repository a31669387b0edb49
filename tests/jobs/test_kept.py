"""What a job file states stays with its plan: rules, overrides, the command, and the options of the launcher's file."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path

import pytest
import rankplan
from rankplan import Plan
from support.commands import run

NODES = """\
levels: [rack]
nodes:
  - {ranks: 0, accelerators: 8, hostname: n0, labels: {rack: a}}
  - {ranks: 1, accelerators: 8, hostname: n1, labels: {rack: a}}
  - {ranks: 2, accelerators: 8, hostname: n2, labels: {rack: a}}
"""
JOB = """\
job: conf.yaml
overrides: [+note=1]
nodes: nodes.yaml
topology: {keep: {actor: {world: rack}}}
command: bash run.sh
emit: {to: jobset, image: me/rl:1, name: mine, command: run, queue: research, level: {rack: example.com/rack}}
"""
CONF = "cluster: {num_nodes: 2, component_placement: {actor: 0-7, rollout: 8-15}}\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("nodes.yaml").write_text(NODES)
    Path("conf.yaml").write_text(CONF)
    Path("run.job.yaml").write_text(JOB)


def test_a_plan_keeps_what_its_job_states() -> None:
    plan = rankplan.plan("run.job.yaml", overrides=["+more=2"])
    job = plan.job
    assert job is not None and (job.file, job.command, job.overrides) == (
        "conf.yaml",
        "bash run.sh",
        ("+note=1", "+more=2"),
    )
    assert job.digest is not None and len(job.digest) == 64 and job.emit["image"] == "me/rl:1"
    plan.save("plan.json")
    for again in (Plan.load("plan.json"), Plan.from_dict(plan.to_dict()), pickle.loads(pickle.dumps(plan))):
        assert again == plan and again.job == job and again.rules == plan.rules
    assert rankplan.plan("conf.yaml", "2x8").job is None
    Plan.load("plan.json").save("again.json")
    assert Path("again.json").read_bytes() == Path("plan.json").read_bytes()


def test_no_absolute_path_is_kept() -> None:
    base = Path("base.yaml").absolute()
    Path("run.job.yaml").write_text(JOB.replace("image: me/rl:1", f"base: {base}"))
    plan = rankplan.plan("run.job.yaml")
    assert plan.job is not None and plan.job.emit["base"] == str(base), "`emit run.job.yaml` needs it"
    assert "base" not in plan.to_dict()["job"]["emit"]
    assert str(Path.cwd()) not in json.dumps(plan.to_dict())


def test_the_base_of_a_plan_is_relative_to_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing depends on the folder in which a command runs."""
    for name in ("jobs", "plans", "other"):
        Path(name).mkdir()
    Path("jobs/base.yaml").write_text(
        "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata: {labels: {a: b}}\n"
    )
    text = JOB.replace("conf.yaml", "../conf.yaml").replace("nodes.yaml", "../nodes.yaml")
    Path("jobs/run.job.yaml").write_text(text.replace("image: me/rl:1", "image: me/rl:1, base: base.yaml"))
    texts = set()
    root = Path.cwd()
    for folder in (".", "jobs", "other"):
        monkeypatch.chdir(root / folder)
        job, plan, copy = (
            os.path.relpath(root / name) for name in ("jobs/run.job.yaml", "plans/plan.json", "copy.json")
        )
        texts.add(run("emit", job).stdout)
        assert run("plan", job, "--save", plan).exit_code == 0
        assert run("plan", plan, "--save", copy).exit_code == 0
        bases = [json.loads(Path(name).read_text())["job"]["emit"]["base"] for name in (plan, copy)]
        assert bases == ["../jobs/base.yaml", "jobs/base.yaml"]
        texts |= {run("emit", name).stdout for name in (plan, copy)}
    (only,) = texts
    assert "a: b" in only and "base" not in only


@pytest.mark.parametrize("config", ["conf.yaml", "slime.yaml"])
@pytest.mark.parametrize("command", ["plan", "arrange"])
def test_what_an_option_leaves_out_stays_out(config: str, command: str) -> None:
    """The inventory of a repair may know nothing of it."""
    Path("slime.yaml").write_text(
        "actor_num_nodes: 1\nactor_num_gpus_per_node: 8\nrollout_num_gpus: 8\nrollout_num_gpus_per_engine: 8\n"
    )
    nodes = [f"  - {{ranks: {rank}, accelerators: 8, hostname: n{rank}, ip: 10.0.0.{9 - rank}}}\n" for rank in range(5)]
    Path("five.yaml").write_text("nodes:\n" + "".join(nodes))
    given = ["--nodes", "five.yaml", "--without", "n4"]
    assert run(command, config, *given, "--save", "v0.json").exit_code == 0
    for step, dead in enumerate(["n1", "n2"]):
        words = ["--without", dead, "--nodes", "five.yaml", "--save", f"v{step + 1}.json"]
        assert run("replan", f"v{step}.json", *words).exit_code == 0
        plan = Plan.load(f"v{step + 1}.json")
        used = {str(plan.inventory.node(rank).hostname) for one in plan.values() for rank in one.used_nodes()}
        assert used.isdisjoint(["n4", "n1", dead]) and plan.inventory.facts is not None
        assert set(plan.inventory.facts.exclude) == {"n4", *["n1", "n2"][: step + 1]}


def test_options_without_a_launcher_count_where_one_takes_them() -> None:
    options = "emit: {image: me/rl:1, slurm-release: '24.05', command: run}"
    Path("any.job.yaml").write_text(f"job: conf.yaml\nnodes: nodes.yaml\n{options}\n")
    kubernetes, slurm = run("emit", "any.job.yaml", "--to", "jobset"), run("emit", "any.job.yaml", "--to", "slurm")
    assert kubernetes.exit_code == slurm.exit_code == 0, kubernetes.stderr + slurm.stderr
    assert "image: me/rl:1" in kubernetes.stdout
    assert slurm.stdout == run("emit", "any.job.yaml", "--to", "slurm", "--slurm-release", "24.05").stdout
    assert "name the launcher with --to" in run("emit", "any.job.yaml").stderr
    Path("slurm.job.yaml").write_text("job: any.job.yaml\nemit: {to: slurm}\n")
    by_another_file = run("emit", "slurm.job.yaml")
    assert by_another_file.exit_code == 0 and "#SBATCH" in by_another_file.stdout, by_another_file.stderr
    Path("slurm.job.yaml").write_text("job: any.job.yaml\nemit: {to: slurm, image: mine}\n")
    refused = run("emit", "slurm.job.yaml")
    assert refused.exit_code == 1 and "slurm.job.yaml:2:19" in refused.stderr, refused.stderr
    assert "slurm does not take `image`" in refused.stderr and "kuberay, jobset, lws" in refused.stderr


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("base", 5, "`base` is 5; it must be text"),
        ("base", "a\0b", "it must be text"),
        ("to", ["kuberay"], "`to` is ['kuberay']; it must be text"),
        ("image", {"a": "b"}, "`image` is {'a': 'b'}; it must be a text"),
        ("port", 0, "port is 0; it must be from 1 to 65535"),
        ("kind", "pod", "kind is 'pod'; it must be one of job, cluster"),
    ],
)
def test_a_plan_whose_options_were_edited_is_refused(option: str, value: object, message: str) -> None:
    content = rankplan.plan("run.job.yaml").to_dict()
    content["job"]["emit"][option] = value
    Path("plan.json").write_text(json.dumps(content))
    done = run("emit", "plan.json", "--to", "jobset")
    assert (done.exit_code == 1 and f"error[invalid-plan]: {message}" in done.stderr) or message in done.stderr


@pytest.mark.parametrize("command", ["replan --without n1 --inventory nodes.yaml --save", "plan --save"])
def test_what_is_kept_survives_a_command(command: str) -> None:
    assert run("plan", "run.job.yaml", "--save", "plan.json").exit_code == 0
    name, *options = command.split()
    done = run(name, "plan.json", *options, "next.json")
    assert done.exit_code == 0, done.stderr
    before, after = Plan.load("plan.json"), Plan.load("next.json")
    assert before.job is not None and after.job is not None
    assert after.job.without_spares() == before.job.without_spares() and after.rules == before.rules
    assert run("check", "next.json").exit_code == 0


def test_the_file_of_a_launcher_has_the_kept_options() -> None:
    assert run("plan", "run.job.yaml", "--save", "plan.json").exit_code == 0
    stated = run("emit", "run.job.yaml")
    assert stated.exit_code == 0 and "me/rl:1" in stated.stdout, stated.stderr
    assert run("emit", "plan.json").stdout == stated.stdout
    assert rankplan.emit(Plan.load("plan.json"), "jobset") == stated.stdout
    assert (
        run("replan", "plan.json", "--without", "n0", "--inventory", "nodes.yaml", "--save", "next.json").exit_code == 0
    )
    repaired = run("emit", "next.json")
    assert all(word in repaired.stdout for word in ("me/rl:1", "kind: JobSet", "name: mine", "research"))
    assert "me/rl:2" in run("emit", "plan.json", "--image", "me/rl:2").stdout
    other = run("emit", "plan.json", "--to", "torchrun")
    lines = [line for line in other.stdout.splitlines() if not line.startswith('"job": ')]
    assert other.exit_code == 0 and not any("me/rl" in line for line in lines), other.stderr


def test_the_plan_in_a_file_of_a_launcher_keeps_it_too() -> None:
    assert run("emit", "run.job.yaml", "-o", "out.yaml").exit_code == 0
    assert run("plan", "out.yaml", "--save", "back.json").exit_code == 0
    back, plan = Plan.load("back.json"), rankplan.plan("run.job.yaml")
    assert plan.job is not None and back.rules == plan.rules and back.job == plan.job.without_spares()
    assert run("emit", "out.yaml").stdout == Path("out.yaml").read_text()


def test_a_changed_file_of_the_trainer_is_a_warning() -> None:
    assert run("plan", "run.job.yaml", "--save", "plan.json").exit_code == 0
    assert "job-changed" not in run("check", "plan.json").stdout
    Path("conf.yaml").write_text(f"{CONF}# changed\n")
    assert "warning[job-changed]: conf.yaml has changed" in run("check", "plan.json").stdout
    Path("conf.yaml").unlink()
    assert "job-changed" not in run("check", "plan.json").stdout


def test_a_difference_of_rules_comes_first() -> None:
    Path("other.job.yaml").write_text(JOB.replace("world: rack", "world: node") + "exclude: [n2]\n")
    done = run("diff", "run.job.yaml", "other.job.yaml")
    assert done.exit_code == 1 and done.stdout.splitlines()[1].split() == ["rule", "keep.actor.world", "rack", "node"]
    content = json.loads(run("diff", "run.job.yaml", "other.job.yaml", "--format", "json").stdout)
    assert content["rules"] == [{"rule": "keep.actor.world", "before": "rack", "after": "node"}]
    Path("pools.job.yaml").write_text(JOB + "pools: [{name: all, components: [actor], max_accelerators: 16}]\n")
    (found,) = rankplan.diff(rankplan.plan("run.job.yaml"), rankplan.plan("pools.job.yaml")).rules
    assert found == ("pools.all", None, {"components": ["actor"], "max_accelerators": 16})


def test_a_job_file_over_a_plan_adds_to_what_it_keeps() -> None:
    assert run("plan", "run.job.yaml", "--save", "plan.json").exit_code == 0
    Path("top.job.yaml").write_text("job: plan.json\nemit: {image: me/rl:3}\n")
    plan = rankplan.plan("top.job.yaml")
    assert plan.job is not None and plan.job.emit["image"] == "me/rl:3" and plan.job.emit["queue"] == "research"
    assert plan.job.file == "conf.yaml" and plan.job.command == "bash run.sh"


def test_the_placements_that_are_ranked_keep_the_rules() -> None:
    costs = {
        "batches": 8,
        "after": {"actor": ["rollout"]},
        "components": {"rollout": {"seconds": {4: 40, 8: 20, 16: 10}}, "actor": {"seconds": {4: 40, 8: 20, 16: 10}}},
    }
    nodes = "nodes: 2x8\nemit: {image: me/rl:1}\n"
    Path("run.job.yaml").write_text(f"job: conf.yaml\n{nodes}")
    free = rankplan.tune(costs, config="run.job.yaml")
    assert max(len(rows) for rows in free.plan.values()) == 16
    Path("run.job.yaml").write_text(f"job: conf.yaml\n{nodes}topology: {{keep: {{actor: {{world: node}}}}}}\n")
    kept = rankplan.tune(costs, config="run.job.yaml")
    assert kept.plan.rules.keep == {"actor": {"world": "node"}}
    assert len(kept.plan["actor"].used_nodes()) == 1 and kept.rejected
    assert kept.plan.job is not None and kept.plan.job.emit == {"image": "me/rl:1"}


def test_ranked_placements_are_on_the_nodes_that_keep_the_rules() -> None:
    racks = enumerate("abab")
    nodes = [
        f"  - {{ranks: {rank}, accelerators: 8, hostname: n{rank}, labels: {{rack: {rack}}}}}" for rank, rack in racks
    ]
    Path("nodes.yaml").write_text("\n".join(["levels: [rack]", "nodes:", *nodes]))
    Path("conf.yaml").write_text(CONF.replace("num_nodes: 2", "num_nodes: 4"))
    Path("run.job.yaml").write_text(
        "job: conf.yaml\nnodes: nodes.yaml\ntopology: {keep: {actor: {world: rack}}, cap: {rack: 2}}\n"
    )
    times = {"seconds": {16: 10}}
    costs = {
        "batches": 1,
        "after": {"actor": ["rollout"]},
        "components": {"rollout": dict(times), "actor": dict(times)},
    }
    plan = rankplan.tune(costs, config="run.job.yaml").plan
    used = plan["actor"].used_nodes()
    assert len(used) == 2 and len({plan.inventory.node(node).labels["rack"] for node in used}) == 1
    assert sorted(str(plan.inventory.node(rank).hostname) for rank in range(4)) == ["n0", "n1", "n2", "n3"]


def test_an_arranged_plan_needs_only_the_nodes_that_it_uses() -> None:
    Path("small.yaml").write_text(NODES.rsplit("\n", 2)[0])  # two of the three nodes
    Path("mixed.yaml").write_text(NODES.replace("hostname: n0, labels: {rack: a}", "hostname: n0, labels: {rack: b}"))
    assert run("plan", "run.job.yaml", "--save", "plan.json").exit_code == 0
    answer = run("arrange", "plan.json", "--inventory", "small.yaml", "--save", "small.json")
    assert answer.exit_code == 0, answer.output
    small, plan = Plan.load("small.json"), Plan.load("plan.json")
    assert small.inventory.num_nodes == 2 and small.rules == plan.rules
    assert plan.job is not None and small.job == plan.job.without_spares()
    assert rankplan.check("small.json").faults == []
    assert run("arrange", "plan.json", "--inventory", "mixed.yaml", "--save", "next.json").exit_code == 0
    moved = Plan.load("next.json")
    assert {moved.inventory.node(rank).hostname for rank in range(2)} == {"n1", "n2"}
    assert rankplan.check("next.json").faults == []


def test_an_arranged_plan_keeps_its_exclusions_and_adds_others() -> None:
    assert run("plan", "run.job.yaml", "--without", "n0", "--save", "plan.json").exit_code == 1
    Path("nodes.yaml").write_text(NODES + NODES.splitlines()[-1].replace("ranks: 2", "ranks: 3").replace("n2", "n3"))
    Path("run.job.yaml").write_text(JOB + "exclude: [node-0]\n")
    Path("conf.yaml").write_text(CONF.replace("0-7, rollout: 8-15", "8-15, rollout: 16-23").replace("2", "3", 1))
    assert run("plan", "run.job.yaml", "--save", "plan.json").exit_code == 0
    answer = run("arrange", "plan.json", "--inventory", "nodes.yaml", "--without", "n1", "--save", "next.json")
    assert answer.exit_code == 0, answer.output
    plan = Plan.load("next.json")
    used = {plan.inventory.node(rank).hostname for one in plan.values() for rank in one.used_nodes()}
    assert used == {"n2", "n3"} and plan.inventory.facts is not None
    assert {plan.inventory.node(node).hostname for nodes, _ in plan.inventory.excluded for node in nodes} >= {"n0"}
    assert run("arrange", "next.json", "--with", "n1", "--save", "back.json").exit_code == 0
    assert "n1" not in str(Plan.load("back.json").inventory.facts)


def test_a_rule_on_the_command_line_replaces_that_of_the_plan() -> None:
    Path("nodes.yaml").write_text(NODES.replace("n1, labels: {rack: a}", "n1, labels: {rack: b}"))
    Path("run.job.yaml").write_text(JOB.replace("{keep: {actor: {world: rack}}}", "{prefer: {actor: {world: rack}}}"))
    saved = run("plan", "run.job.yaml", "--save", "plan.json")
    assert saved.exit_code == 0, saved.output
    answer = run("replan", "plan.json", "--keep", "actor + rollout.world=rack", "--save", "next.json")
    assert answer.exit_code == 0, answer.output
    plan = Plan.load("next.json")
    assert plan.rules.keep == {"actor + rollout": {"world": "rack"}} and plan.rules.prefer == {
        "actor": {"world": "rack"}
    }
    used = {rank for one in plan.values() for rank in one.used_nodes()}
    assert {plan.inventory.node(rank).labels["rack"] for rank in used} == {"a"}
    refused = run("replan", "plan.json", "--keep", "actor.world=block")
    assert refused.exit_code == 1 and "unknown level" in refused.output


@pytest.mark.parametrize("file", ["run.job.yaml", "run.sh"])
def test_a_config_is_no_plan_to_repair(file: str) -> None:
    Path("run.sh").write_text("python3 -m verl.trainer.main_ppo trainer.nnodes=1\n")
    answer = run("replan", file, "--without", "n0")
    assert answer.exit_code == 1 and "error[invalid-plan]: this is no saved plan" in answer.output
    assert f"rankplan plan {file} --save plan.json" in answer.output
