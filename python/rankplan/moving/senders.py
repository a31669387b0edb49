"""Who sends each part that a slot needs: the nearest slot that holds it, of these the least loaded."""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, NamedTuple, TypeAlias

from rankplan._core import ACCELERATOR, SlotSets
from rankplan.frozen import frozen
from rankplan.moving.boxes import Box, Bytes, exact
from rankplan.moving.changes import LOST, RESHAPE, RESTART, Changes, missing
from rankplan.moving.holdings import Holding, Piece
from rankplan.moving.sides import Kind, Node, Place, Side, Slot
from rankplan.nodes.inventory import Inventory

DEVICE, NODE, NETWORK, HOST, STORAGE = "device", "node", "network", "host", "storage"
_OF_DEVICE, _OF_NODE, _OUTSIDE = 0, 1, 2
"""Levels by number, since one of the cluster may have such a name, too; `_OUTSIDE` is the first beyond nodes."""

Domain: TypeAlias = tuple[int, object]
"""A level, numbered from inside, and a domain of it."""


class Sender(NamedTuple):
    """A slot of the plan before."""

    component: str
    slot: int


class Part(NamedTuple):
    """A part of what slots get: a class of tensors in a state, its bytes, and the component that sends it.

    ``source`` is ``None`` for a part from storage.
    """

    piece: Piece
    bytes: Bytes
    source: str | None


class Transfer(NamedTuple):
    """A part that comes from a slot of the plan before, or from storage (``None``), and the level that it crosses."""

    part: Part
    sender: Sender | None
    level: str


class Delivery(NamedTuple):
    """What a slot of the plan after gets: its parts, with the slot that sends each, and the level that it crosses.

    Slots that lack the same have one list of parts. `transfers` makes rows of them.
    """

    component: str
    slot: int
    parts: Sequence[Part]
    senders: tuple[int | None, ...]
    levels: tuple[str, ...]

    def transfers(self) -> Iterator[Transfer]:
        """Yield the parts with their senders."""
        for part, number, level in zip(self.parts, self.senders, self.levels, strict=True):
            sender = None if part.source is None or number is None else Sender(part.source, number)
            yield Transfer(part, sender, level)

    @property
    def bytes(self) -> Bytes:
        """All that the slot gets."""
        return sum(part.bytes for part in self.parts)


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
        """Return the distances with nodes that only the plan before has; domains of one name are the same.

        A node that lacks a label is a domain of its own, whatever other nodes lack it.
        """
        numbers_of = [{name: number for number, name in enumerate(level.names)} for level in reversed(after.domains)]
        levels = list(reversed(before.domains_at(after.levels)))
        freed = {}
        for node in nodes:
            domains = [level.names[level.ids[-1 - node]] for level in levels]
            freed[node] = tuple(
                node if None in name else numbers.get(name, name)
                for numbers, name in zip(numbers_of, domains, strict=True)
            )
        return replace(self, freed=freed)

    def domain(self, level: int, node: Node) -> object:
        """Return the domain of a node at a level outside of nodes, numbered from inside; the network is one domain."""
        if level == len(self.ids):
            return None
        return self.freed[node][level] if node in self.freed else self.ids[level][node]


class _Queue:
    """The holders of a box in one domain, the least loaded first, then the lowest.

    Loads only grow. Holders without any come first, in ascending order, and are read one by one as they are needed:
    most slots of a large component never send. An entry of the heap that is out of date goes back with its load of now.
    """

    def __init__(self, numbers: Iterator[int], loads: Mapping[int, Bytes]) -> None:
        self._unread, self._loads = numbers, loads
        self._next = next(numbers, None)
        self._loaded: list[tuple[Bytes, int]] = []

    def first(self) -> int | None:
        """Return the holder that should send next, ``None`` if the domain has no holder."""
        while self._next is not None and (load := self._loads.get(self._next)):
            heapq.heappush(self._loaded, (load, self._next))
            self._next = next(self._unread, None)
        if self._next is not None or not self._loaded:
            return self._next
        heap = self._loaded
        while heap[0][0] < self._loads[heap[0][1]]:
            number = heap[0][1]
            heapq.heapreplace(heap, (self._loads[number], number))
        return heap[0][1]


class Holders:
    """The slots that hold one box: those with one of some shares."""

    def __init__(self, source: Source, shares: Collection[int], loads: dict[int, Bytes]) -> None:
        self._source, self._shares, self._loads = source, frozenset(shares), loads
        self._sets = source.sets_with(shares)
        self._queues: dict[Domain, _Queue] = {}

    @property
    def component(self) -> str:
        """The component of these slots."""
        return self._source.name

    def send(self, place: Place, size: Bytes) -> tuple[int, str]:
        """Load the nearest holder, the least loaded of equally near ones, then the lowest; return it and its level."""
        for domain in self._source.around(place):
            queue = self._queues.get(domain)
            if queue is None:
                queue = self._queues[domain] = _Queue(filter(self._holds, self._source.inside(*domain)), self._loads)
            number = queue.first()
            if number is not None:
                self._loads[number] = self._loads.get(number, 0) + size
                return number, self._source.levels[domain[0]]
        raise LookupError("every place is in the domain of the network")

    def _holds(self, number: int) -> bool:
        if self._source.set_of(number) not in self._sets:
            return False
        share = self._source.share(number)
        return share is not None and id(share) in self._shares


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


class Source:
    """The slots of a component of the plan before that may send.

    ``share`` returns what a slot sends, the same object for slots that send the same; ``None``: nothing. Slots of one
    of ``sets`` hold the same, but not all of them may send it. ``examples`` are slots of every set with every share.
    Many slots have the same share, and the pieces of what they hold are together in the same slots, so pieces with the
    same slots have their holders in common.
    """

    def __init__(
        self,
        side: Side,
        sets: SlotSets,
        share: Callable[[int], Holding | None],
        examples: Iterable[int],
        distances: Distances,
        loads: dict[int, Bytes],
    ) -> None:
        self.name, self.share, self.set_of, self.levels = side.component.name, share, sets.of, distances.names
        self._side, self._examples, self._distances, self._loads = side, examples, distances, loads
        self._around: dict[Place, list[Domain]] = {}
        self._nodes: dict[int, dict[object, list[Node]]] = {}
        self._tiles: dict[Piece, Tiles] | None = None
        self._shares_of: dict[Piece, dict[Box, list[int]]] = {}
        self._sets_with: dict[int, set[int]] = defaultdict(set)
        self._holders: dict[tuple[int, ...], Holders] = {}

    def sets_with(self, shares: Iterable[int]) -> set[int]:
        """Return the sets with slots that have one of these shares."""
        return {number for share in shares for number in self._sets_with[share]}

    def around(self, place: Place) -> list[Domain]:
        """Return the domains of a place, from inside, without those that have no slot for sure."""
        domains = self._around.get(place)
        if domains is None:
            domains = self._around[place] = []
            if self._side.numbers_on(place.node):
                domains += [(_OF_DEVICE, _device(place)), (_OF_NODE, place.node)]
            for level in range(_OUTSIDE, len(self.levels)):
                domains.append((level, self._distances.domain(level - _OUTSIDE, place.node)))
        return domains

    def inside(self, level: int, domain: Any) -> Iterator[int]:
        """Return the slots in a domain of a level, which is numbered from inside; ascending."""
        if level == len(self.levels) - 1:
            return iter(range(self._side.count))
        if level == _OF_DEVICE:
            return (slot.number for slot in self._side.slots_on(domain.node) if _device(slot.place) == domain)
        if level == _OF_NODE:
            return iter(self._side.numbers_on(domain))
        if level not in self._nodes:
            by_domain = self._nodes[level] = defaultdict(list)
            for node in self._side.nodes:
                by_domain[self._distances.domain(level - _OUTSIDE, node)].append(node)
        nodes = self._nodes[level].get(domain, ())
        return iter(sorted(number for node in nodes for number in self._side.numbers_on(node)))

    def overlapping(self, piece: Piece, box: Box) -> Iterator[tuple[Holders, Box]]:
        """Yield the holders of each part of a box that some slot of the source holds."""
        if self._tiles is None:
            self._divide()
        if self._tiles is None or piece not in self._tiles:
            return
        for tile, common in self._tiles[piece].overlapping(box):
            shares = tuple(self._shares_of[piece][tile])
            if shares not in self._holders:
                self._holders[shares] = Holders(self, shares, self._loads)
            yield self._holders[shares], common

    def _divide(self) -> None:
        """Collect the shares with each box of each piece."""
        shares = {}
        for number in self._examples:
            share = self.share(number)
            if share is not None:
                shares[id(share)] = share
                self._sets_with[id(share)].add(self.set_of(number))
        for key, share in shares.items():
            for piece, box in share.items():
                self._shares_of.setdefault(piece, {}).setdefault(box, []).append(key)
        self._tiles = {piece: Tiles(boxes) for piece, boxes in self._shares_of.items()}


def _device(place: Place) -> Place:
    """Return the device of a place: several slots may be on one accelerator."""
    return place._replace(turn=0) if place.kind == ACCELERATOR else place


class _Cut(NamedTuple):
    """A part of what slots lack, with those that have it; ``None``: storage."""

    holders: Holders | None
    part: Part


class _Lacking(NamedTuple):
    """What all slots get that are to hold the same, and hold the same before."""

    cuts: list[_Cut]
    parts: list[Part]


class _OwnShares:
    """What slots of the plan before send to others of their component: all that they ``held``, or what is ``kept``.

    Slots that send the same return one object. ``all_send``: no slot is avoided.
    """

    def __init__(
        self, changes: Changes, before: Side, after: Side, sends: Callable[[Side, int], bool], *, all_send: bool
    ) -> None:
        self._changes, self._before, self._after, self._sends = changes, before, after, sends
        self._silent = _silent(changes)
        self._reshaped = {
            change.before.number: change.after
            for change in changes.receiving
            if change.before and change.after and change.kind == RESHAPE
        }
        self._all_send = all_send and not self._silent and not before.has_owned_devices
        self._common: dict[tuple[int, int], Holding] = {}

    def held(self, number: int) -> Holding | None:
        """Return all that a slot holds before, ``None`` if it must not send."""
        if not self._all_send and (number in self._silent or not self._sends(self._before, number)):
            return None
        return self._before.shares.of(number)

    def kept(self, number: int) -> Holding | None:
        """Return what a slot holds before and after, ``None`` if it must not send, or keeps nothing."""
        if self._changes.keeps(number):
            return self.held(number)
        share = self.held(number) if number in self._reshaped else None
        if share is None:
            return None
        after = self._after.holding(self._reshaped[number])
        keys = id(share), id(after)  # the sides keep both, so that their ids are their own
        if keys not in self._common:
            self._common[keys] = _still_held(share, after)
        return self._common[keys]


def _silent(changes: Changes) -> set[int]:
    """Return the slots of the plan before that cannot send: their process restarts, or their hardware is dead."""
    ended = [change for change in changes.receiving if change.kind == RESTART]
    ended += [change for change in changes.gone if change.kind == LOST]
    return {change.before.number for change in ended if change.before}


class Sending:
    """What the slots of the plan after get, and from whom."""

    def __init__(
        self,
        changes: Mapping[str, Changes],
        syncs: Mapping[str, str],
        distances: Distances,
        avoided: Collection[tuple[str, int]] = (),
    ) -> None:
        """``syncs`` has the component that each one gets weights from; ``avoided`` are instances that send nothing."""
        self._changes = changes
        self._before = {name: change.before for name, change in changes.items() if change.before is not None}
        self._after = {name: change.after for name, change in changes.items() if change.after is not None}
        self._syncs, self._distances, self._avoided = syncs, distances, avoided
        self._loads: dict[str, dict[int, Bytes]] = defaultdict(dict)
        self.rollback: list[str] = []

    def deliveries(self) -> list[Delivery]:
        """Return what the slots of all components get, in order."""
        deliveries: list[Delivery] = []
        for name, side in self._after.items():
            own = list(self._of_component(name, side))
            lacks = side.kind is Kind.TRAINER and any(None in delivery.senders for delivery in own)
            if lacks and name in self._before:
                self.rollback.append(name)
                own = list(self._from_storage(name, side))
            deliveries += own
        return deliveries

    def _of_component(self, name: str, side: Side) -> Iterator[Delivery]:
        old = self._before.get(name)
        sources: list[Source] | None = None
        lacking: dict[tuple[int, int], _Lacking] = {}
        for change in self._changes[name].receiving:
            slot, held = change.after, None
            if slot is None:
                continue
            if old is not None and change.before is not None and change.kind == RESHAPE:
                held = old.holding(change.before)
            keys = id(side.holding(slot)), id(held)  # the sides keep the shares, so that their ids are their own
            if keys not in lacking:
                boxes = missing(old, side, change)
                if boxes and sources is None:
                    sources = [*self._own(name), *self._other(name, side)]
                lacking[keys] = self._divided(side, boxes, sources or ())
            if lacking[keys].parts:
                yield self._delivery(name, slot, lacking[keys])

    def _delivery(self, name: str, slot: Slot, lacking: _Lacking) -> Delivery:
        """Return what a slot gets: each part from the nearest slot that has it."""
        senders: list[int | None] = []
        levels: list[str] = []
        for holders, part in lacking.cuts:
            sender, level = (None, STORAGE) if holders is None else holders.send(slot.place, part.bytes)
            senders.append(sender)
            levels.append(level)
        return Delivery(name, slot.number, lacking.parts, tuple(senders), tuple(levels))

    def _divided(self, side: Side, boxes: Iterable[tuple[Piece, Box]], sources: Sequence[Source]) -> _Lacking:
        """Return the parts of boxes, each with those that have it in the first source in which some slot does."""
        cuts: list[_Cut] = []
        for piece, box in boxes:
            left = [box]
            for source in sources:
                rest: list[Box] = []
                for lacked in left:
                    remaining = [lacked]
                    for holders, common in source.overlapping(piece, lacked):
                        cuts.append(_Cut(holders, _part(side, piece, common, holders.component)))
                        remaining = [cut for other in remaining for cut in other.without(common)]
                    rest += remaining
                left = rest
            cuts += [_Cut(None, _part(side, piece, lacked, None)) for lacked in left]
        return _Lacking(cuts, [cut.part for cut in cuts])

    def _from_storage(self, name: str, side: Side) -> Iterator[Delivery]:
        """Yield what the slots of a component get that loads its last checkpoint."""
        lacking: dict[int, _Lacking] = {}
        for slot in side.slots:
            share = side.holding(slot)
            if id(share) not in lacking:
                lacking[id(share)] = self._divided(side, share.items(), ())
            yield self._delivery(name, slot, lacking[id(share)])

    def _own(self, name: str) -> Iterator[Source]:
        """Yield the slots of a component that hold a part before and after, and then all that hold it before."""
        old = self._before.get(name)
        if old is None:
            return
        changes = self._changes[name]
        own = _OwnShares(changes, old, self._after[name], self._sends, all_send=not self._avoided)
        examples = [slot.number for slot in old.slots_but(changes.unchanged)]
        examples += old.shares.examples(lambda number: number in changes.unchanged and self._sends(old, number))
        for share in (own.kept, own.held):
            yield Source(old, old.shares.sets, share, examples, self._distances, self._loads[name])

    def _other(self, name: str, side: Side) -> Iterator[Source]:
        """Yield the slots of the component that a component gets weights from."""
        other = self._before.get(self._syncs.get(name, ""))
        if other is None or _model(other) != _model(side):
            return

        def weights(number: int) -> Holding | None:
            is_silent = number in other.dead or self._is_avoided(other, number)
            return None if is_silent else other.weight_shares.of(number)

        examples = other.weight_shares.examples(lambda number: weights(number) is not None)
        yield Source(
            other, other.weight_shares.sets, weights, examples, self._distances, self._loads[other.component.name]
        )

    def _sends(self, side: Side, number: int) -> bool:
        """Whether a slot may send to others of its component: a robot's states are its owner's."""
        return not self._is_avoided(side, number) and not side.has_one_owner(number)

    def _is_avoided(self, side: Side, number: int) -> bool:
        return bool(self._avoided) and (side.component.name, side.instances.of(number)) in self._avoided


def _part(side: Side, piece: Piece, box: Box, source: str | None) -> Part:
    """Return a part of a piece with its bytes in the precision of the side that gets it."""
    return Part(piece, exact(side.keeper.bytes(piece, box)), source)


def _still_held(before: Holding, after: Holding) -> Holding:
    """Return the boxes that a slot holds as a whole before and after."""
    return {piece: box for piece, box in before.items() if piece in after and box & after[piece] == box}


def _model(side: Side) -> object:
    memory = side.component.memory
    return None if memory is None else (memory.model, memory.params)
