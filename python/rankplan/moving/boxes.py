"""Boxes: parts of the states of a model, as intervals of its layers, of its experts and of the width of its tensors."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple, TypeAlias

Interval = tuple[Fraction, Fraction]
"""From the first end, included, to the second."""

WHOLE: Interval = (Fraction(0), Fraction(1))

Bytes: TypeAlias = int | Fraction
"""An exact number of bytes. Most are whole, and are added as ``int`` in a tenth of the time."""


def exact(size: Fraction) -> Bytes:
    """Return a number of bytes, as ``int`` if it is whole."""
    return size.numerator if size.denominator == 1 else size


class Box(NamedTuple):
    """A part of a tensor class: intervals of layers, of experts and of width. Experts and width count from 0 to 1."""

    layers: Interval = WHOLE
    experts: Interval = WHOLE
    width: Interval = WHOLE

    def __and__(self, other: Box) -> Box | None:
        """Return what both have, ``None`` if that is nothing."""
        common = []
        for mine, others in zip(self, other, strict=True):
            low, high = max(mine[0], others[0]), min(mine[1], others[1])
            if low >= high:
                return None
            common.append((low, high))
        return Box(*common)

    def without(self, other: Box) -> Iterator[Box]:
        """Yield disjoint boxes that together are this one without another."""
        common = self & other
        if common is None:
            yield self
            return
        left: Box = self
        for axis in range(3):
            (low, high), (start, end) = left[axis], common[axis]
            if low < start:
                yield left._with(axis, (low, start))
            if end < high:
                yield left._with(axis, (end, high))
            left = left._with(axis, (start, end))

    def _with(self, axis: int, interval: Interval) -> Box:
        sides = [*self]
        sides[axis] = interval
        return Box(*sides)


def nth(interval: Interval, index: int, count: int) -> Interval:
    """Return one of equal parts of an interval."""
    low, high = interval
    each = (high - low) / count
    start = low + index * each
    return start, start + each


class Layers(NamedTuple):
    """The layers that have a tensor: those from ``first`` on whose index modulo ``every`` is ``offset``.

    ``other``: the layers that do not have it instead, of all ``total``.
    """

    total: int
    first: int = 0
    every: int = 1
    offset: int = 0
    other: bool = False

    def within(self, interval: Interval) -> Fraction:
        """Return how many of these layers are in an interval of layers."""
        if self.every == 1 and self.first == 0:
            return Fraction(0) if self.other else interval[1] - interval[0]
        return self._before(interval[1]) - self._before(interval[0])

    def _before(self, end: Fraction) -> Fraction:
        having = self._having(end)
        return end - having if self.other else having

    def _having(self, end: Fraction) -> Fraction:
        """Return how many layers below ``end`` have the tensor; a part of a layer counts as that part."""
        if self.every == 1:
            return max(Fraction(0), end - self.first)
        whole = end.numerator // end.denominator
        full = sum(1 for layer in range(self.first, whole) if layer % self.every == self.offset)
        last = whole >= self.first and whole % self.every == self.offset
        return Fraction(full) + (end - whole if last else 0)
