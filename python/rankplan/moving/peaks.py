"""The most that each accelerator may hold in any order of the steps, and the seconds of the longest path."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from rankplan.moving.cards import Accelerator, total_of
from rankplan.moving.steps import Hold, Step


class Peak(NamedTuple):
    """The most that an accelerator may hold, by upper and by lower bounds; infinite: no upper bound is known."""

    accelerator: Accelerator
    most: float
    least: float


def peaks_of(steps: Sequence[Step], holds: Iterable[Hold]) -> list[Peak]:
    """Return the peaks of the accelerators where something changes.

    Two holds never meet if one is given back before the other is taken, in every order. Holds of which every two may
    meet can all meet: run all that comes before the steps that take them. So the peak is the heaviest set of holds of
    which every two may meet, which is found by trying all; on one accelerator there are few.
    """
    position = {step.id: index for index, step in enumerate(steps)}
    before: list[int] = []
    for step in steps:
        bits = 0
        for need in step.needs:
            bits |= before[position[need]] | 1 << position[need]
        before.append(bits)
    on: dict[Accelerator, list[Hold]] = defaultdict(list)
    for hold in holds:
        on[hold.accelerator].append(hold)
    peaks = []
    for accelerator, present in sorted(on.items()):
        if all(hold.taken_by is None and hold.given_by is None for hold in present):
            continue
        sets = [total_of(hold.amount for hold in chosen) for chosen in _meeting(present, position, before)]
        peaks.append(Peak(accelerator, max(total.high for total in sets), max(total.low for total in sets)))
    return peaks


def _meeting(holds: Sequence[Hold], position: Mapping[str, int], before: Sequence[int]) -> list[list[Hold]]:
    """Return the largest sets of holds of which every two may meet."""

    def apart(hold: Hold, other: Hold) -> bool:
        for first, second in ((hold, other), (other, hold)):
            if first.given_by is None or second.taken_by is None:
                continue
            given, taken = position[first.given_by], position[second.taken_by]
            if given == taken or before[taken] >> given & 1:
                return True
        return False

    sets: list[list[Hold]] = [[]]
    for hold in holds:
        added = []
        for chosen in sets:
            met = [other for other in chosen if not apart(hold, other)]
            if len(met) == len(chosen):
                chosen.append(hold)
            else:
                added.append([*met, hold])
        sets += [new for index, new in enumerate(added) if new not in added[:index]]
    return sets


class Seconds(NamedTuple):
    """Seconds at least, and at most; ``None``: something that they depend on is unknown."""

    low: float
    high: float | None


def longest_path(steps: Sequence[Step], seconds: Mapping[str, Seconds]) -> Seconds:
    """Return the seconds of the longest path through the steps, which are in an order that is allowed."""
    low: dict[str, float] = {}
    high: dict[str, float] = {}
    for step in steps:
        own = seconds[step.id]
        most = math.inf if own.high is None else own.high
        low[step.id] = own.low + max((low[need] for need in step.needs), default=0.0)
        high[step.id] = most + max((high[need] for need in step.needs), default=0.0)
    longest = max(high.values(), default=0.0)
    return Seconds(max(low.values(), default=0.0), None if math.isinf(longest) else longest)
