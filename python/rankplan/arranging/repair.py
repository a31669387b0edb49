"""Repair broken accelerators: use others of the node, or move some or all components of the node to another one."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TypeAlias

from rankplan._core import ACCELERATOR, CLUSTER, Chunks, RankMap, RankSet
from rankplan.errors import PlacementError
from rankplan.nodes.inventory import Inventory
from rankplan.plans.component import Component, Rule, merged

Swap: TypeAlias = tuple[list[str], dict[int, int]]
"""Components that use other accelerators of a node rank: the new local index of each old one."""


@dataclass(slots=True)
class Repair:
    """The components of a plan without its broken hardware, before a node is found for each node rank.

    ``parts`` are the components. Of the node ranks with broken accelerators, ``staying`` keep their node, and
    ``lost`` get another one. ``added`` maps new node ranks, for components that leave a staying one, to that one.
    ``shifted`` are the ranks, by component, that use other accelerators of their node.
    """

    parts: dict[str, Component]
    staying: set[int] = field(default_factory=set)
    lost: set[int] = field(default_factory=set)
    added: dict[int, int] = field(default_factory=dict)
    shifted: dict[str, set[int]] = field(default_factory=dict)

    @classmethod
    def of(cls, parts: Mapping[str, Component], planned: Inventory, broken: Mapping[int, RankSet | None]) -> Repair:
        """Move the fewest processes off the broken accelerators of each node rank.

        ``broken`` has the local indices of the accelerators by node rank, or ``None`` for the whole node. The
        processes use other accelerators of the same node, if enough are idle. Otherwise the components that use a
        broken one move to another node, while the others stay; if they cannot, the whole node rank moves.
        """
        repair = cls(dict(parts))
        partly = {rank for rank, accelerators in broken.items() if accelerators is not None}
        used = {name: _used(component, partly) for name, component in parts.items()}
        swaps: dict[int, Swap] = {}
        affected: dict[int, list[str]] = {}
        alone: dict[int, bool] = {}
        for rank, accelerators in sorted(broken.items()):
            if accelerators is None:
                repair.lost.add(rank)
                continue
            uses = {name: found[rank] for name, found in used.items() if rank in found}
            names = affected[rank] = [name for name, used in uses.items() if used & accelerators]
            alone[rank] = len(names) == len(uses)
            needed = RankSet().union(*(uses[name] & accelerators for name in names))
            idle = RankSet(range(planned.node(rank).num_accelerators)) - RankSet().union(accelerators, *uses.values())
            local = dict(zip(needed, idle, strict=False))
            if len(local) == len(needed):
                swaps[rank] = names, local
        if not repair._swap(swaps):
            swaps = {rank: swap for rank, swap in swaps.items() if repair._swap({rank: swap})}
        leaving: dict[int, list[str]] = {}
        for rank, names in affected.items():
            if rank in swaps:
                repair.staying.add(rank)
            elif not alone[rank] and all(_can_leave(repair.parts[name]) for name in names):
                repair.staying.add(rank)
                leaving[rank] = names
            else:
                repair.lost.add(rank)
        if leaving:
            repair._leave(planned, leaving)
        return repair

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
        """Give components a node rank of their own behind the others, with the same accelerators."""
        first, section = planned.num_nodes, planned.section
        self.added = {first + index: rank for index, rank in enumerate(leaving)}
        entries = [entry.at(RankSet(nodes)) for nodes, entry in planned.stretches()]
        for new, rank in self.added.items():
            record = planned.node(rank)
            entries.append(record.model_copy(update={"ranks": RankSet([new]), "hostname": None, "ip": None}))
        if section is not None:
            section = section.model_copy(update={"num_nodes": first + len(self.added)})
        extended = Inventory(entries, section, planned.levels or None)
        for name, component in self.parts.items():
            goes = {rank: new for new, rank in self.added.items() if name in leaving[rank]}
            if not goes:
                self.parts[name] = replace(component, inventory=extended, rows=component.rows.on(extended.core))
                continue
            pool = extended.pool(component.node_groups)
            ends, end = {}, len(pool)
            for new in sorted(self.added, reverse=True):
                end -= extended.node(new).num_accelerators
                ends[new] = end
            lists = _lists(component)
            for row, ranks in zip(component.rows, lists, strict=True):
                for index, (node, device) in enumerate(row.devices):
                    if node in goes:
                        ranks[index] = ends[goes[node]] + device
            rule = rule_of(lists, component.rule)
            self.parts[name] = placed(component, extended, rule or component.rule)


def placed(component: Component, inventory: Inventory, rule: Rule) -> Component:
    """Return a component with another rule on another inventory. Raises `PlacementError`."""
    pool = inventory.pool(component.node_groups, by_node=component.by_node)
    rows = pool.apply(rule, component.visibility)
    return replace(component, inventory=inventory, rule=rule, rows=rows)


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
            devices = chain.from_iterable(run.pattern.devices) if run.pattern.resource_type == ACCELERATOR else ()
            found[node] = found.get(node, RankSet()) | RankSet(devices)
    return found


def _can_leave(component: Component) -> bool:
    """Whether its node group has every node, so that a new one belongs to it."""
    return component.node_groups == (CLUSTER,) and not component.by_node
