"""The units by which a component grows and shrinks: data groups, as many as go together, on whole nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import chain
from math import gcd, lcm

from rankplan._core import ACCELERATOR, Packed, Placement, RankMap, RankSet, SlotSets
from rankplan.arranging import faults
from rankplan.arranging.repair import lists_of, placed, rule_of
from rankplan.errors import PlacementError
from rankplan.frozen import frozen
from rankplan.nodes.inventory import Inventory
from rankplan.parallel import NO_SIZES, Parallel
from rankplan.plans.component import Component, Rule


def num_data_groups(component: Component) -> int:
    """Return the number of data groups; without parallel sizes, of engines."""
    return component.layout.size("dp") if component.parallel.stated else -(-len(component) // component.engines)


def resized(component: Component, inventory: Inventory, rule: Rule, data_groups: int) -> Component:
    """Return a component with another rule and number of data groups on an inventory. Raises `PlacementError`."""
    parallel = component.parallel
    if parallel.dp is not None:
        parallel = replace(parallel, dp=data_groups)
    # The sizes fit the rows only together.
    without_sizes = component.with_settings(parallel=NO_SIZES)
    return placed(without_sizes, inventory, rule).with_settings(parallel=parallel)


def reject_without_groups(component: Component) -> None:
    """Raise `PlacementError` (``invalid-value``) for a component whose data groups are not known."""
    if not (component.parallel.stated or component.engines > 1 or component.parallel.order == Parallel.ENGINE_ORDER):
        raise PlacementError([faults.unknown_groups(component.name, len(component))])


@frozen
class Together:
    """The last data groups of a component, the fewest that go together, and their processes: its last ranks.

    Data groups go together if they have a process, shards (``fsdp``) or an expert group in common.
    """

    groups: int
    processes: int

    @classmethod
    def of(cls, component: Component) -> Together:
        """Return those of a component. Raises `PlacementError` if its last data group is not its last ranks."""
        parallel, layout = component.parallel, component.layout
        if not parallel.stated:
            return cls(1, component.engines)
        kinds = parallel.order.split("-")
        inside = [kind for kind in kinds[kinds.index("dp") + 1 :] if getattr(parallel, kind) != 1]
        if inside:
            raise PlacementError([faults.inside_of_dp(component.name, inside[0], Parallel.ENGINE_ORDER)])
        count, each = num_data_groups(component), len(layout.slots_of(len(component) - 1))
        groups = lcm(_sharded(parallel), each // gcd(each, parallel.dense))
        processes = groups * parallel.dense // each
        first = len(component) - processes
        if count % groups or first < 0 or layout.slots_of(first).start != layout.slots - groups * parallel.dense:
            return cls(count, len(component))
        return cls(groups, processes)


def slots_together(component: Component) -> SlotSets:
    """Return the slots of each set of data groups that go together; see `Together`.

    Any order of the ranks will do. The sets are consecutive data groups, equally many in each. Without parallel sizes,
    each engine is one.
    """
    if not component.parallel.stated:
        return component.layout.by_process(component.engines)
    return component.layout.by_data(_sharded(component.parallel))


def sets_together(component: Component) -> list[int]:
    """Return for each process the number of its set of data groups that go together."""
    layout, sets = component.layout, slots_together(component)
    return [sets.of(layout.slots_of(rank).start) for rank in range(len(component))]


def _sharded(parallel: Parallel) -> int:
    """Return the number of consecutive data groups that have shards or an expert group in common."""
    return lcm(parallel.fsdp, parallel.expert // gcd(parallel.expert, parallel.dense))


@frozen
class Step:
    """The least by which a component grows: data groups that fill whole nodes.

    ``each`` is the part of a node, or the nodes, that one data group uses. ``resources`` are those of a node.
    """

    groups: int
    processes: int
    nodes: int
    each: Fraction
    resources: int

    @classmethod
    def of(cls, component: Component) -> Step:
        """Return the step of a component. Raises `PlacementError` (``invalid-value``)."""
        together, last = Together.of(component), component.rows[len(component) - 1]
        resources = _resources(component, last)
        cell = Cell.of(component, together.processes)
        nodes = Fraction(cell.resources, resources)
        times = nodes.denominator
        sets = times * cell.processes // together.processes
        return cls(
            sets * together.groups,
            times * cell.processes,
            nodes.numerator,
            nodes * together.processes / cell.processes / together.groups,
            resources,
        )

    def times(self, name: str, count: int) -> int:
        """Return how often this many data groups take the step. Raises `PlacementError` (``invalid-value``)."""
        if count % self.groups == 0:
            return count // self.groups
        if (self.each * self.groups).denominator == 1 and (self.each * count).denominator == 1:
            raise PlacementError([faults.part_of_groups_together(name, self.groups)])
        raise PlacementError([faults.part_of_a_step(name, _part(self.each), self.groups)])


def _resources(component: Component, row: Placement) -> int:
    """Return the resources of a node like that of a process."""
    if component.inventory.pool(component.node_groups, by_node=component.by_node).by_node:
        return 1
    if row.resource_type == ACCELERATOR:
        return component.inventory.node(row.cluster_node_rank).num_accelerators
    raise PlacementError([faults.hardware_not_grown(component.name, row.resource_type)])


def _part(nodes: Fraction) -> str:
    """Return a number of nodes in words: ``half a node``."""
    if nodes == Fraction(1, 2):
        return "half a node"
    return f"{nodes} of a node" if nodes < 1 else f"{float(nodes):g} nodes"


@frozen
class Cell:
    """The last processes of a component that share no resources with others.

    ``pattern`` are the resources of each, from 0. ``ascending``: the last segment of a rank map tells it.
    """

    processes: int
    resources: int
    pattern: tuple[tuple[int, ...], ...]
    ascending: bool = False

    @classmethod
    def of(cls, component: Component, together: int) -> Cell:
        """Return sets of ``together`` processes: the fewest whose resources follow each other, else the fewest."""
        rule = component.rule
        if isinstance(rule, RankMap) and sum(len(used) for used, _ in rule.segments) == len(rule.resources):
            resources, processes = rule.segments[-1]
            each = Fraction(len(resources), len(processes))
            count = together * (each * together).denominator
            spans = ((int(rank * each), int((rank + 1) * each)) for rank in range(count))
            pattern = tuple(tuple(range(start, max(start + 1, end))) for start, end in spans)
            return cls(count, int(count * each), pattern, ascending=True)
        lists = lists_of(component)
        last = lists[_first_apart(lists, together) :]
        order = {rank: index for index, rank in enumerate(sorted(set(chain.from_iterable(last))))}
        return cls(len(last), len(order), tuple(tuple(order[rank] for rank in ranks) for ranks in last))


def _first_apart(lists: Sequence[Sequence[int]], together: int) -> int:
    """Return the first of the last processes that share no resources with those before them.

    ``lists`` has the resource ranks of each process. From the end, ``together`` processes are taken at a time. The
    fewest whose resources follow each other without a gap are taken, else the fewest, else all.
    """
    uses_before = Counter(rank for ranks in lists for rank in set(ranks))  # by the processes before `start`
    own: set[int] = set()
    shared: set[int] = set()
    apart: int | None = None
    low = high = lists[-1][0]
    for start in range(len(lists) - together, -1, -together):
        for ranks in lists[start : start + together]:
            for rank in set(ranks):
                own.add(rank)
                low = min(low, rank)
                high = max(high, rank)
                uses_before[rank] -= 1
                if uses_before[rank]:
                    shared.add(rank)
                else:
                    shared.discard(rank)
        if shared:
            continue
        if high - low < len(own):
            return start
        if apart is None:
            apart = start
    return apart or 0


def grown_rule(component: Component, resources: Sequence[int], step: Step) -> Rule | None:
    """Return the rule with more processes on these resources; ``None`` if no rule can express it."""
    rule = component.rule
    cell = Cell.of(component, Together.of(component).processes)
    added = RankSet(resources)
    if isinstance(rule, RankMap) and cell.ascending and added[0] > rule.segments[-1][0][-1]:
        *segments, (used, processes) = rule.segments
        first = len(component)
        times = len(resources) // (step.nodes * step.resources)
        processes |= RankSet(range(first, first + times * step.processes))
        return RankMap.parse(",".join(f"{these}:{by}" for these, by in [*segments, (used | added, processes)]))
    if isinstance(rule, Packed):
        whole = len(rule.resources) == rule.end + 1 - rule.start
        if whole and added.ranges == [(rule.end + 1, rule.end + len(added))]:
            return Packed(rule.start, rule.end + len(added), rule.per_process, rule.stride)
    lists = lists_of(component)
    for start in range(0, len(resources), cell.resources):
        for ranks in cell.pattern:
            lists.append([resources[start + index] for index in ranks])
    return rule_of(lists, rule)


def first_ranks(component: Component, kept: int) -> Rule | None:
    """Return the rule of the first processes, written like the whole one; ``None`` if no rule can express it."""
    rule = component.rule
    if isinstance(rule, RankMap):
        segments = _first_segments(rule, kept)
        if segments is not None:
            return segments
    if isinstance(rule, Packed) and kept % rule.stride == 0:
        return Packed(rule.start, rule.start + kept * rule.per_process - 1, rule.per_process, rule.stride)
    return rule_of(lists_of(component)[:kept], rule)


def _first_segments(rule: RankMap, kept: int) -> RankMap | None:
    texts: list[str] = []
    first = 0
    for resources, processes in rule.segments:
        if processes[0] != first or processes[-1] - processes[0] != len(processes) - 1:
            return None  # a process has resources of several segments
        here = min(len(processes), kept - first)
        used = Fraction(len(resources), len(processes)) * here
        if used.denominator != 1:
            return None
        texts.append(f"{resources[: used.numerator]}:{processes[:here]}")
        first += here
        if first == kept:
            return RankMap.parse(",".join(texts))
    return None
