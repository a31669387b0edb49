"""What a slot of a component is measured to need: the core's numbers for its settings, and usual ones for the rest."""

from __future__ import annotations

import math
from dataclasses import replace

from rankplan._core import engine_likely, switch_likely, training_likely
from rankplan.frozen import frozen
from rankplan.memory.settings import GIB, Engine, Training
from rankplan.memory.usual import AS_MEASURED, Usual, usual_engine, usual_training
from rankplan.plans.model import Model


@frozen
class LikelySlot:
    """What a component is measured to need on an accelerator, in bytes; of pipeline stages, the fullest one.

    ``least`` is the sum with everything recomputed, where that is not stated; else that of the parts. ``complete``:
    these are all parts. ``asleep`` is what it leaves while others have their turn, and ``resident`` what it keeps if it
    does not sleep. ``starts`` tells whether an engine does (``None``: it is close).
    """

    parts: dict[str, float]
    asleep: float
    resident: float
    least: float
    complete: bool = True
    starts: bool | None = True
    is_engine: bool = False
    assumed: tuple[Usual, ...] = ()

    def counts(self, *, sleeper_is_engine: bool) -> bool:
        """Whether what another component leaves is part of its likely value: a trainer counts only its own process."""
        return self.is_engine or not sleeper_is_engine


def of_training(model: Model, training: Training) -> LikelySlot:
    """Return what a trainer, or a model that only computes, is measured to need."""
    usual, assumed = usual_training(training)
    stages = training_likely(model, usual)
    parts, complete, asleep = max(stages, key=lambda stage: _sum(stage[0]))
    least = _sum(parts)
    if any(value.setting == "recompute" for value in assumed):
        everything = training_likely(model, replace(usual, recompute="full"))
        least = min(least, max(_sum(stage[0]) for stage in everything))
    resident = max(stage[2] for stage in training_likely(model, replace(usual, sleep="none")))
    return LikelySlot(_sizes(parts), asleep, resident, least, complete, assumed=tuple(assumed))


def of_engine(model: Model, engine: Engine, card: float) -> LikelySlot:
    """Return what an engine is measured to need on an accelerator of so many bytes."""
    usual, assumed = usual_engine(engine)
    (parts, complete, asleep), starts = engine_likely(model, usual, card)
    total = _sum(parts)
    return LikelySlot(_sizes(parts), asleep, total, total, complete, starts, is_engine=True, assumed=tuple(assumed))


def of_switch(model: Model, training: Training, engine: Engine, card: float) -> LikelySlot:
    """Return what is measured while weights go from a trainer to an engine on the same accelerators."""
    trainer, _ = usual_training(training)
    server, _ = usual_engine(engine)
    parts = max(switch_likely(model, trainer, server, card), key=_sum)
    return LikelySlot(_sizes(parts), 0.0, 0.0, _sum(parts))


def of_resident(bounds: tuple[float, float], asleep: tuple[float, float]) -> LikelySlot:
    """Return a stated size: the middle of two, where a size between is not stated."""
    likely, sleeping = (_middle(*pair) for pair in (bounds, asleep))
    return LikelySlot({"resident": likely}, sleeping, likely, likely, is_engine=True)


def of_measured(size: float, *, is_engine: bool) -> LikelySlot:
    """Return the bytes of a phase that were measured: what the allocator held at its peak."""
    usual = Usual(AS_MEASURED, f"{size / GIB:,.1f} GiB")
    return LikelySlot({"measured": size}, 0.0, size, size, is_engine=is_engine, assumed=(usual,))


def _middle(low: float, high: float) -> float:
    return low if math.isinf(high) else (low + high) / 2


def _sizes(parts: list[tuple[str, str, float]]) -> dict[str, float]:
    return {name: size for name, _, size in parts}


def _sum(parts: list[tuple[str, str, float]]) -> float:
    return sum(size for _, _, size in parts)
