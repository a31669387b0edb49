"""What a phase needs on an accelerator, and the answer to whether it fits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

from rankplan._core import USABLE_MEMORY
from rankplan.frozen import frozen
from rankplan.memory.slots import Bounds, Parts
from rankplan.memory.usual import Usual

Answer: TypeAlias = Literal["refused", "fits", "likely fits", "likely exceeds", "unknown"]
ANSWERS: tuple[Answer, ...] = ("fits", "likely fits", "unknown", "likely exceeds", "refused")
"""From the best to the worst."""

SWITCH = "switch"
RESERVED = "other programs"


class Phase(NamedTuple):
    """A phase of a component, such as ``actor.train``."""

    component: str
    phase: str

    def __str__(self) -> str:
        return ".".join(self)


Measured: TypeAlias = Mapping[Phase, float]
"""What the allocator of a component held at its peak in a phase, in bytes."""


class Assumed(NamedTuple):
    """A value that a component does not state, and that its likely need assumes."""

    component: str
    usual: Usual


@frozen
class Likely:
    """What a phase is measured to need on an accelerator, in bytes.

    ``parts`` are what allocators hold at the peak, as trainers log it. ``room`` is what the phase takes of the
    accelerator with contexts, buffers and lost blocks, and ``least_room`` is that with everything recomputed, where a
    trainer does not state whether it recomputes. ``complete``: all parts are known. ``starts`` tells whether an engine
    does (``None``: it is close).
    """

    parts: dict[str, float]
    room: float
    least_room: float
    complete: bool = True
    starts: bool | None = True
    assumed: tuple[Assumed, ...] = ()

    @property
    def size(self) -> float | None:
        """The sum of the parts, ``None`` if some are unknown."""
        return sum(self.parts.values()) if self.complete else None

    def answer(self, card: Bounds) -> Answer:
        """Return whether the phase likely fits an accelerator of at least and at most so many bytes.

        Unknown if parts are missing, if it is close whether an engine starts, if the accelerator has one of two sizes
        and that decides, or if recomputing does.
        """
        least, most = card
        if self.starts is False or self.least_room > most:
            return "likely exceeds"
        return "likely fits" if self.starts and self.complete and self.room <= least else "unknown"


@frozen
class Need:
    """What a phase needs on the accelerator of its components that needs the most, in bytes.

    ``parts`` add up to ``lower`` and ``upper``; infinite: no upper bound is known. ``card`` is the memory of the
    accelerator, at least and at most (an A100 has 40 or 80 GiB), ``None`` if it is unknown. ``where`` is a node rank
    and a local index. ``decides`` are the keys that are not stated and could decide an unknown answer: each
    alone, or all ``together``. ``tokens`` bounds what the cache of an engine holds, and ``starts`` tells whether the
    engine starts with its share (``None``: uncertain). ``host`` is what the ranks on that node take of its memory.
    ``others`` sleep on the accelerator. ``measured``: a run of these settings decides the bounds. ``estimate`` is what
    such a phase is measured to need, ``None`` if nothing is known of it.
    """

    components: tuple[str, ...]
    phase: str
    parts: Parts
    where: tuple[int, int]
    card: Bounds | None = None
    decides: tuple[str, ...] = ()
    tokens: Bounds | None = None
    starts: bool | None = True
    host: Bounds = (0.0, 0.0)
    others: tuple[str, ...] = ()
    measured: bool = False
    together: bool = False
    estimate: Likely | None = None

    @property
    def lower(self) -> float:
        """At least these bytes."""
        return sum(lower for lower, _ in self.parts.values())

    @property
    def upper(self) -> float:
        """At most these bytes; infinite if no bound is known."""
        return sum(upper for _, upper in self.parts.values())

    @property
    def likely(self) -> float | None:
        """What such a phase is measured to need, between the bounds; ``None`` if a key that decides is unknown."""
        if self.measured and self.lower == self.upper:
            return self.upper
        size = None if self.estimate is None else self.estimate.size
        return None if size is None else min(max(size, self.lower), self.upper)

    @property
    def answer(self) -> Answer:
        """One of five answers, from what is proved to what is likely.

        ``refused`` if the lower bound exceeds the accelerator, or an engine surely does not start; ``fits`` if the
        upper bound does not exceed it; ``likely fits`` or ``likely exceeds`` by the likely value; else ``unknown``.
        """
        if self.starts is False or (self.card is not None and self.lower > self.card[1]):
            return "refused"
        if self.starts and self.has_room:
            return "fits"
        if self.card is None or self.estimate is None:
            return "unknown"
        if self.measured and self.lower == self.upper:
            return "likely exceeds"
        return self.estimate.answer(self.card)

    @property
    def has_room(self) -> bool:
        """Whether the upper bound is surely on the accelerator."""
        return self.card is not None and self.upper <= USABLE_MEMORY * self.card[0]

    def plain(self) -> dict[str, Any]:
        """Return the need as plain values; ``None``: no upper bound, no likely value, or an unknown accelerator."""
        assumed = () if self.estimate is None else self.estimate.assumed
        return {
            "components": list(self.components),
            "phase": self.phase,
            "memory_lower": int(self.lower),
            "memory_likely": None if self.likely is None else int(self.likely),
            "memory_upper": whole(self.upper),
            "parts": {name: [int(low), whole(high)] for name, (low, high) in self.parts.items()},
            "of": None if self.card is None else int(self.card[1]),
            "answer": self.answer,
            "assumed": {f"{name}.{usual.setting}": usual.value for name, usual in assumed},
            "decides": list(self.decides),
            "host": [int(self.host[0]), whole(self.host[1])],
            "measured": self.measured,
        }


def whole(size: float) -> int | None:
    """Return bytes as an int, ``None`` for no bound."""
    return None if math.isinf(size) else int(size)


def rank_of(need: Need) -> tuple[int, float, float, float]:
    """Return what orders accelerators from the one with the most room for a phase to the worst one."""
    card = 0.0 if need.card is None else need.card[1]
    return ANSWERS.index(need.answer), need.upper - card, need.lower - card, need.upper
