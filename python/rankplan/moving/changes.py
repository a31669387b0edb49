"""What becomes of each slot of a component: it stays, gets another name or share, restarts, moves, starts or stops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from rankplan._core import RankSet
from rankplan.frozen import frozen
from rankplan.moving.boxes import Box
from rankplan.moving.holdings import Holding, Key, Piece
from rankplan.moving.sides import Side, Slot
from rankplan.nodes.facts import NO_FACTS

STAY, RENAME, RESHAPE, RESTART = "stay", "rename", "reshape", "restart"
MOVE, START, STOP, LOST = "move", "start", "stop", "lost"

KEEPING = (STAY, RENAME)
"""Slots that keep all that they hold."""


class SlotChange(NamedTuple):
    """A slot of the plan after and what it was before, or a slot of the plan before that nothing continues.

    ``after`` is ``None`` for the latter, ``before`` for a slot that starts.
    """

    kind: str
    after: Slot | None
    before: Slot | None


class Needed(NamedTuple):
    """A part of a state that a slot of the plan after does not have yet."""

    slot: Slot
    piece: Piece
    box: Box


@frozen(slots=False)
class Changes:
    """What becomes of the slots of a component in two plans, of which one may lack it.

    ``unchanged`` are the slots that stay with their numbers, found all at once. ``looked_at`` has the changes of the
    other slots of the plan after, by their numbers; some of them stay, too. ``gone`` are the slots of the plan before
    that nothing continues. ``kept`` are those of the plan before, outside ``unchanged``, that keep what they hold.
    """

    before: Side | None
    after: Side | None
    unchanged: RankSet
    looked_at: dict[int, SlotChange]
    gone: list[SlotChange]
    kept: frozenset[int]

    @cached_property
    def stay(self) -> int:
        """The number of slots that stay as they are."""
        return len(self.unchanged) + sum(1 for change in self.looked_at.values() if change.kind == STAY)

    @cached_property
    def receiving(self) -> list[SlotChange]:
        """The slots of the plan after that may get something."""
        return [change for change in self.looked_at.values() if change.kind not in KEEPING]

    def keeps(self, number: int) -> bool:
        """Whether a slot of the plan before keeps what it holds."""
        return number in self.kept or number in self.unchanged

    def kind_of(self, number: int) -> str:
        """Return what becomes of a slot of the plan after."""
        change = self.looked_at.get(number)
        return STAY if change is None else change.kind

    @cached_property
    def of_after(self) -> list[SlotChange]:
        """The change of each slot of the plan after, by number. In a large component, few are worth a look."""
        changes = []
        for slot in () if self.after is None else self.after.slots:
            old = None if self.before is None or slot.number in self.looked_at else self.before.slots[slot.number]
            changes.append(self.looked_at.get(slot.number) or SlotChange(STAY, slot, old))
        return changes

    @cached_property
    def kept_before(self) -> frozenset[int]:
        """The numbers of all slots of the plan before that keep what they hold."""
        return self.kept | frozenset(self.unchanged)


def unchanged_slots(before: Side | None, after: Side | None) -> RankSet:
    """Return the slots that surely stay, with the same numbers in both plans.

    The core finds those with the same process, coordinates and place. They hold the same if the component has the same
    sizes; where data ranks divide a state, also as many slots. It does not know the environments of node groups.
    """
    if before is None or after is None or not _hold_alike(before, after):
        return RankSet()
    old, new = before.component, after.component
    if old.rows.visibility != new.rows.visibility:
        return RankSet()
    unchanged = old.layout.unchanged(new.layout, [None if node < 0 else node for node in before.nodes])
    if _same_environments(before, after):
        return unchanged
    return RankSet(at for at in unchanged if before.slot(at).environment == after.slot(at).environment)


def _hold_alike(before: Side, after: Side) -> bool:
    """Whether slots of both plans with equal coordinates hold the same."""
    old, new = before.keeper, after.keeper
    sizes = [replace(side.component.parallel, dp=None) for side in (before, after)]
    if sizes[0] != sizes[1] or before.component.memory != after.component.memory:
        return False
    if (old.states, old.resident) != (new.states, new.resident):
        return False
    return before.count == after.count or not (old.width_shards or old.layer_shards)


def _same_environments(before: Side, after: Side) -> bool:
    """Whether node groups state the same for the processes on each node."""
    old, new = before.component.inventory, after.component.inventory
    if (old.facts or NO_FACTS).environment != (new.facts or NO_FACTS).environment:
        return False
    groups = [(old.group(label), new.group(label)) for label in before.component.node_groups]
    if all(mine is None and other is None for mine, other in groups):
        return True
    return all(mine == other for mine, other in groups) and before.nodes == list(range(len(before.nodes)))


def changes_of(before: Side | None, after: Side | None, unchanged: RankSet) -> Changes:
    """Return the changes of a component that one of the plans may lack; ``unchanged`` slots surely stay."""
    old_slots = [] if before is None else list(before.slots_but(unchanged))
    new_slots = [] if after is None else list(after.slots_but(unchanged))
    looked_at = _changes_of_new(before, after, old_slots, new_slots)
    continued = {change.before.number: change for change in looked_at.values() if change.before is not None}
    gone = []
    for slot in old_slots:
        if before is not None and slot.number in before.dead:
            gone.append(SlotChange(LOST, None, slot))
        elif slot.number not in continued:
            gone.append(SlotChange(STOP, None, slot))
    kept = frozenset(number for number, change in continued.items() if change.kind in KEEPING)
    return Changes(before, after, unchanged, looked_at, gone, kept)


def _changes_of_new(
    before: Side | None, after: Side | None, old_slots: Sequence[Slot], new_slots: Sequence[Slot]
) -> dict[int, SlotChange]:
    """Return the change of each new slot by its number.

    It continues the old slot on its device. Without one, it continues the lowest old slot with its coordinates that has
    left its own device. An old slot on dead hardware has left it, whatever comes there.
    """
    lost = frozenset[int]() if before is None else before.dead
    places = {slot.place: slot for slot in old_slots if slot.number not in lost}
    taken = {slot.place for slot in new_slots}
    leaving: dict[Key, Slot] = {}
    for slot in reversed(old_slots):
        if slot.place not in taken or slot.number in lost:
            leaving[slot.coordinates] = slot
    compared = _Compared(before is not None and after is not None and _is_alike(before, after))
    changes: dict[int, SlotChange] = {}
    for slot in new_slots:
        old = places.get(slot.place)
        if before is not None and after is not None and old is not None:
            change = SlotChange(_kind_in_place(before, after, old, slot, compared), slot, old)
        elif (moved := leaving.pop(slot.coordinates, None)) is not None:
            change = SlotChange(MOVE, slot, moved)
        else:
            change = SlotChange(START, slot, None)
        changes[slot.number] = change
    return changes


@dataclass(slots=True)
class _Compared:
    """Which slots hold the same, by what decides what they hold.

    ``alike``: the component has the same sizes in both plans, so that slots with equal keys hold the same.
    """

    alike: bool
    answers: dict[tuple[Key, Key], bool] = field(default_factory=dict)


def _kind_in_place(before: Side, after: Side, old: Slot, new: Slot, compared: _Compared) -> str:
    """Return what becomes of a slot on a device that its component has in both plans."""
    if old.environment != new.environment:
        return RESTART
    keys = before.key(old), after.key(new)
    is_same = compared.alike and keys[0] == keys[1]
    if not is_same and keys not in compared.answers:
        compared.answers[keys] = same_share(before, after, old, new)
    if not is_same and not compared.answers[keys]:
        return RESHAPE
    if (old.rank, old.coordinates) != (new.rank, new.coordinates):
        return RENAME
    return STAY


def _is_alike(before: Side, after: Side) -> bool:
    """Whether the component has as many slots, and the same sizes, in both plans."""
    old, new = before.component, after.component
    return before.count == after.count and (old.parallel, old.memory) == (new.parallel, new.memory)


def same_share(before: Side, after: Side, old: Slot, new: Slot) -> bool:
    """Whether two slots hold the same, in the same precision."""
    mine, others = before.keeper, after.keeper
    return (mine.states, mine.resident) == (others.states, others.resident) and (
        before.holding(old) == after.holding(new)
    )


def missing(before: Side | None, after: Side, change: SlotChange) -> list[tuple[Piece, Box]]:
    """Return the boxes that a slot of the plan after, one that does not keep all, does not find on its device."""
    new = change.after
    if new is None:
        return []
    share = after.holding(new)
    if before is None or change.kind != RESHAPE or change.before is None:
        return list(share.items())
    return without_held(share, before.holding(change.before))


def without_held(share: Holding, held: Holding) -> list[tuple[Piece, Box]]:
    """Return the boxes of a share without those that are held."""
    boxes = []
    for piece, box in share.items():
        if piece in held:
            boxes += [(piece, rest) for rest in box.without(held[piece])]
        else:
            boxes.append((piece, box))
    return boxes
