"""The machines of the node groups of a plan, on which its components must stay.

A trainer knows no node groups, so those of its plan are machines: a component in a group moves to another node of it,
or to a node that the plan has not seen before. RLinf counts the nodes of its groups by rank: a spare that gets the rank
of a lost node is in its groups, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace

from rankplan._core import CLUSTER, NODE, RankSet
from rankplan.frozen import frozen
from rankplan.nodes.facts import ClusterFacts
from rankplan.nodes.inventory import Inventory
from rankplan.plans.component import Component, used_nodes
from rankplan.plans.plan import Plan


@frozen
class GroupNodes:
    """The nodes of each node group that components are in, by its label, and the nodes of which that is unknown.

    Nodes are ranks in the inventory that has them. Without groups that bind components, all is empty.
    """

    nodes: Mapping[str, RankSet] = field(default_factory=dict)
    unknown: RankSet = field(default_factory=RankSet)

    @classmethod
    def of(cls, plan: Plan, planned: Inventory, inventory: Inventory, places: Sequence[int | None]) -> GroupNodes:
        """Return the groups of the components of a plan; ``places`` has the rank in an inventory of each node."""
        labels = {label for part in plan.values() for label in part.node_groups if label not in (CLUSTER, NODE)}
        if plan.dialect is None or not labels:
            return cls()
        nodes = {}
        for group in planned.node_groups:
            if group.label in labels:
                nodes[group.label] = _present(places[rank] for rank in group.node_ranks if rank < len(places))
        return cls(nodes, RankSet(range(inventory.num_nodes)) - _present(places))

    def unfit(self, parts: Mapping[str, Component], num_nodes: int) -> Iterator[tuple[int, RankSet]]:
        """Yield each node with the node ranks that must not be on it.

        A node rank with a component of a group needs a node of it. One with accelerators of components without a group
        must not be on a node of a group.
        """
        if not self.nodes:
            return
        of_groups: dict[str, RankSet] = {}
        for label in self.nodes:
            of_groups[label] = used_nodes(part for part in parts.values() if label in part.node_groups)
        grouped = RankSet().union(*of_groups.values())
        ungrouped = used_nodes(part for part in parts.values() if part.node_groups == (CLUSTER,)) - grouped
        for node in RankSet(range(num_nodes)) - self.unknown:
            labels = [label for label, nodes in self.nodes.items() if node in nodes]
            unfit = RankSet().union(*(ranks for label, ranks in of_groups.items() if label not in labels))
            if labels:
                unfit |= ungrouped
            if unfit:
                yield node, unfit

    def facts(self, facts: ClusterFacts, nodes: Sequence[int]) -> ClusterFacts:
        """Return facts whose groups have their machines; ``nodes`` has the rank in the inventory of each node."""
        if not self.nodes:
            return facts
        groups = []
        for group in facts.node_groups:
            if group.label in self.nodes:
                own = self.nodes[group.label]
                is_new = (rank for rank in group.node_ranks if rank < len(nodes) and nodes[rank] in self.unknown)
                ranks = RankSet(rank for rank, node in enumerate(nodes) if node in own) | RankSet(is_new)
                group = replace(group, node_ranks=ranks, environments=())
            groups.append(group)
        return replace(facts, node_groups=tuple(groups))


def _present(places: Iterable[int | None]) -> RankSet:
    """Return the places of nodes that the inventory has."""
    return RankSet(place for place in places if place is not None)
