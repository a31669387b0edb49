"""Weight maps: which slots of one component send their weights to which slots of another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import index
from typing import overload

from rankplan._core import WeightMap as CoreWeightMap
from rankplan.errors import Diagnostic, PlacementError
from rankplan.plans.component import Component

SENDERS = {"actor": "rollout", "actor_train": "actor_infer"}
"""The components that train, by their names in each dialect, and those that get their weights.

A receiver may have several parts, such as RLinf's ``rollout_planner``."""


class WeightMap(Sequence[list[int]]):
    """For every slot of the sender, the slots of the receiver that get its weights, ascending.

    Each slot of the receiver has one sender, and no sender has two receivers more than another. The map is that of
    RLinf's ``CollocateRankMapper`` and ``DisaggRankMapper`` wherever these serve every receiver; elsewhere senders on
    the same device, then on the same node, come first.

    Raises `PlacementError` (``no-weight-sender``) if the receiver's tensor size does not divide the sender's, unless
    that is 1.
    """

    def __init__(self, sender: Component, receiver: Component) -> None:
        self.sender = sender
        self.receiver = receiver
        self._map = CoreWeightMap((sender.name, sender.layout), (receiver.name, receiver.layout))

    def __len__(self) -> int:
        return self._map.shape[0]

    @overload
    def __getitem__(self, key: int) -> list[int]: ...
    @overload
    def __getitem__(self, key: slice) -> list[list[int]]: ...
    def __getitem__(self, key: int | slice) -> list[int] | list[list[int]]:
        if isinstance(key, slice):
            return [self._map.receivers_of(slot) for slot in range(*key.indices(len(self)))]
        slot = index(key)
        if not -len(self) <= slot < len(self):
            raise IndexError(f"slot {slot} of {len(self)}")
        return self._map.receivers_of(slot % len(self))

    @property
    def receivers(self) -> range:
        """The slots of the receiver."""
        return range(self._map.shape[1])

    def sender_of(self, slot: int) -> int:
        """Return the slot of the sender that a slot of the receiver gets its weights from. Raises ``IndexError``."""
        return self._map.sender_of(slot)

    def __repr__(self) -> str:
        senders, receivers = self._map.shape
        return f"<WeightMap from {senders} slots of {self.sender.name} to {receivers} of {self.receiver.name}>"


def senderless(components: Mapping[str, Component]) -> Iterator[tuple[str, Diagnostic]]:
    """Yield the receivers of `SENDERS` whose tensor sizes leave slots without a sender, with the fault."""
    for sender, receiver in SENDERS.items():
        for name in components:
            if sender in components and (name == receiver or name.startswith(f"{receiver}_")):
                sizes = [components[each].layout.size("tp") for each in (sender, name)]
                if sizes[0] > 1 and sizes[0] % sizes[1]:
                    try:
                        WeightMap(components[sender], components[name])
                    except PlacementError as error:
                        yield from ((name, found) for found in error.diagnostics)
