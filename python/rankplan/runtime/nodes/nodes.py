"""The nodes of a live cluster, as everything that launches or reserves sees them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from rankplan.nodes.inventory import Inventory
from rankplan.plans.component import Component, fitted
from rankplan.plans.crossings import check_keep
from rankplan.plans.diff import same_nodes


@dataclass(frozen=True, slots=True)
class Nodes:
    """Ray's ids of the nodes by node rank, and their facts; ``simulated`` if all are raylets started here.

    ``exports`` are the variables of the driver that every rank gets.
    """

    ids: tuple[str, ...]
    inventory: Inventory
    simulated: bool = False
    exports: Mapping[str, str] = field(default_factory=dict)

    def address(self, rank: int) -> str:
        """Return the address of a node."""
        return str(self.inventory.node(rank).ip)

    def of_plan(self, planned: Inventory) -> Nodes:
        """Return these nodes in the order of a plan that names them: its node 3 may be a spare of this cluster.

        The node of the same rank, if any, represents a node that this cluster lacks; the plan then does not fit.
        """
        present = self.inventory.num_nodes
        ranks = [rank if node is None else node for rank, node in enumerate(same_nodes(planned, self.inventory))]
        unknown = next((place for place, rank in enumerate(ranks) if rank >= present), len(ranks))
        if ranks[:unknown] == list(range(unknown)):
            return self
        taken = set(ranks)
        order = [*ranks[:unknown], *(rank for rank in range(present) if rank not in taken)]
        inventory = self.inventory.reordered(order)
        return replace(self, ids=tuple(self.ids[rank] for rank in order), inventory=inventory)

    def fitted(self, planned: Inventory, components: Sequence[Component]) -> tuple[Nodes, list[Component]]:
        """Return these nodes in the order of a plan, and components of it in their places on them.

        Raises `PlacementError`: ``plan-mismatch`` node by node, or ``group-spans`` for a group that crosses a level
        against ``cluster.topology.keep``.
        """
        nodes = self.of_plan(planned)
        found = fitted(components, nodes.inventory)
        if found:
            layouts = {component.name: component.layout for component in found}
            check_keep(layouts, found[0].inventory, labelled=not self.simulated, complete=False)
        return nodes, found

    def machine(self, rank: int) -> str:
        """Return the name of the machine that a node runs on: simulated nodes share one."""
        return str(self.inventory.node(rank).hostname)


def pinned(node_id: str) -> NodeAffinitySchedulingStrategy:
    """Return the strategy that runs a task or an actor on this node, or fails if the node has left the cluster."""
    return NodeAffinitySchedulingStrategy(node_id, soft=False)
