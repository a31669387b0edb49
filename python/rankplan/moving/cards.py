"""What instances take of accelerators: at least and at most, awake and asleep."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from typing import NamedTuple

from rankplan._core import ACCELERATOR, USABLE_MEMORY
from rankplan.memory.shared_cards import card_at, stated_memory
from rankplan.memory.slots import Evaluation
from rankplan.moving.holdings import OPTIMIZER, STATES, Key
from rankplan.moving.sides import Kind, Node, Place, Side, Slot
from rankplan.nodes.inventory import Inventory
from rankplan.nodes.node import NodeSpec
from rankplan.plans.plan import Plan

_UNKNOWN_CARD = 80.0 * (1 << 30)
_ASLEEP = ("host", "free")

Accelerator = tuple[Node, int]


class Amount(NamedTuple):
    """Bytes at least, and at most; infinite: no upper bound is known."""

    low: float
    high: float

    def plus(self, other: Amount) -> Amount:
        """Return the sum."""
        return Amount(self.low + other.low, self.high + other.high)


NOTHING = Amount(0.0, 0.0)
_ANYTHING = Amount(0.0, math.inf)


def total_of(amounts: Iterable[Amount]) -> Amount:
    """Return the sum of amounts."""
    total = NOTHING
    for amount in amounts:
        total = total.plus(amount)
    return total


class _SlotAmounts(NamedTuple):
    """What a slot has after it was loaded, what the cache of an engine takes besides, and what it leaves asleep."""

    loaded: Amount
    cache: Amount
    asleep: Amount


class Size(NamedTuple):
    """The bytes of an accelerator that are surely usable, and that it has at most."""

    usable: float
    most: float


class Sizes:
    """The memory of the accelerators of the plan after, and of those that only the plan before has."""

    def __init__(self, before: Inventory, after: Inventory) -> None:
        self._before, self._after = before, after
        self._stated_before, self._stated_after = stated_memory(before), stated_memory(after)
        self._sizes: dict[Accelerator, Size | None] = {}

    def of(self, accelerator: Accelerator) -> Size | None:
        """Return the memory of an accelerator, ``None`` if it is unknown."""
        if accelerator not in self._sizes:
            node, index = accelerator
            spec, (stated, _) = self._node(node)
            card = card_at(spec, index, stated)
            self._sizes[accelerator] = None if card is None else Size(USABLE_MEMORY * card[0], card[1])
        return self._sizes[accelerator]

    def host(self, node: Node) -> float | None:
        """Return the memory of a node, ``None`` if it is unknown."""
        spec, (_, stated) = self._node(node)
        size = sum(spec.memory.values()) << 20 if spec.memory else stated
        return None if size is None else float(size)

    def _node(self, node: Node) -> tuple[NodeSpec, tuple[int | None, int | None]]:
        """Return a node, and what its inventory states of the memory of accelerators and of hosts."""
        if node < 0:
            return self._before.node(-1 - node), self._stated_before
        return self._after.node(node), self._stated_after


class Amounts:
    """What slots of a component take of an accelerator.

    Between two steps, a trainer surely has only what it holds: gradients and activations may be gone, so its lower
    bound is that of its holdings. ``rests``: the component sleeps whenever it has no turn.
    """

    def __init__(self, side: Side, *, rests: bool) -> None:
        self.side, self.rests = side, rests
        memory = side.component.memory
        evaluation = None if memory is None else Evaluation(side.component, memory)
        self._evaluation = evaluation if evaluation is not None and evaluation.known else None
        self._computed: dict[tuple[Key, str, float], _SlotAmounts] = {}

    @property
    def sleeps(self) -> bool:
        """Whether the component can leave its accelerators for the host."""
        memory = self.side.component.memory
        return memory is not None and memory.sleep == "host"

    @property
    def forgets(self) -> bool:
        """Whether the component sleeps between two steps, and its host has no copy then."""
        memory = self.side.component.memory
        return self.rests and memory is not None and memory.sleep == "free"

    def loaded(self, slot: Slot, size: Size | None) -> Amount:
        """Return what a slot has after it was loaded, without the cache of an engine."""
        return self._amounts(slot, size).loaded

    def cache(self, slot: Slot, size: Size | None) -> Amount:
        """Return what the cache of an engine takes."""
        return self._amounts(slot, size).cache

    def asleep(self, slot: Slot, size: Size | None) -> Amount:
        """Return what a slot leaves on its accelerator when it sleeps."""
        return self._amounts(slot, size).asleep

    def resting(self, slot: Slot, size: Size | None) -> Amount:
        """Return what a slot has between two steps."""
        if self.rests:
            return self.asleep(slot, size)
        return self.loaded(slot, size).plus(self.cache(slot, size))

    def _amounts(self, slot: Slot, size: Size | None) -> _SlotAmounts:
        card = _UNKNOWN_CARD if size is None else size.most
        key = self.side.weight_key(slot), slot.place.kind, card
        if key not in self._computed:
            self._computed[key] = self._compute(slot, card)
        return self._computed[key]

    def _compute(self, slot: Slot, card: float) -> _SlotAmounts:
        if slot.place.kind != ACCELERATOR:
            return _SlotAmounts(NOTHING, NOTHING, NOTHING)
        if self._evaluation is None:
            return _SlotAmounts(_ANYTHING, NOTHING, _ANYTHING)
        memory = self._evaluation.slot(card)
        low = sum(lower for name, (lower, _) in memory.parts.items() if name != "cache")
        high = sum(upper for name, (_, upper) in memory.parts.items() if name != "cache")
        if self.side.kind is not Kind.ENGINE and self.side.keeper.resident is None:
            low = min(low, float(self._held(slot)))
        cache = memory.parts.get("cache", (0.0, 0.0))
        likely = self._evaluation.likely(card)
        least = memory.asleep[0] if memory.stages == 1 else 0.0
        # No bound but its own holds for a sleeper: what such ones were measured to leave decides the order of steps.
        asleep = Amount(least, memory.asleep[1] if likely is None else max(least, likely.asleep))
        return _SlotAmounts(Amount(low, max(high, low)), Amount(*cache), asleep)

    def _held(self, slot: Slot) -> Fraction:
        """Return the bytes of what a slot holds on its accelerator."""
        keeper, memory = self.side.keeper, self.side.component.memory
        on_host = Fraction(0) if memory is None else Fraction(memory.optimizer_on_host)
        total = Fraction(0)
        for piece, box in self.side.holding(slot).items():
            size = keeper.bytes(piece, box)
            if piece.state in (OPTIMIZER, STATES):
                size *= 1 - on_host
            total += size
        return total

    def held(self, slot: Slot) -> int:
        """Return the bytes of all that a slot holds, rounded."""
        return round(self.side.bytes(slot))


def accelerator_of(place: Place) -> Accelerator | None:
    """Return the accelerator of a slot, ``None`` for a process without one."""
    return (place.node, place.local[0]) if place.kind == ACCELERATOR else None


def resting(plan: Plan) -> set[str]:
    """Return the components that sleep whenever they have no turn: those with ``sleep`` that share accelerators."""
    used = {name: component.rows.accelerators() for name, component in plan.items()}
    rest = set()
    for name in plan:
        memory = plan[name].memory
        if memory is not None and memory.sleep in _ASLEEP:
            others = [ranks for other, ranks in used.items() if other != name]
            if any(used[name] & ranks for ranks in others):
                rest.add(name)
    return rest
