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
        found = cls(dict(inventory.marks))
        for name in _names(planned):
            if (named := planned.names.by_rank(name)) is None:
                marks, ambiguous = inventory.names.marks([name], missing=[name])
                if ambiguous:
                    raise PlacementError([fault for _, fault in ambiguous])
                for node, local in marks.items():
                    add_mark(found.marks, node, local)
                continue
            rank, index = named
            if (place := _place(rank, inventory, known)) is not None:
                add_mark(found.marks, place, None if index is None else RankSet([index]))
                found.named[rank] = place
        return found


def renamed(
    planned: Inventory, inventory: Inventory, known: Sequence[int | None], nodes: Sequence[int]
) -> Iterator[str]:
    """Yield what a plan and an inventory exclude by names that are right after a repair.

    ``nodes`` are the ranks in the inventory of the nodes of the new plan. A node that has left the plan, and has
    neither hostname nor address, cannot be named any more.
    """
    ranks = {node: rank for rank, node in enumerate(nodes)}
    yielded: set[str] = set()
    for names, places in ((planned, known), (inventory, ())):
        for name in _names(names):
            new: str | None = name
            if (named := names.names.by_rank(name)) is not None:
                rank, index = named
                node = _place(rank, inventory, places)
                now = None if node is None else ranks.get(node)
                if now != rank and not (now is None and rank >= len(nodes)):
                    lasting = None if node is None else inventory.names.lasting(node)
                    new = lasting or (None if now is None else f"node-{now}")
                    new = new if new is None or index is None else f"{new}/{index}"
            if new is not None and new not in yielded:
                yielded.add(new)
                yield new


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
    return known[rank] if rank < len(known) else rank if rank < inventory.num_nodes else None
