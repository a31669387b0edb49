"""What each process of a plan needs on its accelerators, by phase."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

from rankplan._core import Placement
from rankplan.memory.need import Need, rank_of
from rankplan.memory.needs import Needs
from rankplan.plans.component import Component

Phases = dict[str, Need]
"""The need of each phase of a process; of several accelerators, that of the worst one."""


class ProcessNeeds:
    """The needs of the processes of a plan. Equal processes on equal nodes are read once."""

    def __init__(self, needs: Needs) -> None:
        self._nodes = list(needs.by_nodes())
        self._starts = [nodes[0] for nodes, _ in self._nodes]
        self._found: dict[tuple[int, str, tuple[int, ...]], Phases] = {}

    def of(self, row: Placement, name: str) -> Phases:
        """Return what a process of a component needs; nothing if the component states no memory."""
        by_node: dict[int, list[int]] = {}
        for node, index in row.devices:
            by_node.setdefault(node, []).append(index)
        found = (self._on(self.at(node), name, tuple(indices)) for node, indices in by_node.items())
        return _worst(need for phases in found for need in phases.values())

    def worst(self, name: str, rows: Iterable[Placement]) -> Need | None:
        """Return the phase that decides of some processes of a component, ``None`` without any."""
        needs = [need for row in rows for need in self.of(row, name).values()]
        return max(needs, key=rank_of, default=None)

    def at(self, node: int) -> int:
        """Return the number of the stretch of equal nodes that a node is in, -1 if nothing there has accelerators."""
        found = bisect_right(self._starts, node) - 1
        return found if found >= 0 and node in self._nodes[found][0] else -1

    def _on(self, at: int, name: str, indices: tuple[int, ...]) -> Phases:
        if at < 0:
            return {}
        here = self._nodes[at][1]
        key = (id(here), name, indices)
        if key not in self._found:
            needs = (need for index in indices for need in here.get(index, ()))
            self._found[key] = _worst(need for need in needs if name in need.components)
        return self._found[key]

    def runs(self, name: str, component: Component) -> Iterator[tuple[int, int, Sequence[Phases]]]:
        """Yield a first rank, how often its processes repeat, and what each of them needs, for all ranks."""
        runs = component.rows.runs(at_home=True)
        if runs != component.rows.runs():  # a process has accelerators on several nodes
            yield from ((rank, 1, [self.of(row, name)]) for rank, row in enumerate(component))
            return
        for run in runs:
            node, end, each = run.node, run.node + run.nodes, run.pattern.processes
            while node < end:
                at = self.at(node)
                following = bisect_right(self._starts, node)
                until = min(end, self._starts[following]) if following < len(self._starts) else end
                until = min(until, self._nodes[at][0].stop) if at >= 0 else until
                first = run.first_rank + (node - run.node) * each
                yield first, until - node, [self._on(at, name, devices) for devices in run.pattern.devices]
                node = until


def _worst(needs: Iterable[Need]) -> Phases:
    """Return the worst need of each phase."""
    worst: Phases = {}
    for need in needs:
        if need.phase not in worst or rank_of(need) > rank_of(worst[need.phase]):
            worst[need.phase] = need
    return worst
