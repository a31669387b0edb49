"""Where the parts of a schedule start: in the order that crosses the fewest nodes, then moves the fewest slots."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rankplan.tuning.schedule import Node

Starts = dict[str, int]
Score = tuple[int, int, int]
"""Parallel groups that cross a node, slots that move, and parts out of order; less is better, the first counts most."""


@dataclass
class Cluster:
    """The accelerators of a cluster, and what decides between orders.

    ``ends`` are the numbers of accelerators up to the end of each node, ``groups`` the sizes of replicas by component,
    ``present`` the accelerator of each slot of a present plan.
    """

    ends: Sequence[int]
    groups: Mapping[str, int]
    present: Mapping[str, Sequence[int]] = field(default_factory=dict)
    _seen: dict[tuple[int, int], tuple[Score, Starts]] = field(default_factory=dict)

    def place(self, node: Node, start: int = 0) -> tuple[Score, Starts]:
        """Return the best starts of the components of a schedule that starts at an accelerator, and their score."""
        key = id(node), start
        if key not in self._seen:
            self._seen[key] = self._placed(node, start)
        return self._seen[key]

    def _placed(self, node: Node, start: int) -> tuple[Score, Starts]:
        if node.kind == "leaf":
            crossing, moved = self._crossing(node, start), self._moved(node, start)
            return (crossing, moved, 0), {node.component: start}
        if node.kind == "then":
            parts = [self.place(child, start) for child in node.children]
            scores = [score for score, _ in parts]
            return _sum(scores), {name: at for _, starts in parts for name, at in starts.items()}
        count = len(node.children)
        best: dict[int, tuple[Score, Starts]] = {0: ((0, 0, 0), {})}
        for placed in range(1 << count):
            score, starts = best[placed]
            offset = start + sum(child.accelerators for bit, child in enumerate(node.children) if placed >> bit & 1)
            for bit, child in enumerate(node.children):
                if not placed >> bit & 1:
                    more, new = self.place(child, offset)
                    late = sum(1 for earlier in range(bit) if not placed >> earlier & 1)
                    found = _sum([score, more, (0, 0, late)]), starts | new
                    known = best.get(placed | 1 << bit)
                    if known is None or found[0] < known[0]:
                        best[placed | 1 << bit] = found
        return best[(1 << count) - 1]

    def _crossing(self, node: Node, start: int) -> int:
        """Return how many replicas of a component cross a node."""
        each = self.groups.get(node.component, 1)
        if each == 1:
            return 0
        firsts = range(start, start + node.accelerators, each)
        return sum(bisect_right(self.ends, first) != bisect_right(self.ends, first + each - 1) for first in firsts)

    def _moved(self, node: Node, start: int) -> int:
        """Return how many slots of a component are on another accelerator than now."""
        present = self.present.get(node.component)
        if present is None:
            return 0
        stay = sum(now == start + slot for slot, now in enumerate(present[: node.accelerators]))
        return max(len(present), node.accelerators) - stay


def _sum(scores: Sequence[Score]) -> Score:
    return sum(one[0] for one in scores), sum(one[1] for one in scores), sum(one[2] for one in scores)
