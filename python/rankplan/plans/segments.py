"""Segments: runs of nodes of a component that must be in one domain of a level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TypeAlias

from rankplan._core import RankSet
from rankplan.errors import Diagnostic
from rankplan.plans.rules import ALL, component_names
from rankplan.words import counted, unknown

Segment: TypeAlias = tuple[tuple[str, ...], str, int, tuple[int, ...]]
"""The path of its size in ``segment``, its component or ``all``, the index of its level, and its node ranks."""

_Fault: TypeAlias = tuple[tuple[str, ...], Diagnostic]


def cut(
    stated: Mapping[str, int | Mapping[str, int]], nodes: Mapping[str, RankSet], levels: Sequence[str]
) -> tuple[list[Segment], list[_Fault]]:
    """Cut the node ranks of each component into the segments of each level, and find every fault of their sizes.

    ``nodes`` has the node ranks of each component, and of ``all`` of them. A plain size is that of the innermost level.
    A fault has its path in ``segment``: ``unknown-level``, ``invalid-value`` for sizes that do not divide each other,
    ``segment-incomplete``.
    """
    found: list[Segment] = []
    faults: list[_Fault] = []
    for key, sizes in stated.items():
        by_level, wrong = level_sizes(key, sizes, levels)
        faults += wrong
        for name in component_names(key):
            if by_level and not wrong:
                who = "" if name == ALL else f"{name}: "
                largest = by_level[0][1]
                if one := _incomplete(who, len(nodes[name]), largest):
                    faults.append(((key,), one))
                    continue
                ranks = tuple(nodes[name])
                for level, size, path in by_level:
                    found.extend((path, name, level, ranks[at : at + size]) for at in range(0, len(ranks), size))
    return found, faults


def level_sizes(
    key: str, sizes: int | Mapping[str, int], levels: Sequence[str]
) -> tuple[list[tuple[int, int, tuple[str, ...]]], list[_Fault]]:
    """Return level, size and path of each size above 1, outermost first, and the faults."""
    if not isinstance(sizes, Mapping):
        if sizes < 2:
            return [], []
        if levels:
            return [(len(levels) - 1, sizes, (key,))], []
        help = "label the nodes of the inventory and state the levels, or remove `segment`"
        message = f"segment is {sizes}, but the nodes have no known domains"
        return [], [((key,), Diagnostic("segment-incomplete", message, help))]
    faults: list[_Fault] = [
        ((key, level), unknown("level", level, levels, "the levels are")) for level in sizes if level not in levels
    ]
    ordered = [(index, sizes[level], (key, level)) for index, level in enumerate(levels) if level in sizes]
    who = f"segment of {key}" if key != ALL else "segment"
    for (outer, larger, _), (inner, smaller, path) in pairwise(ordered):
        outside, inside = levels[outer], levels[inner]
        if smaller > larger:
            message = f"{who}: {inside} is inside {outside} but its segment is larger"
            faults.append((path, Diagnostic("invalid-value", message, "swap the sizes")))
        elif larger % smaller:
            message = f"{who}: {larger} nodes in a {outside} cannot be divided into segments of {smaller}"
            help = f"use {_divisors(larger)} for {inside}"
            faults.append((path, Diagnostic("invalid-value", message, help)))
    return [one for one in ordered if one[1] > 1], faults


_MOST_CHOICES = 6


def _divisors(size: int) -> str:
    """Return the sizes of 2 or more into which a larger segment can be divided, the smallest first."""
    found = [one for one in range(2, size + 1) if size % one == 0]
    shown = found if len(found) <= _MOST_CHOICES else [*found[: _MOST_CHOICES - 1], size]
    return ", ".join(map(str, shown[:-1])) + f" or {shown[-1]}" if len(shown) > 1 else str(shown[0])


def _incomplete(who: str, count: int, size: int) -> Diagnostic | None:
    """Return the fault of a number of nodes that is no multiple of the segment."""
    if count % size == 0:
        return None
    below = count // size * size
    choices = " or ".join(str(choice) for choice in (below, below + size) if choice)
    message = f"{who}{counted(count, 'node')} cannot be divided into segments of {size}"
    return Diagnostic("segment-incomplete", message, f"use {choices} nodes, or another segment")
