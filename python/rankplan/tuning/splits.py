"""Asynchronous runs: the seconds of a step on each split of the accelerators, and how sure they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from enum import Enum
from itertools import combinations
from typing import NamedTuple

from rankplan.errors import Diagnostic, PlacementError
from rankplan.frozen import frozen
from rankplan.nodes.inventory import Inventory
from rankplan.tuning.async_step import (
    OVERHEAD_OF_PARTS,
    SURE,
    UNKNOWN_SHARE,
    USUAL,
    USUAL_IN_RANGE,
    Assumed,
    Step,
    between_levels,
    ends,
    fill_share,
    step_of,
)
from rankplan.tuning.async_terms import AsyncTerms, MeasuredRun, Rule
from rankplan.tuning.costs import Costs
from rankplan.tuning.faults import no_near_run, not_asynchronous
from rankplan.tuning.split_times import RunTimes, run_times


class Known(Enum):
    """How the seconds of a step are known; rows of different kinds are not ranked against each other."""

    MEASURED = "measured"
    NEAR = "near"
    GUESS = "guess"


class Verdict(Enum):
    """Which of two placements is faster, if their ranges tell."""

    FASTER = "faster"
    SLOWER = "slower"
    UNDECIDED = "undecided"


@frozen(slots=False)
class SplitTime:
    """The seconds of a step on a split, from ``low`` to ``high``; a measured one is exact.

    ``split`` are the accelerators of trainer and rollout, ``None`` for a colocated run. ``staleness`` is ``None`` if
    the rule has no levels. ``training`` and ``generation`` are the seconds of a batch's training and the pace of its
    generation, ``wait`` those in which the trainer waits, ``idle`` those in which the rollout is idle; ``None``:
    unknown. ``lends``: the trainer lends its accelerators while it waits. ``far``: from a run on far fewer or more
    accelerators.
    """

    split: tuple[int, int] | None
    staleness: float | None
    seconds: float
    low: float
    high: float
    known: Known
    training: float | None = None
    generation: float | None = None
    wait: float | None = None
    idle: float | None = None
    lends: bool = False
    far: bool = False

    def against(self, other: SplitTime) -> Verdict:
        """Return whether this one is faster than another: overlapping ranges do not tell."""
        if self.high < other.low:
            return Verdict.FASTER
        if self.low > other.high:
            return Verdict.SLOWER
        return Verdict.UNDECIDED

    @property
    def imbalance(self) -> float:
        """The seconds by which the longer part exceeds the other."""
        if self.training is None or self.generation is None:
            return self.seconds
        return abs(self.training - self.generation)


@frozen(slots=False)
class AsyncTuning:
    """The splits of the accelerators and the seconds of their steps.

    ``rows`` are in the order of the table: measured ones and those near to them, the fastest first; then guesses, by
    split; a colocated run last. ``baseline`` is the colocated run on these accelerators, if it was measured.
    ``measure`` is the run that would tell the undecided ones apart. ``left_out`` is the number of splits that are far
    from every run.
    """

    rows: tuple[SplitTime, ...]
    baseline: SplitTime | None
    measure: SplitTime | None
    left_out: int
    terms: AsyncTerms
    accelerators: int
    warnings: tuple[Diagnostic, ...]
    costs: Costs = field(repr=False)

    @property
    def separate(self) -> tuple[SplitTime, ...]:
        """The rows on separate accelerators."""
        return tuple(row for row in self.rows if row.split is not None)

    def gain(self, row: SplitTime) -> tuple[float, float, float] | None:
        """Return how many times as fast as the colocated run a row is, at least and at most; ``None``: unknown."""
        if self.baseline is None:
            return None
        seconds = self.baseline.seconds
        return seconds / row.seconds, seconds / row.high, seconds / row.low

    def against_baseline(self, verdict: Verdict) -> tuple[SplitTime, ...]:
        """Return the rows on which the comparison with the colocated run ends so."""
        if self.baseline is None:
            return ()
        others = [row for row in self.rows if row is not self.baseline]
        return tuple(row for row in others if row.against(self.baseline) is verdict)

    @property
    def undecided(self) -> tuple[SplitTime, ...]:
        """The rows that `measure` is not told apart from, other than the colocated run."""
        if self.measure is None:
            return ()
        others = [row for row in self.rows if row.split not in (None, self.measure.split)]
        return tuple(row for row in others if self.measure.against(row) is Verdict.UNDECIDED)


def search_splits(costs: Costs, inventory: Inventory, *, extrapolate: bool = False) -> AsyncTuning:
    """Return the seconds of a step on every split of the accelerators; see `rankplan.tune_async`.

    Raises `PlacementError` if the costs are not of an asynchronous run, or if no run is near to any split.
    """
    terms = costs.asynchronous
    if terms is None:
        raise PlacementError([costs.located((), not_asynchronous())])
    terms = _with_sync(terms, costs)
    total = len(inventory.core.accelerators())
    if not total:
        raise PlacementError([costs.located(("runs",), no_near_run([run.accelerators for run in costs.runs], total))])
    predictor = _Predictor(costs, terms, total)
    rows = list(_measured(costs.runs, total))
    left_out: set[tuple[int, int]] = set()
    for split, staleness in _asked(costs, terms, inventory, total):
        if any(_is_same(row, split, staleness, terms) for row in rows):
            continue
        row = predictor.row(split, staleness)
        if row is None:
            continue
        if row.far and not extrapolate:
            left_out.add(row.split or (total, total))
        else:
            rows.append(row)
    if not rows:
        raise PlacementError([costs.located(("runs",), no_near_run([run.accelerators for run in costs.runs], total))])
    baseline = next((row for row in rows if row.split is None and row.known is Known.MEASURED), None)
    return AsyncTuning(
        tuple(_ordered(rows, baseline)),
        baseline,
        _to_measure(rows, baseline),
        len(left_out),
        terms,
        total,
        costs.warnings,
        costs,
    )


def _with_sync(terms: AsyncTerms, costs: Costs) -> AsyncTerms:
    """Return the terms with the seconds in which weights are sent, if only their bytes are stated.

    Separate accelerators are on several nodes: the bytes take the bandwidth of the network, or else the least one.
    """
    if terms.sync is not None or not costs.syncs or not costs.bandwidth:
        return terms
    bandwidth = costs.bandwidth.get("network", min(costs.bandwidth.values()))
    return replace(terms, sync=sum(sync.bytes for sync in costs.syncs) / bandwidth)


def _measured(runs: Sequence[MeasuredRun], total: int) -> Iterator[SplitTime]:
    """Yield a row for each run on this number of accelerators."""
    for run in runs:
        if run.accelerators == total:
            trained = None if run.split is None else run.trained
            wait = run.wait
            if wait is None and trained is not None:
                wait = max(run.step - trained, 0.0)
            yield SplitTime(
                run.split,
                run.staleness,
                run.step,
                run.step,
                run.step,
                Known.MEASURED,
                training=trained,
                wait=wait,
                lends=run.lends,
            )


def _is_same(row: SplitTime, split: tuple[int, int] | None, staleness: float | None, terms: AsyncTerms) -> bool:
    """Whether a measured row is of this split and staleness, and of the rule that is asked about."""
    if split is None:
        return False  # a colocated run with partial rollouts is another one than that which was measured
    return row.split == split and row.staleness == staleness and row.lends == (terms.rule is Rule.LEND)


def _asked(
    costs: Costs, terms: AsyncTerms, inventory: Inventory, total: int
) -> Iterator[tuple[tuple[int, int] | None, float | None]]:
    """Yield every split of the accelerators, ``None`` for colocated ones, with every staleness that is asked about."""
    splits: list[tuple[int, int] | None] = [None]
    if terms.rule is not Rule.TURNS:
        measured = {run.split for run in costs.runs if run.split is not None and run.accelerators == total}
        splits = [*sorted(measured | set(_splits(costs, terms, inventory, total)))]
    for split in splits:
        for staleness in terms.levels:
            yield split, staleness


def _splits(costs: Costs, terms: AsyncTerms, inventory: Inventory, total: int) -> Iterator[tuple[int, int]]:
    """Yield the splits that the sizes of both components allow, in whole nodes if the nodes are equal."""
    unit = costs.unit
    counts = {record.num_accelerators for _, record in inventory.stretches()}
    if unit == 1 and len(counts) == 1 and inventory.num_nodes > 1:
        [unit] = counts
    trainer, rollout = costs.components[terms.trainer], costs.components[terms.rollout]
    for size in range(unit, total, unit):
        allowed = [
            component.divides(accelerators) and (component.sizes is None or accelerators in component.sizes)
            for component, accelerators in ((trainer, size), (rollout, total - size))
        ]
        if all(allowed):
            yield size, total - size


def _ordered(rows: Sequence[SplitTime], baseline: SplitTime | None) -> Iterator[SplitTime]:
    """Yield the rows in the order of the table."""
    separate = [row for row in rows if row is not baseline and not (row.split is None and row.known is Known.MEASURED)]
    for known in (Known.MEASURED, Known.NEAR):
        yield from sorted((row for row in separate if row.known is known), key=lambda row: row.seconds)
    guesses = [row for row in separate if row.known is Known.GUESS]
    yield from sorted(guesses, key=lambda row: (row.split or (0, 0), row.staleness or 0.0))
    if baseline is not None:
        yield baseline


def _to_measure(rows: Sequence[SplitTime], baseline: SplitTime | None) -> SplitTime | None:
    """Return the guess whose measurement tells most: of those that beat the colocated run, the most even one."""
    guesses = [row for row in rows if row.known is Known.GUESS]
    if baseline is not None:
        surely = [row for row in guesses if row.against(baseline) is Verdict.FASTER]
        guesses = surely or guesses
    return min(guesses, key=lambda row: (row.imbalance, row.seconds), default=None)


class _Range(NamedTuple):
    """A row's seconds under the usual numbers, and its least and most under all of them."""

    usual: Step
    low: float
    high: float

    @classmethod
    def around(cls, usual: Step, others: Sequence[float] = ()) -> _Range:
        """Return the range of these seconds, wide enough for what no number explains."""
        low = min([usual.seconds * (1 - SURE), *others])
        return cls(usual, low, max([usual.seconds * (1 + SURE), *others]))


class _Predictor:
    """Predicts a split from the runs that are nearest to it.

    A row is *near* if two runs of the same split enclose its staleness, if two runs of the same staleness enclose its
    sizes, or if both of its parts were measured on accelerators of their own. Everything else is a *guess*: the parts
    of the runs are scaled, and what nobody knows before the run is varied between its ends.
    """

    def __init__(self, costs: Costs, terms: AsyncTerms, total: int) -> None:
        self._costs, self._terms, self._total = costs, terms, total
        self._usual = run_times(costs, terms, USUAL)
        self._ends = [(assumed, run_times(costs, terms, assumed)) for assumed in ends()]
        self._separate = [run for run in costs.runs if run.split is not None and not run.lends]

    def row(self, split: tuple[int, int] | None, staleness: float | None) -> SplitTime | None:
        """Return the row of a split; ``None`` if the runs tell nothing about it."""
        if split is None:
            return self._in_turns(staleness)
        between = self._between_levels(split, staleness)
        if between is None:
            between = self._between_sizes(split, staleness)
        if between is not None:
            return self._with_parts(split, staleness, between)
        return self._from_parts(split, staleness) or self._from_one_run(split, staleness)

    def _between_levels(self, split: tuple[int, int], staleness: float | None) -> float | None:
        """Return the seconds between two runs on this split whose staleness is less and more."""
        if staleness is None or self._terms.rule is Rule.LEND:
            return None
        levels = {run.staleness: run.step for run in self._separate if run.split == split and run.staleness is not None}
        below = max((level for level in levels if level < staleness), default=None)
        above = min((level for level in levels if level > staleness), default=None)
        if below is None or above is None:
            return None
        return between_levels(self._terms, (below, levels[below]), (above, levels[above]), staleness)

    def _between_sizes(self, split: tuple[int, int], staleness: float | None) -> float | None:
        """Return the seconds between two runs of this staleness, one on less and one on more accelerators.

        Along a line between them, the inverse sizes of both components change by the same share; on it, the seconds
        follow ``a + b / n``.
        """
        if self._terms.rule is Rule.LEND:
            return None
        runs = [run for run in self._separate if run.split is not None and run.staleness == staleness]
        runs.sort(key=lambda run: run.split or (0, 0))
        for fewer, more in combinations(runs, 2):
            share = _share_between(fewer.split or split, more.split or split, split)
            if share is not None:
                return fewer.step + share * (more.step - fewer.step)
        return None

    def _with_parts(self, split: tuple[int, int], staleness: float | None, seconds: float) -> SplitTime:
        """Return the row of seconds between two runs, with the parts of a step where both were measured there."""
        parts = self._usual.on(split, USUAL)
        bounds = _Range.around(Step(seconds, 0.0, 0.0))
        row = SplitTime(split, staleness, seconds, bounds.low, bounds.high, Known.NEAR)
        if parts is None or not (parts.training.exact and parts.generation.exact):
            return row
        step = step_of(self._terms, self._costs.batches, parts.seconds, split, staleness, USUAL)
        return _filled(row, Step(seconds, step.training, step.generation))

    def _step(self, split: tuple[int, int], staleness: float | None, assumed: Assumed, times: RunTimes) -> Step | None:
        parts = times.on(split, assumed)
        if parts is None:
            return None
        return step_of(self._terms, self._costs.batches, parts.seconds, split, staleness, assumed)

    def _from_parts(self, split: tuple[int, int], staleness: float | None) -> SplitTime | None:
        """Return the row that follows from the parts of a step, ``None`` if one of them is unknown."""
        parts = self._usual.on(split, USUAL)
        if parts is None:
            return None
        exact = parts.training.exact and parts.generation.exact
        usual = USUAL._replace(overhead=OVERHEAD_OF_PARTS if exact else 0.0)
        step = self._step(split, staleness, usual, self._usual)
        if step is None:
            return None
        near = parts.training.between and parts.generation.between
        others = [self._step(split, staleness, assumed, times) for assumed, times in self._ends]
        bounds = _Range.around(step, [other.seconds for other in others if other is not None])
        known = Known.NEAR if near else Known.GUESS
        row = SplitTime(split, staleness, step.seconds, bounds.low, bounds.high, known, far=parts.far)
        return replace(_filled(row, step), lends=self._terms.rule is Rule.LEND)

    def _from_one_run(self, split: tuple[int, int], staleness: float | None) -> SplitTime | None:
        """Return the row of a run on the same split without parts, of which an unknown share shrinks with staleness."""
        runs = [run for run in self._separate if run.split == split and run.staleness is not None]
        if staleness is None or not runs:
            return None
        run = min(runs, key=lambda run: abs((run.staleness or 0.0) - staleness))
        now = UNKNOWN_SHARE + (1 - UNKNOWN_SHARE) * fill_share(self._terms, staleness)
        measured = UNKNOWN_SHARE + (1 - UNKNOWN_SHARE) * fill_share(self._terms, run.staleness)
        low, high = sorted((run.step, run.step * now / measured))
        seconds = low + (high - low) * USUAL_IN_RANGE
        bounds = _Range.around(Step(seconds, 0.0, 0.0), [low, high])
        return SplitTime(split, staleness, seconds, bounds.low, bounds.high, Known.GUESS)

    def _in_turns(self, staleness: float | None) -> SplitTime | None:
        """Return the row of colocated accelerators with partial rollouts."""
        row = self._from_parts((self._total, self._total), staleness)
        return None if row is None else replace(row, split=None, wait=None, idle=None)


def _filled(row: SplitTime, step: Step) -> SplitTime:
    """Return a row with the parts of its step."""
    return replace(row, training=step.training, generation=step.generation, wait=step.wait, idle=step.idle)


def _share_between(fewer: tuple[int, int], more: tuple[int, int], split: tuple[int, int]) -> float | None:
    """Return where a split is on the line between two others, from 0 to 1; ``None`` if it is not on it."""
    shares = []
    for low, high, size in zip(fewer, more, split, strict=True):
        if low == high:
            if size != low:
                return None
            continue
        shares.append((1 / size - 1 / low) / (1 / high - 1 / low))
    if not shares or max(shares) - min(shares) > 1e-9 or not 0 < shares[0] < 1:
        return None
    return shares[0]
