"""Schedules: components in turn or beside each other, the seconds that they take, why, and what that depends on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from rankplan.frozen import frozen
from rankplan.tuning.costs import Costs
from rankplan.tuning.lending import lending_seconds, lending_terms
from rankplan.tuning.times import Measured, as_fast

_MOST = 1000.0
"""A measured time that has to change by more than this factor counts as one that changes nothing."""


@frozen(slots=False)
class Size:
    """A number of accelerators with the seconds of an iteration on them, and their resident memory."""

    accelerators: int
    seconds: float
    memory: float


@frozen(slots=False)
class Schedule:
    """A node of a schedule.

    A ``leaf`` is a component on ``accelerators``; a ``then`` runs its children in turn on the same accelerators,
    ``switching`` if each is loaded for its turn; a ``pipe`` runs them beside each other, pipelined by micro-batch. A
    ``lend`` is a whole schedule: a trainer and a rollout beside each other, and the trainer lends its accelerators.
    """

    kind: Literal["leaf", "then", "pipe", "lend"]
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

    @property
    def sizes(self) -> dict[str, int]:
        """The number of accelerators of each component."""
        if self.kind == "leaf":
            return {self.component: self.accelerators}
        return {name: size for child in self.children for name, size in child.sizes.items()}

    def __str__(self) -> str:
        if self.kind == "leaf":
            return self.component
        return f"{self.kind}({', '.join(map(str, self.children))})"


@frozen(slots=False)
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
    if node.kind == "lend":
        split = lending_terms(costs).split(node.sizes, dict(seconds))
        return Pace(0.0, 0.0, lending_seconds(split).lending)
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
        before = {one for name in child.sizes for one in costs.after.get(name, ())}
        start = max((done[one] for one in before & done.keys()), default=0.0)
        done |= dict.fromkeys(child.sizes, start + part.warmup)
    return max(done.values())


def _switch(node: Schedule, costs: Costs) -> float:
    """Return the seconds to load and unload what stays in memory at the end of a node's turn."""
    if node.kind == "leaf":
        return costs.components[node.component].switch or 0.0
    each = [_switch(child, costs) for child in node.children]
    if node.kind == "pipe":
        return max(each)
    return 0.0 if node.switching else sum(each)


def reason(costs: Costs, node: Schedule, seconds: float) -> str:
    """Return what the seconds of a schedule consist of."""
    transfers = transfers_of(costs, node, seconds)
    text = _part(node, times_of(costs, node), costs)
    return text + (f"; weights take {transfers:.3g} s" if transfers > 1e-6 * seconds else "")


def transfers_of(costs: Costs, node: Schedule, seconds: float) -> float:
    """Return the seconds that weights take, out of those of an iteration."""
    return seconds - pace(node, times_of(costs, node), costs).iteration


def times_of(costs: Costs, node: Schedule) -> dict[str, float]:
    """Return the seconds of an iteration of each component in a schedule."""
    return {name: costs.components[name].times.seconds(size) or 0.0 for name, size in node.sizes.items()}


def _part(node: Schedule, times: dict[str, float], costs: Costs) -> str:
    if node.kind == "leaf":
        return f"{node.component} {seconds_text(times[node.component])}"
    if node.kind == "then":
        parts = [
            f"({_part(child, times, costs)})" if child.kind == "pipe" else _part(child, times, costs)
            for child in node.children
        ]
        return "in turn: " + " + ".join(parts) + (", each loaded for its turn" if node.switching else "")
    if node.kind == "lend":
        return _lending(node, times, costs)
    periods = {child: pace(child, times, costs, root=False).period for child in node.children}
    slowest = max(node.children, key=lambda child: periods[child])
    most = periods[slowest]
    waits = [
        f"{_doing(child, 'wait')} {1 - periods[child] / most if most else 0.0:.0%} of the time"
        for child in node.children
        if child is not slowest
    ]
    return f"{_doing(slowest, 'set')} the pace with {seconds_text(most * costs.batches)}; " + ", ".join(waits)


def _lending(node: Schedule, times: dict[str, float], costs: Costs) -> str:
    terms = lending_terms(costs)
    step = lending_seconds(terms.split(node.sizes, times))
    together = step.lending - times[terms.trainer] - terms.switch
    return (
        f"{terms.trainer} trains {seconds_text(times[terms.trainer])}, switches {seconds_text(terms.switch)} and"
        f" generates {seconds_text(together)} with {terms.rollout}; without lending {seconds_text(step.without)}"
    )


def _doing(node: Schedule, verb: str) -> str:
    return f"{' and '.join(node.sizes)} {verb}{'s' if len(node.sizes) == 1 else ''}"


def seconds_text(seconds: float) -> str:
    """Return seconds as people read them: ``289 s``, ``28.9 s``, ``0.289 s``."""
    return f"{seconds:.0f} s" if seconds >= 100 else f"{seconds:.3g} s"


@frozen(slots=False)
class Sensitivity:
    """The first placement beats the second until ``component`` on ``accelerators`` takes more than ``limit`` seconds.

    Both keep their sizes; with other sizes, a third one may be the best earlier.
    ``seconds`` is the time now. Of all measured times in the first placement, it has to change the least.
    """

    component: str
    accelerators: int
    seconds: float
    limit: float


def sensitivity(costs: Costs, first: Schedule, second: Schedule, more: float) -> Sensitivity | None:
    """Return the measured time of the first schedule that has to grow the least until the second is as fast.

    The transfers of the first take ``more`` seconds than those of the second. ``None`` if no time makes the second as
    fast; both schedules keep their sizes.
    """
    found = []
    for name, size in first.sizes.items():
        seconds = costs.components[name].times.seconds(size) or 0.0
        if costs.components[name].times.measured(size) and seconds > 0:
            limit = _limit(costs, (first, second), more, name, seconds)
            found += [] if limit is None else [Sensitivity(name, size, seconds, limit)]
    return min(found, key=lambda one: one.limit / one.seconds, default=None)


def _limit(costs: Costs, nodes: tuple[Schedule, Schedule], more: float, name: str, seconds: float) -> float | None:
    """Return the seconds of a component from which the first schedule, which takes ``more`` besides, is slower."""
    times, size = costs.components[name].times, nodes[0].sizes[name]

    def changed(other: int, value: float) -> float:
        if isinstance(times, Measured):
            return Measured({**times.points, size: value}).seconds(other) or 0.0
        return value if other == size else times.seconds(other) or 0.0

    def wins(value: float) -> bool:
        known = [{**times_of(costs, node), name: changed(node.sizes[name], value)} for node in nodes]
        one, other = (pace(node, each, costs).iteration for node, each in zip(nodes, known, strict=True))
        return as_fast(one + more, other)

    low, high = seconds, seconds * _MOST
    if not wins(low) or wins(high):
        return None
    while high - low > 1e-6 * low:
        middle = (low + high) / 2
        low, high = (middle, high) if wins(middle) else (low, middle)
    return low
