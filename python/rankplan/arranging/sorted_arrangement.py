"""Arrangements in which the nodes of each pool are in the order in which the trainer sorts them.

The rules decide which nodes a pool has; the trainer decides their order, such as that of their addresses. An
arrangement that the trainer sorts otherwise is worth nothing: its segments would be torn. So nodes are looked for that
keep the rules once they are sorted.

The arrangement without an order tells which node ranks should share a domain. First the same division is tried: node
ranks that shared a domain share one again, another one if need be, and as many groups cross domains as before. Then
the division is given up level by level, the innermost one first, until only the rules are left. `LineUp` finds the
nodes of a division, the task checks them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

from rankplan._core import RankSet, joined_pools
from rankplan.arranging import faults
from rankplan.arranging.line_up import LineUp, SortedLine, Together
from rankplan.arranging.task import Arrangement, Task
from rankplan.arranging.trainer_order import Line
from rankplan.errors import KeyPath, PlacementError
from rankplan.plans.plan import Plan
from rankplan.plans.requests import NodeOrder


def lines_of(plan: Plan) -> list[Line]:
    """Return the node ranks of each pool whose nodes the trainer sorts, in the order in which it takes them.

    Pools that share nodes are one line, unless they take them in contrary orders.
    """
    pools: list[tuple[NodeOrder, list[int]]] = []
    for order, numbers in plan.requests.pools():
        ranks = dict.fromkeys(node for number in numbers for node in plan.requests[number].nodes)
        pools.append((order, list(ranks)))
    lines = []
    for order, joined in joined_pools([(order, RankSet(ranks)) for order, ranks in pools]):
        members = [ranks for other, ranks in pools if other == order and not RankSet(ranks) - joined]
        merged = _merged(members)
        if merged is not None:
            lines.append(Line(order, tuple(merged)))
    return lines


def _merged(sequences: Sequence[Sequence[int]]) -> list[int] | None:
    """Return the node ranks of sequences in an order that each of them has; ``None`` if they contradict each other."""
    if len(sequences) == 1:
        return list(sequences[0])
    ascending = sorted({rank for ranks in sequences for rank in ranks})
    if all(list(ranks) == sorted(ranks) for ranks in sequences):
        return ascending
    sorter: TopologicalSorter[int] = TopologicalSorter(dict.fromkeys(ascending, ()))
    for ranks in sequences:
        for before, after in pairwise(ranks):
            sorter.add(after, before)
    try:
        return list(sorter.static_order())
    except CycleError:
        return None


def lined_up(task: Task, lines: Sequence[Line], dialect: str | None, node_ids: Sequence[str] = ()) -> Arrangement:
    """Return the arrangement of a task in which each line has its nodes in the order of the trainer.

    A line counts if it is known by what its nodes are sorted; ``node_ids`` are Ray's ids of the nodes. Raises
    `PlacementError` as `Task.solve` does, and ``order-not-kept`` if no such arrangement is found that keeps the rules.
    """
    free = task.solve()
    sorted_lines = list(_known(task, lines, node_ids))
    if all(line.is_sorted(free.nodes) for line in sorted_lines):
        return free
    for nodes in _attempts(task, free, sorted_lines):
        try:
            found = replace(task, ordered=nodes).solve()
        except PlacementError:
            continue
        return replace(found, optimal=free.optimal and found.after == free.after)
    paths = _ruled_paths(task)
    if not paths:
        return free  # the hardware of the nodes allows no other order
    unsorted = next(line for line in sorted_lines if not line.is_sorted(free.nodes))
    fault = faults.not_in_line(dialect, unsorted.order, paths)
    raise PlacementError([task.network.rules.located(paths[0], fault)])


def _ruled_paths(task: Task) -> list[KeyPath]:
    """Return the paths of the rules that nodes must keep."""
    paths: list[KeyPath] = [rule.path for rule in task.rules.kept]
    paths += [("cap", task.network.levels[level]) for level in task.rules.caps]
    return list(dict.fromkeys(paths))


def _known(task: Task, lines: Iterable[Line], node_ids: Sequence[str]) -> Iterator[SortedLine]:
    """Yield the lines with processes of which it is known by what their nodes are sorted."""
    needed = set(task.needed)
    for line in lines:
        places = task.inventory.core.places(line.order, RankSet(task.usable), list(node_ids))
        ranks = tuple(rank for rank in line.ranks if rank in needed)
        if places is not None and ranks:
            nodes = sorted(task.usable, key=places.__getitem__)
            yield SortedLine(line.order, ranks, nodes, places)


def _attempts(task: Task, free: Arrangement, lines: Sequence[SortedLine]) -> Iterator[list[int | None]]:
    """Yield nodes by node rank that are sorted in each line, those that may be best first."""
    ruled = []
    for rule in task.rules.kept:
        if rule.most == 1:
            ruled += [Together(rule.level or 0, tuple(ranks)) for ranks in rule.sets() if len(ranks) > 1]
    divisions = [
        [one for line in lines for one in _division(task, free, line, depth)]
        for depth in range(len(task.domains), 0, -1)
    ]
    for division in divisions:
        nodes = LineUp(task, lines, [*division, *ruled]).nodes()
        if nodes is not None:
            yield nodes
    yield _sorted(task, free, lines)
    nodes = LineUp(task, lines, ruled).nodes()
    if nodes is not None:
        yield nodes


def _division(task: Task, free: Arrangement, line: SortedLine, depth: int) -> Iterator[Together]:
    """Yield the node ranks of a line that share a domain of an arrangement, at so many of the outermost levels."""
    for level, domains in enumerate(task.domains[:depth]):
        members: dict[int, list[int]] = {}
        for rank in line.ranks:
            domain = domains.ids[free.nodes[rank]]
            if domains.names[domain][-1] is not None:
                members.setdefault(domain, []).append(rank)
        yield from (Together(level, tuple(ranks)) for ranks in members.values() if len(ranks) > 1)


def _sorted(task: Task, free: Arrangement, lines: Sequence[SortedLine]) -> list[int | None]:
    """Return the nodes of an arrangement, sorted in each line; ``None`` for other node ranks."""
    found: list[int | None] = [None] * task.planned.num_nodes
    for line in lines:
        nodes = sorted((free.nodes[rank] for rank in line.ranks), key=line.places.__getitem__)
        for rank, node in zip(line.ranks, nodes, strict=True):
            found[rank] = node
    return found
