"""What a component takes, counted over the cluster and over its node group."""

from __future__ import annotations

from rankplan._core import RankSet, Taken
from rankplan.nodes.inventory import Inventory


def accelerators_of(inventory: Inventory, nodes: RankSet) -> RankSet:
    """Return the accelerators of nodes, counted node by node."""
    core = inventory.core
    ends: list[str] = []
    for first, last in nodes.ranges:
        having = [node for node in range(first, last + 1) if core.num_accelerators(node)]
        if having:
            last_index = core.num_accelerators(having[-1]) - 1
            ends.append(f"{core.resource(having[0], 0)}-{core.resource(having[-1], last_index)}")
    return RankSet(",".join(ends)) if ends else RankSet()


def counted_within(taken: Taken, own: RankSet) -> Taken:
    """Return what is taken by its places in a set that has all of it.

    Each range of the set starts where those before it end, so a piece of a range moves as a whole.
    """
    starts: list[tuple[int, int, int]] = []
    count = 0
    for first, last in own.ranges:
        starts.append((first, last, count))
        count += last - first + 1
    pieces: list[tuple[int, int]] = []
    for first, last in taken.ranges:
        for start, end, before in starts:
            low, high = max(first, start), min(last, end)
            if low <= high:
                pieces.append((before + low - start, before + high - start))
    return Taken(pieces)
