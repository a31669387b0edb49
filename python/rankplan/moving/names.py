"""Which number each set of data groups of the plan after gets: interchangeable sets may change theirs.

The choice: least bytes, then most slots that stay, then most sets that keep their number, then the least list of
numbers. A set has a gain with a number: what its devices already hold of the share with that number, and how many of
its slots stay. Gains of different sets do not depend on each other, so the choice is an assignment problem.

First, sets whose best number is theirs alone get it: nothing is better. If two sets want one number, or a set has
several best ones, the whole matrix is solved (Kuhn and Munkres). With more sets than `_MOST_SETS`, each set takes the
best number that is left, and the answer is marked as not optimal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from math import lcm
from typing import NamedTuple

from rankplan.arranging.repair import lists_of, placed, rule_of
from rankplan.arranging.units import sets_together
from rankplan.errors import PlacementError
from rankplan.moving.changes import without_held
from rankplan.moving.holdings import Keeper, Key
from rankplan.moving.sides import Side, Slot
from rankplan.plans.component import Component

_MOST_SETS = 64
"""Sets of which the whole matrix is solved; each takes time by the third power of their number."""


_Kept = dict[tuple[Key, Key], tuple[Fraction, bool]]
"""By the keys of two slots: the bytes that need not move from one to the other, and whether they hold the same."""


class Gain(NamedTuple):
    """What a number is worth to a set: bytes that need not move, slots that stay, and whether it is its own number."""

    bytes: Fraction
    stay: int
    own: int


class Naming(NamedTuple):
    """The number of each set of the plan after, and whether it is the best one."""

    numbers: list[int]
    optimal: bool


def named(before: Side, after: Side) -> tuple[Component, Naming]:
    """Return the component of the plan after with the best numbers, and these numbers."""
    sets = sets_of(after)
    same = Naming(list(range(len(sets))), optimal=True)
    if len(sets) < 2 or len({len(slots) for slots in sets}) > 1:
        return after.component, same
    naming = best_numbers(_gains(before, after, sets))
    if naming.numbers == same.numbers:
        return after.component, naming
    component = _renumbered(after, sets, naming.numbers)
    return (after.component, same) if component is None else (component, naming)


def sets_of(side: Side) -> list[list[Slot]]:
    """Return the slots of each set of data groups that go together, by its number."""
    numbers = sets_together(side.component)
    sets: list[list[Slot]] = [[] for _ in range(max(numbers, default=-1) + 1)]
    for slot in side.slots:
        sets[numbers[slot.rank]].append(slot)
    return sets


def _gains(before: Side, after: Side, sets: Sequence[Sequence[Slot]]) -> list[dict[int, Gain]]:
    """Return the gains of each set, by number, without those of numbers that are worth nothing."""
    places = {slot.place: slot for slot in before.slots if slot.number not in before.dead}
    found = [[places.get(slot.place) for slot in slots] for slots in sets]
    depends = _share_depends(after.keeper) or _share_depends(before.keeper)
    set_of = {slot.rank: number for number, slots in enumerate(sets) for slot in slots}
    kept: _Kept = {}
    gains = []
    for number, (slots, old_slots) in enumerate(zip(sets, found, strict=True)):
        if depends:
            numbers = set(range(len(sets)))
        else:  # all numbers need the same bytes: only those matter with which a slot stays
            numbers = {number} | {set_of[old.rank] for old in old_slots if old is not None and old.rank in set_of}
        mine = {
            other: _gain(before, after, old_slots, slots, sets[other], kept, depends=depends, own=other == number)
            for other in sorted(numbers)
        }
        least = min(gain.bytes for gain in mine.values())
        gains.append({other: gain._replace(bytes=gain.bytes - least) for other, gain in mine.items()})
    return gains


def _share_depends(keeper: Keeper) -> bool:
    """Whether what a slot holds depends on the number of its data group."""
    return bool(keeper.width_shards or keeper.layer_shards)


def _gain(
    before: Side,
    after: Side,
    old_slots: Sequence[Slot | None],
    slots: Sequence[Slot],
    others: Sequence[Slot],
    kept: _Kept,
    *,
    depends: bool,
    own: bool,
) -> Gain:
    """Return what a set is worth with the ranks and coordinates of another one; ``kept`` has what was compared.

    Bytes are counted if they depend on the number.
    """
    total, stay = Fraction(0), 0
    for old, slot, other in zip(old_slots, slots, others, strict=True):
        if old is None or old.environment != slot.environment:
            continue
        keys = before.key(old), after.key(other)
        if keys not in kept:
            share, held = after.holding(other), before.holding(old)
            found = Fraction(0)
            if depends:
                moved = (after.keeper.bytes(piece, box) for piece, box in without_held(share, held))
                found = after.bytes(other) - sum(moved, Fraction(0))
            kept[keys] = found, share == held
        size, is_same = kept[keys]
        if depends:
            total += size
        if is_same and (old.rank, old.coordinates) == (other.rank, other.coordinates):
            stay += 1
    return Gain(total, stay, int(own))


def best_numbers(gains: Sequence[dict[int, Gain]]) -> Naming:
    """Return the numbers with the highest sum of gains, and of these the least list."""
    count = len(gains)
    nothing = Gain(Fraction(0), 0, 0)
    values = [{number: gain[:2] for number, gain in mine.items() if gain[:2] > nothing[:2]} for mine in gains]
    best = [[number for number, value in mine.items() if value == max(mine.values())] for mine in values]
    wanted = Counter(numbers[0] for numbers in best if len(numbers) == 1)
    simple = all(len(numbers) <= 1 for numbers in best) and all(times == 1 for times in wanted.values())
    if simple:
        return Naming(_completed([numbers[0] if numbers else None for numbers in best]), optimal=True)
    if count <= _MOST_SETS:
        return Naming(_assigned(gains), optimal=True)
    taken: set[int] = set()
    chosen: list[int | None] = []
    for mine in values:
        free = sorted((number for number in mine if number not in taken), key=lambda number: mine[number])
        chosen.append(free[-1] if free else None)
        taken.update(free[-1:])
    return Naming(_completed(chosen), optimal=False)


def _completed(chosen: Sequence[int | None]) -> list[int]:
    """Return numbers for all sets: those without a chosen one keep theirs if it is free, else get the lowest left."""
    taken = {number for number in chosen if number is not None}
    numbers = list(chosen)
    for own, number in enumerate(chosen):
        if number is None and own not in taken:
            numbers[own] = own
    left = iter(sorted(set(range(len(chosen))) - {number for number in numbers if number is not None}))
    return [next(left) if number is None else number for number in numbers]


def _assigned(gains: Sequence[dict[int, Gain]]) -> list[int]:
    """Return the best assignment of the whole matrix.

    Bytes, slots that stay, own numbers and the list of numbers become one whole number each, so that the first counts
    more than all of the others together.
    """
    count = len(gains)
    scale = 1
    for mine in gains:
        for gain in mine.values():
            scale = lcm(scale, gain.bytes.denominator)
    most_stay = sum(max((gain.stay for gain in mine.values()), default=0) for mine in gains) + 1
    base = (count + 1) ** (count + 1)
    costs = []
    for index, mine in enumerate(gains):
        row = []
        for number in range(count):
            gain = mine.get(number, Gain(Fraction(0), 0, int(index == number)))
            value = (int(gain.bytes * scale) * most_stay + gain.stay) * (count + 1) + gain.own
            row.append(number * (count + 1) ** (count - 1 - index) - value * base)
        costs.append(row)
    return _least_assignment(costs)


def _least_assignment(costs: Sequence[Sequence[int]]) -> list[int]:
    """Return the column of each row so that their sum is least: shortest augmenting paths, with potentials."""
    count = len(costs)
    row_of = [-1] * (count + 1)
    rows, columns = [0] * count, [0] * (count + 1)
    for row in range(count):
        row_of[count] = row
        column = count
        least: list[int | None] = [None] * count
        previous = [count] * count
        visited = [False] * (count + 1)
        while row_of[column] != -1:
            visited[column] = True
            current, nearest, delta = row_of[column], -1, None
            for other in range(count):
                if visited[other]:
                    continue
                reduced = costs[current][other] - rows[current] - columns[other]
                known = least[other]
                if known is None or reduced < known:
                    least[other], previous[other], known = reduced, column, reduced
                if delta is None or known < delta:
                    delta, nearest = known, other
            step = delta or 0
            for other in range(count + 1):
                if visited[other]:
                    rows[row_of[other]] += step
                    columns[other] -= step
                elif other < count:
                    value = least[other]
                    least[other] = None if value is None else value - step
            column = nearest
        while column != count:
            before = previous[column]
            row_of[column] = row_of[before]
            column = before
    result = [0] * count
    for column in range(count):
        result[row_of[column]] = column
    return result


def _renumbered(side: Side, sets: Sequence[Sequence[Slot]], numbers: Sequence[int]) -> Component | None:
    """Return the component whose sets have other numbers; ``None`` if no rule expresses that."""
    component = side.component
    lists = lists_of(component)
    order: list[list[int]] = [[] for _ in lists]
    for index, number in enumerate(numbers):
        ranks = sorted({slot.rank for slot in sets[index]})
        places = sorted({slot.rank for slot in sets[number]})
        if len(ranks) != len(places):
            return None
        for rank, place in zip(ranks, places, strict=True):
            order[place] = lists[rank]
    rule = rule_of(order, component.rule)
    if rule is None:
        return None
    try:
        renumbered = placed(component, component.inventory, rule)
    except PlacementError:
        return None
    return renumbered if lists_of(renumbered) == order else None
