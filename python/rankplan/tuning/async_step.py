"""Seconds of a step of an asynchronous run, from those of its training and its generation.

The formulas have two numbers that are measured, the seconds of a batch's training and of its generation, and four that
are assumed. What the trainer waits for is a share of the time in which nothing runs ahead, the *pipeline fill*: all of
it without staleness, none of it if a whole batch runs ahead, and something between for bounds of the staleness.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import NamedTuple

from rankplan.tuning.async_terms import AsyncTerms, Rule
from rankplan.tuning.lending import Split, lending_seconds


class Assumed(NamedTuple):
    """Numbers of the model that a user cannot measure before the run.

    ``kappa``: on half the accelerators, a part takes 2 ** kappa times as long. ``leave``: on accelerators of its own, a
    part takes this share of its seconds in a colocated run. ``tail``: the share of a generation that its few longest
    responses take. ``overhead``: what a step takes more than its longer part. ``share``: the generation's share of a
    colocated step, if only the step was measured.
    """

    kappa: float = 0.6
    leave: float = 0.85
    tail: float = 0.8
    overhead: float = 0.0
    share: float = 0.5


USUAL = Assumed()
"""Fitted to published runs; see ``benches/async_runs.py``."""

LEAST = Assumed(0.5, 0.6, 0.3, 0.0, 0.35)
MOST = Assumed(1.0, 0.95, 1.0, 0.2, 0.65)
"""The ends of each number in published runs."""

OVERHEAD_OF_PARTS = 0.1
"""What a step takes more than its longer part if both were measured on their accelerators."""

SURE = 0.1
"""A prediction is at least this share off, either way."""

UNKNOWN_SHARE = 0.3
"""The least share of a step without staleness that remains if generation runs ahead without limit."""

USUAL_IN_RANGE = 0.25
"""Where in the range between that share and the whole step published runs are."""

_PRECISION = 1e-12
"""Of the seconds of generation that follow from a measured step, as a share of them."""


def ends() -> Iterator[Assumed]:
    """Yield every combination of the ends of the assumed numbers."""
    for values in product(*zip(LEAST, MOST, strict=True)):
        yield Assumed(*values)


class Parts(NamedTuple):
    """Seconds of the training and of the generation of a batch, each on its own accelerators."""

    training: float
    generation: float


class Step(NamedTuple):
    """Seconds of a step; those of a batch's training, and the pace of its generation."""

    seconds: float
    training: float
    generation: float

    @property
    def wait(self) -> float:
        """The seconds in which the trainer waits."""
        return max(self.seconds - self.training, 0.0)

    @property
    def idle(self) -> float:
        """The seconds in which the rollout is idle."""
        return max(self.seconds - self.generation, 0.0)


def fill_share(terms: AsyncTerms, staleness: float | None) -> float:
    """Return the share of the pipeline fill that the trainer waits for, from 0 to 1.

    With partial rollouts, it waits for a quantile of the responses instead of the last one. Whole responses may span as
    many steps as the bound of their age allows.
    """
    if terms.rule is Rule.STREAM or staleness == 0:
        return 1.0
    if staleness is not None and terms.rule is Rule.WHOLE:
        return 1 / (1 + staleness)
    if staleness is not None and terms.rule is Rule.PARTIAL:
        # 1 + 1 / staleness, the form without cancellation for large numbers; one response is the last one.
        samples = terms.samples or 1
        return min(1.0, math.log1p(1 / staleness) / math.log(samples)) if samples > 1 else 1.0
    return 0.0


def generation_pace(terms: AsyncTerms, generation: float, tail: float) -> float:
    """Return the seconds in which the rollout generates a batch, without the tail if responses are interrupted."""
    if terms.rule in (Rule.PARTIAL, Rule.TURNS):
        return generation * (1 - tail * (1 - terms.mean_share))
    return generation


def fill_seconds(parts: Parts, batches: int) -> float:
    """Return the seconds of a step in which nothing runs ahead: the first part of a batch, then the longer pace."""
    last_part = parts.generation + parts.training / batches
    first_part = parts.training + parts.generation / batches
    return max(last_part, first_part)


def step_of(
    terms: AsyncTerms, batches: int, parts: Parts, split: tuple[int, int], staleness: float | None, assumed: Assumed
) -> Step:
    """Return a step on this split, the accelerators of trainer and rollout.

    Without `Rule.LEND`, the seconds do not depend on the split. A trainer that could lend does not if that is slower.
    """
    sync = terms.sync or 0.0
    pace = generation_pace(terms, parts.generation, assumed.tail)
    if terms.rule is Rule.TURNS:
        return Step(pace + parts.training + sync, parts.training, pace)
    if terms.rule is Rule.LEND:
        lent = Split(*split, parts.generation * split[1], parts.training, terms.switch or 0.0, ahead=1)
        return Step(min(lending_seconds(lent)) + sync, parts.training, pace)
    free = max(parts.training, pace) * (1 + assumed.overhead)
    waiting = max(0.0, fill_seconds(parts, batches) - free) * fill_share(terms, staleness)
    return Step(free + waiting + sync, parts.training, pace)


def between_levels(terms: AsyncTerms, low: tuple[float, float], high: tuple[float, float], staleness: float) -> float:
    """Return the seconds at a staleness between two that were measured on the same split.

    ``low`` and ``high`` are each a staleness with its seconds.
    """
    first, last = fill_share(terms, low[0]), fill_share(terms, high[0])
    if first == last:
        return low[1]
    return low[1] + (high[1] - low[1]) * (fill_share(terms, staleness) - first) / (last - first)


def generation_of(
    terms: AsyncTerms, batches: int, step: float, training: float, staleness: float | None, assumed: Assumed
) -> float | None:
    """Return the seconds of generation with which a measured step takes as long as it did.

    The seconds of a step never fall with those of generation, so bisection finds them. ``None`` if the trainer is the
    longer part and hardly waits: any shorter generation would give the same step.
    """
    seconds = max(step - (terms.sync or 0.0), 0.0)
    if training >= seconds * (1 - OVERHEAD_OF_PARTS):
        return None
    keeps = replace(terms, rule=Rule.CONTINUOUS) if terms.rule is Rule.LEND else terms
    measured = assumed._replace(overhead=0.0)

    def taken(generation: float) -> float:
        parts = Parts(training, generation)
        return step_of(keeps, batches, parts, (1, 1), staleness, measured).seconds - (terms.sync or 0.0)

    low, high = 0.0, seconds
    while taken(high) < seconds:
        low, high = high, 2 * high
    while high - low > _PRECISION * high:
        middle = (low + high) / 2
        low, high = (middle, high) if taken(middle) < seconds else (low, middle)
    return high
