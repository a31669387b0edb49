"""Remove data groups of components until the nodes that are left suffice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from rankplan.arranging.repair import placed, rule_of
from rankplan.errors import PlacementError
from rankplan.plans.component import Component
from rankplan.words import counted


class Shrinking:
    """Removes whole data groups of components, step by step, until ``usable`` nodes suffice.

    Without ``renumber``, only the last groups go, and only if the other ranks keep their numbers; the processes of lost
    nodes move to the nodes that become free. With it, the groups on ``gone`` node ranks go first.
    """

    def __init__(
        self, parts: Mapping[str, Component], names: Sequence[str], gone: set[int], usable: int, *, renumber: bool
    ) -> None:
        self._usable = usable
        self._whole = dict(parts)
        self.stated = names
        self._names = list(dict.fromkeys(names))
        self._renumber, self._gone = renumber, gone
        self._groups = {name: data_groups(parts[name]) for name in self._names}
        self._nodes = {name: _nodes(parts[name], groups) for name, groups in self._groups.items()}
        self._left = {name: list(range(max(groups) + 1)) for name, groups in self._groups.items()}
        self.parts: dict[str, Component] = dict(parts)
        self.obstacle: str | None = None
        self._started = False

    def possible(self) -> bool:
        """Whether another step is possible."""
        return any(len(self._left[name]) > self._unit(name) for name in self._names)

    def step(self) -> None:
        """Remove data groups, at least one: with ``renumber`` those on lost nodes at first, then the last ones."""
        first, self._started = not self._started, True
        if first and self._renumber and sum(self._drop_lost(name) for name in self._names):
            return
        for name, times in self._due().items():
            if not self._cut(name, times) and not all(self._cut(name, 1) for _ in range(times)):
                self._names.remove(name)

    def _drop_lost(self, name: str) -> bool:
        """Remove the data groups on lost nodes, unless none would be left; return whether any is removed."""
        unit, left = self._unit(name), self._left[name]
        lost = {group // unit for group, nodes in enumerate(self._nodes[name]) if not nodes.isdisjoint(self._gone)}
        kept = [group for group in left if group // unit not in lost]
        return 0 < len(kept) < len(left) and self._apply(name, kept)

    def _due(self) -> dict[str, int]:
        """Return how often the last data groups of each component go: that on the last node in use first."""
        uses = {name: _Use([set(part.used_nodes())], [0]) for name, part in self.parts.items()}
        uses |= {name: _Use(self._nodes[name], self._left[name]) for name in self._names}
        users = Counter(node for use in uses.values() for node in use.nodes)
        due: dict[str, int] = {}
        while not due or len(users) > self._usable:
            able = [name for name in self._names if len(uses[name].left) > self._unit(name)]
            if not able:
                break
            name = max(able, key=lambda name: uses[name].last)
            due[name] = due.get(name, 0) + 1
            users -= Counter(uses[name].drop(self._unit(name)))
        return due

    def _cut(self, name: str, times: int) -> bool:
        """Remove the last data groups this often; return whether a rule can express the rest."""
        return self._apply(name, self._left[name][: -self._unit(name) * times])

    def kept(self, name: str) -> Sequence[int]:
        """Return the old rank of each rank of a component."""
        shrinks = len(self._left.get(name, ())) < len(self._nodes.get(name, ()))
        return self._kept(name, self._left[name]) if shrinks else range(len(self._whole[name]))

    def _unit(self, name: str) -> int:
        """Return how many data groups go together: those that share their parameters."""
        return self._whole[name].parallel.fsdp

    def _kept(self, name: str, groups: Sequence[int]) -> list[int]:
        known = set(groups)
        return [rank for rank, group in enumerate(self._groups[name]) if group in known]

    def _apply(self, name: str, groups: list[int]) -> bool:
        """Leave only these data groups; return whether a rule can express them."""
        whole = self._whole[name]
        kept = self._kept(name, groups)
        if not self._renumber and kept != list(range(len(kept))):
            self.obstacle = f"the last data group of {name} is not its last ranks: allow other numbers (`--renumber`)"
            return False
        pool = whole.inventory.pool(whole.node_groups, by_node=whole.by_node)
        lists = pool.ranks_of(whole.rows)
        rule = rule_of([lists[rank] for rank in kept], whole.rule)
        if rule is None:
            return False
        parallel = whole.parallel
        if parallel.dp is not None:
            parallel = replace(parallel, dp=len(groups))
        try:
            self.parts[name] = placed(whole.with_settings(parallel=type(parallel)()), whole.inventory, rule)
            self.parts[name] = self.parts[name].with_settings(parallel=parallel)
        except PlacementError as error:
            self.obstacle = f"{name} cannot shrink to {counted(len(groups), 'data group')}: {error.message}"
            return False
        self._left[name] = groups
        return True


class _Use:
    """The nodes that a component uses while its last data groups go; ``by_group`` has those of each group."""

    def __init__(self, by_group: Sequence[set[int]], left: Sequence[int]) -> None:
        self._by_group, self.left = by_group, list(left)
        self.nodes = Counter(node for group in left for node in by_group[group])
        self._order = sorted(self.nodes)

    @property
    def last(self) -> int:
        """The last node in use."""
        while not self.nodes[self._order[-1]]:
            self._order.pop()
        return self._order[-1]

    def drop(self, count: int) -> list[int]:
        """Remove the last groups; return the nodes that are free now."""
        gone, self.left = self.left[-count:], self.left[:-count]
        dropped = [node for group in gone for node in self._by_group[group]]
        self.nodes.subtract(dropped)
        return [node for node in set(dropped) if not self.nodes[node]]


def _nodes(component: Component, groups: Sequence[int]) -> list[set[int]]:
    """Return the nodes of each data group."""
    found: list[set[int]] = [set() for _ in range(max(groups) + 1)]
    for group, row in zip(groups, component.rows, strict=True):
        found[group].update([row.cluster_node_rank, *(node for node, _ in row.devices)])
    return found


def data_groups(component: Component) -> list[int]:
    """Return the data group of each process; without parallel sizes, its engine."""
    if not component.parallel.stated:
        return [rank // component.engines for rank in range(len(component))]
    layout, groups = component.layout, []
    for rank in range(len(component)):
        groups.append(layout.coordinates(layout.slots_of(rank)[0])["dp"])
    return groups
