"""Repair the components of a plan before nodes are found for it.

Processes use other accelerators of their node, or some or all components of the node move to another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain, combinations, islice
from typing import NamedTuple, TypeAlias

from rankplan._core import CLUSTER, Chunks, RankMap, RankSet
from rankplan.errors import PlacementError
from rankplan.nodes.inventory import Inventory
from rankplan.nodes.node import NodeSpec
from rankplan.plans.component import Component, Rule, local_accelerators, merged, used_nodes
from rankplan.plans.pools import reserves
from rankplan.plans.rules import Pool

Swap: TypeAlias = tuple[list[str], dict[int, int]]
"""Components that use other accelerators of a node rank: the new local index of each old one."""


_MOST_REPAIRS = 32
"""The repairs that are tried at most."""


class _Users(NamedTuple):
    """Who uses the broken ``accelerators`` of a node.

    ``uses`` has what each of its components uses there, ``broken`` the names of those that use a broken one.
    """

    uses: Mapping[str, RankSet]
    accelerators: RankSet
    broken: list[str]

    def can_leave(self, parts: Mapping[str, Component]) -> bool:
        """Return whether only some components must leave the node, and all of these can."""
        return len(self.broken) < len(self.uses) and all(_can_leave(parts[name]) for name in self.broken)

    def swap(self, num_accelerators: int) -> Swap | None:
        """Return the idle accelerators that take the place of broken ones; ``None`` if the node has too few."""
        needed = RankSet().union(*(self.uses[name] & self.accelerators for name in self.broken))
        idle = RankSet(range(num_accelerators)) - RankSet().union(self.accelerators, *self.uses.values())
        if len(idle) < len(needed):
            return None
        return self.broken, dict(zip(needed, idle, strict=False))


def _broken_users(parts: Mapping[str, Component], broken: Mapping[int, RankSet | None]) -> dict[int, _Users]:
    """Return what uses broken accelerators, by node rank in ascending order; whole nodes are left out."""
    used = {name: _used(component, set(broken)) for name, component in parts.items()}
    users: dict[int, _Users] = {}
    for rank, accelerators in sorted(broken.items()):
        if accelerators is None:
            continue
        uses = {name: by_rank[rank] for name, by_rank in used.items() if rank in by_rank}
        names = [name for name, local in uses.items() if local & accelerators]
        if names:
            users[rank] = _Users(uses, accelerators, names)
    return users


def _most_first(ranks: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield as many sets of these node ranks as are tried: larger ones first, the empty one in the end."""
    sizes = range(len(ranks), 0, -1)
    yield from islice(chain.from_iterable(combinations(ranks, size) for size in sizes), _MOST_REPAIRS - 1)
    yield ()


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
        cls,
        parts: Mapping[str, Component],
        planned: Inventory,
        broken: Mapping[int, RankSet | None],
        pools: Sequence[Pool],
        *,
        swapping: bool = True,
    ) -> Iterator[Repair]:
        """Yield repairs that move processes off broken accelerators, those first that move the fewest.

        ``broken`` has the local indices of the accelerators by node rank, or ``None`` for the whole node. Reserves of
        the ``pools`` stay free. The processes use other accelerators of the same node, if enough are idle. Otherwise
        the components that use a broken one move to another node, while the others stay, or the whole node rank moves.
        Without ``swapping``, no process uses another accelerator of its node: those that it uses may be what another
        node rank needs.
        """
        repair = cls(dict(parts))
        broken_users = _broken_users(parts, broken)
        leaving = {rank: users.broken for rank, users in broken_users.items() if users.can_leave(parts)}
        whole_nodes = {rank for rank, accelerators in broken.items() if accelerators is None}
        repair.lost = whole_nodes | (broken_users.keys() - leaving.keys())
        swaps: dict[int, Swap] = {}
        for rank, users in broken_users.items() if swapping else ():
            swap = users.swap(planned.node(rank).num_accelerators)
            if swap is not None:
                swaps[rank] = swap
        if not repair._swap(swaps):
            swaps = {rank: swap for rank, swap in swaps.items() if repair._swap({rank: swap})}
        repair.lost -= swaps.keys()
        able = [rank for rank in leaving if rank not in swaps]
        for ranks in _most_first(able):
            attempt = cls(dict(repair.parts), repair.lost.union(able) - set(ranks), {}, repair.shifted)
            if ranks:
                attempt._leave(planned, pools, {rank: leaving[rank] for rank in ranks})
            yield attempt
        if swaps:
            yield from cls.several(parts, planned, broken, pools, swapping=False)

    def _swap(self, swaps: Mapping[int, Swap]) -> bool:
        """Let components use other accelerators of these node ranks, all or none; return whether rules express that."""
        parts = dict(self.parts)
        shifted = dict(self.shifted)
        for name in dict.fromkeys(name for names, _ in swaps.values() for name in names):
            new_index = {rank: indices for rank, (names, indices) in swaps.items() if name in names}
            component = parts[name]
            lists = lists_of(component)
            moved: set[int] = set()
            for row, resources in zip(component.rows, lists, strict=True):
                for position, (node, index) in enumerate(row.devices):
                    if node in new_index and index in new_index[node]:
                        resources[position] += new_index[node][index] - index
                        moved.add(row.rank)
            rule = rule_of(lists, component.rule)
            if rule is None:
                return False
            try:
                parts[name] = placed(component, component.inventory, rule)
            except PlacementError:
                return False
            shifted[name] = shifted.get(name, set()) | moved
        self.parts = parts
        self.shifted = shifted
        return True

    def _leave(self, planned: Inventory, pools: Sequence[Pool], leaving: Mapping[int, list[str]]) -> None:
        """Let components leave node ranks for others with the same accelerators, which ``added`` has from then on.

        ``leaving`` has the components that leave each node rank.
        """
        extended = self._with_ranks_for(leaving, planned, pools)
        first_resource = {new: extended.core.resource(new, 0) for new in self.added}
        for name, component in self.parts.items():
            new_rank = {rank: new for new, rank in self.added.items() if name in leaving[rank]}
            if not new_rank:
                self.parts[name] = replace(component, inventory=extended, rows=component.rows.on(extended.core))
                continue
            lists = lists_of(component)
            for row, resources in zip(component.rows, lists, strict=True):
                for position, (node, index) in enumerate(row.devices):
                    if node in new_rank:
                        resources[position] = first_resource[new_rank[node]] + index
            rule = rule_of(lists, component.rule)
            self.parts[name] = placed(component, extended, rule or component.rule)

    def _with_ranks_for(self, leaving: Iterable[int], planned: Inventory, pools: Sequence[Pool]) -> Inventory:
        """Choose another node rank for each of these, and return the nodes with those that are new.

        Node ranks that nothing uses come first, but not those of reserves. New ones come behind all others.
        """
        used = used_nodes(self.parts.values())
        unused = RankSet(range(planned.num_nodes)) - used.union(*(ranks for ranks, _ in reserves(pools)))
        free: dict[tuple[object, ...], list[int]] = {}
        for rank in reversed(list(unused)):
            free.setdefault(_hardware(planned.node(rank)), []).append(rank)
        records: list[NodeSpec] = []
        for rank in leaving:
            record = planned.node(rank)
            alike = free.get(_hardware(record))
            if alike:
                self.added[alike.pop()] = rank
                continue
            new = planned.num_nodes + len(records)
            self.added[new] = rank
            records.append(record.changed(hostname=None, ip=None).at(RankSet([new])))
        if not records:
            return planned
        entries = [record.at(RankSet(nodes)) for nodes, record in planned.stretches()]
        return Inventory([*entries, *records], planned.facts, planned.levels or None)


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


def lists_of(component: Component) -> list[list[int]]:
    """Return the resource ranks of each process."""
    return component.inventory.pool(component.node_groups, by_node=component.by_node).ranks_of(component.rows)


def _used(component: Component, nodes: set[int]) -> dict[int, RankSet]:
    """Return the accelerators that a component uses of those of these nodes that it is on."""
    used: dict[int, RankSet] = {}
    if not nodes:
        return used
    for run in component.rows.runs():
        for node in nodes.intersection(range(run.node, run.node + run.nodes)):
            used[node] = used.get(node, RankSet()) | local_accelerators(run.pattern)
    return used


def _hardware(record: NodeSpec) -> tuple[object, ...]:
    return record.accelerator_type, record.num_accelerators, record.accelerator_model


def _can_leave(component: Component) -> bool:
    """Whether its node group has every node, so that a new one belongs to it."""
    return component.node_groups == (CLUSTER,) and not component.by_node
