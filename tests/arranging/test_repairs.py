"""Laws of plans on other nodes: what is excluded or lost is never used, and "no spare" is true. Against brute force."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import rankplan
from hypothesis import assume, given
from hypothesis import strategies as st
from rankplan import Inventory, Plan, arrange, diff, replan
from rankplan import plan as planned
from rankplan._core import RankSet
from rankplan.errors import PlacementError
from rankplan.plans.diff import same_nodes
from support.outcomes import at_least, outcome

Device = tuple[str, int]
"""An accelerator: the name of its machine, and its local index; -1 for the machine itself."""


@dataclass(frozen=True)
class Job:
    """A plan, the machines of its cluster with spares, its config, and the devices that it must not use."""

    plan: Plan
    cluster: Inventory
    config: dict[str, Any]
    excluded: frozenset[Device]


def whole(machine: str, accelerators: int) -> set[Device]:
    return {(machine, index) for index in range(-1, accelerators)}


@st.composite
def jobs(draw: st.DrawFn, most_nodes: int = 5) -> Job:
    """Draw a job on up to five machines with two or four accelerators, with and without names and labels."""
    count = draw(st.integers(1, most_nodes))
    sizes = [draw(st.sampled_from([2, 2, 4])) if draw(st.booleans()) else 2 for _ in range(count)]
    prefix = draw(st.sampled_from(["h", "node-"]))
    names = draw(st.permutations([f"{prefix}{index}" for index in range(count)]))
    labels = [draw(st.sampled_from(["a", "b", None])) for _ in range(count)]
    entries: list[dict[str, Any]] = [
        {
            "ranks": rank,
            "accelerators": sizes[rank],
            "hostname": names[rank],
            "labels": {} if labels[rank] is None else {"nvlink": labels[rank]},
        }
        for rank in range(count)
    ]
    excluded: set[Device] = set()
    for entry in entries:
        if draw(st.integers(0, 7)) == 0:
            entry["unhealthy"] = [draw(st.integers(0, entry["accelerators"] - 1))]
            excluded.add((entry["hostname"], entry["unhealthy"][0]))
    stated: list[str] = []
    for rank in draw(st.lists(st.integers(0, count - 1), max_size=2, unique=True)):
        name = names[rank] if prefix == "node-" or draw(st.booleans()) else f"node-{rank}"
        index = draw(st.integers(-1, sizes[rank] - 1))
        stated.append(name if index < 0 else f"{name}/{index}")
        excluded |= whole(names[rank], sizes[rank]) if index < 0 else {(names[rank], index)}
    cluster = Inventory.from_dict({"nodes": entries}).with_levels(["nvlink"] if any(labels) else [])
    num_nodes = draw(st.integers(1, count))
    usable, start = [], 0
    for rank in range(num_nodes):
        here = range(sizes[rank])
        usable += [start + index for index in here if (names[rank], index) not in excluded]
        start += sizes[rank]
    assume(usable)
    keep: dict[str, Any] = {}
    placement: dict[str, Any] = {}
    for name in ("actor", "rollout", "reward")[: draw(st.integers(1, 3))]:
        ranks = RankSet(draw(st.lists(st.sampled_from(usable), min_size=1, max_size=5, unique=True)))
        size = draw(st.sampled_from([size for size in (1, 2) if len(ranks) % size == 0]))
        text = draw(st.sampled_from([str(ranks), f"{ranks}:0-{len(ranks) * 2 - 1}"])) if size == 1 else str(ranks)
        placement[name] = {"placement": text, "parallel": {"tp": size}}
        if size == 2 and draw(st.booleans()):
            keep[name] = {"tp": draw(st.sampled_from(["node", *cluster.levels]))}
    groups: list[dict[str, Any]] = []
    for rank in range(num_nodes):
        if draw(st.integers(0, 5)) == 0 and (names[rank], -1) not in excluded:
            arms = {"type": "Franka", "configs": [{"node_rank": rank, "robot_ip": "10.0.0.1"}]}
            groups = [{"label": "arms", "node_ranks": rank, "hardware": arms}]
            placement["env"] = {"node_group": "arms", "placement": 0}
    section = {
        "num_nodes": num_nodes,
        "exclude": stated,
        "component_placement": placement,
        "node_groups": groups,
        "topology": {"keep": keep},
    }
    config = {"cluster": {key: value for key, value in section.items() if value}}
    try:
        found = planned(config, cluster)
    except PlacementError as error:
        assert {one.code for one in error.diagnostics} <= {"group-spans", "process-spans", "unknown-level"}, config
        assume(False)
        raise
    visibility = draw(st.sampled_from(["own", "node", "own-first"]))
    return Job(found.with_visibility(visibility), cluster, config, frozenset(excluded))


def used(plan: Plan) -> set[Device]:
    """Return the devices that processes use, and the machines that they run on."""
    nodes = plan.inventory
    rows = list(chain.from_iterable(plan.values()))
    devices = [
        (nodes.node(node).name, index)
        for row in rows
        if row.resource_type == "accelerator"
        for node, index in row.devices
    ]
    return {*devices, *((nodes.node(row.cluster_node_rank).name, -1) for row in rows)}


def places(plan: Plan) -> dict[tuple[str, int], Any]:
    nodes = plan.inventory
    return {
        (name, row.rank): (nodes.node(row.cluster_node_rank).name, [(nodes.node(n).name, i) for n, i in row.devices])
        for name, rows in plan.items()
        for row in rows
    }


@given(jobs())
def test_a_plan_is_the_same_on_its_own_nodes(job: Job) -> None:
    plan = job.plan
    assert not used(plan) & job.excluded
    for nodes in (job.cluster, plan.inventory):
        assert plan.on(nodes) == plan.fitted(nodes) == plan
    assert Plan.from_dict(plan.to_dict()) == plan
    idle = {(plan.inventory.node(node).name, index) for node, local in plan.idle().items() for index in local}
    assert not idle & (job.excluded | used(plan))
    found = replan(plan, job.cluster)
    assert found.plan == plan and not found.moves and not diff(plan, found.plan)
    assert found.arrangement.nodes == tuple(range(plan.inventory.num_nodes))


@given(jobs())
def test_an_arranged_inventory_is_accepted(job: Job) -> None:
    # A robot keeps its node, and so do nodes that a rule names by rank; all else is as it was, so the plan fits.
    found = arrange(job.plan, job.cluster)
    nodes = found.inventory
    assert sorted((*found.nodes, *found.spares)) == list(range(job.cluster.num_nodes))
    after = job.plan.on(nodes)
    assert not used(after) & job.excluded
    after.check_keep()
    again = planned(job.config, nodes)
    assert {name: rows.rule for name, rows in again.items()} == {name: rows.rule for name, rows in job.plan.items()}
    assert not used(again) & job.excluded
    assert Plan.from_dict(after.to_dict()) == after == after.on(nodes)


@st.composite
def failures(draw: st.DrawFn) -> tuple[Job, Inventory, list[str], set[Device]]:
    """Draw a job, the machines that are left in any order, the names of what failed, and the devices that are lost."""
    job = draw(jobs())
    nodes = [job.cluster.node(rank) for rank in range(job.cluster.num_nodes)]
    lost: set[Device] = set()
    without: list[str] = []
    gone: set[str] = set()
    for node in draw(st.lists(st.sampled_from(nodes), min_size=1, max_size=3, unique_by=lambda node: node.name)):
        index = draw(st.integers(-2, node.num_accelerators - 1))
        lost |= whole(node.name, node.num_accelerators) if index < 0 else {(node.name, index)}
        if index == -2:
            gone.add(node.name)
        else:
            without.append(node.name if index == -1 else f"{node.name}/{index}")
    stated = [name for name in job.config["cluster"].get("exclude", ()) if name.startswith("node-")]
    by_rank = any(job.cluster.names.by_rank(name) for name in stated)
    left = [node for node in nodes if node.name not in gone]
    assume(left)
    if not by_rank:  # a spare that is named by its rank is the one of this rank in every inventory
        left = draw(st.permutations(left))
    assume(not (by_rank and gone))
    entries = [{**node.described(), "ranks": rank} for rank, node in enumerate(left)]
    levels = [level for level in job.cluster.levels if any(level in node.labels for node in left)]
    return job, Inventory.from_dict({"nodes": entries}).with_levels(levels), without, lost


def test_a_survivor_moves_where_its_idle_accelerator_is_needed() -> None:
    """Node 3 cannot take over the second accelerator of node 0; the node of rank 2 can, as node 3 has the first one."""
    nodes = Inventory.from_dict(
        {"nodes": [{"ranks": rank, "accelerators": 2, "hostname": f"h{rank}"} for rank in range(4)]}
    )
    section = {"num_nodes": 3, "component_placement": {"rollout": "1:0,3:1,4:2"}}
    plan = rankplan.plan({"cluster": section}, nodes.first(3))
    found = replan(plan, nodes, without=["h0", "h2/0", "h3/1"])
    assert [found.plan.inventory.node(row.cluster_node_rank).hostname for row in found.plan["rollout"]] == [
        "h2",
        "h1",
        "h3",
    ]


@at_least(repaired=0.3, moved=0.08, no_spare=0.03)
@given(failures())
def test_a_repaired_plan_uses_nothing_that_is_lost_and_no_spare_is_true(
    case: tuple[Job, Inventory, list[str], set[Device]],
) -> None:
    job, left, without, lost = case
    plan, bad = job.plan, job.excluded | lost
    try:
        found = replan(plan, left, without=without)
    except PlacementError as error:
        codes = {one.code for one in error.diagnostics}
        assert codes <= {"no-spare", "group-spans", "domain-too-small", "plan-mismatch"}, error
        if codes == {"no-spare"} and not plan.rules.keep:
            outcome("no_spare")
            assert not any(repairs(plan, left, bad)), str(error)
        return
    after = found.plan
    outcome("repaired")
    if found.moves:
        outcome("moved")
    assert not used(after) & bad
    assert places(after).get(("env", 0)) == places(plan).get(("env", 0))  # a robot stays where it is
    assert [len(after[name]) for name in after] == [len(plan[name]) for name in plan]
    after.check_keep()
    assert after == after.on(after.inventory) == after.fitted(after.inventory) == Plan.from_dict(after.to_dict())
    changed = {one for one, place in places(after).items() if place != places(plan)[one]}
    assert {(move.component, move.rank) for move in found.moves} == changed
    assert {(move.component, move.rank) for move in diff(plan, after).moved} >= changed
    # What is lost stays lost, and what is excluded stays excluded.
    known = same_nodes(after.inventory, left)
    if None not in known:
        again = replan(after, left, without=without)
        assert again.plan == after and not again.moves


def repairs(plan: Plan, left: Inventory, bad: set[Device]) -> Iterator[Mapping[int, Any]]:
    """Yield every way to find machines for the node ranks, as documented: whole, in part, or with idle accelerators."""
    nodes = [left.node(rank) for rank in range(left.num_nodes)]
    needs: dict[int, dict[str, set[int]]] = {}
    for name, rows in plan.items():
        for row in rows:
            needs.setdefault(row.cluster_node_rank, {}).setdefault(name, set())
            for node, index in row.devices if row.resource_type == "accelerator" else ():
                needs.setdefault(node, {}).setdefault(name, set()).add(index)
    robots = {node for group in plan.inventory.node_groups if group.hardware for node, _ in group.hardware.counts()}

    def options(rank: int) -> Iterator[list[tuple[str, bool, set[int]]]]:
        """Yield the machines that a node rank may use: its own one or not, and the accelerators that it needs there."""
        own = plan.inventory.node(rank)
        every = set().union(*needs[rank].values())
        for node in nodes:
            if (node.num_accelerators, node.accelerator_type) == (own.num_accelerators, own.accelerator_type):
                yield [(node.name, node.name == own.name, every)]
        broken = {index for index in every if (own.name, index) in bad}
        parts = {name for name, needed in needs[rank].items() if needed & broken}
        if len(parts) < len(needs[rank]):
            rest = set().union(*(needed for name, needed in needs[rank].items() if name not in parts))
            moved = set().union(*(needs[rank][name] for name in parts))
            for node in nodes:
                if node.name != own.name and node.num_accelerators == own.num_accelerators:
                    yield [(own.name, True, rest), (node.name, False, moved)]

    def search(ranks: list[int], taken: set[str]) -> Iterator[Mapping[int, Any]]:
        if not ranks:
            yield {}
            return
        for option in options(ranks[0]):
            machines = {name for name, _, _ in option}
            present = {node.name for node in nodes}
            fits = all(
                name in present and (name, -1) not in bad and not any((name, index) in bad for index in needed)
                for name, _, needed in option
            )
            if fits and not machines & taken and (ranks[0] not in robots or option[0][1]):
                yield from ({ranks[0]: option, **rest} for rest in search(ranks[1:], taken | machines))

    return search(sorted(needs), set())
