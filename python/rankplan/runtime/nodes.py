"""The nodes of a live cluster, as everything that launches or reserves sees them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from rankplan.inventory import Inventory


@dataclass(frozen=True, slots=True)
class Nodes:
    """Ray's ids of the nodes by node rank, and what the nodes have; ``simulated`` if all are raylets started here.

    ``exports`` are the variables of the driver that every rank gets.
    """

    ids: tuple[str, ...]
    inventory: Inventory
    simulated: bool = False
    exports: Mapping[str, str] = field(default_factory=dict)

    def address(self, rank: int) -> str:
        """Return the address of a node."""
        return str(self.inventory.node(rank).ip)

    def machine(self, rank: int) -> str:
        """Return the name of the machine that a node runs on: simulated nodes share one."""
        return str(self.inventory.node(rank).hostname)


def pinned(node_id: str) -> NodeAffinitySchedulingStrategy:
    """Return the strategy that runs a task or an actor on this node, or fails if the node has left the cluster."""
    return NodeAffinitySchedulingStrategy(node_id, soft=False)
