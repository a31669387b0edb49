"""The rules that RLinf's classes place a component by: a process per accelerator, or engines of several."""

from __future__ import annotations

from rankplan._core import Packed, RankMap, RankSet
from rankplan.plans.component import Rule


def one_each(rule: Rule) -> Rule:
    """Return a rule for the same rows: RLinf's, if a range of resources has a process each, else the rule itself."""
    resources = rule.resources
    if not is_plain(rule) or len(resources.ranges) > 1:
        return rule
    return Packed(resources[0], resources[-1], 1, 1)


def is_plain(rule: Rule) -> bool:
    """Return whether each process has a resource of its own."""
    return not isinstance(rule, RankMap) or all(len(there) == len(processes) for there, processes in rule.segments)


def per_process(rule: RankMap) -> set[int]:
    """Return the numbers of resources that processes have; 0 stands for a part of one."""
    return {len(there) // len(processes) for there, processes in rule.segments}


def engines(resources: RankSet, size: int, stride: int) -> Rule:
    """Return a rule with engines of ``size`` resources, ``stride`` apart; gaps are kept.

    The resources must be a multiple of ``size * stride``.
    """
    if len(resources.ranges) == 1:
        return Packed(resources[0], resources[-1], size, stride)
    if stride == 1:
        return RankMap.parse(f"{resources}:0-{len(resources) // size - 1}")
    window = size * stride
    starts = (base + first for base in range(0, len(resources), window) for first in range(stride))
    return RankMap.from_lists([[resources[start + stride * index] for index in range(size)] for start in starts])
