"""Weight maps: which slots of one component send their weights to which slots of another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import index
from typing import overload

from rankplan._core import WeightMap as CoreWeightMap
from rankplan.errors import Diagnostic, PlacementError
from rankplan.plans.component import Component
from rankplan.words import shown

_SENDER, _RECEIVER = "actor", "rollout"
"""RLinf's component that trains, and that which gets its weights or, as ``rollout_planner``, a part of it does."""


class WeightMap(Sequence[list[int]]):
    """For every slot of the sender, the slots of the receiver that get its weights, ascending.

    Each slot of the receiver has one sender, and no sender has two receivers more than another. Within this limit,
    senders on the same device come first, then those on the same node. If the two share no device, the map is that of
    RLinf's ``DisaggRankMapper`` wherever that serves every receiver.

    The map is about tensor parts: within pipeline, expert and shard groups, the trainer gathers first.

    With ``ranks``, only the slots of these process ranks of the receiver get weights, from the same senders as in the
    whole map.

    Raises `PlacementError` (``no-weight-sender``) if the receiver's tensor size does not divide the sender's, unless
    that is 1; ``ValueError`` for unknown ranks.
    """

    def __init__(self, sender: Component, receiver: Component, ranks: Iterable[int] | None = None) -> None:
        self.sender = sender
        self.receiver = receiver
        self._map = CoreWeightMap((sender.name, sender.layout), (receiver.name, receiver.layout))
        self.receivers: Sequence[int] = range(self._map.shape[1])
        """The slots of the receiver that get weights, ascending."""
        self._only: set[int] | None = None
        if ranks is not None:
            self.receivers = _slots(receiver, ranks)
            self._only = set(self.receivers)

    def __len__(self) -> int:
        return self._map.shape[0]

    @overload
    def __getitem__(self, key: int) -> list[int]: ...
    @overload
    def __getitem__(self, key: slice) -> list[list[int]]: ...
    def __getitem__(self, key: int | slice) -> list[int] | list[list[int]]:
        if isinstance(key, slice):
            return [self._receivers_of(slot) for slot in range(*key.indices(len(self)))]
        slot = index(key)
        if not -len(self) <= slot < len(self):
            raise IndexError(f"slot {slot} of {len(self)}")
        return self._receivers_of(slot % len(self))

    def _receivers_of(self, sender: int) -> list[int]:
        found = self._map.receivers_of(sender)
        return found if self._only is None else [slot for slot in found if slot in self._only]

    def sender_of(self, slot: int) -> int:
        """Return the slot of the sender that a slot of the receiver gets its weights from. Raises ``IndexError``."""
        return self._map.sender_of(slot)

    def __repr__(self) -> str:
        receivers = len(self.receivers)
        return f"<WeightMap from {len(self)} slots of {self.sender.name} to {receivers} of {self.receiver.name}>"


def _slots(component: Component, ranks: Iterable[int]) -> list[int]:
    """Return the slots of these process ranks, ascending. Raises ``ValueError`` for unknown ranks."""
    last, found = len(component) - 1, list(ranks)
    if unknown := [rank for rank in found if not 0 <= index(rank) <= last]:
        raise ValueError(f"{component.name} has no rank {shown(unknown[0])}; its ranks are 0 to {last}")
    return [slot for rank in sorted(set(found)) for slot in component.layout.slots_of(rank)]


def senderless(components: Mapping[str, Component]) -> Iterator[tuple[str, Diagnostic]]:
    """Yield the receivers of a job of RLinf's whose tensor sizes leave slots without a sender, with the fault.

    Only RLinf sends tensor parts slot by slot (``RankMapper``); the other trainers gather whole tensors first.
    """
    for name in components:
        if _SENDER in components and (name == _RECEIVER or name.startswith(f"{_RECEIVER}_")):
            sizes = [components[each].layout.size("tp") for each in (_SENDER, name)]
            if sizes[0] > 1 and sizes[0] % sizes[1]:
                try:
                    WeightMap(components[_SENDER], components[name])
                except PlacementError as error:
                    yield from ((name, found) for found in error.diagnostics)
