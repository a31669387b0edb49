"""The schedules in which a trainer lends its accelerators, fastest first."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from rankplan.errors import PlacementError
from rankplan.tuning.costs import Costs
from rankplan.tuning.faults import too_many_units
from rankplan.tuning.layout import Cluster
from rankplan.tuning.lending import LendingTerms, lending_seconds
from rankplan.tuning.schedule import Schedule, Size
from rankplan.tuning.shapes import Candidate, Sizes

LENDING = "lending"
"""How such a schedule shares accelerators."""

_MOST_UNITS = 2_048
"""Units of the search, which tries every pair of sizes; more take many seconds."""


class LentCandidates:
    """The schedules that lend, fastest first.

    For each size of the trainer, only the fastest rollout beside it is kept. If a schedule is refused, so are all with
    no more accelerators: those of its trainer, of its rollout, or of both, whichever the reason is about. The fastest
    rollout that is left then takes its place.
    """

    def __init__(self, costs: Costs, terms: LendingTerms, sizes: Sizes, cluster: Cluster, accelerators: int) -> None:
        if accelerators // costs.unit > _MOST_UNITS:
            raise PlacementError([too_many_units(accelerators, costs.unit, _MOST_UNITS)])
        self._costs, self._terms, self._sizes = costs, terms, sizes
        self._cluster, self._accelerators = cluster, accelerators
        self._refused: list[_Refused] = []
        self._best: dict[int, _Lent] = {}
        for own in sizes[terms.trainer]:
            self._keep_best(own)

    def _keep_best(self, own: Size) -> None:
        """Keep the fastest schedule that is left with this size of the trainer, none if it can lend to no rollout."""
        self._best.pop(own.accelerators, None)
        rollout = self._costs.components[self._terms.rollout]
        if own.accelerators % rollout.parallel.dense:
            return  # only whole engines run on lent accelerators
        most = self._accelerators - own.accelerators
        beside = [size for size in self._sizes[self._terms.rollout] if size.accelerators <= most]
        allowed = [
            size for size in beside if not self._is_refused(own.accelerators, own.accelerators + size.accelerators)
        ]
        if allowed:
            seconds, borrower = min((_seconds(self._terms, own, size), size.accelerators) for size in allowed)
            self._best[own.accelerators] = _Lent(seconds, own.accelerators + borrower, own)

    def _is_refused(self, trainer: int, rollout: int) -> bool:
        return any(trainer <= refused.trainer and rollout <= refused.rollout for refused in self._refused)

    def best(self) -> Candidate | None:
        """Return the fastest schedule that is left, ``None`` if there is none."""
        if not self._best:
            return None
        lent = min(self._best.values(), key=lambda lent: (lent.seconds, lent.accelerators))
        own = lent.own.accelerators
        trainer = Schedule("leaf", own, self._terms.trainer)
        rollout = Schedule("leaf", lent.accelerators - own, self._terms.rollout)
        schedule = Schedule("lend", lent.accelerators, children=(trainer, rollout))
        # Its parts lie side by side, as those of a pipeline do; the order decides how far the weights travel.
        beside = Schedule("pipe", schedule.accelerators, children=schedule.children)
        score, starts = self._cluster.lay_out(beside)
        return Candidate(lent.seconds + score.weights, schedule, starts, score.crossing, score.moved)

    def exclude(self, sizes: Mapping[str, int], refused: Sequence[Collection[str]]) -> None:
        """Leave out the schedules that are refused for the same reason as that with these sizes.

        ``refused`` has the components of each reason. The rollout also uses the lent accelerators.
        """
        trainer = sizes[self._terms.trainer]
        rollout = trainer + sizes[self._terms.rollout]
        alone = {self._terms.trainer: _Refused(trainer, math.inf), self._terms.rollout: _Refused(math.inf, rollout)}
        self._refused.append(_Refused(trainer, rollout))
        self._refused += [alone[name] for names in refused for name in names if len(names) == 1 and name in alone]
        for own in self._sizes[self._terms.trainer]:
            lent = self._best.get(own.accelerators)
            if lent is not None and self._is_refused(own.accelerators, lent.accelerators):
                self._keep_best(own)


class _Lent(NamedTuple):
    """The fastest schedule with one size of the trainer, and the accelerators of both components together."""

    seconds: float
    accelerators: int
    own: Size


class _Refused(NamedTuple):
    """Schedules with at most these accelerators of the trainer, and of the rollout with those that it borrows."""

    trainer: float
    rollout: float


def _seconds(terms: LendingTerms, trainer: Size, rollout: Size) -> float:
    sizes = {terms.trainer: trainer.accelerators, terms.rollout: rollout.accelerators}
    return lending_seconds(terms.split(sizes, {terms.trainer: trainer.seconds, terms.rollout: rollout.seconds})).lending


def lent_places(schedule: Schedule, terms: LendingTerms, starts: Mapping[str, int]) -> dict[str, range]:
    """Return the accelerators of each component, counted over the cluster; the rollout uses the lent ones, too."""
    sizes = schedule.sizes
    first = min(starts.values())
    own = range(starts[terms.trainer], starts[terms.trainer] + sizes[terms.trainer])
    return {terms.trainer: own, terms.rollout: range(first, first + schedule.accelerators)}
