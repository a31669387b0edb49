"""Which number each set of data groups of the plan after gets: interchangeable sets may change theirs.

The choice: least bytes, then most slots that stay, then most sets that keep their number, then the least list of
numbers. A set has a gain with a number: what its devices already hold of the share with that number, and how many of
its slots stay. Gains of different sets do not depend on each other, so the choice is an assignment problem.

First, sets whose best number is theirs alone get it: nothing is better. A set of which nothing changes wants its own
number. If two sets want one number, or a set has several best ones, the whole matrix is solved (Kuhn and Munkres). With
more sets than `_MOST_SETS`, each set takes the best number that is left, and the answer is marked as not optimal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from math import lcm
from typing import NamedTuple

from rankplan._core import RankSet
from rankplan.arranging.repair import lists_of, placed, rule_of
from rankplan.errors import PlacementError
from rankplan.moving.changes import without_held
from rankplan.moving.holdings import Key
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


def named(before: Side, after: Side, unchanged: RankSet) -> tuple[Component, Naming]:
    """Return the component of the plan after with the best numbers, and these numbers.

    ``unchanged`` are the slots that stay as they are numbered.
    """
    count = len(after.sets)
    same = Naming(list(range(count)), optimal=True)
    if count < 2 or not after.sets.even:
        return after.component, same
    gains = _Gains(before, after)
    changing = sorted({after.sets.of(slot.number) for slot in after.slots_but(unchanged)})
    undisputed = _undisputed(gains.of(changing))
    if undisputed is None:
        naming = best_numbers(list(gains.of(range(count)).values()))
    elif all(own == number for own, number in undisputed.items()):
        naming = same
    else:
        naming = Naming([undisputed.get(number, number) for number in range(count)], optimal=True)
    if naming is same or naming.numbers == same.numbers:
        return after.component, naming
    component = _renumbered(after, naming.numbers)
    return (after.component, same) if component is None else (component, naming)


class _Gains:
    """What numbers are worth to the sets of the plan after."""

    def __init__(self, before: Side, after: Side) -> None:
        self._before, self._after = before, after
        self._depends = before.keeper.depends_on_data or after.keeper.depends_on_data
        self._kept: _Kept = {}
        self._slots: dict[int, list[Slot]] = {}

    def of(self, numbers: Iterable[int]) -> dict[int, dict[int, Gain]]:
        """Return the gains of some sets, by number, without those of numbers that are worth nothing."""
        return {number: self._of_set(number) for number in numbers}

    def _of_set(self, number: int) -> dict[int, Gain]:
        slots = self._slots_of(number)
        old_slots = [self._old(slot) for slot in slots]
        if not any(old_slots):
            return {number: Gain(Fraction(0), 0, 1)}
        if self._depends:
            numbers = set(range(len(self._after.sets)))
        else:  # all numbers need the same bytes: only those matter with which a slot stays
            numbers = {number} | {self._set_of(old.rank, number) for old in old_slots if old is not None}
        mine = {other: self._gain(old_slots, slots, other, own=other == number) for other in sorted(numbers)}
        least = min(gain.bytes for gain in mine.values())
        return {other: gain._replace(bytes=gain.bytes - least) for other, gain in mine.items()}

    def _slots_of(self, number: int) -> list[Slot]:
        """Return the slots of a set."""
        if number not in self._slots:
            self._slots[number] = [self._after.slot(at) for at in self._after.sets[number]]
        return self._slots[number]

    def _old(self, slot: Slot) -> Slot | None:
        """Return the slot of the plan before on the device of a slot."""
        old = self._before.at(slot.place)
        return None if old is None or old.number in self._before.dead else old

    def _set_of(self, rank: int, default: int) -> int:
        """Return the set of a process of the plan after, or the default if it lacks the process."""
        component = self._after.component
        return self._after.sets.of(component.layout.slots_of(rank).start) if rank < len(component) else default

    def _gain(self, old_slots: Sequence[Slot | None], slots: Sequence[Slot], number: int, *, own: bool) -> Gain:
        """Return what a set is worth with the ranks and coordinates of another one.

        Bytes are counted if they depend on the number.
        """
        total, stay = Fraction(0), 0
        for old, slot, other in zip(old_slots, slots, self._slots_of(number), strict=True):
            if old is None or old.environment != slot.environment:
                continue
            size, is_same = self._compared(old, other)
            total += size
            if is_same and (old.rank, old.coordinates) == (other.rank, other.coordinates):
                stay += 1
        return Gain(total, stay, int(own))

    def _compared(self, old: Slot, new: Slot) -> tuple[Fraction, bool]:
        """Return the bytes that need not move from a slot to another one, and whether they hold the same."""
        before, after = self._before, self._after
        keys = before.key(old), after.key(new)
        if keys not in self._kept:
            share, held = after.holding(new), before.holding(old)
            size = Fraction(0)
            if self._depends:
                moved = (after.keeper.bytes(piece, box) for piece, box in without_held(share, held))
                size = after.bytes(new) - sum(moved, Fraction(0))
            self._kept[keys] = size, share == held
        return self._kept[keys]


def best_numbers(gains: Sequence[dict[int, Gain]]) -> Naming:
    """Return the numbers with the highest sum of gains, and of these the least list."""
    undisputed = _undisputed(dict(enumerate(gains)))
    if undisputed is not None:
        return Naming(list(undisputed.values()), optimal=True)
    if len(gains) <= _MOST_SETS:
        return Naming(_assigned(gains), optimal=True)
    taken: set[int] = set()
    chosen: dict[int, int | None] = {}
    for own, mine in enumerate(gains):
        worth = _worth(mine)
        free = sorted((number for number in worth if number not in taken), key=lambda number: worth[number])
        chosen[own] = free[-1] if free else None
        taken.update(free[-1:])
    return Naming(list(_completed(chosen).values()), optimal=False)


def _undisputed(gains: Mapping[int, dict[int, Gain]]) -> dict[int, int] | None:
    """Return the numbers of these sets if each has one best number that no other set wants, else ``None``.

    All other sets want their own numbers.
    """
    chosen: dict[int, int | None] = {}
    for own, mine in gains.items():
        worth = _worth(mine)
        highest = max(worth.values(), default=None)
        best = [number for number, value in worth.items() if value == highest]
        if len(best) > 1:
            return None
        chosen[own] = best[0] if best else None
    wanted = Counter(number for number in chosen.values() if number is not None)
    is_disputed = any(times > 1 or number not in gains for number, times in wanted.items())
    return None if is_disputed else _completed(chosen)


def _worth(gains: Mapping[int, Gain]) -> dict[int, tuple[Fraction, int]]:
    """Return the bytes and the slots that stay of each number that is worth something."""
    return {number: (gain.bytes, gain.stay) for number, gain in gains.items() if gain.bytes or gain.stay}


def _completed(chosen: Mapping[int, int | None]) -> dict[int, int]:
    """Return numbers for these sets: those without a chosen one keep theirs if it is free, else get the lowest left."""
    taken = {number for number in chosen.values() if number is not None}
    numbers = dict(chosen)
    for own, number in chosen.items():
        if number is None and own not in taken:
            numbers[own] = own
    left = iter(sorted(chosen.keys() - {number for number in numbers.values() if number is not None}))
    return {own: next(left) if number is None else number for own, number in numbers.items()}


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
    """Return the column of each row so that their sum is least.

    The Hungarian method, with shortest augmenting paths, in cubic time. Rows get columns one after the other. For each
    new row, the cheapest way to a free column is found, on which rows pass their columns on; it is searched as in
    Dijkstra's algorithm. Costs count there without the potentials of their row and their column, which keeps them at 0
    or more, and at 0 for the columns that rows have.
    """
    count = len(costs)
    start = count  # stands for the column that the new row comes from
    row_of = [-1] * (count + 1)
    of_rows = [0] * count
    of_columns = [0] * (count + 1)
    for row in range(count):
        row_of[start] = row
        column = start
        least: list[int | None] = [None] * count
        previous = [start] * count
        visited = [False] * (count + 1)
        while row_of[column] != -1:
            visited[column] = True
            current = row_of[column]
            nearest = -1
            distance: int | None = None
            for other in range(count):
                if visited[other]:
                    continue
                reduced = costs[current][other] - of_rows[current] - of_columns[other]
                lowest = least[other]
                if lowest is None or reduced < lowest:
                    lowest = least[other] = reduced
                    previous[other] = column
                if distance is None or lowest < distance:
                    distance = lowest
                    nearest = other
            _move_potentials(distance or 0, visited, row_of, of_rows, of_columns, least)
            column = nearest
        while column != start:
            before = previous[column]
            row_of[column] = row_of[before]
            column = before
    result = [0] * count
    for column in range(count):
        result[row_of[column]] = column
    return result


def _move_potentials(
    distance: int,
    visited: Sequence[bool],
    row_of: Sequence[int],
    of_rows: list[int],
    of_columns: list[int],
    least: list[int | None],
) -> None:
    """Change the potentials so that the nearest column, at a distance from those visited, is at 0."""
    for column, is_visited in enumerate(visited):
        if is_visited:
            of_rows[row_of[column]] += distance
            of_columns[column] -= distance
        elif column < len(least):
            value = least[column]
            least[column] = None if value is None else value - distance


def _renumbered(side: Side, numbers: Sequence[int]) -> Component | None:
    """Return the component whose sets have other numbers; ``None`` if no rule expresses that."""
    component, layout = side.component, side.component.layout
    lists = lists_of(component)
    order: list[list[int]] = [[] for _ in lists]
    for index, number in enumerate(numbers):
        ranks, places = (sorted({layout.process_of(slot) for slot in side.sets[at]}) for at in (index, number))
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
