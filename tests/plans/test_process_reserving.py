"""CPUs and host memory that each process reserves: stated by components, kept in plans, compared with the nodes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import rankplan
from click.testing import CliRunner
from rankplan import Inventory, PlacementError, Plan
from rankplan.cli.commands import main
from rankplan.dialects.convert import convert
from rankplan.hardware.policies import NO_BINDING

SMALL = {"nodes": [{"ranks": "0-1", "accelerators": 4, "cpus": 8, "reservable_memory": 4096}]}


def config(**entry: Any) -> dict[str, Any]:
    entries = {"actor": {"placement": "0-7", **entry}, "env": {"node_group": "node", "placement": "0-1:0-3"}}
    return {"cluster": {"num_nodes": 2, "component_placement": entries}}


def plan_of(inventory: Any = SMALL, **entry: Any) -> Plan:
    return rankplan.plan(config(**entry), Inventory.from_dict(inventory))


def faults_of(inventory: Any = SMALL, **entry: Any) -> list[str]:
    with pytest.raises(PlacementError) as refused:
        plan_of(inventory, **entry)
    assert {(fault.code, bool(fault.help)) for fault in refused.value.diagnostics} == {("never-reserved", True)}
    return [fault.message for fault in refused.value.diagnostics]


def test_what_processes_reserve_is_compared_with_their_nodes() -> None:
    plan_of(cpus_per_process=2, host_memory_per_process=1024)
    assert faults_of(cpus_per_process=2.5, host_memory_per_process=1025) == [
        "nodes 0-1 have 8 of the 10 CPUs that their processes reserve: 10 for actor",
        "nodes 0-1 have 4096 of the 4100 MiB of memory that their processes reserve: 4100 for actor",
    ]
    larger = {"nodes": [{**SMALL["nodes"][0], "ranks": 0}, {"ranks": 1, "accelerators": 4, "cpus": 10}]}
    assert faults_of(larger, cpus_per_process=2.5) == [
        "node 0 has 8 of the 10 CPUs that its processes reserve: 10 for actor"
    ]
    unknown = {"nodes": [{"ranks": "0-1", "accelerators": 4}]}
    assert plan_of(unknown, cpus_per_process=64)["actor"].cpus_per_process == 64


def test_the_components_of_a_node_are_added_up() -> None:
    stated = config(cpus_per_process=1.5)
    stated["cluster"]["component_placement"]["env"]["cpus_per_process"] = 1
    rankplan.plan(stated, Inventory.from_dict(SMALL))
    stated["cluster"]["component_placement"]["env"]["cpus_per_process"] = 1.1
    with pytest.raises(
        PlacementError, match=r"nodes 0-1 have 8 of the 8\.2 CPUs .* reserve: 6 for actor, 2\.2 for env"
    ):
        rankplan.plan(stated, Inventory.from_dict(SMALL))


def test_the_fault_is_at_the_key(tmp_path: Path) -> None:
    file = tmp_path / "conf.yaml"
    file.write_text(
        "cluster:\n  num_nodes: 2\n  component_placement:\n    actor, env:\n      placement: 0-7\n"
        "      cpus_per_process: 9\n"
    )
    (fault,) = rankplan.check(file, Inventory.from_dict(SMALL)).faults
    assert (fault.line, fault.column) == (6, 25)
    assert fault.path == "cluster.component_placement.actor, env.cpus_per_process"


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"cpus_per_process": "many"}, "cpus_per_process is 'many'; it must be a number from 0 to 1,000,000,000"),
        ({"cpus_per_process": -1}, "cpus_per_process is -1; it must be a number from 0 to 1,000,000,000"),
        ({"cpus_per_process": True}, "cpus_per_process is true; it must be a number from 0 to 1,000,000,000"),
        ({"host_memory_per_process": 0.5}, "host_memory_per_process is 0.5; it must be a whole number"),
    ],
)
def test_amounts_are_numbers(entry: dict[str, Any], message: str) -> None:
    with pytest.raises(PlacementError) as refused:
        plan_of(**entry)
    assert [fault.message.replace("`", "") for fault in refused.value.diagnostics] == [message]


def test_a_plan_keeps_them(tmp_path: Path) -> None:
    plan = plan_of(cpus_per_process=1.5, host_memory_per_process=512)
    plan.save(tmp_path / "plan.json")
    again = Plan.load(tmp_path / "plan.json")
    assert again == plan and again["actor"].settings == plan["actor"].settings
    assert (again["actor"].cpus_per_process, again["env"].cpus_per_process) == (1.5, None)
    assert "per_process" not in json.dumps(plan_of().to_dict())
    content = plan.to_dict()
    content["components"]["actor"]["cpus_per_process"] = 4
    Plan.from_dict(content).save(tmp_path / "plan.json")
    assert [one.code for one in rankplan.check(tmp_path / "plan.json").faults] == ["never-reserved"]
    content["components"]["actor"]["cpus_per_process"] = -4
    with pytest.raises(PlacementError, match="`cpus_per_process` is -4"):
        Plan.from_dict(content)


def test_converting_keeps_or_names_them() -> None:
    plan = plan_of(cpus_per_process=1.5, host_memory_per_process=512)
    assert rankplan.plan(convert(plan, "rlinf").config, plan.inventory.without_groups()) == plan
    omitted = convert(plan, "roll").omitted
    assert "actor: its CPUs of each process, 1.5" in omitted
    assert "actor: its host memory of each process, 512" in omitted


def test_a_job_file_states_them_for_all_that_do_not(tmp_path: Path) -> None:
    (tmp_path / "nodes.yaml").write_text(json.dumps(SMALL))
    (tmp_path / "conf.yaml").write_text(json.dumps(config(cpus_per_process=0)))
    job = {"job": str(tmp_path / "conf.yaml"), "nodes": str(tmp_path / "nodes.yaml"), "cpus_per_process": 4}
    plan = rankplan.plan(job)
    assert [one.cpus_per_process for one in plan.values()] == [0, 4]
    with pytest.raises(
        PlacementError, match="nodes 0-1 have 8 of the 10 CPUs that their processes reserve: 10 for env"
    ) as refused:
        rankplan.plan({**job, "cpus_per_process": 5})
    assert refused.value.diagnostics[0].path == "cpus_per_process"
    with pytest.raises(PlacementError, match="host_memory_per_process: 'x' is not a whole"):
        rankplan.plan({**job, "host_memory_per_process": "x"})
    with pytest.raises(PlacementError, match=r"`cpus_per_process` is about processes that rankplan starts, but verl"):
        verl = {"trainer": {"nnodes": 1, "n_gpus_per_node": 8}, "actor_rollout_ref": {"rollout": {}}}
        (tmp_path / "conf.yaml").write_text(json.dumps(verl))
        rankplan.plan(job)


def test_tables_and_rows_have_them(tmp_path: Path) -> None:
    file, nodes = tmp_path / "conf.yaml", tmp_path / "nodes.yaml"
    file.write_text(json.dumps(config(cpus_per_process=1.5, host_memory_per_process=512)))
    nodes.write_text(json.dumps(SMALL))
    line = "actor: each process reserves 1.5 CPUs and 512 MiB of memory"

    def output(*arguments: str) -> str:
        result = CliRunner().invoke(main, [*arguments, str(file), "--inventory", str(nodes)])
        assert result.exit_code == 0, result.output
        return result.output

    assert line in output("plan") and line in output("show")
    rows = json.loads(output("plan", "--format", "json"))
    assert [(row["cpus_per_process"], row["host_memory_per_process"]) for row in rows] == [(1.5, 512)] * 8 + [
        (None, None)
    ] * 4
    header, first, *_ = output("plan", "--format", "csv").splitlines()
    assert dict(zip(header.split(","), first.split(","), strict=True))["cpus_per_process"] == "1.5"
    file.write_text(json.dumps(config()))
    assert "reserves" not in output("plan") and "per_process" not in output("plan", "--format", "csv")
    assert plan_of()["actor"].binding == NO_BINDING


@pytest.mark.parametrize(
    ("nodes", "line"),
    [
        (
            [{"ranks": "0-1", "accelerators": 4}],
            "unchecked: the job reserves up to 6 CPUs and 2048 MiB of memory on nodes 0-1, which state no `cpus` and "
            "`reservable_memory`",
        ),
        (
            [{**SMALL["nodes"][0], "ranks": 0}, {"ranks": 1, "accelerators": 4, "cpus": 8}],
            "unchecked: the job reserves up to 2048 MiB of memory on node 1, which states no `reservable_memory`",
        ),
        (SMALL["nodes"], None),
    ],
)
def test_what_nodes_do_not_state_is_said_once(nodes: list[dict[str, Any]], line: str | None) -> None:
    inventory = Inventory.from_dict({"nodes": nodes})
    report = rankplan.check(config(cpus_per_process=1.5, host_memory_per_process=512), inventory)
    assert report and report.unchecked == line == report.plain()["unchecked"]
    assert report.render().splitlines()[-1] == line or line is None
    for without in (
        rankplan.check(config(), inventory),  # reserves nothing
        rankplan.check(config(cpus_per_process=1.5), "2x4"),  # a size states no facts
        rankplan.check(config(cpus_per_process=1.5)),
    ):
        assert without and without.unchecked is None and "unchecked" not in without.render()


def test_what_nodes_do_not_state_is_said_of_saved_plans_that_state_some(tmp_path: Path) -> None:
    for nodes, is_said in (([{"ranks": "0-1", "accelerators": 4}], False), (SMALL["nodes"], True)):
        plan = plan_of({"nodes": [{**nodes[0], "ranks": 0}, {"ranks": 1, "accelerators": 4}]}, cpus_per_process=1)
        plan.save(tmp_path / "plan.json")
        assert (rankplan.check(tmp_path / "plan.json").unchecked is not None) is is_said


def test_a_trainer_that_asks_for_cpus_is_told() -> None:
    slime = {
        "actor_num_nodes": 1,
        "actor_num_gpus_per_node": 4,
        "rollout_num_gpus": 4,
        "rollout_num_gpus_per_engine": 2,
    }
    unknown = Inventory.from_dict({"nodes": [{"ranks": "0-1", "accelerators": 4}]})
    assert rankplan.check(slime, unknown, dialect="slime").unchecked == (
        "unchecked: the job reserves up to 6 CPUs on nodes 0-1, which state no `cpus`"
    )
