"""First fit in plain Python: accelerators one by one, nodes looked at from the first one each time."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import combinations_with_replacement
from math import lcm


class Cluster:
    """The free accelerators of each node, in the order in which they are taken."""

    def __init__(self, free: Iterable[Iterable[int]]) -> None:
        self.free = [list(ranks) for ranks in free]

    @classmethod
    def of(cls, counts: Sequence[int], excluded: Collection[int] = (), order: Sequence[int] = ()) -> Cluster:
        """Nodes with so many accelerators, of which some are excluded, in an order of node ranks."""
        starts = [sum(counts[:node]) for node in range(len(counts))]
        nodes = [
            [rank for rank in range(start, start + count) if rank not in excluded]
            for start, count in zip(starts, counts, strict=True)
        ]
        return cls([nodes[node] for node in order or range(len(nodes))])

    @property
    def left(self) -> int:
        return sum(map(len, self.free))

    def take(self, node: int, count: int) -> list[int]:
        taken, self.free[node] = self.free[node][:count], self.free[node][count:]
        return taken

    def together(self, count: int) -> list[int] | None:
        """Accelerators of the first node with enough of them."""
        node = next((node for node, ranks in enumerate(self.free) if len(ranks) >= count), None)
        return None if node is None else self.take(node, count)

    def next(self, count: int) -> list[int] | None:
        """Accelerators node by node."""
        if count > self.left:
            return None
        taken: list[int] = []
        for node in range(len(self.free)):
            taken += self.take(node, min(len(self.free[node]), count - len(taken)))
        return taken

    def packed(self, count: int) -> list[int] | None:
        """Accelerators of one node, else node by node."""
        taken = self.together(count)
        return self.next(count) if taken is None else taken

    def bundles(self, sizes: Iterable[int]) -> tuple[list[int], int, int | None]:
        """What was taken, each bundle of the first node with room; how many had room, and the size that did not."""
        taken: list[int] = []
        number = 0
        for size in sizes:
            found = self.together(size)
            if found is None:
                return taken, number, size
            taken += found
            number += 1
        return taken, number, None

    def stepped(self, count: int, sizes: Collection[int], *, ascending: bool) -> list[int] | None:
        """Accelerators of one node, else in whole steps; see ``Fill::Steps``."""
        if (taken := self.together(count)) is not None:
            return taken
        steps = sorted({size for size in sizes if size > 1} | {lcm(*sizes)} - {1}, reverse=True)
        for step in steps:
            if (found := self.steps(pieces(count, step))) is not None:
                return found
        for step in () if ascending else steps:
            whole: list[tuple[int, int]] = []
            others: list[int] = []
            rest = count
            for node, ranks in enumerate(self.free):
                share = min(len(ranks), rest) // step * step
                rest -= share
                if share:
                    whole.append((node, share))
                else:
                    others.append(node)
            if whole and sum(len(self.free[node]) for node in others) >= rest:
                taken = [rank for node, share in whole for rank in self.take(node, share)]
                for node in others:
                    taken += self.take(node, min(len(self.free[node]), count - len(taken)))
                return taken
        return self.next(count)

    def steps(self, sizes: Sequence[int]) -> list[int] | None:
        """Accelerators of the first node with room for each step that is not before that of the step before it."""
        rooms = [len(ranks) for ranks in self.free]
        nodes: list[int] = []
        node = 0
        for size in sizes:
            while node < len(rooms) and rooms[node] < size:
                node += 1
            if node == len(rooms):
                return None
            rooms[node] -= size
            nodes.append(node)
        return [rank for node, size in zip(nodes, sizes, strict=True) for rank in self.take(node, size)]

    def spread(self, sizes: Sequence[int], *, strict: bool) -> list[int] | None:
        """Accelerators of the first node with room for each bundle that has no other; if there is none, of any node."""
        taken: list[int] = []
        used: set[int] = set()
        for size in sizes:
            fitting = [node for node, ranks in enumerate(self.free) if len(ranks) >= size]
            node = next((node for node in fitting if node not in used), None)
            if node is None:
                node = fitting[0] if fitting and not strict else None
            if node is None:
                return None
            used.add(node)
            taken += self.take(node, size)
        return taken


def pieces(count: int, size: int) -> list[int]:
    """A number in pieces of a size; the last one may be smaller."""
    return [min(size, count - start) for start in range(0, count, size)]


def fits(rooms: Sequence[int], steps: Sequence[int]) -> bool:
    """Whether each step can be on one node, none on a node before that of the step before it: every choice is tried."""
    return any(
        all(
            sum(step for step, on in zip(steps, choice, strict=True) if on == node) <= room
            for node, room in enumerate(rooms)
        )
        for choice in combinations_with_replacement(range(len(rooms)), len(steps))
    )


def torn(nodes: Sequence[int], each: int) -> tuple[int, int, int] | None:
    """The first whole chunk of ``each`` that starts on one node and ends on another, and these nodes."""
    for start in range(0, len(nodes) - each + 1, each):
        chunk = nodes[start : start + each]
        if chunk[0] != chunk[-1]:
            return start // each, chunk[0], chunk[-1]
    return None
