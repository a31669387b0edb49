"""Arrangements beside the recorded answers of KAI-Scheduler: placed where it places, in no more domains."""

from __future__ import annotations

from typing import Any

import pytest
from rankplan import Inventory, Plan, arrange
from rankplan._core import Chunks
from rankplan.errors import PlacementError
from rankplan.plans.component import Component
from support import goldens

LINES = goldens.lines("kai_topology")


def nodes_of(line: dict[str, Any]) -> Inventory:
    """Return a node for each task that the free accelerators of a node have room for; its host is the last level."""
    busy: dict[str, int] = {}
    for one in line["used"]:
        busy[one["node"]] = busy.get(one["node"], 0) + one["accelerators"]
    each, levels = line["jobs"][0]["each"]["accelerators"], [*line["levels"], "host"]
    entries: list[dict[str, Any]] = []
    for node in line["nodes"]:
        labels = {level: node["labels"][level] for level in line["levels"] if level in node["labels"]}
        for _ in range((node["accelerators"] - busy.get(node["name"], 0)) // each):
            rank = len(entries)
            host = {"labels": {**labels, "host": node["name"]}, "hostname": f"n{rank}"}
            entries.append({"ranks": rank, "accelerators": 1, **host})
    return Inventory.from_dict({"levels": levels, "nodes": entries})


def plan_of(line: dict[str, Any]) -> Plan:
    """Return a plan with one process per task, and a component for each set of tasks."""
    tasks = [task["set"] or "all_tasks" for task in line["jobs"][0]["tasks"]]
    nodes, parts = Inventory.uniform(len(tasks), 1), []
    for name in dict.fromkeys(tasks):
        ranks = [rank for rank, one in enumerate(tasks) if one == name]
        parts.append(Component.place(name, nodes, ("cluster",), Chunks(ranks, 1)))
    return Plan(nodes, parts)


def rules_of(tree: dict[str, Any], rules: dict[str, dict[str, Any]]) -> list[str]:
    """Add the rules of a tree of groups, and return the sets of tasks below it."""
    names = [name for group in tree.get("groups", ()) for name in rules_of(group, rules)]
    names += [name for one in tree.get("sets", ()) for name in rules_of(one, rules)]
    names = names or [tree["name"] or "all_tasks"]
    for key, rule in (("required", "keep"), ("preferred", "prefer")):
        if tree.get(key):
            rules[rule]["+".join(names)] = {"world": tree[key]}
    return names


@pytest.mark.parametrize("line", LINES, ids=lambda line: line["id"])
def test_placed_where_kai_places(line: dict[str, Any]) -> None:
    rules: dict[str, dict[str, Any]] = {"keep": {}, "prefer": {}}
    rules_of(line["jobs"][0]["tree"], rules)
    plan, nodes, (answer,) = plan_of(line), nodes_of(line), line["result"].values()
    if not answer["placed"]:
        with pytest.raises(PlacementError, match=r"^(?!.*ended early)"):
            arrange(plan, nodes, **rules)
        return
    found = arrange(plan, nodes, **rules)
    assert found.optimal
    labels = {node["name"]: node["labels"] for node in line["nodes"]}
    theirs = [labels[name] for name in answer.get("nodes", {}).values()]
    ours = [found.inventory.node(rank).labels for rank in range(plan.inventory.num_nodes)]
    if not theirs or line["jobs"][0]["tree"].get("sets") or line["jobs"][0]["tree"].get("groups"):
        return

    def used(placed: list[Any]) -> list[int]:
        depths = range(1, len(line["levels"]) + 1)
        return [len({tuple(one.get(key) for key in line["levels"][:depth]) for one in placed}) for depth in depths]

    assert used(ours) <= used(theirs)
