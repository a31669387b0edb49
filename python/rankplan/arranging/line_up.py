"""Nodes for the node ranks of sorted pools, so that sets of node ranks share a domain."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from rankplan.arranging.task import Task
from rankplan.plans.requests import NodeOrder

_MOST_STEPS = 20_000
"""Nodes that are tried for one division. A search without dead ends takes one for each node rank."""


class Together(NamedTuple):
    """Node ranks that must be in one domain of a level."""

    level: int
    ranks: tuple[int, ...]


class SortedLine(NamedTuple):
    """Node ranks of pools, and all nodes that can be used in the order of their trainer, with the place of each."""

    order: NodeOrder
    ranks: tuple[int, ...]
    nodes: Sequence[int]
    places: Mapping[int, int]

    def is_sorted(self, nodes: Sequence[int]) -> bool:
        """Whether the node ranks have their nodes in this order."""
        places = [self.places[nodes[rank]] for rank in self.ranks]
        return places == sorted(places)


class _Step(NamedTuple):
    """A node rank, the index of its line, and how many node ranks of each of its sets are left there, from it on."""

    line: int
    rank: int
    left: Mapping[int, int]


class _Choice(NamedTuple):
    """A node, its position in its line, and the sets that get their domains by it."""

    node: int
    position: int
    bound: tuple[int, ...]


class LineUp:
    """Looks for nodes in the order of each line, so that sets of node ranks share domains.

    Node ranks get their nodes one by one. In a given domain, the first node that comes after the one before is best: it
    leaves most nodes to the others. So only the domains of sets are choices, and the domain whose nodes suffice first
    is tried first. For sets that follow each other, or lie in each other, on equal nodes, this finds nodes without a
    dead end wherever there are any. Otherwise the last choice is taken back, within `_MOST_STEPS`.
    """

    def __init__(self, task: Task, lines: Sequence[SortedLine], sets: Sequence[Together]) -> None:
        self._lines, self._sets = lines, sets
        self._ids = [domains.ids for domains in task.domains]
        self._needs, self._present = task.hardware.needs, task.hardware.present
        self._unsuited = task.unsuited()
        self._caps = task.caps
        self._num_ranks = task.planned.num_nodes
        # Nodes without a label of a level are alone there.
        self._alone = [{index for index, name in enumerate(one.names) if name[-1] is None} for one in task.domains]
        self._positions = [self._by_domain(line) for line in lines]
        self._steps = list(self._in_turn())
        self._domain_of: dict[int, int] = {}
        self._used: set[int] = set()
        self._in_use: dict[int, Counter[int]] = {level: Counter() for level in self._caps}

    def _by_domain(self, line: SortedLine) -> list[dict[int, list[int]]]:
        """Return the positions of the nodes of each domain in a line, by level."""
        by_domain: list[dict[int, list[int]]] = [{} for _ in self._ids]
        for position, node in enumerate(line.nodes):
            for level, ids in enumerate(self._ids):
                by_domain[level].setdefault(ids[node], []).append(position)
        return by_domain

    def _in_turn(self) -> Iterator[_Step]:
        sets_of: dict[int, list[int]] = {}
        for number, ranks_of_set in enumerate(self._sets):
            for rank in ranks_of_set.ranks:
                sets_of.setdefault(rank, []).append(number)
        for index, line in enumerate(self._lines):
            ranks_left: Counter[int] = Counter()
            backwards = []
            for rank in reversed(line.ranks):
                numbers = sets_of.get(rank, [])
                ranks_left.update(numbers)
                backwards.append(_Step(index, rank, {number: ranks_left[number] for number in numbers}))
            yield from reversed(backwards)

    def nodes(self) -> list[int | None] | None:
        """Return a node for each node rank of the lines, ``None`` for others; ``None`` if no nodes are found."""
        chosen: list[_Choice] = []
        choices = [self._choices(0, -1)]
        for _ in range(_MOST_STEPS + len(self._steps)):
            choice = next(choices[-1], None)
            if choice is None:
                choices.pop()
                if not chosen:
                    return None
                self._take_back(chosen.pop())
                continue
            self._take(choice)
            chosen.append(choice)
            index = len(chosen)
            if index == len(self._steps):
                nodes: list[int | None] = [None] * self._num_ranks
                for step, made in zip(self._steps, chosen, strict=True):
                    nodes[step.rank] = made.node
                return nodes
            is_same_line = self._steps[index].line == self._steps[index - 1].line
            choices.append(self._choices(index, choice.position if is_same_line else -1))
        return None

    def _take(self, choice: _Choice) -> None:
        self._used.add(choice.node)
        for number in choice.bound:
            self._domain_of[number] = self._ids[self._sets[number].level][choice.node]
        for level, counts in self._in_use.items():
            counts[self._ids[level][choice.node]] += 1

    def _take_back(self, choice: _Choice) -> None:
        self._used.remove(choice.node)
        for number in choice.bound:
            del self._domain_of[number]
        for level, counts in self._in_use.items():
            counts[self._ids[level][choice.node]] -= 1

    def _choices(self, index: int, after: int) -> Iterator[_Choice]:
        """Yield the nodes that a step may have, after a position of its line, in the order in which they are tried."""
        step = self._steps[index]
        bound = [number for number in step.left if number in self._domain_of]
        unbound = tuple(number for number in step.left if number not in self._domain_of)
        by_level = self._positions[step.line]
        if not unbound:
            positions: Sequence[int] = range(len(self._lines[step.line].nodes))
            if bound:
                inner = max(bound, key=lambda number: self._sets[number].level)
                positions = by_level[self._sets[inner].level].get(self._domain_of[inner], ())
            position = self._first(step, bound, positions, after)
            if position is not None:
                yield _Choice(self._lines[step.line].nodes[position], position, ())
            return
        level = max(self._sets[number].level for number in unbound)
        ranked = []
        for domain, positions in by_level[level].items():
            position = None if domain in self._alone[level] else self._first(step, bound, positions, after)
            if position is None:
                continue
            node = self._lines[step.line].nodes[position]
            ends = self._ends(step, unbound, node, position)
            if ends is not None:
                ranked.append((ends, _Choice(node, position, unbound)))
        yield from (choice for _, choice in sorted(ranked))

    def _first(self, step: _Step, bound: Sequence[int], positions: Sequence[int], after: int) -> int | None:
        """Return the first of some positions after another one whose node suits a step; ``None`` if none does."""
        for at in range(bisect_right(positions, after), len(positions)):
            if self._suits(step, bound, self._lines[step.line].nodes[positions[at]]):
                return positions[at]
        return None

    def _suits(self, step: _Step, bound: Sequence[int], node: int) -> bool:
        if node in self._used or self._present[node] != self._needs[step.rank]:
            return False
        if step.rank in self._unsuited.get(node, ()):
            return False
        if any(self._ids[self._sets[number].level][node] != self._domain_of[number] for number in bound):
            return False
        domains = {level: self._ids[level][node] for level in self._caps}
        return all(self._in_use[level][domain] < self._caps[level][domain] for level, domain in domains.items())

    def _ends(self, step: _Step, sets: Sequence[int], node: int, position: int) -> list[int] | None:
        """Return where sets would end in the domains of a node, the outermost first; ``None`` if one is too large.

        A set ends at the position of the last node that it needs in this line.
        """
        ends = []
        for number in sorted(sets, key=lambda number: self._sets[number].level):
            level = self._sets[number].level
            domain = self._ids[level][node]
            positions = self._positions[step.line][level][domain]
            last = bisect_right(positions, position) - 1 + step.left[number] - 1
            if domain in self._alone[level] or last >= len(positions):
                return None
            ends.append(positions[last])
        return ends
