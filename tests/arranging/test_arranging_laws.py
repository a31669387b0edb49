"""Laws of arranging and repairing on nodes that lack names or labels, or belong to other jobs."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import rankplan
from hypothesis import given, settings
from hypothesis import strategies as st
from rankplan import Chunks, Inventory, Plan, arrange, diff, replan
from rankplan.errors import PlacementError
from rankplan.plans.component import Component, used_nodes
from rankplan.plans.diff import same_nodes
from support.outcomes import at_least, outcome

_LEVELS = ("rack", "nvlink")

_RULES: list[dict[str, Any]] = [
    {},
    {"segment": 1},
    {"segment": 2},
    {"segment": {"actor": 2}},
    {"segment": {"actor": {"rack": 2, "nvlink": 1}}},
    {"keep": {"actor": {"tp": "nvlink"}}},
    {"keep": {"actor": {"tp": "rack"}}},
    {"keep": {"actor": {"world": "rack"}}},
    {"prefer": {"actor": {"tp": "nvlink"}}},
    {"prefer": {"actor": {"world": "nvlink"}}},
    {"balance": "nvlink"},
    {"balance": {"actor": "rack"}},
    {"cap": {"rack": 1}},
    {"cap": {"nvlink": 1}},
    {"cap": {"rack": 2, "nvlink": 1}},
]


@st.composite
def clusters(draw: st.DrawFn) -> Inventory:
    """Draw up to six machines, some without names or labels, some of another job."""
    named = draw(st.sampled_from(["all", "all", "some", "none"]))
    labels = draw(st.sampled_from([_LEVELS, _LEVELS, ("rack",), ()]))
    entries = []
    for rank in range(draw(st.integers(1, 6))):
        entry: dict[str, Any] = {"ranks": rank, "accelerators": 2}
        if named == "all" or (named == "some" and draw(st.booleans())):
            entry["hostname"] = f"h{rank}"
        entry["labels"] = {level: value for level in labels if (value := draw(st.sampled_from(["a", "b", None])))}
        if rank and draw(st.integers(0, 4)) == 0:
            entry["taken"] = "another job"
        entries.append(entry)
    known = [level for level in labels if any(level in entry["labels"] for entry in entries)]
    return Inventory.from_dict({"nodes": entries, **({"levels": known} if known else {})})


@st.composite
def jobs(
    draw: st.DrawFn, tp: Sequence[int] = (1, 2, 4), rules: Sequence[dict[str, Any]] = _RULES
) -> tuple[Plan, Inventory]:
    """Draw a plan that follows its rules, and its cluster."""
    cluster = draw(clusters())
    num_nodes = draw(st.integers(1, cluster.num_nodes))
    free = [node for node in range(num_nodes) if node not in cluster.taken]
    nodes = sorted(draw(st.sets(st.sampled_from(free), min_size=1)))
    text = ",".join(f"{2 * node}-{2 * node + 1}" for node in nodes)
    sizes = {"tp": draw(st.sampled_from([size for size in tp if 2 * len(nodes) % size == 0]))}
    topology = {**draw(st.sampled_from(rules)), **draw(st.sampled_from(rules))}
    if draw(st.booleans()) and cluster.levels:
        topology["levels"] = list(cluster.levels)
    section = {"num_nodes": num_nodes, "component_placement": {"actor": {"placement": text, "parallel": sizes}}}
    try:
        plan = rankplan.plan({"cluster": {**section, "topology": topology}}, cluster)
    except PlacementError:
        plan = rankplan.plan({"cluster": section}, cluster)
    return plan, cluster


def assert_follows_its_rules(plan: Plan) -> None:
    assert not plan.rule_faults()
    list(plan.rule_warnings())
    assert Plan.from_dict(plan.to_dict()) == plan


@given(jobs())
def test_without_a_failure_nothing_changes(job: tuple[Plan, Inventory]) -> None:
    plan, cluster = job
    found = replan(plan, cluster)
    assert found.plan == plan and not found.moves and not found.reasons


@at_least(repaired=0.2)
@settings(max_examples=300)
@given(jobs(), st.data())
def test_a_repaired_plan_means_the_nodes_that_were_found(job: tuple[Plan, Inventory], data: st.DataObject) -> None:
    plan, cluster = job
    used = used_nodes(plan.values())
    lost = data.draw(st.sets(st.sampled_from(list(used)), min_size=1, max_size=2))
    names = [cluster.node(rank).name for rank in sorted(lost)]
    try:
        found = replan(plan, cluster, without=names)
    except PlacementError as refused:
        assert {fault.code for fault in refused.diagnostics} <= {
            "no-spare",
            "segment-incomplete",
            "group-spans",
            "domain-too-small",
            "too-few-nodes",
        }
        return
    outcome("repaired")
    assert_follows_its_rules(found.plan)
    meant = same_nodes(found.plan.inventory, cluster)
    assert [meant[rank] for rank in used] == [found.arrangement.nodes[rank] for rank in used]
    assert lost.isdisjoint(meant[rank] for rank in used)
    differences = diff(plan, found.plan)
    assert differences and found.moves
    if all(cluster.node(rank).hostname for rank in lost):
        moved = {(move.component, move.rank) for move in differences.moved}
        assert {(move.component, move.rank) for move in found.moves} == moved
    again = replan(found.plan, cluster)
    assert not again.moves
    if all(cluster.node(rank).hostname for rank in range(cluster.num_nodes)):
        assert again.plan == found.plan


def _domain(cluster: Inventory, rank: int, levels: Sequence[str]) -> tuple[str, ...] | None:
    """Return the labels of a node at these levels; ``None`` if one is missing: such a node is a domain of its own."""
    labels = cluster.node(rank).labels
    return tuple(labels[level] for level in levels) if all(level in labels for level in levels) else None


@at_least(capped=0.2)
@given(jobs(rules=[rule for rule in _RULES if "cap" in rule]))
def test_a_cap_counts_the_nodes_of_all_jobs(job: tuple[Plan, Inventory]) -> None:
    """Whether the plan has the nodes of the other jobs or not."""
    plan, cluster = job
    used = used_nodes(plan.values())
    for level, most in plan.rules.cap.items():
        outer = cluster.levels[: cluster.levels.index(level) + 1]
        mine, others = ([_domain(cluster, rank, outer) for rank in ranks] for ranks in (used, cluster.taken))
        assert all(mine.count(domain) + others.count(domain) <= most for domain in mine if domain is not None)
        outcome("capped")


@at_least(arranged=0.2)
@given(jobs())
def test_an_arranged_plan_follows_its_rules(job: tuple[Plan, Inventory]) -> None:
    plan, cluster = job
    try:
        found = arrange(plan, cluster)
    except PlacementError:
        return
    outcome("arranged")
    assert_follows_its_rules(plan.on(found.inventory))


@at_least(saved=0.1, refused=0.02)
@given(jobs())
def test_a_file_of_arranged_nodes_says_which_machines_they_are(job: tuple[Plan, Inventory]) -> None:
    plan, cluster = job
    try:
        found = arrange(plan, cluster)
    except PlacementError:
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "nodes.yaml")
        try:
            found.save(file)
        except PlacementError as refused:
            assert "no hostname and no address" in refused.message and not file.exists()
            outcome("refused")
            return
        outcome("saved")
        assert same_nodes(Inventory.load(file), cluster) == [*found.nodes, *found.spares]


@at_least(grown=0.2)
@settings(max_examples=200)
@given(jobs(tp=[2]), st.integers(1, 2), st.sampled_from(["0-7", "chunks"]))
def test_what_grows_and_shrinks_again_is_the_same_plan(job: tuple[Plan, Inventory], more: int, form: str) -> None:
    """Also node ranks without processes, the nodes of other jobs, and how the rule is written."""
    plan, cluster = job
    if form == "chunks":
        plan = as_chunks(plan)
    try:
        larger = replan(plan, cluster, grow={"actor": more}).plan
    except PlacementError as refused:
        assert {fault.code for fault in refused.diagnostics} <= {"no-spare", "segment-incomplete", "group-spans"}
        return
    outcome("grown")
    assert_follows_its_rules(larger)
    assert len(larger["actor"]) == len(plan["actor"]) + 2 * more
    smaller = replan(larger, cluster, shrink={"actor": more}).plan
    assert [row.devices for row in smaller["actor"]] == [row.devices for row in plan["actor"]]
    if plan.rules and hosts(larger)[: len(hosts(plan))] != hosts(plan):
        return  # a rule wants nodes of node ranks without processes for new ones
    if larger.inventory.num_nodes == plan.inventory.num_nodes + more:
        assert smaller == plan
        assert smaller.to_dict() == plan.to_dict()
    assert hosts(smaller) == hosts(plan)[: len(hosts(smaller))]


def hosts(plan: Plan) -> list[str | None]:
    return [plan.inventory.node(rank).hostname for rank in range(plan.inventory.num_nodes)]


def as_chunks(plan: Plan) -> Plan:
    """Return a plan in the same places by a rule of the kind that trainers have."""
    lists = [[node * 2 + index for node, index in row.devices] for row in plan["actor"]]
    rule = Chunks(list(chain.from_iterable(lists)), len(lists[0]))
    actor = Component.place("actor", plan.inventory, ("cluster",), rule, plan["actor"].settings)
    return plan.placed(plan.inventory, [actor])


@at_least(grown=0.02)
@given(jobs(tp=[2]), st.integers(1, 2))
def test_growth_takes_the_spares_before_it_takes_node_ranks_of_the_plan(job: tuple[Plan, Inventory], more: int) -> None:
    plan, cluster = job
    spares = [node for node in range(plan.inventory.num_nodes, cluster.num_nodes) if node not in cluster.taken]
    if plan.rules or len(spares) < more or not all(cluster.node(node).hostname for node in spares):
        return
    outcome("grown")
    larger = replan(plan, cluster, grow={"actor": more}).plan
    assert larger.inventory.num_nodes == plan.inventory.num_nodes + more


@at_least(arranged=0.02)
@given(jobs())
def test_arranging_needs_the_nodes_in_use_only(job: tuple[Plan, Inventory]) -> None:
    """A plan of a trainer has a node rank for every node of its cluster."""
    plan, cluster = job
    last = max(used_nodes(plan.values()))
    if plan.rules or last + 1 == plan.inventory.num_nodes:
        return
    outcome("arranged")
    bare = plan.inventory.without_groups()
    plan = Plan(bare, [replace(part, inventory=bare) for part in plan.values()], dialect="slime")
    found = arrange(plan, cluster.first(last + 1))
    assert sorted(found.nodes) == list(range(last + 1)) and not found.spares


def test_a_cap_does_not_count_another_node_that_lacks_an_outer_label() -> None:
    """A node without a label is a domain of its own, also at the levels inside: for the check as for the repair."""
    nodes: list[dict[str, Any]] = [
        {"ranks": 0, "accelerators": 2, "hostname": "h0", "labels": {"rack": "a", "nvlink": "a"}},
        {"ranks": 1, "accelerators": 2, "hostname": "h1", "labels": {"nvlink": "a"}, "taken": "another job"},
        {"ranks": 2, "accelerators": 2, "hostname": "h2", "labels": {"nvlink": "a"}},
    ]
    cluster = Inventory.from_dict({"nodes": nodes, "levels": ["rack", "nvlink"]})
    section = {"num_nodes": 3, "component_placement": {"actor": "4-5:0-1"}, "topology": {"cap": {"nvlink": 1}}}
    plan = rankplan.plan({"cluster": section}, cluster)
    assert not plan.rule_faults()
    assert not replan(plan, cluster, without=["h2"]).plan.rule_faults()
