"""Arrangements beside the recorded answers of Kueue: possible wherever they are, in as few domains, outermost first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from rankplan import Inventory, Plan, arrange, replan
from rankplan._core import Chunks
from rankplan.errors import PlacementError
from rankplan.parallel import Parallel
from rankplan.plans.component import Component
from rankplan.plans.rules import NO_RULES, Rules
from rankplan.rlinf import with_section
from support import goldens
from support.rules import rules_in

ASKED = {"level", "slices", "layers", "usage", "which nodes", "several", "preference", "balanced", "group"}
"""The classes that are asked of `arrange`; lost nodes, growth and shrinking are asked of `replan`."""


def askable(line: dict[str, Any]) -> bool:
    """Whether all units of a line are alike, so that a node with one accelerator can stand for one."""
    requests = line["requests"]
    several = [one for one in requests if one["count"]]
    rooms = {tuple(one["room"]) for one in several}
    return not any(one.get("previous") for one in several) and len(rooms) == 1 and any(*rooms)


LINES = [line for line in goldens.lines("kueue_tas") if line["class"] in ASKED and askable(line)]
BALANCED = [line for line in LINES if line["class"] == "balanced" and "balance_level" in line.get("ours", {})]
LOST = [line for line in goldens.lines("kueue_tas") if line["class"] == "replace"]
ELASTIC = [line for line in goldens.lines("kueue_tas") if line["class"] == "elastic"]


def keys_of(line: dict[str, Any]) -> dict[str, str]:
    """Return the key of the label for each level."""
    return {level: f"level-{index}" for index, level in enumerate(line["levels"])}


def cluster(keys: Sequence[str], nodes: Sequence[tuple[str, Sequence[str]]]) -> Inventory:
    entries = [
        {"ranks": rank, "accelerators": 1, "hostname": name, "labels": dict(zip(keys, values, strict=True))}
        for rank, (name, values) in enumerate(nodes)
    ]
    return Inventory.from_dict({"levels": list(keys), "nodes": entries})


def nodes_of(line: dict[str, Any]) -> Inventory:
    """Return a node for each unit that a leaf has room for, with the path of the leaf as its labels."""
    room = line["requests"][0]["room"]
    labels = [leaf["values"] for leaf, units in zip(line["leaves"], room, strict=True) for _ in range(units)]
    return cluster(list(keys_of(line).values()), [(f"n{rank}", values) for rank, values in enumerate(labels)])


def plan_of(line: dict[str, Any], nodes: Inventory | None = None, rules: Rules = NO_RULES) -> Plan:
    """Return a plan with one process per unit, and a component for each request."""
    nodes = nodes or Inventory.uniform(sum(one["count"] for one in line["requests"]), 1)
    parts, first = [], 0
    for index, one in enumerate(line["requests"]):
        rule = Chunks(list(range(first, first + one["count"])), 1)
        parts.append(Component.place(f"c{index}", nodes, ("cluster",), rule))
        first += one["count"]
    return Plan(nodes, parts, rules=rules)


def rules_of(line: dict[str, Any]) -> dict[str, Any]:
    """Return the rules of a line: required and preferred levels are those of all units, or of a group together."""
    rules: dict[str, dict[str, Any]] = {"keep": {}, "segment": {}, "prefer": {}}
    key = keys_of(line)
    groups: dict[str, list[str]] = {}
    for index, one in enumerate(line["requests"]):
        groups.setdefault(one.get("group") or f"c{index}", []).append(f"c{index}")
        if sizes := {key[part["level"]]: part["size"] for part in one["slices"] if part["size"]}:
            rules["segment"][f"c{index}"] = sizes
    for names, one in zip(groups.values(), line["requests"], strict=False):
        if one["mode"] in ("required", "preferred"):
            rule = "keep" if one["mode"] == "required" else "prefer"
            rules[rule]["+".join(names)] = {"world": key[one["level"]]}
    return rules


def paths_of(found: Inventory, count: int) -> list[list[str]]:
    return [[node.labels[level] for level in found.levels] for node in map(found.node, range(count))]


def used_by(paths: list[list[str]]) -> list[int]:
    """Return the number of domains by level."""
    return [len({tuple(path[: level + 1]) for path in paths}) for level in range(len(paths[0]))]


def holds(line: dict[str, Any], paths: list[list[str]]) -> bool:
    """Whether every required whole and every segment is in one domain."""
    at, wholes = 0, []
    for one in line["requests"]:
        units = paths[at : at + one["count"]]
        at += one["count"]
        wholes += [
            (part["level"], units[start : start + part["size"]])
            for part in one["slices"]
            if part["size"]
            for start in range(0, len(units), part["size"])
        ]
        if one["mode"] == "required":
            wholes.append((one["level"], paths if one.get("group") else units))
    return all(len({tuple(path[: line["levels"].index(level) + 1]) for path in units}) == 1 for level, units in wholes)


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
    paths = paths_of(found.inventory, plan.inventory.num_nodes)
    used = used_by(paths)
    assert holds(line, paths)
    assert used == ours.get("fewest", used) and (found.optimal or len(answers) > 1)
    if placed and line["class"] not in ("preference", "balanced"):
        theirs = {tuple(domain) for answer in answers for domain, _ in answer["domains"]}
        assert len(answers) > 1 or used <= [count if count is not None else len(paths) for count in answers[0]["used"]]
        assert len(answers) == 1 or used[0] <= len({tuple(domain)[:1] for domain in theirs})


@pytest.mark.parametrize("line", BALANCED, ids=lambda line: line["id"])
def test_shares_are_as_even_as_possible(line: dict[str, Any]) -> None:
    """Asked with `balance` alone, as Kueue looks at one level only."""
    (one,), ours = line["requests"], line["ours"]
    level = ours["balance_level"]
    segment = rules_of(line)["segment"]
    found = arrange(plan_of(line), nodes_of(line), segment=segment, balance=keys_of(line)[level])
    depth = line["levels"].index(level)
    shares = Counter(tuple(path[: depth + 1]) for path in paths_of(found.inventory, one["count"]))
    unit = one["slices"][0]["size"] if one["slices"] else 1
    assert found.optimal and min(shares.values()) == ours["best_smallest"] * unit
    theirs = line["result"][one["name"]]
    if "used" in theirs and "less-balanced-than-possible" not in line["quirks"]:
        assert min(shares.values()) >= theirs["smallest"][depth] and len(shares) <= theirs["used"][depth]


@pytest.mark.parametrize("line", LOST, ids=lambda line: line["id"])
def test_lost_units_are_placed_beside_the_survivors(line: dict[str, Any]) -> None:
    (one,), ours, keys = line["requests"], line["ours"], keys_of(line)
    labels = {node["labels"][line["levels"][-1]]: node["labels"] for node in line["nodes"]}
    before = [(values[-1], f"{values[-1]}-{index}") for values, count in one["assigned"] for index in range(count)]

    def path(host: str) -> list[str]:
        known = labels.get(host, {})
        return [known.get(level, "lost") for level in line["levels"]]

    lost = set(line["failed"])
    free = [
        (f"{leaf['values'][-1]}-free-{index}", leaf["values"])
        for leaf, units in zip(line["leaves"], one["room"], strict=True)
        for index in range(units)
    ]
    section = {"num_nodes": len(before), "component_placement": {}, "topology": rules_of(line)}
    planned = with_section(cluster(list(keys.values()), [(name, path(host)) for host, name in before]), section)
    nodes = cluster(list(keys.values()), [(name, path(host)) for host, name in before] + free)
    gone = [name for host, name in before if host in lost]
    if not ours["possible"]:
        with pytest.raises(PlacementError):
            replan(plan_of(line, planned, rules_in(section)), nodes, without=gone, fixed=True)
        return
    found = replan(plan_of(line, planned, rules_in(section)), nodes, without=gone, fixed=True)
    paths = paths_of(found.plan.inventory, len(before))
    assert holds(line, paths) and used_by(paths) == ours["fewest"]
    assert all(
        found.plan.inventory.node(rank).hostname == name for rank, (host, name) in enumerate(before) if host not in lost
    )


@pytest.mark.parametrize("line", ELASTIC, ids=lambda line: line["id"])
def test_units_are_added_and_removed_beside_those_that_stay(line: dict[str, Any]) -> None:
    """Required and preferred levels hold for old and new units together, where Kueue places new ones as a job."""
    keys, free = keys_of(line), nodes_of(line)
    hosts = {node["labels"][line["levels"][-1]]: node["labels"] for node in line["nodes"]}
    previous = [
        [hosts[values[-1]][level] for level in line["levels"]]
        for one in line["requests"]
        for values, count in one["previous"]
        for _ in range(count)
    ]
    old = [(f"old-{index}", path) for index, path in enumerate(previous)]
    more = [
        (f"new-{index}", path) for index, path in enumerate(paths_of(free, free.num_nodes) if free is not None else ())
    ]
    section = {"num_nodes": len(old), "component_placement": {}, "topology": rules_of(line)}
    planned = with_section(cluster(list(keys.values()), old), section)
    nodes = cluster(list(keys.values()), [*old, *more])
    sizes = [sum(count for _, count in one["previous"]) for one in line["requests"]]
    parts, first = [], 0
    for index, size in enumerate(sizes):
        rule = Chunks(list(range(first, first + size)), 1)
        parts.append(Component.place(f"c{index}", planned, ("cluster",), rule, parallel=Parallel(dp=size)))
        first += size
    before = Plan(planned, parts, rules=rules_in(section))
    change = {f"c{index}": one["count"] - sizes[index] for index, one in enumerate(line["requests"])}
    fewer = {name: -count for name, count in change.items() if count < 0}
    changes = {"grow": {name: max(count, 0) for name, count in change.items()}, "shrink": fewer}
    if not line.get("ours", {}).get("possible", True):
        with pytest.raises(PlacementError, match=r"^(?!.*ended early)"):
            replan(before, nodes, **changes)
        return
    names = [name for name, _ in old]
    for renumber in (False, True) if fewer else (False,):
        found = replan(before, nodes, **changes, renumber=renumber)
        after = found.plan.inventory
        used = sorted({row.cluster_node_rank for part in found.plan.values() for row in part})
        now = [after.node(rank).hostname for rank in used]
        paths = [[after.node(rank).labels[level] for level in after.levels] for rank in used]
        assert now[: len(names)] == (names if not fewer else [name for name in names if name in now])
        domains = used_by(paths)
        theirs = next(iter(line["result"].values()))
        if not fewer:
            assert holds(line, paths) and domains == line.get("ours", {}).get("fewest", domains)
        elif renumber:
            assert domains <= [count if count is not None else len(paths) for count in theirs["used"]]
