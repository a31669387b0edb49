"""Shrink components of a plan by whole data groups before nodes are found for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, chain

from rankplan._core import Hierarchy, Placements, Problem, RankSet
from rankplan.arranging import faults
from rankplan.arranging.repair import lists_of, rule_of
from rankplan.arranging.units import Together, first_ranks, num_data_groups, resized, sets_together
from rankplan.errors import PlacementError
from rankplan.plans.component import Component
from rankplan.plans.plan import Plan
from rankplan.plans.pools import size_faults
from rankplan.plans.rules import Pool
from rankplan.plans.topology import SEGMENT, NodeRules, stated_levels
from rankplan.words import counted


class Shrinking:
    """Removes whole data groups of components, step by step, until ``usable`` nodes suffice.

    Data groups that go together (see `Together`) leave together. The last ones go, without
    ``renumber`` only if the other ranks keep their numbers; the processes of lost nodes move to the nodes that become
    free. With ``lost_first``, those on ``gone`` node ranks go before.
    """

    def __init__(
        self,
        parts: Mapping[str, Component],
        names: Sequence[str],
        gone: set[int],
        usable: int,
        *,
        pools: Sequence[Pool] = (),
        renumber: bool,
        lost_first: bool = False,
    ) -> None:
        self._usable = usable
        self.whole: Mapping[str, Component] = dict(parts)
        self.stated = names
        self._names = list(dict.fromkeys(names))
        self._renumber = renumber
        self._gone = gone
        self._pools = pools
        self._groups = {name: sets_together(parts[name]) for name in self._names}
        self._nodes = {name: _nodes(parts[name], groups) for name, groups in self._groups.items()}
        self._left = {name: list(range(max(groups) + 1)) for name, groups in self._groups.items()}
        self.parts: dict[str, Component] = dict(parts)
        self.obstacle: str | None = None
        self._lost_first = lost_first

    def possible(self) -> bool:
        """Whether another step is possible."""
        return any(len(self._left[name]) > 1 for name in self._names)

    def step(self) -> None:
        """Remove data groups, at least one: with ``lost_first`` those on lost nodes, then the last ones."""
        first, self._lost_first = self._lost_first, False
        if first and sum(self._drop_lost(name) for name in self._names):
            return
        for name, times in self._due().items():
            if not self._cut(name, times) and not all(self._cut(name, 1) for _ in range(times)):
                self._names.remove(name)

    def _drop_lost(self, name: str) -> bool:
        """Remove the data groups on lost nodes, unless none would be left; return whether any is removed."""
        left = self._left[name]
        kept = [group for group in left if self._nodes[name][group].isdisjoint(self._gone)]
        return 0 < len(kept) < len(left) and self.leave(name, kept)

    def _due(self) -> dict[str, int]:
        """Return how many of its last data groups each component loses in this step.

        They go one by one, until ``usable`` nodes suffice: each time the last one of the component that uses the last
        node. A node is free once nothing uses it any more.
        """
        num_left = {name: len(self._left[name]) for name in self._names}
        last_nodes: dict[str, list[int]] = {}  # for each data group, the last node of it and of those before it
        for name in self._names:
            last_of_each = [max(self._nodes[name][group]) for group in self._left[name]]
            last_nodes[name] = list(accumulate(last_of_each, max))
        users = self._users()
        due: Counter[str] = Counter()
        while not due or len(users) > self._usable:
            able = [name for name in self._names if num_left[name] > 1]
            if not able:
                break
            name = max(able, key=lambda name: last_nodes[name][num_left[name] - 1])
            due[name] += 1
            num_left[name] -= 1
            for node in self._nodes[name][self._left[name][num_left[name]]]:
                users[node] -= 1
                if not users[node]:
                    del users[node]
        return due

    def _users(self) -> Counter[int]:
        """Return, for each node in use, how many data groups, and other components, use it."""
        users: Counter[int] = Counter()
        for name, part in self.parts.items():
            if name not in self._names:
                users.update(part.used_nodes())
                continue
            for group in self._left[name]:
                users.update(self._nodes[name][group])
        return users

    def _cut(self, name: str, times: int) -> bool:
        """Remove the last data groups this often; return whether a rule can express the rest."""
        return self.leave(name, self._left[name][:-times])

    def nodes(self, name: str, group: int) -> set[int]:
        """Return the nodes of data groups that go together."""
        return self._nodes[name][group]

    def cells(self, name: str, segments: Iterable[Sequence[int]]) -> list[list[int]]:
        """Return the data groups that share nodes, or segments of nodes, as one list each.

        A list of data groups is known by its first one. All nodes of a segment count as its first node.
        """
        first_node = {node: ranks[0] for ranks in segments for node in ranks}
        cell_of: dict[int, int] = {}
        nodes_of: dict[int, set[int]] = {}
        groups_of: dict[int, list[int]] = {}
        for group, group_nodes in enumerate(self._nodes[name]):
            groups = [group]
            nodes = {first_node.get(node, node) for node in group_nodes}
            for other in {cell_of[node] for node in nodes if node in cell_of}:
                groups += groups_of.pop(other)
                nodes |= nodes_of.pop(other)
            cell = min(groups)
            groups_of[cell] = groups
            nodes_of[cell] = nodes
            cell_of |= dict.fromkeys(nodes, cell)
        return [sorted(groups_of[cell]) for cell in sorted(groups_of)]

    def kept(self, name: str) -> Sequence[int]:
        """Return, for each rank that is left of a component, its rank before."""
        shrinks = len(self._left.get(name, ())) < len(self._nodes.get(name, ()))
        return self._kept(name, self._left[name]) if shrinks else range(len(self.whole[name]))

    def _kept(self, name: str, groups: Sequence[int]) -> list[int]:
        stay = set(groups)
        return [rank for rank, group in enumerate(self._groups[name]) if group in stay]

    def leave(self, name: str, groups: list[int]) -> bool:
        """Leave only these data groups; return whether a rule can express them."""
        whole = self.whole[name]
        kept = self._kept(name, groups)
        if not self._renumber and kept != list(range(len(kept))):
            self.obstacle = f"the last data group of {name} is not its last ranks: allow other numbers (`--renumber`)"
            return False
        if kept == list(range(len(kept))):
            rule = first_ranks(whole, len(kept))
        else:
            lists = lists_of(whole)
            rule = rule_of([lists[rank] for rank in kept], whole.rule)
        if rule is None:
            return False
        left = num_data_groups(whole) * len(groups) // len(self._nodes[name])
        try:
            smaller = resized(whole, whole.inventory, rule, left)
        except PlacementError as error:
            self.obstacle = f"{name} cannot shrink to {counted(left, 'data group')}: {error.message}"
            return False
        for fault in size_faults(self._pools, self.parts | {name: smaller}, {name: 0}):
            self.obstacle = f"{name} cannot shrink to {counted(left, 'data group')}: {fault.message}"
            return False
        self.parts[name] = smaller
        self._left[name] = groups
        return True


def removed(plan: Plan, name: str, count: int, *, renumber: bool) -> tuple[Sequence[int], Component]:
    """Return a component without ``count`` data groups, and the old rank of each of its ranks.

    Without ``renumber``, the last ones go; else those whose nodes free the most domains. Raises `PlacementError`
    (``invalid-value``).
    """
    component = plan[name]
    total = num_data_groups(component)
    if count >= total:
        raise PlacementError([faults.nothing_left(name, total)])
    if renumber:
        return _chosen(plan, name, count)
    try:
        together = Together.of(component)
    except PlacementError as error:
        help = "allow other numbers (`--renumber`)"
        raise PlacementError([replace(fault, help=help) for fault in error.diagnostics]) from None
    if count % together.groups:
        raise PlacementError([faults.shrinks_together(name, together.groups, total)])

    def num_left(groups: int) -> int:
        return len(component) - groups // together.groups * together.processes

    def has_own_nodes(groups: int) -> bool:
        first = num_left(groups)
        return _used(component.rows[:first]).isdisjoint(_used(component.rows[first:]))

    if not has_own_nodes(count):
        sizes = range(together.groups, min(total, _MOST_SIZES * together.groups), together.groups)
        raise PlacementError([faults.node_is_shared(name, [groups for groups in sizes if has_own_nodes(groups)])])
    kept = num_left(count)
    rule = first_ranks(component, kept)
    if rule is None:
        raise PlacementError([faults.no_smaller_rule(name, kept)])
    smaller = resized(component, component.inventory, rule, total - count)
    wrong = list(size_faults(plan.rules.pools, {**plan, name: smaller}, {name: 0}))
    if wrong:
        raise PlacementError(wrong)
    return range(kept), smaller


_MOST_SIZES = 64
"""The numbers of data groups that are tried for a help."""


def _used(rows: Placements) -> RankSet:
    """Return the node ranks that rows use."""
    return RankSet(chain.from_iterable(range(run.node, run.node + run.nodes) for run in rows.runs()))


def _chosen(plan: Plan, name: str, count: int) -> tuple[Sequence[int], Component]:
    """Do as `removed`, but choose the data groups without which the fewest domains are in use.

    The outermost level counts first; of equal choices, the last data groups go. Those that share a node or a segment go
    together, as a cell.

    The core chooses the cells that stay, as an arrangement. Its nodes are the cells, and the nodes that only other
    components use. Its node ranks are as many as cells stay, on any of them, and one for each of the other nodes, on
    that node.
    """
    component = plan[name]
    shrinking = Shrinking(plan, [name], set(), 0, pools=plan.rules.pools, renumber=True)
    cells = shrinking.cells(name, _segments(plan, name))
    groups = num_data_groups(component) // sum(map(len, cells))
    sizes = sorted({len(cell) * groups for cell in cells})
    if len(sizes) > 1:
        raise PlacementError([faults.uneven_cells(name, sizes)])
    if count % sizes[0]:
        raise PlacementError([faults.shrinks_together(name, sizes[0], num_data_groups(component))])
    places: list[set[int]] = []
    for cell in cells:
        places.append(set().union(*(shrinking.nodes(name, group) for group in cell)))
    other_nodes: set[int] = set()
    for other, part in plan.items():
        if other != name:
            other_nodes.update(part.used_nodes())
    other_nodes.difference_update(*places)
    places += [{node} for node in sorted(other_nodes)]
    num_staying = len(cells) - count // sizes[0]
    problem = Problem(
        Hierarchy(len(places), _domains_of(places, plan)),
        node_classes=[0] * len(cells) + [1] * len(other_nodes),
        rank_classes=[0] * num_staying + [1] * len(other_nodes),
        unfit=[],
        parts=[],
        sets=[],
        preferred=[],
        balanced=[],
        caps=[],
        pinned=[None] * num_staying + list(range(len(cells), len(places))),
        old=[],
        segment=1,
    )
    staying = [cells[node] for node in problem.solve().nodes[:num_staying] if node is not None]
    if not shrinking.leave(name, sorted(chain.from_iterable(staying))):
        raise PlacementError([faults.no_rule_without(name, count, shrinking.obstacle)])
    return shrinking.kept(name), shrinking.parts[name]


def _domains_of(places: Sequence[set[int]], plan: Plan) -> list[list[int]]:
    """Return, level by level, the domain of each set of nodes: unknown if it has nodes of several."""
    columns: list[list[int]] = []
    for level in plan.inventory.domains:
        column: list[int] = []
        for nodes in places:
            ids = {level.ids[node] for node in nodes}
            column.append(ids.pop() if len(ids) == 1 else Hierarchy.UNKNOWN)
        columns.append(column)
    return columns


def _segments(plan: Plan, name: str) -> list[tuple[int, ...]]:
    """Return the outermost segments of the nodes of a component."""
    rules = NodeRules.of(plan.rules, plan, plan.inventory.levels, lost=stated_levels(plan.inventory))
    segments: list[tuple[int, ...]] = []
    for rule in rules.kept:
        if rule.kind == SEGMENT and rule.who in ("", name):
            segments += rule.sets()
    return segments


def _nodes(component: Component, groups: Sequence[int]) -> list[set[int]]:
    """Return the nodes of each data group."""
    nodes: list[set[int]] = [set() for _ in range(max(groups) + 1)]
    for group, row in zip(groups, component.rows, strict=True):
        nodes[group].update([row.cluster_node_rank, *(node for node, _ in row.devices)])
    return nodes
