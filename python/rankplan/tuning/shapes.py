"""The best schedule of each way to share accelerators, with the weights that cross the levels of the network."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import product
from typing import NamedTuple

from rankplan._core import best_schedule
from rankplan.errors import Diagnostic, PlacementError
from rankplan.tuning.costs import ComponentCosts, Costs, WeightSync
from rankplan.tuning.faults import indivisible, listed_indivisible, too_far, too_large, too_many_units
from rankplan.tuning.layout import Cluster, Network, Starts, apart
from rankplan.tuning.schedule import Schedule, Size
from rankplan.tuning.times import as_fast, fastest

MOST_UNITS = 16_384
"""Units of a search; more take minutes."""

Sizes = Mapping[str, Sequence[Size]]


class Candidate(NamedTuple):
    """A schedule and its places.

    ``seconds`` are those of an iteration. ``crossing`` are the parallel groups that cross a node, ``moved`` the slots
    that move.
    """

    seconds: float
    schedule: Schedule
    starts: Starts
    crossing: int
    moved: int

    @property
    def costs(self) -> tuple[int, int, int]:
        """What decides between equally fast schedules; less is better, the first counts most."""
        return self.schedule.accelerators, self.crossing, self.moved


def possible(costs: Costs, accelerators: int, *, extrapolate: bool) -> dict[str, list[Size]]:
    """Return the sizes of each component, ascending.

    Raises `PlacementError` (``size-does-not-fit``) for each component without a size.
    """
    sizes: dict[str, list[Size]] = {}
    wrong: list[Diagnostic] = []
    for name, component in costs.components.items():
        sizes[name] = []
        for number in range(costs.unit, accelerators + 1, costs.unit):
            if not _allowed(component, number, costs, extrapolate=extrapolate):
                continue
            seconds = component.times.seconds(number)
            if seconds is not None:
                sizes[name].append(Size(number, seconds, component.resident(number)))
        if not sizes[name]:
            wrong.append(costs.located(("components", name), _fits_nowhere(name, costs, accelerators)))
    if wrong:
        raise PlacementError(wrong)
    return sizes


def _allowed(component: ComponentCosts, size: int, costs: Costs, *, extrapolate: bool) -> bool:
    return (
        component.divides(size)
        and (component.sizes is None or size in component.sizes)
        and (not component.measured_only or component.times.measured(size))
        and (costs.capacity is None or component.resident(size) <= costs.capacity)
        and (extrapolate or component.times.within(size))
    )


def _fits_nowhere(name: str, costs: Costs, accelerators: int) -> Diagnostic:
    """Return why a component fits on no number of accelerators."""
    component = costs.components[name]
    divided = [size for size in range(costs.unit, accelerators + 1, costs.unit) if component.divides(size)]
    if not divided:
        sizes = str(component.parallel)
        if component.dp is not None:
            sizes += f" and dp {_numbers(component.dp)}"
        return indivisible(name, sizes, accelerators, costs.unit)
    listed = [size for size in divided if component.sizes is None or size in component.sizes]
    if not listed:
        return listed_indivisible(name, _numbers(component.sizes or ()), accelerators)
    least = min(component.resident(size) for size in listed)
    if costs.capacity is not None and least > costs.capacity:
        return too_large(name, least, costs.capacity)
    return too_far(name, _numbers(component.written), accelerators)


def _numbers(numbers: Collection[int]) -> str:
    return ", ".join(map(str, sorted(numbers)))


def best_of_shape(costs: Costs, sizes: Sizes, cluster: Cluster, shape: str) -> Candidate | None:
    """Return the schedule of a shape with the lowest cost, ``None`` if none fits.

    The search of the core knows sizes, not places, so that it cannot tell which level of the network the weights
    cross. It is told: each combination of levels, one for each transfer, is tried, with sizes that fit into a domain of
    these levels. The layout then tells what the weights take. If that is more than supposed, because the sizes of a
    sender and a receiver exceed a domain together, the search goes on without such pairs of sizes. A combination whose
    schedule would be slower than the best one so far, even with the supposed weights, needs no layout.
    """
    network = cluster.network
    last = len(network.levels) - 1
    # The slowest level first: it limits no size, and what it finds limits the others.
    levels = range(last, -1, -1) if shape in ("disaggregated", "hybrid") else [last]
    best: Candidate | None = None
    for chosen in product(levels, repeat=len(costs.syncs)):
        level_of = dict(zip(costs.syncs, chosen, strict=True))
        untried = [_within(costs, sizes, network, chosen)]
        while untried:
            limited = untried.pop()
            solution = _solved(costs, limited, network, shape, chosen)
            if solution is None:
                continue
            supposed, schedule = solution
            if best is not None and not as_fast(supposed, best.seconds):
                continue
            transfers = [sync for part in _parts(schedule) for sync in apart(part, costs.syncs)]
            supposed_weights = sum(network.seconds(sync, level_of[sync]) for sync in transfers)
            candidate = _laid_out(schedule, sizes, cluster, supposed - supposed_weights)
            if best is None:
                best = candidate
            else:
                best = fastest([best, candidate], lambda each: each.seconds, lambda each: each.costs)
            if not as_fast(best.seconds, supposed):
                untried += _without_too_large_pair(schedule, limited, transfers, level_of, network)
    return best


def _laid_out(schedule: Schedule, sizes: Sizes, cluster: Cluster, seconds: float) -> Candidate:
    """Return a schedule in its places, or the same one on more accelerators if its weights are as fast there.

    It takes these seconds without the weights between separate accelerators.
    """
    filled = schedule.filled(sizes)
    placed, placed_filled = cluster.lay_out(schedule), cluster.lay_out(filled)
    if placed_filled.score.weights <= placed.score.weights:
        schedule, placed = filled, placed_filled
    score = placed.score
    return Candidate(seconds + score.weights, schedule, placed.starts, score.crossing, score.moved)


def _without_too_large_pair(
    schedule: Schedule,
    sizes: Sizes,
    transfers: Sequence[WeightSync],
    level_of: Mapping[WeightSync, int],
    network: Network,
) -> list[Sizes]:
    """Return the sizes without the first pair of a schedule that exceeds a domain together, in two parts; none if none.

    The first part has fewer accelerators of the sender, the second as many or more, and a receiver that fits beside.
    """
    for sync in transfers:
        most = network.levels[level_of[sync]].most
        sender, receiver = schedule.sizes[sync.sender], schedule.sizes[sync.receiver]
        if sender + receiver > most:
            fewer_receivers = kept(sizes, sync.receiver, most=most - sender)
            return [
                kept(sizes, sync.sender, most=sender - 1),
                kept(fewer_receivers, sync.sender, least=sender),
            ]
    return []


def _parts(node: Schedule) -> Iterator[Schedule]:
    yield node
    for child in node.children:
        yield from _parts(child)


def _within(costs: Costs, sizes: Sizes, network: Network, levels: Sequence[int]) -> Sizes:
    """Return the sizes that fit into a domain of the level of each transfer, beside the other end."""
    for sync, level in zip(costs.syncs, levels, strict=True):
        if level < len(network.levels) - 1:
            most = network.levels[level].most
            for name, other in ((sync.sender, sync.receiver), (sync.receiver, sync.sender)):
                least = min((size.accelerators for size in sizes[other]), default=most)
                sizes = kept(sizes, name, most=most - least)
    return sizes


def kept(sizes: Sizes, name: str, *, least: int = 0, most: float = math.inf) -> Sizes:
    """Return the sizes with those of a component between two limits."""
    return {**sizes, name: [size for size in sizes[name] if least <= size.accelerators <= most]}


def _solved(
    costs: Costs, sizes: Sizes, network: Network, shape: str, levels: Sequence[int]
) -> tuple[float, Schedule] | None:
    """Return the best schedule of a shape if each transfer crosses this level, with the sizes that the core found."""
    if not all(sizes.values()):
        return None
    names, total = list(costs.components), len(network.core.accelerators())
    unit = math.gcd(*(size.accelerators for of in sizes.values() for size in of))
    if total // unit > MOST_UNITS:
        raise PlacementError([too_many_units(total, unit, MOST_UNITS)])
    found = best_schedule(
        components=[
            (
                [(size.accelerators // unit, size.seconds, size.memory) for size in sizes[name]],
                component.switch or 0.0,
                sum(1 << names.index(before) for before in set(costs.after.get(name, ())) if before in names),
            )
            for name, component in costs.components.items()
        ],
        units=total // unit,
        batches=costs.batches,
        stale=costs.stale,
        capacity=costs.capacity,
        transfers=[
            (
                (names.index(sync.sender), names.index(sync.receiver)),
                network.seconds(sync, level),
                network.seconds_together(sync),
            )
            for sync, level in zip(costs.syncs, levels, strict=True)
        ],
        shape=shape,
    )
    return None if found is None else (found[0], Schedule.of(found[2], names, unit))
