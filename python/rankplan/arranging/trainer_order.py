"""Repairs that leave the nodes of a pool in the order in which its trainer sorts them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from rankplan._core import RankSet, Requests, joined_pools
from rankplan.arranging.task import Arrangement, Task
from rankplan.errors import PlacementError
from rankplan.frozen import frozen
from rankplan.nodes.inventory import Inventory
from rankplan.plans.component import used_nodes
from rankplan.plans.plan import Plan
from rankplan.plans.requests import NodeOrder

Unfit: TypeAlias = list[tuple[int, RankSet]]
"""Nodes of an inventory, each with the node ranks that must not be on it."""


class Line(NamedTuple):
    """Node ranks whose nodes a trainer sorts, in that order: those of a pool, and of all pools that share a node."""

    order: NodeOrder
    ranks: tuple[int, ...]


class Answer(NamedTuple):
    """A task and its arrangement, and the node ranks that only the order of the trainer moves."""

    task: Task
    arrangement: Arrangement
    moved: RankSet = RankSet()

    def compared(self, unordered: Arrangement) -> Answer:
        """Return this answer, given the arrangement that would have been chosen without an order."""
        nodes = self.arrangement.nodes
        moved = RankSet(rank for rank in self.task.needed if nodes[rank] != unordered.nodes[rank])
        return self._replace(moved=moved)


class _Gap(NamedTuple):
    """Lost node ranks of a line between the same two survivors, by their positions among its survivors."""

    line: Line
    survivors: Sequence[int]
    lost: RankSet
    position: int


class Reach(NamedTuple):
    """How many survivors may be between a spare and its gap, on either side."""

    before: int
    after: int


@frozen
class TrainerOrder:
    """The pools of a plan that are in the order of its trainer, and stay in it when nodes are replaced.

    A trainer gives its ranks to the nodes of a pool in an order of its own, such as that of their addresses. A spare
    that this order places elsewhere than the lost node moves the ranks of all nodes in between: each gets the next
    node. So the nearest spares are taken. First those are tried that move no survivor, because they come between the
    same survivors as the lost node did. If rules, hardware or the spares do not allow that, a spare may come so many
    survivors further, as few as possible. The nodes of the answer are then sorted, and the rules are checked again.
    """

    lines: tuple[Line, ...]

    @classmethod
    def of(cls, plan: Plan, requests: Requests | None = None, new: RankSet | None = None) -> TrainerOrder:
        """Return the pools of a plan whose nodes are sorted, as far as it tells what decides.

        ``requests`` are those for other sizes, and ``new`` the node ranks that these use and the plan does not: they
        may get any nodes.
        """
        requests = plan.requests if requests is None else requests
        new = new or RankSet()
        chains = []
        in_use = used_nodes(plan.values()) - new
        for order, numbers in requests.pools():
            nodes = [node for number in numbers for node in requests[number].nodes if node in in_use | new]
            stay = [node for node in nodes if node not in new]
            places = plan.inventory.core.places(order, RankSet(stay))
            if places is not None and all(places[one] <= places[other] for one, other in pairwise(stay)):
                chains.append(Line(order, tuple(dict.fromkeys(nodes))))
        return cls(tuple(_joined(plan.inventory, chains, new)))

    def solved(self, task: Task) -> Answer:
        """Return an arrangement of a task in the order of the trainer.

        Raises `PlacementError` as `Task.solve` does, and `NotInOrder` if no arrangement was found in this order.
        """
        arrangement = task.solve()
        if self._sorted(task.inventory, arrangement.nodes) == list(arrangement.nodes):
            return Answer(task, arrangement)
        gaps = [gap for line in self.lines for gap in _gaps(line, task.old or task.pinned)]
        longest = max((len(gap.survivors) for gap in gaps), default=0)
        # A width that fails may fail for the spares of one gap only, so that a smaller one can work: all are tried.
        widths = [0] if task.pinned else [0, *(2**power for power in range(longest.bit_length() + 1))]
        last = 0
        for width in widths:
            answer = self._attempt(task, gaps, [Reach(width, width)] * len(gaps))
            if answer is not None:
                near = answer if not width else self._nearest(task, gaps, range(last + 1, width), answer)
                return near.compared(arrangement)
            last = width
        raise NotInOrder(self._first_unsorted(task.inventory, arrangement.nodes))

    def _nearest(self, task: Task, gaps: Sequence[_Gap], smaller: range, answer: Answer) -> Answer:
        """Return an answer that moves few survivors, given one whose spares are so many survivors away.

        All gaps get the smallest width that works, then each is narrowed on one side, and on the other.
        """
        best = {smaller.stop: answer}

        def is_possible(width: int) -> bool:
            nearer = self._attempt(task, gaps, [Reach(width, width)] * len(gaps))
            if nearer is not None:
                best[width] = nearer
            return nearer is not None

        width = smaller.start + bisect_left(smaller, 1, key=is_possible)
        answer, reach = best[width], [Reach(width, width)] * len(gaps)
        for index in range(len(gaps)):
            sides = [
                self._shrunk(task, gaps, reach, index, order) for order in (("before", "after"), ("after", "before"))
            ]
            closer = [side for side in sides if side is not None]
            fewest, shorter = min(closer, key=lambda side: side[0].arrangement.moved, default=(answer, reach))
            if fewest.arrangement.moved <= answer.arrangement.moved:
                answer, reach = fewest, shorter
        return answer

    def _shrunk(
        self, task: Task, gaps: Sequence[_Gap], reach: Sequence[Reach], index: int, sides: Sequence[str]
    ) -> tuple[Answer, list[Reach]] | None:
        """Return an answer with the spares of a gap as near as possible on one side, then on the other, if any is."""
        answers: dict[Reach, Answer | None] = {}
        shorter = list(reach)

        def is_possible(width: int) -> bool:
            closer = shorter[index]._replace(**{side: width})
            answers[closer] = self._attempt(task, gaps, [*shorter[:index], closer, *shorter[index + 1 :]])
            return answers[closer] is not None

        for side in sides:
            width = getattr(shorter[index], side)
            shorter[index] = shorter[index]._replace(**{side: bisect_left(range(width), 1, key=is_possible)})
        answer = answers.get(shorter[index])
        return None if answer is None else (answer, shorter)

    def _attempt(self, task: Task, gaps: Sequence[_Gap], reach: Sequence[Reach]) -> Answer | None:
        """Return what `solved` does, with spares within reach of their gaps; ``None`` if that is not possible."""
        unfit: Unfit = []
        for gap, near in zip(gaps, reach, strict=True):
            unfit += _too_far(task, gap, near)
        limited = replace(task, unfit=unfit)
        try:
            found = limited.solve()
            nodes = self._sorted(task.inventory, found.nodes)
            if nodes == list(found.nodes):
                return Answer(limited, found)
            pinned = enumerate(task.pinned)
            if any(node is not None and nodes[rank] != node for rank, node in pinned):
                return None
            final = replace(task, pinned=[nodes[rank] if rank in task.needed else None for rank in range(len(nodes))])
            return Answer(final, final.solve())
        except PlacementError:
            return None

    def _sorted(self, inventory: Inventory, nodes: Sequence[int]) -> list[int]:
        """Return a node for each node rank, so that those of each line are sorted; ties keep their order."""
        found = list(nodes)
        for line in self.lines:
            here = [nodes[rank] for rank in line.ranks]
            places = inventory.core.places(line.order, RankSet(here))
            if places is not None:
                for rank, node in zip(line.ranks, sorted(here, key=places.__getitem__), strict=True):
                    found[rank] = node
        return found

    def _first_unsorted(self, inventory: Inventory, nodes: Sequence[int]) -> Unsorted:
        after = self._sorted(inventory, nodes)
        line = next(line for line in self.lines if any(nodes[rank] != after[rank] for rank in line.ranks))
        return Unsorted(line.order, line.ranks, [after[rank] for rank in line.ranks])


NO_ORDER = TrainerOrder(())
"""That of a plan whose trainer sorts nothing, or whose requests are not known."""


class Unsorted(NamedTuple):
    """Node ranks, and the nodes that their trainer would sort into them, by rank in the inventory."""

    order: NodeOrder
    ranks: Sequence[int]
    nodes: Sequence[int]


class NotInOrder(Exception):
    """No arrangement keeps all rules once the trainer has sorted its nodes."""

    def __init__(self, unsorted: Unsorted) -> None:
        super().__init__(unsorted)
        self.unsorted = unsorted


def is_in_order(inventory: Inventory, requests: Requests) -> bool:
    """Return whether the nodes of each pool are sorted as the trainer sorts them, as far as that is known."""
    for order, numbers in requests.pools():
        nodes = [node for number in numbers for node in requests[number].nodes]
        places = inventory.core.places(order, RankSet(nodes))
        if places is not None and any(places[one] > places[other] for one, other in pairwise(nodes)):
            return False
    return True


def _joined(inventory: Inventory, chains: Sequence[Line], new: RankSet) -> Iterator[Line]:
    """Yield the lines of pools that share nodes as one: all of their node ranks, in the order of their nodes.

    Each pool is sorted, so that the order of all nodes is that of each pool. New node ranks come where they are in
    their pool, which has them alone.
    """
    for order, joined in joined_pools([(order, RankSet(ranks)) for order, ranks in chains]):
        same = [line for line in chains if line.order == order and not RankSet(line.ranks) - joined]
        if len(same) == 1:
            yield same[0]
            continue
        stay = joined - new
        places = inventory.core.places(order, stay)
        if places is not None:
            ranks = sorted(stay, key=places.__getitem__)
            yield Line(order, (*ranks, *(joined & new)))


def _gaps(line: Line, old: Sequence[int | None]) -> Iterator[_Gap]:
    """Yield the lost node ranks of a line; those between the same survivors are one gap."""
    survivors = [node for rank in line.ranks if (node := old[rank]) is not None]
    lost: dict[int, list[int]] = {}
    position = 0
    for rank in line.ranks:
        if old[rank] is None:
            lost.setdefault(position, []).append(rank)
        else:
            position += 1
    for at, ranks in lost.items():
        yield _Gap(line, survivors, RankSet(ranks), at)


def _too_far(task: Task, gap: _Gap, reach: Reach) -> Unfit:
    """Return the nodes that the trainer would sort more survivors away from a gap than its spares may be.

    The nodes of survivors are among them, unless every place will do: a survivor that makes room would move as well.
    """
    first, last = gap.position - 1 - reach.before, gap.position + reach.after
    if first < 0 and last >= len(gap.survivors):
        return []
    places = task.inventory.core.places(gap.line.order, RankSet([*task.usable, *gap.survivors]))
    if places is None:
        return []
    least = places[gap.survivors[first]] if first >= 0 else -1
    most = places[gap.survivors[last]] if last < len(gap.survivors) else len(places)
    survivors = set(gap.survivors)
    near = (node for node in task.usable if node not in survivors and least <= places[node] <= most)
    return [(node, gap.lost) for node in RankSet(task.usable) - RankSet(near)]
