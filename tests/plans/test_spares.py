"""Plans with only the nodes that their trainer counts keep the other nodes of the job as spares."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import rankplan
from rankplan import Inventory, PlacementError, Plan
from rankplan.launchers.embedded import portable
from rankplan.plans.spares import known_nodes, with_spares
from support.commands import run

NODES = """\
levels: [rack]
nodes:
  - {ranks: 0, accelerators: 8, hostname: n0, ip: 10.0.0.9, labels: {rack: a}}
  - {ranks: 1, accelerators: 8, hostname: n1, ip: 10.0.0.2, labels: {rack: b}}
  - {ranks: 2, accelerators: 8, hostname: n2, ip: 10.0.0.7, labels: {rack: a}}
  - {ranks: 3, accelerators: 8, hostname: n3, ip: 10.0.0.4, labels: {rack: b}}
  - {ranks: 4, accelerators: 8, hostname: n4, ip: 10.0.0.5, labels: {rack: a}, healthy: false}
"""
CONFIGS = {
    "roll.yaml": 'num_gpus_per_node: 8\nactor_train: {device_mapping: "list(range(0,16))"}\n',
    "rlinf.yaml": "cluster: {num_nodes: 2, component_placement: {actor_train: 0-15}}\n",
}
JOB = "job: {}\nnodes: nodes.yaml\ntopology: {{keep: {{actor_train: {{world: rack}}}}}}\n"


@pytest.fixture(autouse=True, params=list(CONFIGS))
def config(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    name = str(request.param)
    Path("nodes.yaml").write_text(NODES)
    Path(name).write_text(CONFIGS[name])
    Path("run.job.yaml").write_text(JOB.format(name))
    return name


def hosts(nodes: Inventory | None) -> list[str]:
    return [] if nodes is None else [str(nodes.node(rank).hostname) for rank in range(nodes.num_nodes)]


def spares(plan: Plan) -> list[str]:
    return [] if plan.job is None else hosts(plan.job.spares)


def save(content: dict[str, Any]) -> None:
    Path("plan.json").write_text(json.dumps(content))


def test_they_come_back_from_a_file() -> None:
    plan = rankplan.plan("run.job.yaml")
    assert (hosts(plan.inventory), spares(plan)) == (["n0", "n2"], ["n1", "n3", "n4"])
    plan.save("plan.json")
    for again in (Plan.load("plan.json"), Plan.from_dict(plan.to_dict()), pickle.loads(pickle.dumps(plan))):
        assert again == plan and again.job == plan.job
        nodes = known_nodes(again)
        assert hosts(nodes) == ["n0", "n2", "n1", "n3", "n4"] and nodes.levels == ("rack",)
        assert not nodes.node(4).healthy and dict(nodes.node(3).labels) == {"rack": "b"}
    Plan.load("plan.json").save("again.json")
    assert Path("again.json").read_bytes() == Path("plan.json").read_bytes()


def test_a_plan_without_a_job_file_has_them_too(config: str) -> None:
    assert spares(rankplan.plan(config, "nodes.yaml")) == ["n2", "n3", "n4"]
    assert rankplan.plan(config, "2x8").job is None


def test_no_repair_in_a_row_runs_on_a_dead_node() -> None:
    assert run("plan", "run.job.yaml", "--save", "v0.json").exit_code == 0
    done = run("replan", "v0.json", "--without", "n0", "--save", "v1.json")
    assert done.exit_code == 0, done.stderr
    plan = Plan.load("v1.json")
    assert plan.rules.keep == {"actor_train": {"world": "rack"}}
    assert (set(hosts(plan.inventory)), set(spares(plan))) == ({"n1", "n3"}, {"n0", "n2", "n4"})
    again = run("replan", "v1.json", "--without", "n1", "--save", "v2.json")
    assert again.exit_code == 1 and "domain-too-small" in again.stderr and not Path("v2.json").exists()
    back = run("replan", "v1.json", "--without", "n1", "--with", "n0", "--save", "v2.json")
    assert back.exit_code == 0, back.stderr
    plan = Plan.load("v2.json")
    assert set(hosts(plan.inventory)) == {"n0", "n2"} and plan.inventory.facts is not None
    assert plan.inventory.facts.exclude == ("n1",) and set(spares(plan)) == {"n1", "n3", "n4"}


def test_an_exclusion_of_the_job_holds_for_a_spare() -> None:
    Path("run.job.yaml").write_text(Path("run.job.yaml").read_text() + "exclude: [n3]\n")
    assert run("plan", "run.job.yaml", "--save", "v0.json").exit_code == 0
    done = run("replan", "v0.json", "--without", "n0", "--save", "v1.json")
    assert done.exit_code == 1 and "domain-too-small" in done.stderr
    assert run("replan", "v0.json", "--without", "n0", "--with", "n3", "--save", "v1.json").exit_code == 0


def test_nodes_of_a_repair_replace_the_spares() -> None:
    plan = rankplan.plan("run.job.yaml")
    small = Inventory.load("nodes.yaml").reordered([2, 1, 3])
    after = rankplan.replan(plan, small).plan
    assert set(hosts(after.inventory)) == {"n1", "n3"} and spares(after) == ["n2"]
    assert rankplan.replan(plan, without="n0").plan == rankplan.replan(plan, known_nodes(plan), without="n0").plan


def test_an_arrangement_has_as_many_nodes_as_the_plan() -> None:
    assert run("plan", "run.job.yaml", "--save", "v0.json").exit_code == 0
    done = run("arrange", "v0.json", "--without", "n0", "--save", "v1.json")
    assert done.exit_code == 0, done.stderr
    plan = Plan.load("v1.json")
    assert set(hosts(plan.inventory)) == {"n1", "n3"} and set(spares(plan)) == {"n0", "n2", "n4"}
    assert set(hosts(rankplan.arrange(plan).present)) == {"n0", "n1", "n2", "n3", "n4"}


def test_a_plan_of_an_older_file_has_none() -> None:
    content = rankplan.plan("run.job.yaml").to_dict()
    del content["job"]["spares"]
    for version in (3, 2):
        save({**content, "rankplan": version, "requests": []})
        plan = Plan.load("plan.json")
        assert spares(plan) == [] and known_nodes(plan) is plan.inventory
        done = run("replan", "plan.json", "--without", "n0", "--save", "next.json")
        assert done.exit_code == 1 and "of which the plan knows no others" in done.stderr
        answer = run("replan", "plan.json", "--without", "n0", "--inventory", "nodes.yaml", "--save", "next.json")
        assert answer.exit_code == 0, answer.stderr
        assert set(spares(Plan.load("next.json"))) == {"n0", "n2", "n4"}


def test_they_are_no_difference() -> None:
    plan = rankplan.plan("run.job.yaml")
    assert plan.job is not None
    without = plan.with_job(plan.job.without_spares())
    assert plan == without and not rankplan.diff(plan, without)
    assert with_spares(without, Inventory.load("nodes.yaml")).job == plan.job


def test_a_file_for_any_machines_names_none() -> None:
    plan = portable(rankplan.plan("run.job.yaml"))
    assert spares(plan) == [] and "n3" not in json.dumps(plan.to_dict())


def test_other_nodes_are_no_spares_of_a_plan_on_all_of_them() -> None:
    plan = rankplan.plan("run.job.yaml")
    assert spares(plan.placed(known_nodes(plan), [])) == []


def test_a_plan_on_other_nodes_has_no_spares_which_may_be_these() -> None:
    plan, nodes = rankplan.plan("run.job.yaml"), Inventory.load("nodes.yaml")
    assert spares(plan.on(nodes.reordered([2, 0]))) == ["n1", "n3", "n4"]
    there = plan.on(nodes.reordered([1, 3]))
    assert spares(there) == [] and hosts(known_nodes(there)) == ["n1", "n3"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda nodes: 3, "job.spares: `spares` is 3; it must be a list"),
        (lambda nodes: [], "job.spares: `spares` is empty"),
        (lambda nodes: [nodes[0], nodes[0]], "job.spares: node rank 0 is listed twice"),
        (lambda nodes: [{**nodes[0], "accelerator": 8}], "job.spares[0].accelerator: unknown key `accelerator`"),
    ],
)
def test_wrong_ones_are_refused(change: Callable[[list[dict[str, Any]]], Any], message: str) -> None:
    content = rankplan.plan("run.job.yaml").to_dict()
    content["job"]["spares"] = change(content["job"]["spares"])
    with pytest.raises(PlacementError) as refused:
        Plan.from_dict(content)
    assert [f"{fault.path}: {fault.message}" for fault in refused.value.diagnostics] == [message]
