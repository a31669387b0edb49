"""What measured runs tell about the parts of a step on other numbers of accelerators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from rankplan.frozen import frozen
from rankplan.tuning.async_step import Assumed, Parts, generation_of
from rankplan.tuning.async_terms import AsyncTerms, MeasuredRun, Rule
from rankplan.tuning.costs import Costs
from rankplan.tuning.times import Measured


class Scaled(NamedTuple):
    """Seconds of a part on a number of accelerators, and how far from what was measured.

    ``exact``: measured on this number, on accelerators of its own. ``between``: between two such numbers, or on one.
    ``far``: on less than a quarter or more than twice the accelerators of every measured size.
    """

    seconds: float
    exact: bool
    between: bool
    far: bool


@frozen(slots=False)
class PartTimes:
    """Seconds of one part of a step, by number of accelerators.

    ``own`` are those on accelerators of its own, ``colocated`` those of colocated runs. ``inferred`` are the sizes in
    ``own`` whose seconds rest on assumed numbers.
    """

    own: Mapping[int, float]
    colocated: Mapping[int, float]
    inferred: frozenset[int] = frozenset()

    def on(self, accelerators: int, assumed: Assumed) -> Scaled | None:
        """Return the seconds on this number of accelerators; ``None`` if nothing was measured.

        Times on accelerators of their own come first, unless they are far and those of a colocated run are near.
        """
        measured = [points for points in (self.own, self.colocated) if points]
        if not measured:
            return None
        near = [points for points in measured if not _is_far(points, accelerators)]
        points = near[0] if near else measured[0]
        seconds = _scaled(points, accelerators, assumed.kappa)
        if points is self.colocated:
            return Scaled(seconds * assumed.leave, exact=False, between=False, far=not near)
        exact = accelerators in points and accelerators not in self.inferred
        between = self.inferred.isdisjoint(points) and min(points) <= accelerators <= max(points)
        return Scaled(seconds, exact, between, far=not near)


def _scaled(points: Mapping[int, float], accelerators: int, kappa: float) -> float:
    """Return the seconds by one measured size and ``kappa``, or by two and more without it."""
    if len(points) > 1:
        return Measured(dict(sorted(points.items()))).seconds(accelerators) or 0.0
    [(size, seconds)] = points.items()
    return float(seconds * (size / accelerators) ** kappa)


def _is_far(points: Mapping[int, float], accelerators: int) -> bool:
    """Whether all measured sizes are too small or too large."""
    return 4 * accelerators < min(points) or accelerators > 2 * max(points)


class SplitParts(NamedTuple):
    """The parts of a step on a split: those of the trainer and of the rollout."""

    training: Scaled
    generation: Scaled

    @property
    def seconds(self) -> Parts:
        """The seconds of both."""
        return Parts(self.training.seconds, self.generation.seconds)

    @property
    def far(self) -> bool:
        """Whether one of them is far from every measured size."""
        return self.training.far or self.generation.far


@frozen(slots=False)
class RunTimes:
    """The parts of a step by number of accelerators, as the runs and the costs of both components tell them."""

    training: PartTimes
    generation: PartTimes

    def on(self, split: tuple[int, int], assumed: Assumed) -> SplitParts | None:
        """Return the parts on the accelerators of trainer and rollout; ``None`` if the runs do not tell one of them."""
        training = self.training.on(split[0], assumed)
        generation = self.generation.on(split[1], assumed)
        return None if training is None or generation is None else SplitParts(training, generation)


def run_times(costs: Costs, terms: AsyncTerms, assumed: Assumed) -> RunTimes:
    """Return what the runs tell under these assumed numbers, which stand in for parts that were not measured.

    Of several runs on one split, the trainer's seconds are the mean, and the generation follows from the run with the
    least staleness, whose step depends on it most.
    """
    shared = _colocated_parts([run for run in costs.runs if run.split is None], assumed)
    separate = [run for run in costs.runs if run.split is not None and not run.lends]
    own_generation: dict[int, float] = {}
    inferred: set[int] = set()
    # Of several runs on one split, the last one counts: that with the least staleness.
    for run in sorted(separate, key=lambda run: (run.staleness or 0.0, run.step), reverse=True):
        seconds = _generated(costs, terms, run, assumed)
        if run.split is None or seconds is None:
            continue
        size = run.split[1]
        own_generation[size] = seconds
        if terms.rule is Rule.PARTIAL and run.staleness:
            inferred.add(size)
        else:
            inferred.discard(size)
    stated_generation = _written(costs, terms.rollout)
    return RunTimes(
        training=PartTimes(
            own=_trained(separate) | _written(costs, terms.trainer),
            colocated={size: parts.training for size, parts in shared.items()},
        ),
        generation=PartTimes(
            own=own_generation | stated_generation,
            colocated={size: parts.generation for size, parts in shared.items()},
            inferred=frozenset(inferred - stated_generation.keys()),
        ),
    )


def _colocated_parts(runs: list[MeasuredRun], assumed: Assumed) -> dict[int, Parts]:
    """Return the parts of a step by number of shared accelerators: measured, or else the assumed shares of steps."""
    measured = {run.accelerators: Parts(run.training or 0.0, run.generation or 0.0) for run in runs if run.has_parts}
    if measured:
        return measured
    return {run.accelerators: Parts(run.step * (1 - assumed.share), run.step * assumed.share) for run in runs}


def _written(costs: Costs, name: str) -> dict[int, float]:
    """Return the seconds that the costs state of a component, by number of accelerators of its own."""
    times = costs.components[name].times
    return dict(times.points) if isinstance(times, Measured) else {}


def _trained(runs: list[MeasuredRun]) -> dict[int, float]:
    """Return the mean seconds of training on each number of accelerators."""
    seconds: dict[int, list[float]] = {}
    for run in runs:
        if run.split is not None and run.trained is not None:
            seconds.setdefault(run.split[0], []).append(run.trained)
    return {size: sum(values) / len(values) for size, values in seconds.items()}


def _generated(costs: Costs, terms: AsyncTerms, run: MeasuredRun, assumed: Assumed) -> float | None:
    """Return the seconds of generation of a run on separate accelerators, as its step tells them."""
    if run.trained is None:
        return None
    return generation_of(terms, costs.batches, run.step, run.trained, run.staleness, assumed)
