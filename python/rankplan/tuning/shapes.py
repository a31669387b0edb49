"""The best schedule of each way to share accelerators, with the weights that cross the levels of the network."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import product

from rankplan._core import best_schedule
from rankplan.errors import Diagnostic, PlacementError
from rankplan.tuning.costs import ComponentCosts, Costs
from rankplan.tuning.faults import indivisible, listed_indivisible, too_far, too_large, too_many_units
from rankplan.tuning.layout import Cluster, Network, Starts, apart
from rankplan.tuning.schedule import Schedule, Size
from rankplan.tuning.times import as_fast, fastest

MOST_UNITS = 16_384
"""Units of a search; more take minutes."""

Sizes = Mapping[str, Sequence[Size]]
Found = tuple[float, Schedule, Starts, tuple[int, int]]
"""Seconds, the schedule, the starts of its components, parallel groups that cross a node and slots that move."""


def possible(costs: Costs, accelerators: int, *, extrapolate: bool) -> dict[str, list[Size]]:
    """Return the sizes of each component, ascending.

    Raises `PlacementError` (``size-does-not-fit``) for each component without a size.
    """
    found = {
        name: [
            Size(size, seconds, component.resident(size))
            for size in range(costs.unit, accelerators + 1, costs.unit)
            if _allowed(component, size, costs, extrapolate=extrapolate)
            and (seconds := component.times.seconds(size)) is not None
        ]
        for name, component in costs.components.items()
    }
    if nowhere := [name for name, sizes in found.items() if not sizes]:
        raise PlacementError(
            costs.located(("components", name), _fits_nowhere(name, costs, accelerators)) for name in nowhere
        )
    return found


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


def best_of_shape(costs: Costs, sizes: Sizes, cluster: Cluster, shape: str) -> Found | None:
    """Return the schedule of a shape with the lowest cost, ``None`` if none fits.

    The search knows sizes, not places. It takes a level that weights cross at most, and the layout tells whether the
    schedule keeps to it. If its sizes exceed a domain of the level, the search goes on with smaller ones.
    """
    network = cluster.network
    last = len(network.levels) - 1
    # The slowest level first: it limits no size, and what it finds limits the others.
    levels = range(last, -1, -1) if shape in ("disaggregated", "hybrid") else [last]
    best: Found | None = None
    for chosen in product(levels, repeat=len(costs.syncs)):
        left = [_within(costs, sizes, network, chosen)]
        while left:
            limited = left.pop()
            found = _solved(costs, limited, network, shape, chosen)
            if found is None or (best is not None and not as_fast(found[0], best[0])):
                continue
            supposed, node = found
            laid = [(*cluster.lay_out(one), one) for one in (node.filled(sizes), node)]
            (far, *rest, _), starts, whole = fastest(laid, lambda one: one[0][0], lambda one: 0)
            pairs = dict(zip(costs.syncs, chosen, strict=True))
            over = [sync for part in _parts(node) for sync in apart(part, costs.syncs)]
            seconds = supposed - sum(network.seconds(sync, pairs[sync]) for sync in over) + far
            each = [one for one in (best, (seconds, whole, starts, (rest[0], rest[1]))) if one is not None]
            best = fastest(each, lambda one: one[0], lambda one: (one[1].accelerators, one[3]))
            if not as_fast(best[0], supposed):
                for sync in over:
                    most, size = network.levels[pairs[sync]].most, node.sizes[sync.sender]
                    if size + node.sizes[sync.receiver] > most:
                        left.append(kept(limited, sync.sender, most=size - 1))
                        fewer = kept(limited, sync.receiver, most=most - size)
                        left.append(kept(fewer, sync.sender, least=size))
                        break
    return best


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
