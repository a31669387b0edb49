"""Which measured number decides the choice, and how far it may change."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rankplan.tuning.costs import ComponentCosts, Costs
from rankplan.tuning.reasons import times_of
from rankplan.tuning.schedule import Schedule, pace
from rankplan.tuning.times import Measured

_MOST = 1000.0
"""Changes by more than this factor count as never."""


@dataclass(frozen=True)
class Sensitivity:
    """The first placement beats the second until ``component`` on ``accelerators`` takes more than ``limit`` seconds.

    Both keep their sizes; with other sizes, a third one may be the best earlier.
    ``seconds`` is the time now. Of all measured times in the first placement, it has to change the least.
    """

    component: str
    accelerators: int
    seconds: float
    limit: float


def sensitivity(costs: Costs, first: Schedule, second: Schedule, weights: tuple[float, float]) -> Sensitivity | None:
    """Return the measured time of the first schedule that has to grow the least until the second is as fast.

    ``weights`` are the seconds that both schedules take for their transfers. ``None`` if no time makes the second as
    fast; both schedules keep their sizes.
    """
    more = weights[0] - weights[1]
    found = []
    for name, size in first.sizes.items():
        if costs.components[name].times.measured(size):
            seconds = costs.components[name].times.seconds(size) or 0.0
            limit = _limit(costs, first, second, more, name, size, seconds)
            if limit is not None and seconds > 0:
                found.append(Sensitivity(name, size, seconds, limit))
    return min(found, key=lambda one: one.limit / one.seconds, default=None)


def _limit(
    costs: Costs, first: Schedule, second: Schedule, more: float, name: str, size: int, seconds: float
) -> float | None:
    def wins(value: float) -> bool:
        changed = _changed(costs, name, size, value)
        one, other = (pace(node, times_of(changed, node), changed).iteration for node in (first, second))
        return one + more <= other

    low, high = seconds, seconds * _MOST
    if not wins(low) or wins(high):
        return None
    while high - low > 1e-6 * low:
        middle = (low + high) / 2
        low, high = (middle, high) if wins(middle) else (low, middle)
    return low


def _changed(costs: Costs, name: str, size: int, value: float) -> Costs:
    """Return the costs with another time of a component on a number of accelerators."""
    component = costs.components[name]
    times = component.times
    if isinstance(times, Measured):
        changed = replace(component, times=Measured({**times.points, size: value}))
    else:
        changed = replace(component, times=_Replaced(component, size, value))
    return replace(costs, components={**costs.components, name: changed})


@dataclass(frozen=True)
class _Replaced:
    """The times of a component with one of them replaced."""

    component: ComponentCosts
    size: int
    value: float

    def seconds(self, accelerators: int) -> float | None:
        return self.value if accelerators == self.size else self.component.times.seconds(accelerators)

    def within(self, accelerators: int) -> bool:
        return self.component.times.within(accelerators)

    def measured(self, accelerators: int) -> bool:
        return self.component.times.measured(accelerators)
