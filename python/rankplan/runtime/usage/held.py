"""What other jobs hold of a cluster, and plans on what they leave free."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import ceil
from typing import TypeVar

from rankplan._core import RankSet
from rankplan.errors import PlacementError
from rankplan.frozen import frozen
from rankplan.nodes.inventory import Inventory
from rankplan.runtime.usage.model import Live

_Made = TypeVar("_Made")


@frozen
class Held:
    """What other jobs hold, by node rank: the local indices that Ray names, and the amount that it only counts.

    Tasks, and groups without actors, are among the latter.
    """

    known: Mapping[int, RankSet]
    hidden: Mapping[int, float]

    @classmethod
    def of(cls, live: Live, *, but: str | None = None) -> Held:
        """Return what all jobs ``but`` one hold."""
        return cls(live.held(but=but), live.hidden(but=but))

    def __bool__(self) -> bool:
        return bool(self.known or self.hidden)

    def nodes(self) -> RankSet:
        """Return the nodes of which they hold something."""
        return RankSet([*self.known, *self.hidden])

    def text(self, rank: int) -> str:
        """Return what they hold of a node: ``0-1``, ``0 and 2 that Ray does not name``."""
        texts = []
        if rank in self.known:
            texts.append(str(self.known[rank]))
        if rank in self.hidden:
            texts.append(f"{self.hidden[rank]:g} that Ray does not name")
        return " and ".join(texts)

    def left(self, inventory: Inventory, used: Mapping[int, RankSet] | None = None) -> Inventory:
        """Return the nodes without what others hold.

        Of accelerators that Ray only counts, the last ones of the node are left out, because it hands out the first
        ones first. Those that a plan has ``used`` are left out only if the others do not suffice.
        """
        if not self:
            return inventory
        records = [inventory.node(rank) for rank in range(inventory.num_nodes)]
        for rank in self.nodes():
            record = records[rank]
            known = self.known.get(rank, RankSet())
            used_there = RankSet() if used is None else used.get(rank, RankSet())
            unnamed = RankSet(range(record.num_accelerators)) - known
            unneeded = sorted(unnamed - used_there, reverse=True)
            needed = sorted(unnamed & used_there, reverse=True)
            hidden = RankSet([*unneeded, *needed][: ceil(self.hidden.get(rank, 0))])
            records[rank] = record.changed(unhealthy=record.unhealthy | known | hidden)
        return inventory.updated(records)

    def planned(self, inventory: Inventory, plan_on: Callable[[Inventory], _Made]) -> _Made:
        """Plan with as few nodes as possible on which Ray only counts what others hold, and return what that gives.

        Of those nodes, it uses the ones with the most free accelerators. ``inventory`` is without what others hold
        (`left`). Raises `PlacementError` if there is no plan on all nodes.
        """
        records = {rank: inventory.node(rank) for rank in self.hidden}
        free = {rank: record.num_accelerators - len(record.unhealthy) for rank, record in records.items()}
        to_avoid = sorted(free, key=lambda rank: (free[rank], -rank))

        def attempt(ranks: Sequence[int]) -> _Made | None:
            try:
                return plan_on(inventory.taken_by("tasks, or groups without actors", ranks))
            except PlacementError:
                return None

        if not to_avoid:
            return plan_on(inventory)
        without_any = attempt(to_avoid)
        if without_any is not None:
            return without_any
        best = plan_on(inventory)
        # Bisect for the most nodes that can be set aside, the fewest free accelerators first: there is a plan
        # without the first `possible` ones (`best`), and none without the first `impossible` ones.
        possible = 0
        impossible = len(to_avoid)
        while impossible - possible > 1:
            middle = (possible + impossible) // 2
            better = attempt(to_avoid[:middle])
            if better is None:
                impossible = middle
            else:
                possible = middle
                best = better
        return best
