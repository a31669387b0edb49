"""What a plan excludes, among the nodes of another inventory, and by which names after the nodes are reordered."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field

from rankplan._core import RankSet
from rankplan.arranging import faults
from rankplan.errors import PlacementError
from rankplan.frozen import frozen
from rankplan.nodes.entries import Marks, add_mark
from rankplan.nodes.inventory import Inventory


@frozen
class Exclusion:
    """The hardware of an inventory that a plan must not use: what either excludes, and what is not healthy.

    ``marks`` are by rank in the inventory. ``named`` are the nodes that a name such as ``node-3`` excludes, by this
    rank: they must keep it as long as the name is used.
    """

    marks: Marks
    named: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, planned: Inventory, inventory: Inventory, known: Sequence[int | None]) -> Exclusion:
        """Return what must not be used. ``known`` has the rank in the inventory of each node of the plan.

        Raises `PlacementError` if several nodes of the inventory have a name.
        """
        excluded = cls(dict(inventory.marks))
        for name in _names(planned):
            by_rank = planned.names.by_rank(name)
            if by_rank is None:
                marks, ambiguous = inventory.names.marks([name], missing=[name])
                if ambiguous:
                    raise PlacementError([fault for _, fault in ambiguous])
                for node, local in marks.items():
                    add_mark(excluded.marks, node, local)
                continue
            rank, index = by_rank
            place = _place(rank, inventory, known)
            if place is not None:
                add_mark(excluded.marks, place, None if index is None else RankSet([index]))
                excluded.named[rank] = place
        return excluded


def renamed(
    planned: Inventory, inventory: Inventory, known: Sequence[int | None], nodes: Sequence[int]
) -> Iterator[str]:
    """Yield what a plan and an inventory exclude by names that are right after a repair.

    ``nodes`` are the ranks in the inventory of the nodes of the new plan. A node that has left the plan, and has
    neither hostname nor address, cannot be named any more.
    """
    new_ranks = _NewRanks(inventory, {node: rank for rank, node in enumerate(nodes)})
    yielded: set[str] = set()
    for source, places in ((planned, known), (inventory, ())):
        for name in _names(source):
            new: str | None = name
            by_rank = source.names.by_rank(name)
            if by_rank is not None:
                rank, index = by_rank
                new = new_ranks.renamed(name, rank, index, _place(rank, inventory, places))
            if new is not None and new not in yielded:
                yielded.add(new)
                yield new


@frozen
class _NewRanks:
    """The ranks of nodes of an inventory in a new plan: ``ranks`` has the node rank of each that the plan uses."""

    inventory: Inventory
    ranks: Mapping[int, int]

    def renamed(self, name: str, rank: int, index: int | None, node: int | None) -> str | None:
        """Return the new name of a node, or of its accelerator ``index``, that was named by its rank.

        The name stays if the node has the same rank, or if neither the node nor the rank is in the plan. ``None`` if
        there is no name: the node has no name of its own and is not in the plan.
        """
        now = None if node is None else self.ranks.get(node)
        if now == rank or (now is None and rank >= len(self.ranks)):
            return name
        own_name = None if node is None else self.inventory.names.lasting(node)
        if not own_name and now is not None:
            own_name = f"node-{now}"
        if not own_name:
            return None
        return own_name if index is None else f"{own_name}/{index}"


def still_excluded(planned: Inventory, inventory: Inventory, names: Iterable[str]) -> list[str]:
    """Return what a plan excludes without what ``names`` bring back.

    A name brings back the node, accelerator or domain of this name, and a node its accelerators too. Raises
    `PlacementError` with every name that is not excluded.
    """
    left = list(_names(planned))
    unknown = []
    for name in names:
        covered = inventory.names.find(name)
        back = [one for one in left if one == name or _covers(covered, inventory.names.find(one))]
        if not back:
            unknown.append(faults.not_excluded(name, left))
        left = [one for one in left if one not in back]
    if unknown:
        raise PlacementError(unknown)
    return left


def restored(planned: Inventory, inventory: Inventory, names: Iterable[str]) -> tuple[Inventory, Inventory]:
    """Return the nodes of a plan, and those of an inventory, without the exclusions that ``names`` bring back.

    What only the inventory excludes stays excluded. Raises `PlacementError` with every name that the plan does not
    exclude.
    """
    left = still_excluded(planned, inventory, names)
    before = _names(planned)
    stays = [name for name in _names(inventory) if name in left or name not in before]
    return planned.with_exclusions(left), inventory.with_exclusions(stays)


def _covers(whole: object, part: object) -> bool:
    """Return whether one name stands for all hardware that another stands for."""
    if not isinstance(whole, Mapping) or not isinstance(part, Mapping):
        return False
    for node, local in part.items():
        if node not in whole:
            return False
        if whole[node] is not None and (local is None or local - whole[node]):
            return False
    return True


def _names(inventory: Inventory) -> Sequence[str]:
    return () if inventory.facts is None else inventory.facts.exclude


def _place(rank: int, inventory: Inventory, known: Sequence[int | None]) -> int | None:
    """Return the node that has a rank: those beyond the nodes of a plan are its spares."""
    if rank < len(known):
        return known[rank]
    return rank if rank < inventory.num_nodes else None
