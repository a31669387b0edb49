"""The schedules of a way to share accelerators, fastest first, until one fits into memory."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping, Sequence
from itertools import count

from rankplan.tuning.costs import Costs
from rankplan.tuning.layout import Cluster
from rankplan.tuning.shapes import Candidate, Sizes, best_of_shape, kept

_MOST_SEARCHES = 48
"""Searches for one way to share: each excludes sizes, and a large cluster takes seconds for one."""


class Candidates:
    """The schedules of a shape without those whose sizes are refused; the rest is searched in parts (Lawler 1972)."""

    def __init__(self, costs: Costs, sizes: Sizes, cluster: Cluster, shape: str) -> None:
        self._costs, self._cluster, self._shape = costs, cluster, shape
        self._left: list[tuple[float, int, Sizes, Candidate]] = []
        self._numbers = count()
        self._sizes = sizes
        self._add(sizes)

    def _add(self, sizes: Sizes) -> None:
        number = next(self._numbers)
        if number >= _MOST_SEARCHES or not all(sizes.values()):
            return
        candidate = best_of_shape(self._costs, sizes, self._cluster, self._shape)
        if candidate is not None:
            heapq.heappush(self._left, (candidate.seconds, number, sizes, candidate))

    def best(self) -> Candidate | None:
        """Return the fastest schedule that is left, ``None`` if there is none."""
        if not self._left:
            return None
        _, _, self._sizes, candidate = heapq.heappop(self._left)
        return candidate

    def exclude(self, sizes: Mapping[str, int], refused: Sequence[Collection[str]]) -> None:
        """Leave out the schedules that are refused for the same reason as that with these sizes.

        ``refused`` has the components of each reason. One alone needs more on fewer accelerators, too; several are
        refused with exactly these sizes.
        """
        groups = [[name for name in names if name in sizes] for names in refused]
        limited = self._sizes
        for name in (names[0] for names in groups if len(names) == 1):
            limited = kept(limited, name, least=sizes[name] + 1)
        if limited is not self._sizes:
            self._add(limited)
            return
        together = min((names for names in groups if names), key=len, default=[])
        for name in together:
            now = sizes[name]
            self._add({**limited, name: [size for size in limited[name] if size.accelerators != now]})
            limited = kept(limited, name, least=now, most=now)
