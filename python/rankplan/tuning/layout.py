"""Where the parts of a schedule start: in the order with the fastest weights, fewest crossings and fewest moves."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

from rankplan.nodes.inventory import Inventory
from rankplan.plans.plan import Plan
from rankplan.tuning.costs import Costs, WeightSync
from rankplan.tuning.schedule import Schedule
from rankplan.tuning.weights import Network

Starts = dict[str, int]
Score = tuple[float, int, int, int]
"""Seconds of weights between components apart, parallel groups that cross a node, slots that move, and parts out of
order; less is better, the first counts most."""


@dataclass
class Cluster:
    """The accelerators of a cluster, and what decides between orders.

    ``ends`` are the numbers of accelerators up to the end of each node, ``groups`` the sizes of replicas by component,
    ``present`` the accelerator of each slot of a present plan. ``syncs`` are sent over the ``network``.
    """

    ends: Sequence[int]
    groups: Mapping[str, int]
    present: Mapping[str, Sequence[int]] = field(default_factory=dict)
    syncs: Sequence[WeightSync] = ()
    network: Network | None = None
    _seen: dict[tuple[Schedule, int], tuple[Score, Starts]] = field(default_factory=dict)

    @classmethod
    def of(cls, costs: Costs, inventory: Inventory, present: Plan | None = None) -> Cluster:
        """Return the cluster of an inventory. Raises `PlacementError` (``unknown-level``)."""
        network = Network.of(costs, inventory)
        groups = {name: component.parallel.dense for name, component in costs.components.items()}
        return cls(network.ends, groups, _slots(present), costs.syncs, network)

    def lay_out(self, node: Schedule) -> tuple[float, Starts]:
        """Return the starts of the components of a schedule, and the seconds of weights between components apart.

        Also tries pipelines in which the parts that send and receive weights are next to each other.
        """
        score, starts = min((self.place(layout) for layout in self._layouts(node)), key=lambda found: found[0])
        return score[0], starts

    def _layouts(self, node: Schedule) -> list[Schedule]:
        layouts, all_next = [node], node
        for sync in self.syncs:
            pair = {sync.sender, sync.receiver}
            all_next = _next_to_each_other(all_next, pair)
            layouts.append(_next_to_each_other(node, pair))
        return list(dict.fromkeys([*layouts, all_next]))

    def place(self, node: Schedule, start: int = 0) -> tuple[Score, Starts]:
        """Return the best starts of the components of a schedule that starts at an accelerator, and their score."""
        key = node, start
        if key not in self._seen:
            self._seen[key] = self._placed(node, start)
        return self._seen[key]

    def _placed(self, node: Schedule, start: int) -> tuple[Score, Starts]:
        if node.kind == "leaf":
            crossing, moved = self._crossing(node, start), self._moved(node, start)
            return (0.0, crossing, moved, 0), {node.component: start}
        if node.kind == "then":
            parts = [self.place(child, start) for child in node.children]
            scores = [score for score, _ in parts]
            return _sum(scores), {name: at for _, starts in parts for name, at in starts.items()}
        count = len(node.children)
        best: dict[int, tuple[Score, Starts]] = {0: ((0.0, 0, 0, 0), {})}
        for placed in range(1 << count):
            score, starts = best[placed]
            offset = start + sum(child.accelerators for bit, child in enumerate(node.children) if placed >> bit & 1)
            for bit, child in enumerate(node.children):
                if not placed >> bit & 1:
                    more, new = self.place(child, offset)
                    late = sum(1 for earlier in range(bit) if not placed >> earlier & 1)
                    found = _sum([score, more, (0.0, 0, 0, late)]), starts | new
                    known = best.get(placed | 1 << bit)
                    if known is None or found[0] < known[0]:
                        best[placed | 1 << bit] = found
        score, starts = best[(1 << count) - 1]
        return _sum([score, (self._weights(node, starts), 0, 0, 0)]), starts

    def _weights(self, pipe: Schedule, starts: Starts) -> float:
        """Return the seconds of weights between the children of a pipeline."""
        if self.network is None or not self.syncs:
            return 0.0
        sizes, seconds = pipe.sizes, 0.0
        for sync in apart(pipe, self.syncs):
            ranges = [range(starts[name], starts[name] + sizes[name]) for name in (sync.sender, sync.receiver)]
            seconds += self.network.seconds(sync, self.network.level(ranges))
        return seconds

    def _crossing(self, node: Schedule, start: int) -> int:
        """Return how many replicas of a component cross a node."""
        each = self.groups.get(node.component, 1)
        if each == 1:
            return 0
        firsts = range(start, start + node.accelerators, each)
        return sum(bisect_right(self.ends, first) != bisect_right(self.ends, first + each - 1) for first in firsts)

    def _moved(self, node: Schedule, start: int) -> int:
        """Return how many slots of a component are on another accelerator than now."""
        present = self.present.get(node.component)
        if present is None:
            return 0
        stay = sum(now == start + slot for slot, now in enumerate(present[: node.accelerators]))
        return max(len(present), node.accelerators) - stay


def apart(node: Schedule, syncs: Sequence[WeightSync]) -> list[WeightSync]:
    """Return the transfers between the children of a pipeline."""
    if node.kind != "pipe":
        return []
    names = [set(child.sizes) for child in node.children]
    pairs = [({sync.sender, sync.receiver}, sync) for sync in syncs]
    return [sync for pair, sync in pairs if any(pair & one and pair & two for one, two in combinations(names, 2))]


def _next_to_each_other(node: Schedule, pair: set[str]) -> Schedule:
    """Return a schedule with the two children of a pipeline that have two components as a pipeline of their own."""
    parts = [child for child in node.children if pair & set(child.sizes)]
    if len(parts) == 1:
        children = [_next_to_each_other(child, pair) if child is parts[0] else child for child in node.children]
        return replace(node, children=tuple(children))
    if node.kind != "pipe" or len(parts) != 2 or len(node.children) == 2:
        return node
    both = Schedule("pipe", sum(part.accelerators for part in parts), children=tuple(parts))
    children = [both if child is parts[0] else child for child in node.children if child is not parts[1]]
    return replace(node, children=tuple(children))


def _slots(present: Plan | None) -> dict[str, list[int]]:
    """Return the accelerator of each slot of the components of a plan, counted over the cluster."""
    if present is None:
        return {}
    starts = [0]
    for nodes, spec in present.inventory.stretches():
        starts += [starts[-1] + spec.num_accelerators * count for count in range(1, len(nodes) + 1)]
    return {
        name: [starts[node] + index for row in component for node, index in row.devices]
        for name, component in present.items()
    }


def _sum(scores: Sequence[Score]) -> Score:
    seconds, *counts = zip(*scores, strict=True)
    crossing, moved, late = map(sum, counts)
    return sum(seconds), crossing, moved, late
