"""Seconds of an iteration by number of accelerators: measured points, and what lies between and beyond them."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol


class Times(Protocol):
    """Seconds of one iteration by number of accelerators."""

    def seconds(self, accelerators: int) -> float | None:
        """Return the seconds on this many accelerators, ``None`` if the component cannot run on them."""

    def within(self, accelerators: int) -> bool:
        """Whether the measurements are near enough to tell."""

    def measured(self, accelerators: int) -> bool:
        """Whether this number of accelerators was measured."""


@dataclass(frozen=True)
class Measured:
    """Measured points: seconds by number of accelerators, ascending.

    Times are exact at the points. Between two points they follow ``a + b / n`` through both, and never rise. Above the
    largest point they follow the last two, but at most halve when the accelerators are doubled: a fit through points
    that differ more would reach 0. Below the smallest they follow the first two, but at least double when the
    accelerators are halved: a fit through points that hardly differ says nothing about fewer accelerators.
    """

    points: Mapping[int, float]

    def seconds(self, accelerators: int) -> float:
        """Return the seconds on this many accelerators."""
        if accelerators in self.points:
            return self.points[accelerators]
        sizes = list(self.points)
        if len(sizes) == 1:
            return self.points[sizes[0]] * sizes[0] / accelerators
        above = min(max(bisect_left(sizes, accelerators), 1), len(sizes) - 1)
        left, right = sizes[above - 1], sizes[above]
        share = (1 / accelerators - 1 / right) / (1 / left - 1 / right)
        fit = self.points[right] + share * (self.points[left] - self.points[right])
        if accelerators < left:
            return max(fit, self.points[left] * left / accelerators)
        if accelerators > right:
            return max(min(fit, self.points[right]), self.points[right] * right / accelerators)
        return max(min(fit, self.points[left]), 0.0)

    def within(self, accelerators: int) -> bool:
        """Whether the number is at least half the smallest point and at most twice the largest."""
        return min(self.points) <= 2 * accelerators and accelerators <= 2 * max(self.points)

    def measured(self, accelerators: int) -> bool:
        """Whether this number of accelerators was measured."""
        return accelerators in self.points


@dataclass(frozen=True)
class ByEnvironments:
    """Measured points: seconds by environments of an instance; an instance has ``each`` accelerators.

    Only numbers of instances that divide the environments count if ``even``; otherwise the fuller instances decide.
    Between two points, times follow the straight line through both.
    """

    points: Mapping[int, float]
    environments: int
    each: int = 1
    even: bool = True

    def _load(self, accelerators: int) -> int | None:
        instances, rest = divmod(accelerators, self.each)
        if rest or not 1 <= instances <= self.environments or (self.even and self.environments % instances):
            return None
        return math.ceil(self.environments / instances)

    def seconds(self, accelerators: int) -> float | None:
        """Return the seconds on this many accelerators, ``None`` if they cannot share the environments."""
        load = self._load(accelerators)
        if load is None:
            return None
        if load in self.points:
            return self.points[load]
        sizes = list(self.points)
        if len(sizes) == 1:
            return self.points[sizes[0]] * max(load / sizes[0], 1.0)
        above = min(max(bisect_left(sizes, load), 1), len(sizes) - 1)
        left, right = sizes[above - 1], sizes[above]
        line = self.points[left] + (load - left) / (right - left) * (self.points[right] - self.points[left])
        return max(line, 0.0) if load > left else max(line, self.points[left] * load / left)

    def within(self, accelerators: int) -> bool:
        """Whether the environments of an instance are at least half the smallest point, at most twice the largest."""
        load = self._load(accelerators)
        return load is not None and min(self.points) <= 2 * load and load <= 2 * max(self.points)

    def measured(self, accelerators: int) -> bool:
        """Whether this number of environments was measured."""
        return self._load(accelerators) in self.points


@dataclass(frozen=True)
class Computed:
    """Seconds from a function of the number of accelerators, which returns ``None`` for numbers that it rules out."""

    function: Callable[[int], float | None]

    def seconds(self, accelerators: int) -> float | None:
        """Return the seconds on this many accelerators."""
        return self.function(accelerators)

    def within(self, accelerators: int) -> bool:
        """Return true: a function knows its own limits."""
        return True

    def measured(self, accelerators: int) -> bool:
        """Return true: nothing is interpolated."""
        return True
