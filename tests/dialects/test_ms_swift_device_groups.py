"""ms-swift's older way on Ray: groups with ranks, against its own ``ResourceManager``; what it would end with."""

from __future__ import annotations

import json
from typing import Any

import pytest
import rankplan
from rankplan import Inventory, PlacementError, Plan
from support.goldens import lines, named

LINES = lines("ms_swift_device_groups")
FOUR = {"nproc_per_node": 4, "default": {"device": "GPU", "ranks": "list(range(0, 4))", "workers": ["default"]}}


def inventory(joined: list[list[Any]]) -> Inventory:
    entries = [
        {"ranks": rank, "ip": ip, "accelerators": gpus, "cpus": cpus} for rank, (ip, gpus, cpus) in enumerate(joined)
    ]
    return Inventory.from_dict({"nodes": entries})


def plan_of(groups: Any, nodes: Inventory | str = "2x4") -> Plan:
    return rankplan.plan({"use_ray": True, "device_groups": groups}, nodes, dialect="ms_swift")


@pytest.mark.parametrize("line", LINES, ids=[line["id"] for line in LINES])
def test_groups_are_placed_as_the_manager_places_them(line: dict[str, Any]) -> None:
    nodes = inventory(line["cluster"]["joined"])
    try:
        plan = plan_of(line["groups"], nodes)
    except PlacementError as error:
        codes = {fault.code for fault in error.diagnostics}
        assert "error" in line or "waits" in line, codes
        return
    assert "error" not in line
    has_few_cpus = line["cluster"]["name"] == "few-cpus"
    if "waits" in line:
        assert has_few_cpus, "a plan that does not fit"
        return
    asked = [[one.strategy, one.accelerators[0], one.cpus[0]] for one in plan.requests]
    assert asked == [row[:3] for row in line["requests"]]
    if has_few_cpus:
        return  # whose CPUs decide where Ray puts a group
    homes = [home for _, gpus, _, home in line["requests"] if gpus]
    if len(set(homes)) < len(homes):
        named("swift-two-groups-of-a-node")
        return
    assert [str(nodes.node(one.nodes[0]).ip) for one in plan.requests if one.accelerators[0]] == homes
    for name, rows in line["ends"].items():
        found = [[str(nodes.node(row.cluster_node_rank).ip), [gpu for _, gpu in row.devices]] for row in plan[name]]
        if any(gpus for _, gpus in rows):
            assert found == rows
        else:  # on any node with room for a group of CPUs; this version cannot start them
            assert len(found) == len(rows)


def test_most_recorded_groups_are_compared() -> None:
    """A plan for the groups that fit, and a fault for the others."""
    assert sum("ends" in line for line in LINES) == 90 and len(LINES) == 150


@pytest.mark.parametrize(
    ("changes", "code", "message"),
    [
        ({"nproc_per_node": None}, "missing-key", "`device_groups.nproc_per_node` is missing"),
        ({"default": {"device": "GPU", "ranks": 4}}, "missing-key", "`device_groups.default` lacks `workers`"),
        (
            {"default": {"device": "GPU", "ranks": "__import__('os').getpid()", "workers": []}},
            "invalid-value",
            "`device_groups.default.ranks` is \"__import__('os').getpid()\"; it must be a whole number, a list, or "
            "`list(range(0, 4))`",
        ),
        (
            {"default": {"device": "GPU", "ranks": "range(0, 10**12)", "workers": []}},
            "invalid-value",
            "`device_groups.default.ranks` is 'range(0, 10**12)'; it must be a whole number, a list, or "
            "`list(range(0, 4))`",
        ),
        (
            {"second": {"device": "GPU", "ranks": "list(range(3, 5))", "workers": ["b"]}},
            "duplicate-resource",
            "rank 3 is in `default` and `second`",
        ),
        (
            {"default": {"device": "GPU", "ranks": "range(4, 8)", "workers": ["a"]}},
            "resource-out-of-range",
            "rank 4 would be on node 1, but the ranks of all groups fill 1 node of 4: ms-swift ends with a KeyError",
        ),
        (
            {"second": {"device": "NPU", "ranks": 4, "workers": ["b"]}},
            "invalid-value",
            "the groups are on GPU and NPU: ms-swift needs one kind of accelerator",
        ),
        (
            {"second": {"device": "GPU", "ranks": 8, "workers": ["b"]}},
            "resource-out-of-range",
            "the ranks need 3 nodes with 4 GPUs each, but the cluster has 2: ms-swift ends with an IndexError",
        ),
        (
            {"samples": {"device": "CPU", "ranks": "2", "workers": ["b"]}},
            "invalid-value",
            "`device_groups.samples.ranks` is '2'; of a group on CPUs it must be a whole number of 1 or more",
        ),
    ],
)
def test_what_the_manager_would_end_with_is_a_fault(changes: dict[str, Any], code: str, message: str) -> None:
    with pytest.raises(PlacementError) as refused:
        plan_of(FOUR | changes)
    fault = refused.value.diagnostics[0]
    assert (fault.code, fault.message) == (code, message)
    assert fault.help


@pytest.mark.parametrize(("cpus", "fits"), [(4, False), (3, True), (5, True), (2, False)])
def test_the_second_group_of_a_node_needs_cpus_too(cpus: int, fits: bool) -> None:
    """A half of them and one for the GPUs, a quarter and one beside: 3 + 2 of 4 CPUs are never reserved."""
    nodes = Inventory.from_dict({"nodes": [{"ranks": 0, "accelerators": 4, "cpus": cpus}]})
    report = rankplan.check({"use_ray": True, "device_groups": FOUR}, nodes, dialect="ms_swift")
    assert [fault.code for fault in report.faults] == ([] if fits else ["never-reserved"])
    beside = [{"ranks": 0, "accelerators": 4, "cpus": cpus}, {"ranks": 1, "accelerators": 0, "cpus": 8}]
    assert rankplan.check({"use_ray": True, "device_groups": FOUR}, Inventory.from_dict({"nodes": beside})).faults == []


def test_gpus_of_another_job_are_not_shown_by_number() -> None:
    nodes = Inventory.uniform(1, 8).without(["node-0/0"])
    with pytest.raises(PlacementError) as refused:
        plan_of(FOUR, nodes)
    assert refused.value.diagnostics[0].code == "duplicate-resource"


def test_a_group_on_cpus_is_planned_with_a_warning() -> None:
    groups = FOUR | {"samples": {"device": "CPU", "ranks": 3, "workers": ["sampler"]}}
    report = rankplan.check({"use_ray": True, "device_groups": groups}, "2x4")
    assert report.plan is not None and len(report.plan["samples"]) == 3
    assert [warning.message for warning in report.warnings] == [
        "`samples` is on CPUs: ms-swift 3602360 ends with a KeyError when it starts its workers"
    ]


def test_groups_count_only_with_use_ray() -> None:
    faults = rankplan.check({"use_ray": False, "device_groups": FOUR}, "1x4").faults
    assert [(fault.code, fault.message) for fault in faults] == [
        ("no-components", "`device_groups` counts only with `use_ray: true`: there is no component to place")
    ]


def test_groups_may_be_a_text_of_json() -> None:
    assert len(plan_of(json.dumps(FOUR))["default"]) == 4
