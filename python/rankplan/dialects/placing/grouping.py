"""The node groups that a job file gives components, for trainers that know none.

A component in a group takes its accelerators from the nodes of that group. A component without one takes them from the
nodes that no component has a group for. Components that share accelerators are in one group.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from rankplan._core import CLUSTER, RankSet, Taken
from rankplan.dialects.placing import faults
from rankplan.errors import Diagnostic, Faults, Where
from rankplan.frozen import frozen
from rankplan.nodes.group_ranks import accelerators_of, counted_within
from rankplan.nodes.inventory import Inventory
from rankplan.words import nodes_text


@frozen
class ComponentGroup:
    """The label of the node group of a component, and where a job file states it."""

    label: str
    where: Where


ComponentGroups = Mapping[str, ComponentGroup]
"""The node groups of components, by their names."""


class Grouping:
    """The nodes and the accelerators that components may use, by their node groups."""

    def __init__(self, groups: ComponentGroups, inventory: Inventory) -> None:
        self._groups = groups
        self._inventory = inventory

    def __bool__(self) -> bool:
        return bool(self._groups)

    def of(self, users: Collection[str]) -> ComponentGroup | None:
        """Return the group of components that share accelerators; ``None`` if none of them has one."""
        return next((self._groups[name] for name in users if name in self._groups), None)

    def contradicting(self, users: Collection[str]) -> Iterator[tuple[str, Diagnostic]]:
        """Yield the components that share accelerators with one of another group, each with its fault."""
        first = next((name for name in users if name in self._groups), None)
        for name in users:
            if first is None or name not in self._groups:
                continue
            label, other = self._groups[first].label, self._groups[name].label
            if other != label:
                yield name, faults.groups_of_shared(name, other, first, label)

    def nodes(self, users: Collection[str]) -> RankSet:
        """Return the nodes on which these components may be."""
        group = self.of(users)
        if group is not None:
            return self._nodes_of(group.label)
        every = RankSet(f"0-{self._inventory.num_nodes - 1}")
        return every - RankSet().union(*(self._nodes_of(other.label) for other in self._groups.values()))

    def accelerators(self, users: Collection[str]) -> RankSet:
        """Return the accelerators of these nodes."""
        return accelerators_of(self._inventory, self.nodes(users))

    def reject_unbound(self, name: str, collector: Faults) -> None:
        """Record the fault of a component in a group that has no accelerators."""
        group = self._groups[name]
        collector.add(group.where, faults.group_not_bound(name, group.label))

    def words(self, users: Collection[str]) -> str:
        """Return these nodes as messages name them: ``node group `train` (nodes 0-1)``."""
        group = self.of(users)
        if group is not None:
            return f"node group `{group.label}` ({faults.group_nodes(self._nodes_of(group.label))})"
        nodes = self.nodes(users)
        return f"the cluster without the node groups of others ({nodes_text(nodes) if nodes else 'no node'})"

    def label(self, name: str, taken: Taken, collector: Faults) -> str:
        """Return the node group in which a component is placed; one that lacks its accelerators is a fault."""
        stated = self._groups.get(name)
        if stated is None:
            return CLUSTER
        group = self._inventory.group(stated.label)
        if group is not None and (group.ignore_hardware or group.hardware is not None):
            counted = "nodes" if group.hardware is None else group.hardware.type
            collector.add(stated.where, faults.group_counts_other(name, stated.label, counted))
            return CLUSTER
        own = self._nodes_of(stated.label)
        nodes = taken.used_nodes(self._inventory.core)
        if nodes - own:
            collector.add(stated.where, faults.outside_group(name, stated.label, own, nodes - own))
            return CLUSTER
        return stated.label

    def within(self, label: str, taken: Taken) -> Taken:
        """Return accelerators counted over those of their node group."""
        if label == CLUSTER:
            return taken
        return counted_within(taken, accelerators_of(self._inventory, self._nodes_of(label)))

    def _nodes_of(self, label: str) -> RankSet:
        group = self._inventory.group(label)
        return RankSet() if group is None else group.node_ranks
