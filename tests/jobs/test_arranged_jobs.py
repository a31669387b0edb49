"""Rules choose the nodes of a job: every command uses the same ones, and the trainer sorts only those."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import rankplan
import yaml
from rankplan import Inventory, Plan
from rankplan.front.job import Job, unplaced_job
from rankplan.plans.component import used_nodes
from rankplan.plans.node_order import in_pools_order
from support.commands import run
from support.paths import ROOT

RLINF = "cluster: {num_nodes: 3, component_placement: {actor: 0-15, rollout: 16-23}}\n"
TRAINERS = [
    "areal.yaml",
    "nemo_rl.yaml",
    "openrlhf.sh",
    "rlinf.yaml",
    "roll.yaml",
    "skyrl.sh",
    "slime.yaml",
    "verl.yaml",
]
SEEDS = range(6)


def nodes(seed: int, each: int) -> dict[str, Any]:
    """Return an inventory of two blocks with two racks of four nodes each, whose order and addresses are random."""
    draw = random.Random(seed)
    places = [(block, f"{block}{rack}") for block in "xy" for rack in "ab" for _ in range(4)]
    draw.shuffle(places)
    addresses = draw.sample(range(1, 120), len(places))
    entries = [
        {
            "ranks": rank,
            "accelerators": each,
            "hostname": f"h{rank}",
            "ip": f"10.0.0.{addresses[rank]}",
            "labels": {"block": block, "rack": rack, "NODE_RANK": str(addresses[rank])},
        }
        for rank, (block, rack) in enumerate(places)
    ]
    return {"levels": ["block", "rack"], "nodes": entries}


@pytest.fixture(params=TRAINERS)
def trainer(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A folder with the config of a trainer, whose name it is."""
    monkeypatch.chdir(tmp_path)
    name = str(request.param)
    Path(name).write_bytes(RLINF.encode() if name == "rlinf.yaml" else (ROOT / "examples" / name).read_bytes())
    return name


def write_job(trainer: str, seed: int, **stated: Any) -> Plan:
    """Write a job file that keeps each component in a rack; return the plan without its rules."""
    assumed = rankplan.plan(trainer).inventory
    each = max(spec.num_accelerators for _, spec in assumed.stretches())
    Path("nodes.yaml").write_text(yaml.safe_dump(nodes(seed, each)))
    plain = rankplan.plan(trainer, "nodes.yaml")
    rules = {"keep": {name: {"world": "rack"} for name in plain}} | stated
    Path("run.job.yaml").write_text(yaml.safe_dump({"job": trainer, "nodes": "nodes.yaml", "topology": rules}))
    return plain


def hosts(plan: Plan) -> set[str]:
    """Return the hostnames of the nodes with processes."""
    return {str(plan.inventory.node(rank).hostname) for rank in used_nodes(plan.values())}


def racks(plan: Plan) -> dict[str, set[str]]:
    """Return the racks that each component uses."""
    return {name: {plan.inventory.node(rank).labels["rack"] for rank in one.used_nodes()} for name, one in plan.items()}


def test_every_command_uses_the_nodes_that_the_rules_choose(trainer: str) -> None:
    torn = 0
    for seed in SEEDS:
        plain = write_job(trainer, seed)
        torn += any(len(found) > 1 for found in racks(plain).values())
        plan = rankplan.plan("run.job.yaml")
        assert all(len(found) == 1 for found in racks(plan).values())
        assert rankplan.check("run.job.yaml").plan == plan == rankplan.plan("run.job.yaml")
        assert run("arrange", "run.job.yaml", "--save", "plan.json", "-o", "order.yaml").exit_code == 0
        assert Plan.load("plan.json") == plan
        ordered = Inventory.load("order.yaml")
        assert {str(ordered.node(rank).hostname) for rank in used_nodes(plan.values())} == hosts(plan)
        if trainer != "rlinf.yaml":
            pinned = rankplan.plan("run.job.yaml", pinned=True)
            assert hosts(pinned) == hosts(plan) and in_pools_order(pinned) is None
            bound = unplaced_job("run.job.yaml").on(Inventory.load("nodes.yaml")).planned(pinned=True)
            assert bound.plan == pinned
            assert in_pools_order(plan) is None, "the prediction is what the trainer sorts as well"
    single = {len(one.used_nodes()) for one in plain.values()} == {1}
    assert torn or single


def test_a_given_order_is_not_changed(trainer: str) -> None:
    refused = 0
    for seed in SEEDS:
        plain = write_job(trainer, seed, order="given")
        report = rankplan.check("run.job.yaml")
        kept = all(len(found) == 1 for found in racks(plain).values())
        refused += not kept
        assert (not report.faults) == kept and (kept or {fault.code for fault in report.faults} == {"group-spans"})
        if report.plan is not None:
            assert hosts(report.plan) == hosts(plain) and report.plan.inventory.core == plain.inventory.core
    assert refused or {len(one.used_nodes()) for one in plain.values()} == {1}


def test_a_job_is_arranged_and_planned_once(trainer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the command nor a plan to pin, whose groups are torn before it is arranged, places the same twice."""
    placed = []
    place = Job.placed
    monkeypatch.setattr(Job, "placed", lambda job, **how: (placed.append((job.inventory, how)), place(job, **how))[1])
    write_job(trainer, 0)
    for command in (["arrange", "run.job.yaml"], ["plan", "run.job.yaml", "--pinned"]):
        placed.clear()
        assert run(*command).exit_code == 0
        states = [(nodes, how.get("pinned", False)) for nodes, how in placed]
        assert states and all(one not in states[:at] for at, one in enumerate(states)), command


def test_a_word_that_is_no_order_has_its_place(trainer: str) -> None:
    write_job(trainer, 0, order="first")
    (fault,) = rankplan.check("run.job.yaml").faults
    assert fault.code == "invalid-value" and "given, address or topology" in fault.message and fault.line is not None


VERL = ["trainer.nnodes=4", "trainer.n_gpus_per_node=8", "actor_rollout_ref.rollout.tensor_model_parallel_size=4"]


def verl_job(folder: Path, racks: str, addresses: list[int], text: str, first: int = 4) -> Path:
    """Write a job of verl on nodes in these racks, with these last parts of their addresses."""
    entries = [
        {"ranks": rank, "accelerators": 8, "hostname": f"h{rank}", "ip": f"10.0.0.{address}", "labels": {"rack": rack}}
        for rank, (rack, address) in enumerate(zip(racks, addresses, strict=True))
    ]
    (folder / "nodes.yaml").write_text(yaml.safe_dump({"levels": ["rack"], "nodes": entries}))
    (folder / "verl.yaml").write_bytes((ROOT / "examples" / "verl.yaml").read_bytes())
    overrides = [f"trainer.nnodes={first}", *VERL[1:], "reward.reward_model.enable=False"]
    path = folder / "run.job.yaml"
    path.write_text(f"job: verl.yaml\nnodes: nodes.yaml\noverrides: {overrides}\n{text}\n")
    return path


def test_segments_hold_in_the_order_of_the_trainer(tmp_path: Path) -> None:
    # By text, 10 comes before 9: racks a (9, 30) and b (10, 20, 40) alternate unless the right nodes are chosen.
    job = verl_job(tmp_path, "abab" + "b", [9, 10, 30, 20, 40], "topology: {segment: {actor: 2}}")
    plan = rankplan.plan(job, pinned=True)
    used = [plan.inventory.node(rank) for rank in used_nodes(plan.values())]
    assert [one.ip for one in used] == ["10.0.0.10", "10.0.0.20", "10.0.0.30", "10.0.0.9"]
    assert [one.labels["rack"] for one in used] == ["b", "b", "a", "a"]
    assert hosts(rankplan.plan(job)) == hosts(plan)


def test_rules_that_no_order_of_the_trainer_keeps_are_refused(tmp_path: Path) -> None:
    job = verl_job(tmp_path, "abab", [1, 2, 3, 4], "topology: {segment: {actor: 2}}")
    (fault,) = rankplan.check(job).faults
    assert (fault.code, fault.line) == ("order-not-kept", 4)
    assert fault.message == (
        "verl sorts the nodes of a pool by addresses as text; in that order, no nodes of the inventory keep "
        "`segment.actor`"
    )


def test_nodes_of_groups_and_reserves_stay_the_same_machines(tmp_path: Path) -> None:
    text = (
        "topology: {keep: {actor: {world: rack}}}\n"
        "node_groups: [{label: mine, node_ranks: 0-1}]\n"
        "pools: [{name: all, components: [actor]}, {name: kept, node_ranks: 2, protects: [all]}]\n"
        "exclude: [node-4]"
    )
    job = verl_job(tmp_path, "ababbbb", [1, 2, 3, 4, 5, 6, 7], text, first=2)
    plan = rankplan.plan(job)
    inventory = plan.inventory
    (group,) = inventory.node_groups
    assert {inventory.node(rank).hostname for rank in group.node_ranks} == {"h0", "h1"}
    assert {inventory.node(rank).hostname for rank in plan.rules.pools[1].node_ranks} == {"h2"}
    assert not {"h2", "h4"} & hosts(plan) and len(racks(plan)["actor"]) == 1
    assert [inventory.node(rank).hostname for ranks, _ in inventory.excluded for rank in ranks] == ["h4"]


def test_nodes_without_names_keep_their_ranks(tmp_path: Path) -> None:
    job = verl_job(tmp_path, "abba", [1, 2, 3, 4], "topology: {keep: {actor: {world: rack}}}", first=2)
    nodes = yaml.safe_load((tmp_path / "nodes.yaml").read_text())
    for entry in nodes["nodes"]:
        del entry["hostname"], entry["ip"]
    (tmp_path / "nodes.yaml").write_text(yaml.safe_dump(nodes))
    (fault,) = rankplan.check(job).faults
    assert fault.code == "invalid-value" and "have no hostname and no address" in fault.message


def test_a_job_that_can_start_only_if_pinned_is_arranged_too(tmp_path: Path) -> None:
    """ROLL counts all nodes, so that it cannot start around an excluded one by itself."""
    (tmp_path / "roll.yaml").write_text("num_gpus_per_node: 8\nactor_train: {device_mapping: 'list(range(0,16))'}\n")
    entries = [
        {"ranks": rank, "accelerators": 8, "hostname": f"h{rank}", "labels": {"rack": rack}, "healthy": rank != 1}
        for rank, rack in enumerate("aabb")
    ]
    (tmp_path / "nodes.yaml").write_text(yaml.safe_dump({"levels": ["rack"], "nodes": entries}))
    job = tmp_path / "run.job.yaml"
    job.write_text("job: roll.yaml\nnodes: nodes.yaml\ntopology: {keep: {actor_train: {world: rack}}}\n")
    plan = rankplan.plan(job, pinned=True)
    assert {plan.inventory.node(rank).hostname for rank in used_nodes(plan.values())} == {"h2", "h3"}
    assert [fault.code for fault in rankplan.check(job).faults] == ["excluded-resource"]
