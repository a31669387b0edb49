"""Schedules: components as leaves, in turn on the same accelerators or beside each other in a pipeline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from rankplan.tuning.costs import Costs
from rankplan.tuning.sizes import Size


@dataclass(frozen=True)
class Schedule:
    """A node of a schedule.

    A ``leaf`` is a component on ``accelerators``; a ``then`` runs its children in turn on the same accelerators,
    ``switching`` if each is loaded for its turn; a ``pipe`` runs them beside each other, pipelined by micro-batch.
    """

    kind: Literal["leaf", "then", "pipe"]
    accelerators: int
    component: str = ""
    children: tuple[Schedule, ...] = ()
    switching: bool = False

    @classmethod
    def of(cls, found: tuple[Any, ...], names: Sequence[str], unit: int) -> Schedule:
        """Return the node of a schedule as the core returns it, whose sizes count ``unit`` accelerators each."""
        kind = found[0]
        if kind == "leaf":
            return cls("leaf", found[2] * unit, names[found[1]])
        children = tuple(cls.of(child, names, unit) for child in found[1])
        sizes = [child.accelerators for child in children]
        if kind == "pipe":
            return cls("pipe", sum(sizes), children=children)
        return cls("then", max(sizes), children=children, switching=found[2])

    def filled(self, sizes: Mapping[str, Sequence[Size]]) -> Schedule:
        """Return the schedule with components in turn on all accelerators of their ``then`` if as fast there."""
        if self.kind == "leaf":
            return self
        children = tuple(
            child._grown(self.accelerators, sizes)
            if self.kind == "then" and child.kind == "leaf"
            else child.filled(sizes)
            for child in self.children
        )
        return replace(self, children=children)

    def _grown(self, accelerators: int, sizes: Mapping[str, Sequence[Size]]) -> Schedule:
        now = next(size for size in sizes[self.component] if size.accelerators == self.accelerators)
        for size in sizes[self.component]:
            if size.accelerators == accelerators and size.seconds <= now.seconds and size.memory <= now.memory:
                return replace(self, accelerators=accelerators)
        return self

    def leaves(self) -> Iterator[Schedule]:
        """Yield the leaves in order."""
        if self.kind == "leaf":
            yield self
        for child in self.children:
            yield from child.leaves()

    @property
    def sizes(self) -> dict[str, int]:
        """The number of accelerators of each component."""
        return {leaf.component: leaf.accelerators for leaf in self.leaves()}

    def __str__(self) -> str:
        if self.kind == "leaf":
            return self.component
        return f"{self.kind}({', '.join(map(str, self.children))})"


@dataclass(frozen=True)
class Pace:
    """Seconds of the first micro-batch, between two, and of an iteration without the transfers of weights."""

    warmup: float
    period: float
    iteration: float


def pace(node: Schedule, seconds: Mapping[str, float], costs: Costs, *, root: bool = True) -> Pace:
    """Return the times of a schedule whose components take these seconds an iteration."""
    batches = costs.batches
    if node.kind == "leaf":
        each = seconds[node.component] / batches
        return Pace(each, each, seconds[node.component])
    parts = [pace(child, seconds, costs, root=False) for child in node.children]
    if node.kind == "then":
        switches = [_switch(child, costs) if node.switching else 0.0 for child in node.children]
        if root:
            return Pace(0.0, 0.0, sum(part.iteration for part in parts) + sum(switches))
        warmup = sum(part.warmup for part in parts) + sum(switches)
        period = sum(part.period for part in parts) + sum(switches)
    else:
        warmup, period = _longest_path(node, parts, costs), max(part.period for part in parts)
    iteration = batches * period if costs.stale else warmup + (batches - 1) * period
    return Pace(warmup, period, iteration)


def _longest_path(node: Schedule, parts: Sequence[Pace], costs: Costs) -> float:
    """Return when the first micro-batch has passed all children of a pipeline."""
    done: dict[str, float] = {}
    for child, part in zip(node.children, parts, strict=True):
        names = [leaf.component for leaf in child.leaves()]
        start = max((done[one] for name in names for one in costs.after.get(name, ()) if one in done), default=0.0)
        for name in names:
            done[name] = start + part.warmup
    return max(done.values())


def _switch(node: Schedule, costs: Costs) -> float:
    """Return the seconds to load and unload what stays in memory at the end of a node's turn."""
    if node.kind == "leaf":
        return costs.components[node.component].switch
    each = [_switch(child, costs) for child in node.children]
    if node.kind == "pipe":
        return max(each)
    return 0.0 if node.switching else sum(each)
