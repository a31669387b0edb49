"""What a job reserves on each of its nodes: its bundles, its processes, and other actors of its trainer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, repeat
from typing import Any, NamedTuple

from rankplan.plans.plan import Plan
from rankplan.plans.requests import Actors


class NodeAmounts(NamedTuple):
    """CPUs, and MiB of host memory."""

    cpus: float = 0
    memory: float = 0

    def plus(self, other: NodeAmounts) -> NodeAmounts:
        """Return the sum of both."""
        return NodeAmounts(round(self.cpus + other.cpus, 4), self.memory + other.memory)

    def times(self, number: float) -> NodeAmounts:
        """Return this so many times."""
        return NodeAmounts(self.cpus * number, self.memory * number)

    def most(self, other: NodeAmounts) -> NodeAmounts:
        """Return the larger of both, each for itself."""
        return NodeAmounts(max(self.cpus, other.cpus), max(self.memory, other.memory))


_NOTHING = NodeAmounts()


def node_amounts(plan: Plan) -> dict[int, NodeAmounts]:
    """Return what must be reservable on each node in use, so that everything is reserved, wherever Ray puts the actors.

    Ray chooses the nodes of actors that no group holds. Each node has room for the largest of them, and for an equal
    part of all: if one did not fit on any node, all of them would hold more than their sum.
    """
    amounts: dict[int, NodeAmounts] = {}
    for nodes, each in chain(_of_processes(plan), _of_bundles(plan.requests.rows), _on_their_nodes(plan)):
        if each != _NOTHING:
            for node in nodes:
                amounts[node] = amounts.get(node, _NOTHING).plus(each)
    beside = _beside([actors for actors in plan.actors if actors.component is None], len(amounts))
    return {node: each.plus(beside) for node, each in sorted(amounts.items())}


def _of_processes(plan: Plan) -> Iterator[tuple[range, NodeAmounts]]:
    """Yield nodes with what the processes of a component reserve on each."""
    for component in plan.values():
        each = NodeAmounts(component.cpus_per_process or 0, component.host_memory_per_process or 0)
        for run in component.rows.runs(at_home=True) if each != _NOTHING else ():
            yield range(run.node, run.node + run.nodes), each.times(run.pattern.processes)


def _on_their_nodes(plan: Plan) -> Iterator[tuple[range, NodeAmounts]]:
    """Yield nodes with what actors reserve that are beside the processes of a component."""
    for actors in plan.actors:
        if actors.component is not None and actors.component in plan:
            each = NodeAmounts(actors.cpus or 0, actors.memory or 0).times(actors.count)
            for run in plan[actors.component].rows.runs(at_home=True):
                yield range(run.node, run.node + run.nodes), each.times(run.pattern.processes)


def _of_bundles(rows: Iterable[Any]) -> Iterator[tuple[range, NodeAmounts]]:
    """Yield nodes with what bundles reserve on each; see ``Requests.rows``. Optional groups may never come."""
    for _, _, optional, _, bundles, _, groups, node_runs in rows:
        kinds = [(times, NodeAmounts(cpus or 0, memory or 0)) for times, _, (cpus, memory, _) in bundles]
        if optional or not node_runs or all(each == _NOTHING for _, each in kinds):
            continue
        if len(kinds) == 1:
            for first, nodes, bundles_each in node_runs:
                yield range(first, first + nodes), kinds[0][1].times(bundles_each)
        else:
            yield from zip(_nodes_of_bundles(node_runs), _each_bundle(kinds, groups), strict=True)


def _nodes_of_bundles(node_runs: Sequence[tuple[int, int, int]]) -> Iterator[range]:
    for first, nodes, bundles in node_runs:
        for node in range(first, first + nodes):
            yield from repeat(range(node, node + 1), bundles)


def _each_bundle(kinds: Sequence[tuple[int, NodeAmounts]], groups: int) -> Iterator[NodeAmounts]:
    for _ in range(groups):
        for times, each in kinds:
            yield from repeat(each, times)


def _beside(actors: Iterable[Actors], nodes: int) -> NodeAmounts:
    """Return the room on each of so many nodes for actors that no group holds."""
    total, largest, each_node, short = _NOTHING, _NOTHING, _NOTHING, _NOTHING
    for one in actors:
        amounts = NodeAmounts(one.cpus or 0, one.memory or 0)
        if one.brief:
            short = short.most(amounts)
        elif one.each_node:
            each_node = each_node.plus(amounts.times(one.count))
        else:
            total = total.plus(amounts.times(one.count))
            largest = largest.most(amounts)
    if nodes > 1:
        total = total.times(1 / nodes).plus(largest)
    return total.plus(each_node).plus(short)
