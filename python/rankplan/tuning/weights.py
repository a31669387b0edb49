"""The seconds that weights take between components: their bytes over the bandwidth of the slowest level they cross."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from rankplan.errors import Diagnostic, PlacementError
from rankplan.nodes.inventory import Inventory
from rankplan.tuning.costs import LEVELS, Costs, WeightSync
from rankplan.words import did_you_mean


@dataclass(frozen=True)
class Level:
    """A level whose bandwidth is stated, by name.

    ``ids`` is the domain of each node; weights within a domain cross no slower level. ``most`` are the accelerators of
    the largest domain.
    """

    name: str
    ids: Sequence[int]
    most: int


@dataclass(frozen=True)
class Network:
    """The levels between accelerators, the fastest first, and the bytes per second of each level.

    ``ends`` are the numbers of accelerators up to the end of each node. The last level has one domain, the cluster.
    """

    ends: Sequence[int]
    levels: Sequence[Level]
    bandwidth: Mapping[str, float]

    @classmethod
    def of(cls, costs: Costs, inventory: Inventory) -> Network:
        """Return the levels of an inventory. Raises `PlacementError` for the bandwidth of an ``unknown-level``."""
        _check(costs, inventory)
        counts = [spec.num_accelerators for nodes, spec in inventory.stretches() for _ in nodes]
        ids: dict[str, Sequence[int]] = {"node": range(len(counts))}
        ids |= {level.level: level.ids for level in reversed(inventory.domains)}
        levels = []
        for name in [name for name in ids if name in costs.bandwidth]:
            sizes: dict[int, int] = {}
            for domain, count in zip(ids[name], counts, strict=True):
                sizes[domain] = sizes.get(domain, 0) + count
            levels.append(Level(name, ids[name], max(sizes.values())))
            if len(sizes) == 1:
                break
        else:
            levels.append(Level("network", [0] * len(counts), sum(counts)))
        return cls(list(accumulate(counts)), levels, costs.bandwidth)

    def level(self, ranges: Sequence[range]) -> int:
        """Return the first level that has accelerators in these ranges, counted over the cluster, in one domain."""
        nodes = [
            node
            for one in ranges
            for node in range(bisect_right(self.ends, one.start), bisect_right(self.ends, one.stop - 1) + 1)
        ]
        return next(i for i, level in enumerate(self.levels) if len({level.ids[node] for node in nodes}) == 1)

    def seconds(self, sync: WeightSync, level: int) -> float:
        """Return the seconds of a transfer between accelerators whose slowest level is this one.

        If the bandwidth of the whole network is not stated, that of the slowest level counts.
        """
        named = self.levels[level].name
        rate = self.bandwidth.get(named) or min(self.bandwidth.values(), default=0.0)
        return sync.bytes / rate if rate else 0.0

    def seconds_together(self, sync: WeightSync) -> float:
        """Return the seconds on shared accelerators: none, unless the bandwidth of a device is stated."""
        return sync.bytes / self.bandwidth["device"] if "device" in self.bandwidth else 0.0


def _check(costs: Costs, inventory: Inventory) -> None:
    known = [*LEVELS[:2], *reversed(inventory.levels), *LEVELS[2:]]
    faults = []
    for name in costs.bandwidth:
        if name not in known:
            help = did_you_mean(name, known, "the levels are")
            fault = Diagnostic("unknown-level", f"unknown level `{name}`", help)
            faults.append(costs.located(("bandwidth", name), fault))
    if faults:
        raise PlacementError(faults)
