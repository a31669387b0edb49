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
        self._renumber, self._gone, self._pools = renumber, gone, pools
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
        """Return how often the last data groups of each component go: that on the last node in use first."""
        left = {name: list(self._left[name]) for name in self._names}
        lasts = {name: [max(self._nodes[name][group]) for group in groups] for name, groups in left.items()}
        lasts = {name: list(accumulate(nodes, max)) for name, nodes in lasts.items()}
        users = Counter(node for name, part in self.parts.items() if name not in left for node in part.used_nodes())
        users.update(node for name, groups in left.items() for group in groups for node in self._nodes[name][group])
        due: Counter[str] = Counter()
        while not due or len(users) > self._usable:
            able = [name for name in self._names if len(left[name]) > 1]
            if not able:
                break
            name = max(able, key=lambda name: lasts[name][len(left[name]) - 1])
            due[name] += 1
            for node in self._nodes[name][left[name].pop()]:
                users[node] -= 1
                if not users[node]:
                    del users[node]
        return due

    def _cut(self, name: str, times: int) -> bool:
        """Remove the last data groups this often; return whether a rule can express the rest."""
        return self.leave(name, self._left[name][:-times])

    def nodes(self, name: str, group: int) -> set[int]:
        """Return the nodes of data groups that go together."""
        return self._nodes[name][group]

    def cells(self, name: str, segments: Iterable[Sequence[int]]) -> list[list[int]]:
        """Return the data groups that share nodes, or segments of nodes."""
        cell_of: dict[int, list[int]] = {}
        first = {node: ranks[0] for ranks in segments for node in ranks}
        for group, nodes in enumerate(self._nodes[name]):
            keys = {first.get(node, node) for node in nodes}
            joined = [cell_of[key] for key in keys if key in cell_of]
            cell = sorted({group, *chain.from_iterable(joined)})
            for key in [*keys, *(key for key, known in cell_of.items() if any(known is one for one in joined))]:
                cell_of[key] = cell
        return list({id(cell): cell for cell in cell_of.values()}.values())

    def kept(self, name: str) -> Sequence[int]:
        """Return the old rank of each rank of a component."""
        shrinks = len(self._left.get(name, ())) < len(self._nodes.get(name, ()))
        return self._kept(name, self._left[name]) if shrinks else range(len(self.whole[name]))

    def _kept(self, name: str, groups: Sequence[int]) -> list[int]:
        known = set(groups)
        return [rank for rank, group in enumerate(self._groups[name]) if group in known]

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
        raise PlacementError([replace(one, help=help) for one in error.diagnostics]) from None
    if count % together.groups:
        raise PlacementError([faults.shrinks_together(name, together.groups, total)])

    def apart(groups: int) -> bool:
        first = len(component) - groups // together.groups * together.processes
        return _used(component.rows[:first]).isdisjoint(_used(component.rows[first:]))

    if not apart(count):
        sizes = range(together.groups, min(total, _MOST_SIZES * together.groups), together.groups)
        raise PlacementError([faults.node_is_shared(name, [groups for groups in sizes if apart(groups)])])
    kept = len(component) - count // together.groups * together.processes
    rule = first_ranks(component, kept)
    if rule is None:
        raise PlacementError([faults.no_smaller_rule(name, kept)])
    smaller = resized(component, component.inventory, rule, total - count)
    if wrong := list(size_faults(plan.rules.pools, {**plan, name: smaller}, {name: 0})):
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
    together.
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
    nodes = [set().union(*(shrinking.nodes(name, group) for group in cell)) for cell in cells]
    others = set().union(*(one.used_nodes() for other, one in plan.items() if other != name)) - set().union(*nodes)
    places: list[set[int]] = [*nodes, *({node} for node in sorted(others))]
    columns = []
    for level in plan.inventory.domains:
        found = [{level.ids[node] for node in place} for place in places]
        columns.append([ids.pop() if len(ids) == 1 else Hierarchy.UNKNOWN for ids in found])
    left, more = len(cells) - count // sizes[0], len(places) - len(cells)
    problem = Problem(
        Hierarchy(len(places), columns),
        node_classes=[0] * len(cells) + [1] * more,
        rank_classes=[0] * left + [1] * more,
        unfit=[],
        parts=[],
        sets=[],
        preferred=[],
        balanced=[],
        caps=[],
        pinned=[None] * left + list(range(len(cells), len(places))),
        old=[],
        segment=1,
    )
    stay = sorted(node for node in problem.solve().nodes[:left] if node is not None)
    if not shrinking.leave(name, sorted(group for cell in stay for group in cells[cell])):
        raise PlacementError([faults.no_rule_without(name, count, shrinking.obstacle)])
    return shrinking.kept(name), shrinking.parts[name]


def _segments(plan: Plan, name: str) -> list[tuple[int, ...]]:
    """Return the outermost segments of the nodes of a component."""
    rules = NodeRules.of(plan.rules, plan, plan.inventory.levels, lost=stated_levels(plan.inventory))
    mine = [rule for rule in rules.kept if rule.kind == SEGMENT and rule.who in ("", name)]
    return [ranks for rule in mine for ranks in rule.sets()]


def _nodes(component: Component, groups: Sequence[int]) -> list[set[int]]:
    """Return the nodes of each data group."""
    found: list[set[int]] = [set() for _ in range(max(groups) + 1)]
    for group, row in zip(groups, component.rows, strict=True):
        found[group].update([row.cluster_node_rank, *(node for node, _ in row.devices)])
    return found
