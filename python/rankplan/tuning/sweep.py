"""The period for each number of accelerators of one component: how much depends on the split."""

from __future__ import annotations

from dataclasses import dataclass

from rankplan.tuning.layout import Cluster
from rankplan.tuning.search import Tuning
from rankplan.tuning.shapes import best_of_shape

_MOST_POINTS = 64


@dataclass(frozen=True)
class Sweep:
    """Seconds of the best schedule of each way to share, by number of accelerators of a component."""

    component: str
    curves: dict[str, list[tuple[int, float]]]


def sweep(tuning: Tuning, component: str | None = None) -> Sweep:
    """Return the period by accelerators of a component, by default the one with the most in the best placement.

    All other components have the sizes that are best then. Raises ``KeyError`` for an unknown component.
    """
    best = tuning.best.schedule.sizes
    name = component or max(best, key=lambda one: best[one])
    sizes = tuning.sizes[name]
    step = -(-len(sizes) // _MOST_POINTS)
    chosen = [size for index, size in enumerate(sizes) if index % step == 0 or size.accelerators == best[name]]
    cluster = Cluster.of(tuning.costs, tuning.inventory)
    curves: dict[str, list[tuple[int, float]]] = {}
    for one in tuning.ranking:
        shape = "equal" if one.sharing == "collocated" and "equal" in tuning.costs.shapes else one.sharing
        points = []
        for size in chosen:
            found = best_of_shape(tuning.costs, {**tuning.sizes, name: [size]}, cluster, shape)
            if found is not None:
                points.append((size.accelerators, found[0]))
        curves[one.sharing] = points
    return Sweep(name, curves)
