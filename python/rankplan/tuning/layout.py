"""Where the parts of a schedule start: in the order with the fastest weights, fewest crossings and fewest moves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from rankplan._core import Inventory as Core
from rankplan.errors import PlacementError
from rankplan.frozen import frozen
from rankplan.nodes.inventory import Inventory
from rankplan.plans.plan import Plan
from rankplan.tuning.costs import LEVELS, Costs, WeightSync
from rankplan.tuning.schedule import Schedule
from rankplan.tuning.times import fastest
from rankplan.words import unknown

Starts = dict[str, int]
"""The first accelerator of each component, counted over the cluster."""


class Score(NamedTuple):
    """How good an order of the parts of a schedule is: less is better, the first number counts most.

    ``weights`` are the seconds of weights between components on separate accelerators, ``crossing`` the parallel groups
    that cross a node, ``moved`` the slots that move, ``late`` the pairs of parts that are not in the order in which
    they are stated.
    """

    weights: float = 0.0
    crossing: int = 0
    moved: int = 0
    late: int = 0

    @property
    def counts(self) -> tuple[int, int, int]:
        """What decides between orders with equally fast weights."""
        return self.crossing, self.moved, self.late


class Placed(NamedTuple):
    """Where the components of a schedule start, and how good that is."""

    score: Score
    starts: Starts


@frozen(slots=False)
class Level:
    """A level whose bandwidth is stated, by name.

    ``ids`` is the domain of each node; weights within a domain cross no slower level. ``most`` are the accelerators of
    the largest domain.
    """

    name: str
    ids: Sequence[int]
    most: int


@frozen(slots=False)
class Network:
    """The levels between accelerators, the fastest first, and the bytes per second of each level.

    ``core`` has the nodes. The last level has one domain, the cluster.
    """

    core: Core
    levels: Sequence[Level]
    bandwidth: Mapping[str, float]

    @classmethod
    def of(cls, costs: Costs, inventory: Inventory) -> Network:
        """Return the levels of an inventory. Raises `PlacementError` for the bandwidth of an ``unknown-level``."""
        known = [*LEVELS[:2], *reversed(inventory.levels), *LEVELS[2:]]
        if faults := [name for name in costs.bandwidth if name not in known]:
            raise PlacementError(
                costs.located(("bandwidth", name), unknown("level", name, known, "the levels are")) for name in faults
            )
        counts = [spec.num_accelerators for nodes, spec in inventory.stretches() for _ in nodes]
        ids: dict[str, Sequence[int]] = {"node": range(len(counts))}
        ids |= {level.level: level.ids for level in reversed(inventory.domains)}
        levels = []
        for name in [name for name in ids if name in costs.bandwidth]:
            sizes: dict[int, int] = {}
            for domain, count in zip(ids[name], counts, strict=True):
                sizes[domain] = sizes.get(domain, 0) + count
            levels.append(Level(name, ids[name], max(sizes.values())))
            if len(sizes) == 1:
                break
        else:
            levels.append(Level("network", [0] * len(counts), sum(counts)))
        return cls(inventory.core, levels, costs.bandwidth)

    def node(self, accelerator: int) -> int:
        """Return the node of an accelerator, counted over the cluster."""
        return self.core.place(accelerator)[0]

    def level(self, ranges: Sequence[range]) -> int:
        """Return the first level that has accelerators in these ranges, counted over the cluster, in one domain."""
        nodes = [node for one in ranges for node in range(self.node(one.start), self.node(one.stop - 1) + 1)]
        return next(i for i, level in enumerate(self.levels) if len({level.ids[node] for node in nodes}) == 1)

    def seconds(self, sync: WeightSync, level: int) -> float:
        """Return the seconds of a transfer between accelerators whose slowest level is this one.

        If the bandwidth of the whole network is not stated, that of the slowest level counts.
        """
        named = self.levels[level].name
        rate = self.bandwidth.get(named) or min(self.bandwidth.values(), default=0.0)
        return sync.bytes / rate if rate else 0.0

    def seconds_together(self, sync: WeightSync) -> float:
        """Return the seconds on shared accelerators: none, unless the bandwidth of a device is stated."""
        return sync.bytes / self.bandwidth["device"] if "device" in self.bandwidth else 0.0


@dataclass
class Cluster:
    """The accelerators of a cluster, and what decides between orders.

    ``groups`` are the sizes of replicas by component, ``present`` the accelerator of each slot of a present plan.
    ``syncs`` are sent over the ``network``.
    """

    network: Network
    groups: Mapping[str, int]
    present: Mapping[str, Sequence[int]] = field(default_factory=dict)
    syncs: Sequence[WeightSync] = ()
    _seen: dict[tuple[Schedule, int], Placed] = field(default_factory=dict)

    @classmethod
    def of(cls, costs: Costs, inventory: Inventory, present: Plan | None = None) -> Cluster:
        """Return the cluster of an inventory. Raises `PlacementError` (``unknown-level``)."""
        groups = {name: component.parallel.dense for name, component in costs.components.items()}
        return cls(Network.of(costs, inventory), groups, _slots(present), costs.syncs)

    def lay_out(self, node: Schedule) -> Placed:
        """Return the score of a schedule and the starts of its components.

        Also tries pipelines in which the parts that send and receive weights are next to each other.
        """
        return best_placed(self.place(layout) for layout in self._layouts(node))

    def _layouts(self, node: Schedule) -> list[Schedule]:
        layouts, all_next = [node], node
        for sync in self.syncs:
            pair = {sync.sender, sync.receiver}
            all_next = _next_to_each_other(all_next, pair)
            layouts.append(_next_to_each_other(node, pair))
        return list(dict.fromkeys([*layouts, all_next]))

    def place(self, node: Schedule, start: int = 0) -> Placed:
        """Return the best starts of the components of a schedule that starts at an accelerator, and their score."""
        key = node, start
        if key not in self._seen:
            self._seen[key] = self._placed(node, start)
        return self._seen[key]

    def _placed(self, node: Schedule, start: int) -> Placed:
        if node.kind == "leaf":
            score = Score(crossing=self._crossing(node, start), moved=self._moved(node, start))
            return Placed(score, {node.component: start})
        if node.kind == "then":
            parts = [self.place(child, start) for child in node.children]
            starts = {name: at for part in parts for name, at in part.starts.items()}
            return Placed(_sum([part.score for part in parts]), starts)
        row = self._in_a_row(node.children, start)
        weights = Score(weights=self._weights(node, row.starts))
        return Placed(_sum([row.score, weights]), row.starts)

    def _in_a_row(self, children: Sequence[Schedule], start: int) -> Placed:
        """Return the best order of the children of a pipeline, each where the one before it ends.

        A set of children ends at the same accelerator in every order, so the best order of the others does not depend
        on theirs. One order is kept of each set, which is a number with a bit for each child; sets grow by one child at
        a time. With n children, that are ``n * 2 ** n`` steps. The weights between the children are not in the score:
        they depend on the places of both ends.
        """
        best: dict[int, Placed] = {0: Placed(Score(), {})}
        everything = (1 << len(children)) - 1
        for placed in range(everything):
            before = best[placed]
            end = start + sum(child.accelerators for bit, child in enumerate(children) if placed >> bit & 1)
            for bit, child in enumerate(children):
                if placed >> bit & 1:
                    continue
                next_part = self.place(child, end)
                late = sum(1 for earlier in range(bit) if not placed >> earlier & 1)
                score = _sum([before.score, next_part.score, Score(late=late)])
                order = Placed(score, before.starts | next_part.starts)
                larger = placed | 1 << bit
                best[larger] = best_placed([best[larger], order]) if larger in best else order
        return best[everything]

    def _weights(self, pipe: Schedule, starts: Starts) -> float:
        """Return the seconds of weights between the children of a pipeline."""
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
        stop = start + node.accelerators
        ends = ((first, min(first + each, stop) - 1) for first in range(start, stop, each))
        return sum(self.network.node(first) != self.network.node(last) for first, last in ends)

    def _moved(self, node: Schedule, start: int) -> int:
        """Return how many slots of a component are on another accelerator than now."""
        present = self.present.get(node.component)
        if present is None:
            return 0
        stay = sum(now == start + slot for slot, now in enumerate(present[: node.accelerators]))
        return max(len(present), node.accelerators) - stay


def best_placed(layouts: Iterable[Placed]) -> Placed:
    """Return the first with the best score; seconds that are equal but for rounding do not decide."""
    return fastest(layouts, lambda placed: placed.score.weights, lambda placed: placed.score.counts)


def apart(node: Schedule, syncs: Sequence[WeightSync]) -> list[WeightSync]:
    """Return the transfers between the children of a pipeline."""
    children = node.children if node.kind == "pipe" else ()
    child_of = {name: child for child in children for name in child.sizes}
    both = [sync for sync in syncs if {sync.sender, sync.receiver} <= child_of.keys()]
    return [sync for sync in both if child_of[sync.sender] is not child_of[sync.receiver]]


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
    weights, *counts = zip(*scores, strict=True)
    crossing, moved, late = map(sum, counts)
    return Score(sum(weights), crossing, moved, late)
