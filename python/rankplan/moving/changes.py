"""What becomes of each slot of a component: it stays, gets another name or share, restarts, moves, starts or stops."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from rankplan.frozen import frozen
from rankplan.moving.boxes import Box
from rankplan.moving.holdings import Holding, Key, Piece
from rankplan.moving.sides import Side, Slot

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
    """The slots of a component that change. ``side`` is that of the plan after, or of before if it ends.

    ``of_after`` has the change of each slot of the plan after, by number. ``gone`` are the slots of the plan before
    that nothing continues. ``kept_before`` are the numbers of slots of the plan before that keep what they hold.
    """

    of_after: list[SlotChange]
    gone: list[SlotChange]
    kept_before: frozenset[int]

    @cached_property
    def stay(self) -> int:
        """The number of slots that stay as they are."""
        return sum(1 for change in self.of_after if change.kind == STAY)

    @cached_property
    def receiving(self) -> list[SlotChange]:
        """The slots of the plan after that may get something."""
        return [change for change in self.of_after if change.kind not in KEEPING]


def changes_of(before: Side | None, after: Side | None) -> Changes:
    """Return the changes of a component that one of the plans may lack."""
    old_slots = [] if before is None else before.slots
    new_slots = [] if after is None else after.slots
    lost = frozenset[int]() if before is None else before.dead
    places = {slot.place: slot for slot in old_slots if slot.number not in lost}
    taken = {slot.place for slot in new_slots}
    leaving: dict[tuple[tuple[str, int], ...], Slot] = {}
    for slot in reversed(old_slots):
        if slot.place not in taken or slot.number in lost:
            leaving[slot.coordinates] = slot
    of_after, same = [], _Compared(before is not None and after is not None and _is_alike(before, after))
    for slot in new_slots:
        old = places.get(slot.place)
        if before is not None and after is not None and old is not None:
            of_after.append(SlotChange(_kind_in_place(before, after, old, slot, same), slot, old))
        elif (moved := leaving.pop(slot.coordinates, None)) is not None:
            of_after.append(SlotChange(MOVE, slot, moved))
        else:
            of_after.append(SlotChange(START, slot, None))
    continued = {change.before.number for change in of_after if change.before is not None}
    gone = []
    for slot in old_slots:
        if slot.number in lost:
            gone.append(SlotChange(LOST, None, slot))
        elif slot.number not in continued:
            gone.append(SlotChange(STOP, None, slot))
    kept = [change.before.number for change in of_after if change.before is not None and change.kind in KEEPING]
    return Changes(of_after, gone, frozenset(kept))


@dataclass(slots=True)
class _Compared:
    """Which slots hold the same, by what decides what they hold.

    ``alike``: the component has the same sizes in both plans, so that slots with equal keys hold the same.
    """

    alike: bool
    answers: dict[tuple[Key, Key], bool] = field(default_factory=dict)


def _kind_in_place(before: Side, after: Side, old: Slot, new: Slot, same: _Compared) -> str:
    """Return what becomes of a slot on a device that its component has in both plans."""
    if old.environment != new.environment:
        return RESTART
    keys = before.key(old), after.key(new)
    is_same = same.alike and keys[0] == keys[1]
    if not is_same and keys not in same.answers:
        same.answers[keys] = same_share(before, after, old, new)
    if not is_same and not same.answers[keys]:
        return RESHAPE
    if (old.rank, old.coordinates) != (new.rank, new.coordinates):
        return RENAME
    return STAY


def _is_alike(before: Side, after: Side) -> bool:
    """Whether slots of both plans with equal coordinates hold the same."""
    old, new = before.component, after.component
    return len(before.slots) == len(after.slots) and (old.parallel, old.memory) == (new.parallel, new.memory)


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
