"""Who sends each part that a slot needs: the nearest slot that holds it, of these the least loaded."""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from fractions import Fraction
from typing import NamedTuple

from rankplan._core import ACCELERATOR
from rankplan.frozen import frozen
from rankplan.moving.boxes import Box
from rankplan.moving.changes import LOST, RESHAPE, RESTART, Changes, missing
from rankplan.moving.holdings import Holding, Piece
from rankplan.moving.sides import Kind, Node, Place, Side, has_one_owner
from rankplan.nodes.inventory import Inventory

_NONE = Fraction(0)

DEVICE, NODE, NETWORK, HOST, STORAGE = "device", "node", "network", "host", "storage"


class Sender(NamedTuple):
    """A slot of the plan before."""

    component: str
    slot: int


class Transfer(NamedTuple):
    """A box that a slot of the plan after gets, from a slot of the plan before, or from storage (``None``)."""

    component: str
    slot: int
    sender: Sender | None
    piece: Piece
    bytes: Fraction
    level: str


@frozen(slots=False)
class Distances:
    """How far two places are apart: the levels of a cluster from inside, with the domain of each node.

    ``freed`` has the domains of nodes that only the plan before has.
    """

    names: tuple[str, ...]
    ids: tuple[Sequence[int], ...]
    freed: Mapping[Node, tuple[object, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, inventory: Inventory) -> Distances:
        """Return the levels of an inventory."""
        domains = list(reversed(inventory.domains))
        return cls(
            (DEVICE, NODE, *(level.level for level in domains), NETWORK),
            tuple(level.ids for level in domains),
        )

    def with_freed(self, before: Inventory, after: Inventory, nodes: Iterable[Node]) -> Distances:
        """Return the distances with nodes that only the plan before has; domains of one name are the same."""
        known = [{name: number for number, name in enumerate(level.names)} for level in reversed(after.domains)]
        levels = list(reversed(before.domains_at(after.levels)))
        freed = {}
        for node in nodes:
            domains = [level.names[level.ids[-1 - node]] for level in levels]
            freed[node] = tuple(numbers.get(name, name) for numbers, name in zip(known, domains, strict=True))
        return replace(self, freed=freed)

    def domains(self, place: Place) -> Iterator[object]:
        """Yield the domain of a place at each level."""
        yield (place.node, place.local) if place.kind == ACCELERATOR else place
        yield place.node
        if place.node in self.freed:
            yield from self.freed[place.node]
        else:
            for ids in self.ids:
                yield ids[place.node]
        yield None


class Holders:
    """The slots that hold one box, with the least loaded ones of each domain first.

    Loads only grow: an entry of a heap that is out of date goes back with its load of now.
    """

    def __init__(self, slots: Sequence[tuple[Sender, Place]], distances: Distances) -> None:
        self._heaps: list[dict[object, list[tuple[Fraction, Sender]]]] = [{} for _ in distances.names]
        self._distances = distances
        for sender, place in slots:
            entry = _NONE, sender
            for heaps, domain in zip(self._heaps, distances.domains(place), strict=True):
                heaps.setdefault(domain, []).append(entry)

    def nearest(self, place: Place, loads: Mapping[Sender, Fraction]) -> tuple[Sender, str]:
        """Return the nearest holder, the least loaded of equally near ones, then the lowest; and its level."""
        for heaps, domain, level in zip(
            self._heaps, self._distances.domains(place), self._distances.names, strict=True
        ):
            heap = heaps.get(domain)
            if heap is None:
                continue
            while heap[0][0] < loads.get(heap[0][1], _NONE):
                sender = heap[0][1]
                heapq.heapreplace(heap, (loads[sender], sender))
            return heap[0][1], level
        raise LookupError("every place is in the domain of the network")


class Tiles:
    """The distinct boxes of a piece that slots hold, in the order of their first layers."""

    def __init__(self, boxes: Collection[Box]) -> None:
        self._boxes = sorted(boxes)
        self._starts = [box.layers[0] for box in self._boxes]
        self._longest = max(box.layers[1] - box.layers[0] for box in self._boxes)

    def overlapping(self, box: Box) -> Iterator[tuple[Box, Box]]:
        """Yield each box that has a part of this one, and that part. Boxes are equal or disjoint."""
        first = bisect_left(self._starts, box.layers[0] - self._longest)
        for index in range(first, bisect_left(self._starts, box.layers[1])):
            common = self._boxes[index] & box
            if common is not None:
                yield self._boxes[index], common


_Slots = list[tuple[Sender, Place]]


class Source:
    """A group of slots that may send: those that keep a part, those that hold it, or those of another component.

    Many slots hold the same, and the pieces of what they hold are together in the same slots. So slots are grouped by
    what they hold, and pieces with the same slots have their holders in common.
    """

    def __init__(self, distances: Distances) -> None:
        self._distances = distances
        self._groups: dict[int, tuple[Holding, _Slots]] = {}
        self._tiles: dict[Piece, Tiles] | None = None
        self._groups_of: dict[Piece, dict[Box, list[int]]] = {}
        self._holders: dict[tuple[int, ...], Holders] = {}

    def add(self, holding: Holding, sender: Sender, place: Place) -> None:
        """Add a slot; slots that hold the same pass the same object."""
        group = self._groups.get(id(holding))
        if group is None:
            group = self._groups[id(holding)] = holding, []
        group[1].append((sender, place))

    def overlapping(self, piece: Piece, box: Box) -> Iterator[tuple[Holders, Box]]:
        """Yield the holders of each part of a box that some slot of the group holds."""
        if self._tiles is None:
            self._divide()
        if self._tiles is None or piece not in self._tiles:
            return
        for tile, common in self._tiles[piece].overlapping(box):
            yield self._holders_of(tuple(self._groups_of[piece][tile])), common

    def _divide(self) -> None:
        """Collect who holds each box of each piece."""
        for key, (holding, _) in self._groups.items():
            for piece, box in holding.items():
                self._groups_of.setdefault(piece, {}).setdefault(box, []).append(key)
        self._tiles = {piece: Tiles(boxes) for piece, boxes in self._groups_of.items()}

    def _holders_of(self, keys: tuple[int, ...]) -> Holders:
        """Return the slots of these groups."""
        if keys not in self._holders:
            slots = [slot for key in keys for slot in self._groups[key][1]]
            self._holders[keys] = Holders(sorted(slots, key=lambda slot: slot[0]), self._distances)
        return self._holders[keys]


class _Cut(NamedTuple):
    """A part of a box, with the slots that have it (``None``: storage), and its bytes."""

    holders: Holders | None
    bytes: Fraction


class Sending:
    """The transfers of a transition."""

    def __init__(
        self,
        before: Mapping[str, Side],
        after: Mapping[str, Side],
        changes: Mapping[str, Changes],
        syncs: Mapping[str, str],
        distances: Distances,
        avoided: Collection[tuple[str, int]] = (),
    ) -> None:
        """``syncs`` has the component that each one gets weights from; ``avoided`` are instances that send nothing."""
        self._before, self._after, self._changes = before, after, changes
        self._syncs, self._distances, self._avoided = syncs, distances, avoided
        self._loads: dict[Sender, Fraction] = {}
        self._cuts: dict[tuple[str, Piece, int], tuple[Box, list[_Cut]]] = {}
        self.rollback: list[str] = []

    def transfers(self) -> list[Transfer]:
        """Return the transfers of all components, in order of their slots."""
        transfers: list[Transfer] = []
        for name, side in self._after.items():
            own = list(self._of_component(name, side))
            lacks = side.kind is Kind.TRAINER and any(transfer.sender is None for transfer in own)
            if lacks and name in self._before:
                self.rollback.append(name)
                own = list(self._from_storage(name, side))
            transfers += own
        return transfers

    def _of_component(self, name: str, side: Side) -> Iterator[Transfer]:
        changes = self._changes[name]
        old = self._before.get(name)
        needs = [(change, missing(old, side, change)) for change in changes.receiving]
        if not any(boxes for _, boxes in needs):
            return
        sources = [*self._own(name), *self._other(name, side)]
        for change, boxes in needs:
            if change.after is None:
                continue
            for piece, box in boxes:
                yield from self._parts(name, side, change.after.number, change.after.place, piece, box, sources)

    def _parts(
        self, name: str, side: Side, number: int, place: Place, piece: Piece, box: Box, sources: Sequence[Source]
    ) -> Iterator[Transfer]:
        """Yield the transfers of a box: each part from the first group that has it."""
        known = self._cuts.get((name, piece, id(box)))
        if known is None:  # slots that hold the same have the same boxes: the box is kept, so that its id is its own
            known = self._cuts[name, piece, id(box)] = box, list(self._divided(side, piece, box, sources))
        for holders, size in known[1]:
            if holders is None:
                yield Transfer(name, number, None, piece, size, STORAGE)
                continue
            sender, level = holders.nearest(place, self._loads)
            self._loads[sender] = self._loads.get(sender, _NONE) + size
            yield Transfer(name, number, sender, piece, size, level)

    def _divided(self, side: Side, piece: Piece, box: Box, sources: Sequence[Source]) -> Iterator[_Cut]:
        """Yield the parts of a box, each with those that have it in the first group that does."""
        left = [box]
        for source in sources:
            rest: list[Box] = []
            for part in left:
                remaining = [part]
                for holders, common in source.overlapping(piece, part):
                    yield _Cut(holders, side.keeper.bytes(piece, common))
                    remaining = [cut for other in remaining for cut in other.without(common)]
                rest += remaining
            left = rest
        for part in left:
            yield _Cut(None, side.keeper.bytes(piece, part))

    def _from_storage(self, name: str, side: Side) -> Iterator[Transfer]:
        """Yield the transfers of a component that loads its last checkpoint."""
        for slot in side.slots:
            for piece, box in side.holding(slot).items():
                yield Transfer(name, slot.number, None, piece, side.keeper.bytes(piece, box), STORAGE)

    def _own(self, name: str) -> Iterator[Source]:
        """Yield the slots of a component that hold a part before and after, and then all that hold it before."""
        old, new = self._before.get(name), self._after[name]
        if old is None:
            return
        changes = self._changes[name]
        keeping, holding = Source(self._distances), Source(self._distances)
        restarted = {change.before.number for change in changes.of_after if change.before and change.kind == RESTART}
        restarted |= {change.before.number for change in changes.gone if change.before and change.kind == LOST}
        reshaped = {
            change.before.number: change.after
            for change in changes.of_after
            if change.before and change.after and change.kind == RESHAPE
        }
        common: dict[tuple[int, int], Holding] = {}
        for slot in old.slots:
            if slot.number in restarted or has_one_owner(slot) or (name, old.instance_of[slot.number]) in self._avoided:
                continue
            sender, held = Sender(name, slot.number), old.holding(slot)
            holding.add(held, sender, slot.place)
            if slot.number in changes.kept_before:
                keeping.add(held, sender, slot.place)
            elif slot.number in reshaped:
                kept = new.holding(reshaped[slot.number])
                keys = id(held), id(kept)
                if keys not in common:
                    common[keys] = _still_held(held, kept)
                keeping.add(common[keys], sender, slot.place)
        yield keeping
        yield holding

    def _other(self, name: str, side: Side) -> Iterator[Source]:
        """Yield the slots of the component that a component gets weights from."""
        other = self._before.get(self._syncs.get(name, ""))
        if other is None or _model(other) != _model(side):
            return
        source = Source(self._distances)
        for slot in other.slots:
            if slot.number in other.dead or (other.component.name, other.instance_of[slot.number]) in self._avoided:
                continue
            source.add(other.weights(slot), Sender(other.component.name, slot.number), slot.place)
        yield source


def _still_held(before: Holding, after: Holding) -> Holding:
    """Return the boxes that a slot holds as a whole before and after."""
    return {piece: box for piece, box in before.items() if piece in after and box & after[piece] == box}


def _model(side: Side) -> object:
    memory = side.component.memory
    return None if memory is None else (memory.model, memory.params)
