"""Topology requests are the smallest slices that hold every group, found by brute force."""

from __future__ import annotations

from math import lcm

import pytest
import rankplan
from hypothesis import given
from hypothesis import strategies as st
from rankplan import EmitOptions, Inventory, PlacementError, Plan
from rankplan.launchers.draft import Draft
from rankplan.launchers.groups import pod_groups
from rankplan.launchers.options import Options
from rankplan.launchers.requests import requests
from support.launchers import OPTIONS, WITHOUT_RAY, again, documents, places
from support.outcomes import at_least, outcome

LEVELS = ("example.com/block", "example.com/rack")


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Draw two components on equal nodes, in one domain of each level, with groups to keep and segments."""
    nodes, each = draw(st.integers(1, 12)), draw(st.sampled_from([2, 4]))
    first = draw(st.integers(1, nodes))
    labels = dict.fromkeys(LEVELS, "a")
    inventory = Inventory.from_dict(
        {"levels": list(LEVELS), "nodes": [{"ranks": f"0-{nodes - 1}", "accelerators": each, "labels": labels}]}
    )
    sizes = [size for size in range(1, first * each + 1) if first * each % size == 0]
    keep = draw(st.dictionaries(st.sampled_from(["tp", "dp", "pp"]), st.sampled_from([*LEVELS, "node"])))
    tp = draw(st.sampled_from(sizes))
    pp = draw(st.sampled_from([size for size in range(1, first * each // tp + 1) if first * each // tp % size == 0]))
    placed = {"actor": {"placement": f"0-{first * each - 1}", "parallel": {"tp": tp, "pp": pp}}}
    if first < nodes:
        placed["rollout"] = {"placement": f"{first * each}-{nodes * each - 1}", "parallel": {}}
    topology: dict[str, object] = {"keep": {"actor": keep}} if keep else {}
    if draw(st.booleans()):
        topology["segment"] = {"actor": draw(st.sampled_from([1, 2, 3, {LEVELS[0]: 4, LEVELS[1]: 2}]))}
    config = {"cluster": {"num_nodes": nodes, "topology": topology, "component_placement": placed}}
    try:
        return rankplan.plan(config, inventory)
    except PlacementError:  # a group crosses a node, or the nodes are no multiple of the segment
        topology.clear()
        return rankplan.plan(config, inventory)


def wished(plan: Plan) -> tuple[tuple[str, int], ...]:
    """Return the slices of the first group by brute force."""
    component = plan["actor"]
    nodes = len({row.cluster_node_rank for row in component})
    segment = plan.rules.segment
    stated = segment.get("actor", 1) if isinstance(segment, dict) else 1
    wishes = dict(stated) if isinstance(stated, dict) else {LEVELS[-1]: stated}
    for kind, level in plan.rules.keep.get("actor", {}).items():
        groups = [[component.layout.place(slot)[0] for slot in group] for group in component.layout.groups(kind)]
        fits = (k for k in range(1, nodes + 1) if nodes % k == 0 and all(len({n // k for n in g}) == 1 for g in groups))
        if level != "node":
            wishes[level] = lcm(wishes.get(level, 1), next(fits))
    found: list[tuple[str, int]] = []
    within = 1
    for level in reversed(LEVELS):
        if wishes.get(level, 1) > within:
            within = lcm(within, wishes[level])
            found.insert(0, (level, within))
    return tuple(found)


@at_least(sliced=0.05)
@given(plans())
def test_a_slice_is_the_smallest_that_holds_every_group(plan: Plan) -> None:
    draft = Draft(plan, Options())
    groups = pod_groups(plan)
    found = requests(draft, [one.nodes for one in groups])
    assert not draft.faults
    expected = wished(plan)
    if expected:
        outcome("sliced")
    assert tuple((one.level, one.size) for one in found[0]) == expected
    assert not any(found[1:])


@at_least(written=0.4)
@given(plans(), st.sampled_from(["kuberay", "jobset", "lws"]))
def test_a_file_with_requests_is_valid_and_comes_back(plan: Plan, target: str) -> None:
    given_options = {"image": "train:1", "queue": "gold", **OPTIONS.get(target, WITHOUT_RAY)}
    try:
        text = rankplan.emit(plan, target, EmitOptions(**given_options))
    except PlacementError as error:
        assert {found.code for found in error.diagnostics} <= {"emit-topology", "emit-uneven"}
        return
    outcome("written")
    documents(text)
    found, same = again(text, target)
    assert places(found) == places(plan) and same == text


def test_a_group_in_two_groups_of_pods_is_refused() -> None:
    config = {
        "cluster": {
            "num_nodes": 2,
            "topology": {"keep": {"actor": {"tp": LEVELS[0]}}},
            "component_placement": {"actor": {"placement": "all", "parallel": {"tp": 4}}, "rollout": "2-3"},
        }
    }
    labels = dict.fromkeys(LEVELS, "a")
    nodes = [{"ranks": "0-1", "accelerators": 2, "labels": labels}]
    inventory = Inventory.from_dict({"nodes": nodes, "levels": [*LEVELS]})
    with pytest.raises(PlacementError) as refused:
        rankplan.emit(rankplan.plan(config, inventory), "jobset", EmitOptions(command="x", image="a:1", queue="q"))
    (found,) = refused.value.diagnostics
    assert found.code == "emit-topology" and found.help is not None and "drop `keep.actor.tp`" in found.help
    assert found.message == (
        "actor: the tensor group on nodes 0-1 must be in one example.com/block, "
        "but a launcher starts these nodes in several groups"
    )


@pytest.mark.parametrize(
    ("topology", "slices"),
    [
        ({"keep": {"actor": {"world": LEVELS[0]}}}, [(LEVELS[0], 8)]),
        ({"keep": {"actor": {"tp": {LEVELS[1]: 2}}}}, [(LEVELS[1], 2)]),  # in two racks, with equal shares
        ({"keep": {"actor": {"tp": {LEVELS[0]: 1, LEVELS[1]: 2}}}}, [(LEVELS[0], 4), (LEVELS[1], 2)]),
        ({"prefer": {"actor": {"world": LEVELS[0]}}, "balance": LEVELS[1]}, []),
        ({"cap": {LEVELS[1]: 8}}, None),
    ],
)
def test_every_rule_about_the_network(topology: dict[str, object], slices: list[tuple[str, int]] | None) -> None:
    nodes = [{"ranks": "0-7", "accelerators": 2, "labels": dict.fromkeys(LEVELS, "a")}]
    placed = {"actor": {"placement": "all", "parallel": {"tp": 8}}}
    config = {"cluster": {"num_nodes": 8, "topology": topology, "component_placement": placed}}
    plan = rankplan.plan(config, Inventory.from_dict({"levels": [*LEVELS], "nodes": nodes}))
    draft = Draft(plan, Options())
    (found,) = requests(draft, [range(8)])
    if slices is None:
        (fault,) = draft.faults
        assert (fault.code, fault.help) == ("emit-topology", f"drop `cap.{LEVELS[1]}`, or pin the hosts")
    else:
        assert [(one.level, one.size) for one in found] == slices and not draft.faults


@pytest.mark.parametrize("topology", [{"prefer": {"actor": {"world": LEVELS[0]}}}, {"balance": LEVELS[0]}])
def test_what_refuses_no_nodes_asks_for_nothing_without_labels_either(topology: dict[str, object]) -> None:
    config = {"cluster": {"num_nodes": 2, "topology": topology, "component_placement": {"actor": "all"}}}
    draft = Draft(rankplan.plan(config, "2x4"), Options())
    assert requests(draft, [range(2)]) == [()] and not draft.faults
