"""Changes to the components of a plan before nodes are found for it.

A repair lets processes use other accelerators of their node, or moves some or all components of the node to another
one. Shrinking removes data groups of components until the nodes that are left suffice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain, combinations, islice
from typing import TypeAlias

from rankplan._core import CLUSTER, Chunks, RankMap, RankSet
from rankplan.errors import PlacementError
from rankplan.nodes.inventory import Inventory
from rankplan.nodes.node import NodeSpec
from rankplan.plans.component import Component, Rule, local_accelerators, merged
from rankplan.words import counted

Swap: TypeAlias = tuple[list[str], dict[int, int]]
"""Components that use other accelerators of a node rank: the new local index of each old one."""


_MOST_REPAIRS = 32
"""The repairs that are tried at most."""


@dataclass(slots=True)
class Repair:
    """The components of a plan without its broken hardware, before a node is found for each node rank.

    ``parts`` are the components. ``lost`` are the node ranks that get another node. ``added`` maps the node ranks of
    components that leave a node while others stay, to the one that they leave. ``shifted`` are the ranks, by component,
    that use other accelerators of their node.
    """

    parts: dict[str, Component]
    lost: set[int] = field(default_factory=set)
    added: dict[int, int] = field(default_factory=dict)
    shifted: dict[str, set[int]] = field(default_factory=dict)

    @classmethod
    def several(
        cls, parts: Mapping[str, Component], planned: Inventory, broken: Mapping[int, RankSet | None]
    ) -> Iterator[Repair]:
        """Yield repairs that move processes off broken accelerators, those first that move the fewest.

        ``broken`` has the local indices of the accelerators by node rank, or ``None`` for the whole node. The
        processes use other accelerators of the same node, if enough are idle. Otherwise the components that use a
        broken one move to another node, while the others stay, or the whole node rank moves.
        """
        repair = cls(dict(parts))
        used = {name: _used(component, set(broken)) for name, component in parts.items()}
        swaps: dict[int, Swap] = {}
        leaving: dict[int, list[str]] = {}
        for rank, accelerators in sorted(broken.items()):
            if accelerators is None:
                repair.lost.add(rank)
                continue
            uses = {name: found[rank] for name, found in used.items() if rank in found}
            names = [name for name, local in uses.items() if local & accelerators]
            if not names:
                continue
            if len(names) < len(uses) and all(_can_leave(parts[name]) for name in names):
                leaving[rank] = names
            else:
                repair.lost.add(rank)
            needed = RankSet().union(*(uses[name] & accelerators for name in names))
            idle = RankSet(range(planned.node(rank).num_accelerators)) - RankSet().union(accelerators, *uses.values())
            local = dict(zip(needed, idle, strict=False))
            if len(local) == len(needed):
                swaps[rank] = names, local
        if not repair._swap(swaps):
            swaps = {rank: swap for rank, swap in swaps.items() if repair._swap({rank: swap})}
        repair.lost -= swaps.keys()
        able = [rank for rank in leaving if rank not in swaps]
        sizes = range(len(able), 0, -1)
        some = islice(chain.from_iterable(combinations(able, size) for size in sizes), _MOST_REPAIRS - 1)
        for ranks in (*some, ()):
            one = cls(dict(repair.parts), repair.lost.union(able) - set(ranks), {}, repair.shifted)
            if ranks:
                one._leave(planned, {rank: leaving[rank] for rank in ranks})
            yield one

    def _swap(self, swaps: Mapping[int, Swap]) -> bool:
        """Let components use other accelerators of these node ranks, all or none; return whether rules express that."""
        parts, shifted = dict(self.parts), dict(self.shifted)
        for name in dict.fromkeys(name for names, _ in swaps.values() for name in names):
            here = {rank: local for rank, (names, local) in swaps.items() if name in names}
            component = parts[name]
            lists = _lists(component)
            moved: set[int] = set()
            for row, ranks in zip(component.rows, lists, strict=True):
                for index, (node, device) in enumerate(row.devices):
                    if node in here and device in here[node]:
                        ranks[index] += here[node][device] - device
                        moved.add(row.rank)
            rule = rule_of(lists, component.rule)
            if rule is None:
                return False
            try:
                parts[name] = placed(component, component.inventory, rule)
            except PlacementError:
                return False
            shifted[name] = shifted.get(name, set()) | moved
        self.parts, self.shifted = parts, shifted
        return True

    def _leave(self, planned: Inventory, leaving: Mapping[int, list[str]]) -> None:
        """Give components another node rank, with the same accelerators: an unused one, or one behind the others."""
        first, section = planned.num_nodes, planned.section
        unused = RankSet(range(first)) - RankSet().union(*(part.used_nodes() for part in self.parts.values()))
        free: dict[tuple[object, ...], list[int]] = {}
        for rank in reversed(list(unused)):
            free.setdefault(_hardware(planned.node(rank)), []).append(rank)
        records: list[NodeSpec] = []
        for rank in leaving:
            record = planned.node(rank)
            if alike := free.get(_hardware(record)):
                self.added[alike.pop()] = rank
                continue
            new = first + len(records)
            self.added[new] = rank
            records.append(record.model_copy(update={"ranks": RankSet([new]), "hostname": None, "ip": None}))
        extended = planned
        if records:
            if section is not None:
                section = section.model_copy(update={"num_nodes": first + len(records)})
            entries = [entry.at(RankSet(nodes)) for nodes, entry in planned.stretches()]
            extended = Inventory([*entries, *records], section, planned.levels or None)
        starts: dict[int, int] = {}
        start = 0
        for nodes, record in extended.stretches():
            each = record.num_accelerators
            starts |= {new: start + (new - nodes.start) * each for new in self.added if new in nodes}
            start += len(nodes) * each
        for name, component in self.parts.items():
            goes = {rank: new for new, rank in self.added.items() if name in leaving[rank]}
            if not goes:
                self.parts[name] = replace(component, inventory=extended, rows=component.rows.on(extended.core))
                continue
            lists = _lists(component)
            for row, ranks in zip(component.rows, lists, strict=True):
                for index, (node, device) in enumerate(row.devices):
                    if node in goes:
                        ranks[index] = starts[goes[node]] + device
            rule = rule_of(lists, component.rule)
            self.parts[name] = placed(component, extended, rule or component.rule)


class Shrinking:
    """Removes whole data groups of components, step by step, until ``usable`` nodes suffice.

    The last groups go, without ``renumber`` only if the other ranks keep their numbers; the processes of lost nodes
    move to the nodes that become free. With ``lost_first``, the groups on ``gone`` node ranks go before.
    """

    def __init__(
        self,
        parts: Mapping[str, Component],
        names: Sequence[str],
        gone: set[int],
        usable: int,
        *,
        renumber: bool,
        lost_first: bool = False,
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
        self._lost_first = lost_first

    def possible(self) -> bool:
        """Whether another step is possible."""
        return any(len(self._left[name]) > self._unit(name) for name in self._names)

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
        unit, left = self._unit(name), self._left[name]
        lost = {group // unit for group, nodes in enumerate(self._nodes[name]) if not nodes.isdisjoint(self._gone)}
        kept = [group for group in left if group // unit not in lost]
        return 0 < len(kept) < len(left) and self._apply(name, kept)

    def _due(self) -> dict[str, int]:
        """Return how often the last data groups of each component go: that on the last node in use first."""
        left = {name: list(self._left[name]) for name in self._names}
        lasts = {name: [max(self._nodes[name][group]) for group in groups] for name, groups in left.items()}
        lasts = {name: list(accumulate(nodes, max)) for name, nodes in lasts.items()}
        users = Counter(node for name, part in self.parts.items() if name not in left for node in part.used_nodes())
        users.update(node for name, groups in left.items() for group in groups for node in self._nodes[name][group])
        due: Counter[str] = Counter()
        while not due or len(users) > self._usable:
            able = [name for name in self._names if len(left[name]) > self._unit(name)]
            if not able:
                break
            name = max(able, key=lambda name: lasts[name][len(left[name]) - 1])
            due[name] += 1
            for _ in range(self._unit(name)):
                for node in self._nodes[name][left[name].pop()]:
                    users[node] -= 1
                    if not users[node]:
                        del users[node]
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
        lists = _lists(whole)
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


def placed(component: Component, inventory: Inventory, rule: Rule) -> Component:
    """Return a component with another rule on another inventory. Raises `PlacementError`."""
    settings, beside = component.settings, component.beside
    return Component.place(component.name, inventory, component.node_groups, rule, settings, beside)


def rule_of(lists: list[list[int]], like: Rule) -> Rule | None:
    """Return the rule of processes with these resource ranks, ``None`` if no rule can express them."""
    if isinstance(like, RankMap) and lists == sorted(map(sorted, lists)):
        with suppress(PlacementError):  # processes that share only some of their resources
            return RankMap.parse(merged(RankMap.from_lists(lists)))
    if len({len(ranks) for ranks in lists}) == 1:
        return Chunks([rank for ranks in lists for rank in ranks], len(lists[0]))
    return None


def _lists(component: Component) -> list[list[int]]:
    return component.inventory.pool(component.node_groups, by_node=component.by_node).ranks_of(component.rows)


def _used(component: Component, nodes: set[int]) -> dict[int, RankSet]:
    """Return the accelerators that a component uses of those of these nodes that it is on."""
    found: dict[int, RankSet] = {}
    for run in component.rows.runs() if nodes else ():
        for node in nodes.intersection(range(run.node, run.node + run.nodes)):
            found[node] = found.get(node, RankSet()) | local_accelerators(run.pattern)
    return found


def _hardware(record: NodeSpec) -> tuple[object, ...]:
    return record.accelerator_type, record.num_accelerators, record.accelerator_model


def _can_leave(component: Component) -> bool:
    """Whether its node group has every node, so that a new one belongs to it."""
    return component.node_groups == (CLUSTER,) and not component.by_node
