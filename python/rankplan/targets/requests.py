"""Topology requests: how many consecutive nodes of a group must be in one domain, by level."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import lcm
from typing import TypeAlias

from rankplan._core import Domains as Column
from rankplan._core import Layout
from rankplan.config.network import ALL, NODE_LEVEL, USUAL_TOPOLOGY
from rankplan.plans.crossings import WORDS
from rankplan.plans.segments import level_sizes
from rankplan.targets.groups import components_by_node
from rankplan.targets.options import Draft
from rankplan.words import counted, unknown

CODE = "emit-topology"


@dataclass(frozen=True, slots=True)
class Slice:
    """Every ``size`` consecutive nodes of a group, from its first on, must be in one domain of a level."""

    level: str
    size: int


Requests: TypeAlias = tuple[Slice, ...]
"""The slices of a group, outermost first: each size is a multiple of the next one. Empty: the group has no wish."""

_Sizes: TypeAlias = list[dict[str, int]]
"""The size by level of each group."""


def requests(draft: Draft, groups: Sequence[range]) -> list[Requests]:
    """Return what ``keep`` and ``segment`` of the plan ask of each group of consecutive node ranks.

    The size at a level is the least one that divides the nodes of the group, such that every group of ranks to keep
    lies in one slice; a segment states it. An outer level that needs no more than an inner one is left out. What cannot
    be asked for is ``emit-topology``.
    """
    sizes: _Sizes = [{} for _ in groups]
    _keep(draft, groups, sizes)
    _segments(draft, groups, sizes)
    asked = {level for one in sizes for level in one}
    levels = _levels(draft, asked)
    return [tuple(_nested(one, levels)) for one in sizes]


def level_order(draft: Draft) -> tuple[str, ...]:
    """Return the levels of the plan, outermost first: those of the labels, or else those that its section states."""
    section = draft.plan.section
    known = draft.plan.inventory.levels
    return known or (section.topology.levels or () if section is not None else ())


def _levels(draft: Draft, asked: set[str]) -> Sequence[str]:
    known = level_order(draft)
    if missing := sorted(asked.difference(known)):
        if not known and len(missing) == 1:
            return missing
        for level in missing:
            found = unknown("level", level, [*known, NODE_LEVEL], "the levels are")
            draft.refuse(CODE, found.message, found.help)
    return known


def _nested(sizes: Mapping[str, int], levels: Sequence[str]) -> Iterator[Slice]:
    """Yield the slices of a group, outermost first."""
    found: list[Slice] = []
    within = 1
    for level in reversed(levels):
        if sizes.get(level, 1) > within:
            within = lcm(sizes[level], within)
            found.append(Slice(level, within))
    yield from reversed(found)


def _keep(draft: Draft, groups: Sequence[range], sizes: _Sizes) -> None:
    section = draft.plan.section
    keep = (USUAL_TOPOLOGY if section is None else section.topology).keep
    wishes = [
        (name, kind, level)
        for names, kinds in keep.items()
        for name in map(str.strip, names.split(","))
        for kind, level in kinds.items()
        if level != NODE_LEVEL and name in draft.plan
    ]
    if not wishes:
        return
    cut = _Cut(draft.plan.inventory.num_nodes, groups)
    used = components_by_node(draft.plan)
    layouts = {name: draft.plan[name].layout for name, _, _ in wishes}
    for name, kind, level in wishes:
        layout = layouts[name]
        if layout.size(kind) < 2:
            continue
        spans = layout.spans(kind, cut.column())
        if spans.crossing:
            first = spans.first_crossing or 0
            who = f"{name}: {WORDS[kind]} group {first} ({layout.named(kind, first)})"
            message = f"{who} must be in one {level}, but a launcher starts its nodes in several groups"
            help = f"drop `keep.{name}.{kind}`, or place {name} on nodes with equal accelerators and components"
            draft.refuse(CODE, message, help)
            continue
        for index, nodes in enumerate(groups):
            if any(name in used[node] for node in nodes):
                size = next(one for one in _divisors(len(nodes)) if _fits(layout, kind, cut.column(index, one)))
                sizes[index][level] = lcm(size, sizes[index].get(level, 1))


def _fits(layout: Layout, kind: str, column: Column) -> bool:
    return not layout.spans(kind, column).crossing


def _divisors(number: int) -> Iterator[int]:
    return (one for one in range(1, number + 1) if number % one == 0)


class _Cut:
    """Groups of nodes as domains, one of them cut into slices."""

    def __init__(self, num_nodes: int, groups: Sequence[range]) -> None:
        self._groups = groups
        self._whole = array("I", [0] * num_nodes)
        for index, nodes in enumerate(groups, 1):
            self._whole[nodes.start : nodes.stop] = array("I", [index] * len(nodes))
        self._columns: dict[tuple[int, int], Column] = {}

    def column(self, index: int = 0, size: int = 0) -> Column:
        """Return the domain of each node with this group in slices of this size; without a size, no group is cut."""
        if (index, size) not in self._columns:
            ids = self._whole[:]
            if size:
                nodes, first = self._groups[index], len(self._groups) + 1
                ids[nodes.start : nodes.stop] = array("I", [first + at // size for at in range(len(nodes))])
            self._columns[index, size] = Column(ids.tobytes())
        return self._columns[index, size]


def _segments(draft: Draft, groups: Sequence[range], sizes: _Sizes) -> None:
    section = draft.plan.section
    stated = (USUAL_TOPOLOGY if section is None else section.topology).segment
    if stated is None:
        return
    used = components_by_node(draft.plan)
    levels = level_order(draft)
    for key, size in (stated if isinstance(stated, Mapping) else {ALL: stated}).items():
        by_level, faults = level_sizes(key, size, levels)
        for _, found in faults:
            draft.refuse(CODE, found.message, found.help)
        for name in map(str.strip, key.split(",")):
            who = "the plan" if name == ALL else name
            nodes = [rank for rank, names in enumerate(used) if (names if name == ALL else name in names)]
            for level, length, _ in by_level:
                _cut_segments(draft, groups, sizes, nodes, who, levels[level], length)


def _cut_segments(
    draft: Draft, groups: Sequence[range], sizes: _Sizes, nodes: Sequence[int], who: str, level: str, length: int
) -> None:
    count = len(nodes)
    if count % length:
        choices = [one for one in (count // length * length, (count // length + 1) * length) if one]
        message = f"{who} is on {counted(count, 'node')}, which are no multiple of its segment {length}"
        draft.refuse(CODE, message, f"use {' or '.join(map(str, choices))} nodes, or another segment")
        return
    starts = {node: (index, node - group.start) for index, group in enumerate(groups) for node in group}
    for at in range(0, count, length):
        first, last = nodes[at], nodes[at + length - 1]
        index, offset = starts[first]
        if last - first >= length or starts[last][0] != index or offset % length or len(groups[index]) % length:
            message = f"{who}: nodes {first}-{last} are a segment, but a launcher starts them in several groups"
            help = "place the component on nodes with equal accelerators and components, or drop `segment`"
            draft.refuse(CODE, message, help)
            return
        sizes[index][level] = lcm(length, sizes[index].get(level, 1))
