"""Topology requests: how many consecutive nodes of a group must be in one domain, by level."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from math import lcm
from typing import TypeAlias

from rankplan._core import RankSet
from rankplan.errors import Diagnostic
from rankplan.frozen import frozen
from rankplan.launchers import faults
from rankplan.launchers.draft import Draft
from rankplan.plans.crossings import WORDS
from rankplan.plans.rules import WORLD
from rankplan.plans.topology import SEGMENT, NodeRule, NodeRules, stated_levels
from rankplan.words import nodes_text


@frozen
class Slice:
    """Every ``size`` consecutive nodes of a group, from its first on, must be in one domain of a level."""

    level: str
    size: int


Requests: TypeAlias = tuple[Slice, ...]
"""The slices of a group, outermost first: each size is a multiple of the next one. Empty: it may lie anywhere."""


def requests(draft: Draft, groups: Sequence[range]) -> list[Requests]:
    """Return what ``keep`` and ``segment`` of the plan ask of each group of consecutive node ranks.

    The size of a slice is the least divisor of the group's size for which all nodes that must be together lie in one
    slice. A level is left out if the slices of a level inside it are as large. A rule that no slice can express is the
    fault ``emit-topology``. ``prefer`` and ``balance`` ask for nothing: they never refuse nodes.
    """
    stated = draft.plan.rules
    if not stated.about_nodes:
        return [() for _ in groups]
    levels = level_order(draft)
    rules = NodeRules.of(stated, draft.plan, levels, arranging=True, lost=stated_levels(draft.plan.inventory))
    for _, fault in rules.faults:
        draft.refuse(Diagnostic(faults.TOPOLOGY, fault.message, fault.help))
    for level in rules.caps:
        draft.refuse(faults.no_cap(levels[level]))
    sizes: list[dict[int, int]] = [{} for _ in groups]
    for rule in rules.kept:
        if rule.level is not None:
            _ask(draft, rule, levels[rule.level], groups, sizes)
    return [tuple(_nested(one, levels)) for one in sizes]


def level_order(draft: Draft) -> tuple[str, ...]:
    """Return the levels of the plan, outermost first.

    These are the levels of its labels, else those that its config states, else the level that its rules name, if they
    name only one.
    """
    inventory = draft.plan.inventory
    known = inventory.levels or stated_levels(inventory)
    named = draft.plan.rules.named_levels()
    return tuple(named) if not known and len(named) == 1 else known


def _nested(sizes: Mapping[int, int], levels: Sequence[str]) -> Iterator[Slice]:
    """Yield the slices of a group, outermost first."""
    found: list[Slice] = []
    within = 1
    for index in reversed(range(len(levels))):
        if sizes.get(index, 1) > within:
            within = lcm(sizes[index], within)
            found.append(Slice(levels[index], within))
    yield from reversed(found)


def _ask(draft: Draft, rule: NodeRule, level: str, groups: Sequence[range], sizes: list[dict[int, int]]) -> None:
    """Add the size of the slices that a rule needs at its level to the ``sizes`` of each group."""
    spans: list[set[tuple[int, int]]] = [set() for _ in groups]
    starts = {node: index for index, group in enumerate(groups) for node in group}
    for nodes in rule.divided(rule.divisions()[-1]):
        index = starts[nodes[0]]
        if any(starts[node] != index for node in nodes):
            draft.refuse(faults.torn_between_groups(_who(rule, nodes), level, rule.path))
            return
        first = groups[index].start
        spans[index].add((nodes[0] - first, nodes[-1] - first))
    level_index = rule.level or 0
    for group, of_group, sizes_of_group in zip(groups, spans, sizes, strict=True):
        size = _slice_size(len(group), of_group)
        sizes_of_group[level_index] = lcm(size, sizes_of_group.get(level_index, 1))


def _slice_size(nodes: int, spans: Collection[tuple[int, int]]) -> int:
    """Return the least divisor of a number of nodes for which no span, of a first and a last node, is in two slices."""
    for size in range(1, nodes):
        if nodes % size == 0 and all(first // size == last // size for first, last in spans):
            return size
    return nodes


def _who(rule: NodeRule, nodes: Sequence[int]) -> str:
    """Return nodes that must be together as messages name them."""
    what = {SEGMENT: "the segment", WORLD: "all"}.get(rule.kind, f"the {WORDS.get(rule.kind)} group")
    return f"{rule.who or 'the plan'}: {what} on {nodes_text(RankSet(nodes))}"
