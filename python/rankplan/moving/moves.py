"""The moves of a transition: what each slot gets of a state from one sender. Rows are made when they are read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import overload

from rankplan.frozen import frozen
from rankplan.moving.boxes import Bytes
from rankplan.moving.holdings import PARTS
from rankplan.moving.instances import Component
from rankplan.moving.senders import Delivery, Sender


@frozen
class Move:
    """What a slot of the plan after gets of a state from one slot of the plan before, or from storage (``None``).

    ``part`` is the part of the component's whole state, where no bytes are known. ``converts``: the sender has the
    state in another precision.
    """

    component: str
    slot: int
    sender: Sender | None
    state: str
    bytes: int | None
    level: str
    part: float | None = None
    converts: bool = False


class Moves(Sequence[Move]):
    """The moves of all slots, in their order. A large transition has many that nobody reads."""

    def __init__(self, deliveries: Sequence[Delivery], components: Mapping[str, Component]) -> None:
        self._deliveries, self._components = deliveries, components
        self._converts: dict[tuple[str, str, str], bool] = {}

    @overload
    def __getitem__(self, index: int) -> Move: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Move, ...]: ...
    def __getitem__(self, index: int | slice) -> Move | tuple[Move, ...]:
        return self._rows[index]

    def __len__(self) -> int:
        return len(self._rows)

    def __bool__(self) -> bool:
        return bool(self._deliveries)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._rows == tuple(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self._rows)

    @cached_property
    def _rows(self) -> tuple[Move, ...]:
        return tuple(move for delivery in self._deliveries for move in self._of(delivery))

    def _of(self, delivery: Delivery) -> Iterator[Move]:
        """Yield what a slot gets: the parts of one state from one sender are one move."""
        sums: dict[tuple[Sender | None, str, str], Bytes] = {}
        for part, sender, level in delivery.transfers():
            key = sender, part.piece.state, level
            sums[key] = sums.get(key, 0) + part.bytes
        name, slot = delivery.component, delivery.slot
        for (sender, state, level), size in sums.items():
            if state == PARTS:
                yield Move(name, slot, sender, state, None, level, part=float(size))
                continue
            is_converted = sender is not None and self._is_converted(name, sender.component, state)
            yield Move(name, slot, sender, state, round(size), level, converts=is_converted)

    def _is_converted(self, name: str, sender: str, state: str) -> bool:
        """Whether the component that sends has a state in another precision than the one that gets it."""
        key = name, sender, state
        if key not in self._converts:
            sending, receiving = self._components[sender].before, self._components[name].after
            if sending is None or receiving is None:
                return False
            stored = sending.keeper.states.get(state) or (4.0 if sending.keeper.states else None)
            self._converts[key] = stored is not None and stored != receiving.keeper.precision(state)
        return self._converts[key]
