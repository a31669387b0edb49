"""The schedules in which a trainer lends its accelerators, fastest first."""

from __future__ import annotations

from collections.abc import Mapping

from rankplan.errors import PlacementError
from rankplan.tuning.costs import Costs
from rankplan.tuning.faults import too_many_units
from rankplan.tuning.layout import Cluster
from rankplan.tuning.lending import LendingTerms, lending_seconds
from rankplan.tuning.schedule import Schedule, Size
from rankplan.tuning.shapes import Found, Sizes

LENDING = "lending"
"""How such a schedule shares accelerators."""

_MOST_UNITS = 2_048
"""Units of the search, which tries every pair of sizes; more take many seconds."""


class LentCandidates:
    """The fastest schedule that lends for each size of the trainer, fastest first."""

    def __init__(self, costs: Costs, terms: LendingTerms, sizes: Sizes, cluster: Cluster, accelerators: int) -> None:
        if accelerators // costs.unit > _MOST_UNITS:
            raise PlacementError([too_many_units(accelerators, costs.unit, _MOST_UNITS)])
        self._cluster = cluster
        each = [_best_for(costs, terms, own, sizes, accelerators) for own in sizes[terms.trainer]]
        self._left = sorted(
            (lent for lent in each if lent is not None), key=lambda lent: (lent[0], lent[1].accelerators)
        )

    def best(self) -> Found | None:
        """Return the fastest schedule that is left, ``None`` if there is none."""
        if not self._left:
            return None
        seconds, schedule = self._left.pop(0)
        # Its parts lie side by side, as those of a pipeline do; the order decides how far the weights travel.
        beside = Schedule("pipe", schedule.accelerators, children=schedule.children)
        (transfers, crossing, moved, _), starts = self._cluster.lay_out(beside)
        return seconds + transfers, schedule, starts, (crossing, moved)

    def exclude(self, sizes: object, refused: object) -> None:
        """Leave out a schedule that is refused: `best` has removed it."""


def _best_for(
    costs: Costs, terms: LendingTerms, own: Size, sizes: Sizes, accelerators: int
) -> tuple[float, Schedule] | None:
    """Return the fastest schedule with this size of the trainer; ``None`` if it can lend to no rollout."""
    rollout = costs.components[terms.rollout]
    if own.accelerators % rollout.parallel.dense:
        return None  # only whole engines run on lent accelerators
    most = accelerators - own.accelerators
    beside = [size for size in sizes[terms.rollout] if size.accelerators <= most]
    if not beside:
        return None
    seconds, borrower = min((_seconds(terms, own, size), size.accelerators) for size in beside)
    children = (Schedule("leaf", own.accelerators, terms.trainer), Schedule("leaf", borrower, terms.rollout))
    return seconds, Schedule("lend", own.accelerators + borrower, children=children)


def _seconds(terms: LendingTerms, trainer: Size, rollout: Size) -> float:
    sizes = {terms.trainer: trainer.accelerators, terms.rollout: rollout.accelerators}
    return lending_seconds(terms.split(sizes, {terms.trainer: trainer.seconds, terms.rollout: rollout.seconds})).lending


def lent_places(schedule: Schedule, terms: LendingTerms, starts: Mapping[str, int]) -> dict[str, range]:
    """Return the accelerators of each component, counted over the cluster; the rollout uses the lent ones, too."""
    sizes = schedule.sizes
    first = min(starts.values())
    own = range(starts[terms.trainer], starts[terms.trainer] + sizes[terms.trainer])
    return {terms.trainer: own, terms.rollout: range(first, first + schedule.accelerators)}
