"""Seconds of an iteration by number of accelerators: measured points, and what lies between and beyond them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from rankplan._core import SAME_SECONDS
from rankplan.frozen import frozen

_T = TypeVar("_T")


def as_fast(one: float, other: float) -> bool:
    """Whether seconds are at most others. They are equal if they differ by a share of at most ``SAME_SECONDS``."""
    return one <= other * (1 + SAME_SECONDS)


def fastest(found: Iterable[_T], seconds: Callable[[_T], float], rest: Callable[[_T], Any]) -> _T:
    """Return the one with the least ``rest`` among those that are as fast as the fastest; ``ValueError`` for none."""
    return ranked(found, seconds, rest)[0]


def ranked(found: Iterable[_T], seconds: Callable[[_T], float], rest: Callable[[_T], Any]) -> list[_T]:
    """Return the fastest first; those that are as fast as the fastest of them are in the order of ``rest``."""
    left, order = sorted(found, key=seconds), list[_T]()
    while left:
        equal = [one for one in left if as_fast(seconds(one), seconds(left[0]))]
        order += sorted(equal, key=rest)
        left = left[len(equal) :]
    return order


class Times(ABC):
    """Seconds of one iteration by number of accelerators."""

    @abstractmethod
    def seconds(self, accelerators: int) -> float | None:
        """Return the seconds on this many accelerators, ``None`` if the component cannot run on them."""

    def within(self, accelerators: int) -> bool:
        """Whether this size is close enough to a measured one to interpolate; for a function, every size is."""
        return True

    def measured(self, accelerators: int) -> bool:
        """Whether this number of accelerators was measured; for a function, every number counts as measured."""
        return True


@frozen(slots=False)
class Computed(Times):
    """Seconds from a function of the number of accelerators, which returns ``None`` for numbers that it rules out."""

    function: Callable[[int], float | None]

    def seconds(self, accelerators: int) -> float | None:
        """Return the seconds on this many accelerators."""
        return self.function(accelerators)


@frozen(slots=False)
class _Points(Times):
    """Measured points, ascending by the load that was measured."""

    points: Mapping[int, float]

    @abstractmethod
    def _load(self, accelerators: int) -> int | None:
        """Return the load that this many accelerators have, ``None`` if they cannot be used."""

    @abstractmethod
    def _fitted(self, load: int, left: int, right: int) -> float:
        """Return the seconds by the two nearest points, which are the same if there is only one."""

    def seconds(self, accelerators: int) -> float | None:
        """Return the seconds on this many accelerators, ``None`` if the component cannot run on them."""
        load = self._load(accelerators)
        if load is None or load in self.points:
            return None if load is None else self.points[load]
        loads = list(self.points)
        above = min(max(bisect_left(loads, load), 1), len(loads) - 1)
        return self._fitted(load, loads[above - 1], loads[above])

    def within(self, accelerators: int) -> bool:
        """Whether the load is at least half the smallest point and at most twice the largest."""
        load = self._load(accelerators)
        return load is not None and min(self.points) <= 2 * load and load <= 2 * max(self.points)

    def measured(self, accelerators: int) -> bool:
        """Whether the load of this number of accelerators was measured."""
        return self._load(accelerators) in self.points


class Measured(_Points):
    """Measured points: seconds by number of accelerators, ascending.

    Times are exact at the points. Between two points they follow ``a + b / n`` through both, and never rise. Above the
    largest point they follow the last two, but at most halve when the accelerators are doubled: a fit through points
    that differ more would reach 0. Below the smallest they follow the first two, but at least double when the
    accelerators are halved: a fit through points that hardly differ says nothing about fewer accelerators.
    """

    def _load(self, accelerators: int) -> int:
        return accelerators

    def _fitted(self, load: int, left: int, right: int) -> float:
        if left == right:
            return self.points[left] * left / load
        share = (1 / load - 1 / right) / (1 / left - 1 / right)
        fit = self.points[right] + share * (self.points[left] - self.points[right])
        if load < left:
            return max(fit, self.points[left] * left / load)
        if load > right:
            return max(min(fit, self.points[right]), self.points[right] * right / load)
        return max(min(fit, self.points[left]), 0.0)


@frozen(slots=False)
class ByEnvironments(_Points):
    """Measured points: seconds by environments of an instance; an instance has ``each`` accelerators.

    Only numbers of instances that divide the environments count. Between two points, times follow the straight line
    through both.
    """

    environments: int
    each: int = 1

    def _load(self, accelerators: int) -> int | None:
        instances, rest = divmod(accelerators, self.each)
        if rest or not 1 <= instances <= self.environments or self.environments % instances:
            return None
        return self.environments // instances

    def _fitted(self, load: int, left: int, right: int) -> float:
        if left == right:
            return self.points[left] * max(load / left, 1.0)
        line = self.points[left] + (load - left) / (right - left) * (self.points[right] - self.points[left])
        return max(line, 0.0) if load > left else max(line, self.points[left] * load / left)
