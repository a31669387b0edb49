"""Arrangements beside the recorded answers of Kueue: possible wherever they are, in as few domains, outermost first."""

from __future__ import annotations

from typing import Any

import pytest
from rankplan import Inventory, Plan, arrange
from rankplan._core import Chunks
from rankplan.errors import PlacementError
from rankplan.plans.component import Component
from support import goldens

ASKED = {"level", "slices", "layers", "usage", "which nodes", "several", "preference", "balanced"}
"""The classes that `keep` and `segment` can ask; the others need growth or repair.

A balanced line is asked for the fewest domains.
"""


def askable(line: dict[str, Any]) -> bool:
    """Whether all units of a line are alike, so that a node with one accelerator can stand for one."""
    requests = line["requests"]
    several = [one for one in requests if one["count"]]
    apart = not any(one.get("group") or one.get("previous") for one in several)
    rooms = {tuple(one["room"]) for one in several}
    return line["class"] in ASKED and apart and len(rooms) == 1 and any(*rooms)


LINES = [line for line in goldens.lines("kueue_tas") if askable(line)]


def nodes_of(line: dict[str, Any]) -> Inventory:
    """Return a node for each unit that a leaf has room for, with the path of the leaf as its labels."""
    room = line["requests"][0]["room"]
    labels = [leaf["values"] for leaf, units in zip(line["leaves"], room, strict=True) for _ in range(units)]
    keys = [f"level-{index}" for index in range(len(line["levels"]))]
    entries = [
        {"ranks": rank, "accelerators": 1, "hostname": f"n{rank}", "labels": dict(zip(keys, values, strict=True))}
        for rank, values in enumerate(labels)
    ]
    return Inventory.from_dict({"levels": keys, "nodes": entries})


def plan_of(line: dict[str, Any]) -> Plan:
    """Return a plan with one process per unit, and a component for each request."""
    nodes = Inventory.uniform(sum(one["count"] for one in line["requests"]), 1)
    parts, first = [], 0
    for index, one in enumerate(line["requests"]):
        rule = Chunks(list(range(first, first + one["count"])), 1)
        parts.append(Component.place(f"c{index}", nodes, ("cluster",), rule))
        first += one["count"]
    return Plan(nodes, parts)


def rules_of(line: dict[str, Any]) -> dict[str, Any]:
    """Return the rules of a line: a required level is that of the only data group."""
    keep, segment = {}, {}
    key = {level: f"level-{index}" for index, level in enumerate(line["levels"])}
    for index, one in enumerate(line["requests"]):
        if one["mode"] == "required":
            keep[f"c{index}"] = {"dp": key[one["level"]]}
        if one["slices"]:
            segment[f"c{index}"] = {key[part["level"]]: part["size"] for part in one["slices"]}
    return {"keep": keep, "segment": segment}


@pytest.mark.parametrize("line", LINES, ids=lambda line: line["id"])
def test_placed_where_possible_in_the_fewest_domains(line: dict[str, Any]) -> None:
    ours = line.get("ours", {})
    answers = [line["result"][one["name"]] for one in line["requests"]]
    placed = all("refused" not in answer for answer in answers)
    plan, nodes = plan_of(line), nodes_of(line)
    if not ours.get("possible", placed):
        # A refusal is proved, and says so.
        with pytest.raises(PlacementError, match=r"^(?!.*ended early)"):
            arrange(plan, nodes, **rules_of(line))
        return
    found = arrange(plan, nodes, **rules_of(line))
    first = found.inventory.first(plan.inventory.num_nodes)
    paths = [[node.labels[level] for level in nodes.levels] for node in map(first.node, range(first.num_nodes))]
    used = [len({tuple(path[: level + 1]) for path in paths}) for level in range(len(nodes.levels))]
    assert used == ours.get("fewest", used) and found.optimal
    if placed and line["class"] not in ("preference", "balanced") and len(answers) == 1:
        theirs = answers[0]["used"]
        assert used <= [count if count is not None else len(paths) for count in theirs]
    at = 0
    for one in line["requests"]:
        units = paths[at : at + one["count"]]
        at += one["count"]
        wholes = [(one["level"], one["count"])] if one["mode"] == "required" else []
        for level, size in wholes + [(part["level"], part["size"]) for part in one["slices"]]:
            depth = line["levels"].index(level) + 1
            for start in range(0, len(units), size):
                assert len({tuple(path[:depth]) for path in units[start : start + size]}) == 1
