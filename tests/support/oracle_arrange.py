"""What an arrangement costs, and the cheapest one, in plain Python: every assignment is tried."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations

from rankplan.plans.component import Component

CLASSES = (("tp", "cp", "etp"), ("ep",), ("dp", "fsdp", "replica", "edp"), ("pp",))
"""Kinds of groups, those whose crossings are worst first."""

Labels = Sequence[str | None]
"""The labels of a node, outermost first."""


@dataclass
class Case:
    """Nodes with labels and hardware, and the components on the node ranks of another inventory.

    ``kinds`` and ``needs`` are the hardware of nodes and of node ranks; ``None`` is a node rank without processes.
    ``kept`` are groups that must not cross a domain: component, kind, level. ``sets`` are such node ranks. ``old`` has
    the nodes before; without an old plan it is empty. ``unfit`` are the node ranks that a node with broken accelerators
    does not suit. ``preferred`` and ``balanced`` are levels and node ranks, ``caps`` the most nodes by level.
    """

    labels: Sequence[Labels]
    kinds: Sequence[int]
    needs: Sequence[int | None]
    components: Mapping[str, Component]
    kept: Sequence[tuple[str, str, int]] = ()
    sets: Sequence[tuple[int, Sequence[int]]] = ()
    old: Sequence[int | None] = ()
    segment: int = 1
    unfit: Mapping[int, set[int]] = field(default_factory=dict)
    preferred: Sequence[tuple[int, Sequence[int]]] = ()
    balanced: Sequence[tuple[int, Sequence[int]]] = ()
    caps: Mapping[int, int] = field(default_factory=dict)
    groups: list[list[list[set[int]]]] = field(init=False)

    def __post_init__(self) -> None:
        stated = [one for one in self.components.values() if one.parallel.stated]
        self.groups = [
            [ranks_of(one, kind) for one in stated for kind in kinds if kind in one.layout.kinds] for kinds in CLASSES
        ]

    @property
    def levels(self) -> int:
        """Number of levels."""
        return len(self.labels[0])

    def domain(self, node: int, level: int) -> tuple[object, ...]:
        """Return the labels down to a level; a node without one is alone."""
        labels = self.labels[node][: level + 1]
        return (*labels, node) if None in labels else tuple(labels)

    def crosses(self, nodes: Sequence[int | None], ranks: Sequence[int] | set[int], level: int) -> bool:
        """Whether node ranks are in several domains."""
        return len({self.domain(node, level) for rank in ranks if (node := nodes[rank]) is not None}) > 1

    def shares(self, nodes: Sequence[int | None], ranks: Iterable[int], level: int) -> list[int]:
        """Return the number of node ranks in each domain that they use."""
        return list(Counter(self.domain(node, level) for rank in ranks if (node := nodes[rank]) is not None).values())

    def cost(self, nodes: Sequence[int | None]) -> list[int]:
        """Return the cost, most important part first."""
        kept = [(level, ranks) for name, kind, level in self.kept for ranks in unique(self.components[name], kind)]
        broken = sum(self.crosses(nodes, ranks, level) for level, ranks in [*kept, *self.sets])
        moved = [rank for rank, old in enumerate(self.old) if nodes[rank] is not None and nodes[rank] != old]
        rows = [row for one in self.components.values() for row in one]
        processes = sum(row.cluster_node_rank == rank for rank in moved for row in rows)
        away = [{node for node, _ in row.devices} - {row.cluster_node_rank} for row in rows]
        for level, most in self.caps.items():
            broken += sum(max(0, count - most) for count in self.shares(nodes, range(len(nodes)), level))
        cost = [broken, processes, sum(rank in places for rank in moved for places in away)]
        for outer in range(self.levels):
            inside = [ranks for level, ranks in self.preferred if level >= outer]
            cost.append(sum(max(0, len(self.shares(nodes, ranks, outer)) - 1) for ranks in inside))
        for level in range(self.levels):
            for kinds in self.groups:
                cost.append(sum(self.crosses(nodes, ranks, level) for groups in kinds for ranks in groups))
        for level, ranks in self.balanced:
            shares = self.shares(nodes, ranks, level) or [0]
            cost += [-min(shares), len(shares), max(shares)]
        taken = {node for node in nodes if node is not None}
        everything = range(len(self.labels))
        used = [{self.domain(node, level) for node in taken} for level in range(self.levels)]
        cost += map(len, used)
        for level, domains in enumerate(used):
            cost.append(sum(self.domain(node, level) in domains and node not in taken for node in everything))
        inner = [self.domain(node, self.levels - 1) if self.levels else () for node in everything]
        spares = [sum(inner[node] == one and node not in taken for node in everything) for one in set(inner)]
        cost.append(-sum(count // self.segment for count in spares) if self.segment > 1 else 0)
        return cost

    def best(self) -> tuple[list[int], list[int | None]] | None:
        """Return the least cost of all assignments, and the first one that has it; ``None`` without enough hardware.

        Of equal costs, that one is first whose nodes come first in order: domain after domain.
        """
        needed = [rank for rank, need in enumerate(self.needs) if need is not None]
        order = sorted(range(len(self.labels)), key=self._place)
        found: tuple[list[int], list[int | None]] | None = None
        for chosen in permutations(order, len(needed)):
            pairs = list(zip(needed, chosen, strict=True))
            if all(
                self.kinds[node] == self.needs[rank] and rank not in self.unfit.get(node, ()) for rank, node in pairs
            ):
                nodes: list[int | None] = [None] * len(self.needs)
                for rank, node in pairs:
                    nodes[rank] = node
                cost = self.cost(nodes)
                if found is None or cost < found[0]:
                    found = cost, nodes
        return found

    def _place(self, node: int) -> tuple[tuple[bool, str], ...]:
        labels = self.labels[node]
        depth = labels.index(None) if None in labels else len(labels)
        known = [(label is None, label or f"{node:4}") for label in labels[: depth + 1]]
        return (*known, (False, f"{node:4}"))


def ranks_of(component: Component, kind: str) -> list[set[int]]:
    """Return the node ranks of each group of a kind."""
    if component.layout.size(kind) < 2:
        return []
    return [{component.layout.place(slot)[0] for slot in group} for group in component.groups(kind)]


def unique(component: Component, kind: str) -> list[set[int]]:
    """Return the sets of two or more node ranks that groups of a kind have, each once."""
    found = {tuple(sorted(ranks)) for ranks in ranks_of(component, kind) if len(ranks) > 1}
    return [set(ranks) for ranks in found]
