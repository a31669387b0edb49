"""Segments: runs of nodes of a component that must be in one domain of a level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TypeAlias

from rankplan._core import RankSet
from rankplan.errors import Diagnostic
from rankplan.plans.faults import (
    inner_segment_larger,
    segment_incomplete,
    segment_not_divided,
    segment_without_domains,
)
from rankplan.plans.rules import ALL, component_names
from rankplan.words import unknown

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
    segments: list[Segment] = []
    faults: list[_Fault] = []
    for key, sizes in stated.items():
        by_level, wrong = level_sizes(key, sizes, levels)
        faults += wrong
        for name in component_names(key):
            if by_level and not wrong:
                largest = by_level[0][1]
                ranks = tuple(nodes[name])
                if len(ranks) % largest:
                    faults.append(((key,), segment_incomplete(None if name == ALL else name, len(ranks), largest)))
                    continue
                for level, size, path in by_level:
                    segments.extend((path, name, level, ranks[at : at + size]) for at in range(0, len(ranks), size))
    return segments, faults


def level_sizes(
    key: str, sizes: int | Mapping[str, int], levels: Sequence[str]
) -> tuple[list[tuple[int, int, tuple[str, ...]]], list[_Fault]]:
    """Return level, size and path of each size above 1, outermost first, and the faults."""
    if not isinstance(sizes, Mapping):
        if sizes < 2:
            return [], []
        if levels:
            return [(len(levels) - 1, sizes, (key,))], []
        return [], [((key,), segment_without_domains(sizes))]
    faults: list[_Fault] = [
        ((key, level), unknown("level", level, levels, "the levels are")) for level in sizes if level not in levels
    ]
    ordered = [(index, sizes[level], (key, level)) for index, level in enumerate(levels) if level in sizes]
    who = f"segment of {key}" if key != ALL else "segment"
    for (outer, larger, _), (inner, smaller, path) in pairwise(ordered):
        outside, inside = levels[outer], levels[inner]
        if smaller > larger:
            faults.append((path, inner_segment_larger(who, inside, outside)))
        elif larger % smaller:
            faults.append((path, segment_not_divided(who, (larger, outside), (smaller, inside))))
    return [(index, size, path) for index, size, path in ordered if size > 1], faults
