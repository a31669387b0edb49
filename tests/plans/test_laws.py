"""The laws of every plan, whatever rules and settings it has: saved, loaded, in part, and on other nodes."""

from __future__ import annotations

import json
import pickle
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rankplan import (
    ComponentPlacement,
    FlexiblePlacementStrategy,
    Inventory,
    NodePlacementStrategy,
    PlacementError,
    Plan,
    RankSet,
    diff,
)
from rankplan._core import RankMap
from rankplan.plans.component import Component
from rankplan.render.changes import diff_json
from support import answers
from support.jobs import NAMES, altered, jobs
from support.outcomes import at_least, outcome
from support.rules import rules_in


def saved(plan: Plan) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        plan.save(path := Path(folder, "plan.json"))
        return path.read_bytes()


def loaded(content: bytes) -> Plan:
    with tempfile.TemporaryDirectory() as folder:
        (path := Path(folder, "plan.json")).write_bytes(content)
        return Plan.load(path)


def facts(plan: Plan) -> dict[str, Any]:
    """Return all that the plan decides about each process."""
    return {
        name: (answers.as_dicts(one), one.settings, [one.bound(rank) for rank in range(len(one))])
        for name, one in plan.items()
    }


@at_least(placed=0.6, chunks=0.05, packed=0.03, several_accelerators=0.003, sized=0.05, own_first=0.05, by_node=0.2)
@settings(max_examples=300)
@given(jobs())
def test_random_plans_have_components_of_every_kind(plan: Plan) -> None:
    """The other laws say nothing about a plan without components."""
    for one in plan.values():
        outcome("placed")
        outcome(type(one.rule).__name__.lower())
        if any(row.num_accelerators > 1 for row in one):
            outcome("several_accelerators")
        if one.parallel.stated:
            outcome("sized")
        if one.visibility == "own-first":
            outcome("own_first")
        if one.by_node:
            outcome("by_node")


@given(jobs())
def test_a_saved_plan_is_the_plan(plan: Plan) -> None:
    content = saved(plan)
    again = loaded(content)
    assert again == plan == pickle.loads(pickle.dumps(plan))
    assert facts(again) == facts(plan)
    assert saved(again) == content


@given(jobs(), st.sets(st.sampled_from(NAMES)))
def test_a_part_of_a_plan_stays_what_it_is(plan: Plan, names: set[str]) -> None:
    kept = [name for name in plan if name in names]
    part = plan.only(*kept)
    assert facts(part) == {name: found for name, found in facts(plan).items() if name in kept}
    assert loaded(saved(part)) == part and facts(loaded(saved(part))) == facts(part)
    assert part.only(*kept[:1]) == plan.only(*kept[:1])
    back = plan.placed(plan.inventory, [part.get(name, one) for name, one in plan.items()])
    assert back == plan and facts(back) == facts(plan)
    for inventory in (plan.inventory, larger(plan.inventory)):
        assert plan.on(inventory).only(*kept) == part.on(inventory)
        assert facts(plan.on(inventory).only(*kept)) == facts(part.on(inventory))


def larger(inventory: Inventory) -> Inventory:
    """Return more nodes of which the first are as many as before."""
    content = inventory.without_groups().to_dict()
    content["nodes"].append({"ranks": inventory.num_nodes, "accelerators": 2})
    return Inventory.from_dict(content)


@given(jobs())
def test_requests_stay_with_the_places_that_they_ask_for(plan: Plan) -> None:
    assert plan.on(plan.inventory).requests == plan.requests
    assert plan.only(*plan).requests == plan.requests
    assert plan.only(*list(plan)[1:]).requests == (() if plan else plan.requests)
    more = plan.on(larger(plan.inventory))
    same = all([row.devices for row in one] == [row.devices for row in more[name]] for name, one in plan.items())
    assert more.requests == plan.requests if same else more.requests in ((), plan.requests)
    assert more.dialect == plan.dialect


@at_least(fitted=0.3)
@given(jobs(), st.data())
def test_a_plan_that_was_fitted_keeps_its_places_when_saved(plan: Plan, data: st.DataObject) -> None:
    content = plan.inventory.without_groups()
    used = RankSet().union(*(one.used_nodes() for one in plan.values()))
    nodes = [content.node(rank).at(RankSet([rank])) for rank in range(content.num_nodes)]
    other = [
        Inventory.uniform(1, data.draw(st.integers(0, 3))).node(0).at(RankSet([rank])) for rank in range(len(nodes))
    ]
    cluster = Inventory([node if rank in used else other[rank] for rank, node in enumerate(nodes)])
    try:
        fitted = plan.fitted(cluster)
    except PlacementError:
        return
    outcome("fitted")
    for name, one in fitted.items():
        assert [row.devices for row in one] == [row.devices for row in plan[name]]
    assert loaded(saved(fitted)) == fitted


def test_a_group_before_the_used_one_has_fewer_accelerators_in_the_cluster() -> None:
    groups = [{"label": "late", "node_ranks": "1"}, {"label": "early", "node_ranks": "0"}]
    actor = {"node_group": "late,early", "placement": "3:0"}
    section = {"num_nodes": 2, "node_groups": groups, "component_placement": {"actor": actor}}
    plan = ComponentPlacement({"cluster": section}, Inventory.uniform(2, 2)).plan()
    cluster = Inventory.from_dict({"nodes": [{"ranks": 0, "accelerators": 2}, {"ranks": 1, "accelerators": 1}]})
    fitted = plan.fitted(cluster)
    assert [row.devices for row in fitted["actor"]] == [row.devices for row in plan["actor"]] == [[(0, 1)]]
    assert str(fitted["actor"].rule) == "2:0" and loaded(saved(fitted)) == fitted


@given(jobs(), jobs())
def test_any_two_plans_can_be_compared(before: Plan, after: Plan) -> None:
    """Whatever facts of the nodes differ, the difference can be printed, also as JSON."""
    found = diff(before, after)
    there = json.loads(diff_json(found))
    assert bool(found) == any(there.values())
    assert not diff(before, before)
    sides = [{change.what for change in one.nodes} for one in (found, diff(after, before))]
    assert sides[0] == sides[1]


def variants(plan: Plan) -> list[Plan]:
    """Return plans that say the same or something similar."""
    nodes = [plan.inventory.node(rank) for rank in range(plan.inventory.num_nodes)]
    split = Inventory(nodes, plan.inventory.facts, plan.inventory.levels)
    found = [
        Plan(plan.inventory, reversed(list(plan.values())), plan.mode, rules=plan.rules),
        Plan(split, [rehomed(one, split) for one in plan.values()], plan.mode, rules=plan.rules),
        Plan.from_dict(turned(plan.to_dict())),
        Plan(plan.inventory, plan.values(), plan.mode, "slime", plan.requests, plan.rules),
        Plan(plan.inventory, plan.values(), plan.mode, plan.dialect, plan.requests[1:], plan.rules),
        Plan(plan.inventory, plan.values(), plan.mode, plan.dialect, map(altered, plan.requests), plan.rules),
        plan.with_visibility("node" if not any(unordered(one) for one in plan.values()) else "own"),
    ]
    for name, one in plan.items():
        alike = [list(ranks) for ranks in one.inventory.pool(one.node_groups, by_node=one.by_node).ranks_of(one.rows)]
        if alike == sorted(map(sorted, alike), key=lambda ranks: ranks[0]):
            with suppress(PlacementError):  # chunks may have resources of several nodes, lists may not
                other = Component.place(name, one.inventory, one.node_groups, RankMap.from_lists(alike), one.settings)
                found.append(Plan(plan.inventory, [other if each.name == name else each for each in plan.values()]))
                outcome("lists")
        found.append(plan.only(name))
    return found


def unordered(component: Component) -> bool:
    return component.visibility == "own-first"


def rehomed(component: Component, inventory: Inventory) -> Component:
    return Component.place(
        component.name, inventory, component.node_groups, component.rule, component.settings, component.beside
    )


def turned(value: Any) -> Any:
    """Return a value with the keys of all mappings in the other order, but for the components."""
    if isinstance(value, Mapping):
        keys = list(value)
        return {key: turned(value[key]) for key in (keys if set(keys) <= set(NAMES) else reversed(keys))}
    return [turned(one) for one in value] if isinstance(value, list) else value


@at_least(lists=0.1, equal=0.3)
@given(jobs())
def test_equal_plans_are_those_with_equal_bytes(plan: Plan) -> None:
    plans = [plan, *variants(plan)]
    content = [saved(one) for one in plans]
    for first, second in combinations(range(len(plans)), 2):
        outcome("equal" if plans[first] == plans[second] else "unequal")
        assert (plans[first] == plans[second]) == (content[first] == content[second])


def test_every_strategy_makes_plans_that_can_be_kept() -> None:
    inventory = Inventory.uniform(2, 4)
    for strategy in (
        NodePlacementStrategy([0, 0, 1]),
        FlexiblePlacementStrategy([[0], [0], [1]]),
        FlexiblePlacementStrategy([[0], [0, 1]]),
    ):
        plan = Plan(inventory, [strategy.on(inventory, "actor")])
        assert loaded(saved(plan)) == plan


def test_the_file_does_not_depend_on_how_the_nodes_were_listed() -> None:
    one = Inventory.from_dict({"nodes": [{"ranks": "0-1", "accelerators": 2, "labels": {"a": "1", "b": "2"}}]})
    two = Inventory.from_dict(
        {
            "nodes": [
                {"ranks": 1, "accelerators": 2, "labels": {"b": "2", "a": "1"}},
                {"ranks": 0, "accelerators": 2, "accelerator_type": "NV_GPU", "labels": {"a": "1", "b": "2"}},
            ]
        }
    )
    plans = [Plan(nodes, [NodePlacementStrategy([0, 1]).on(nodes, "env")]) for nodes in (one, two)]
    assert one == two and plans[0] == plans[1] and saved(plans[0]) == saved(plans[1])
    assert json.loads(saved(plans[0]))["inventory"]["nodes"][0]["ranks"] == str(RankSet("0-1"))
    stated = Inventory.from_dict({"nodes": [{"ranks": "0-1", "accelerator_ids": ["0", "1"]}]})
    assert stated != Inventory.uniform(2, 2), "only the first must find these ids in a cluster"


def test_a_plan_without_components_names_none() -> None:
    empty = Plan(Inventory.uniform(1, 1), [])
    with pytest.raises(KeyError, match="the plan has no components"):
        empty["actor"]
    keep = {"num_nodes": 1, "topology": {"keep": {"actor": {"tp": "node"}}}}
    with pytest.raises(PlacementError) as refused:
        Plan(empty.inventory, [], rules=rules_in(keep)).check_keep()
    assert [fault.help for fault in refused.value.diagnostics] == ["remove it: there is no component"]
