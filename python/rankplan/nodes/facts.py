"""What a config states of a cluster, besides the records of its nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from rankplan.frozen import frozen
from rankplan.nodes.groups import NodeGroup

NODE_LEVEL = "node"
"""The innermost level of every cluster; it needs no label."""

SLURM_NAME = "slurm/node-name"
"""The label with Slurm's name of a node (``NodeName``), where that is not its hostname (``NodeHostName``)."""

BY_ADDRESS, BY_TOPOLOGY = "address", "topology"
ORDERS = (BY_ADDRESS, BY_TOPOLOGY)
AS_RLINF_ORDER = "rlinf"
NODE_ORDERS = (*ORDERS, AS_RLINF_ORDER)
"""The orders that a program may choose; a config chooses among the first two."""


@frozen
class ClusterFacts:
    """What is true of the nodes of a cluster, whatever runs there.

    ``exclude`` names hardware that must not be used: nodes, accelerators and domains. ``levels`` are the keys of node
    labels, outermost first; ``None``: those of the inventory, or detected ones. ``order`` is that of nodes without
    ranks. ``accelerator_memory`` and ``host_memory`` are the bytes of each accelerator and of each node, if stated.
    ``environment`` are variables of every process; those of a node group come before them.
    """

    node_groups: tuple[NodeGroup, ...] = ()
    exclude: tuple[str, ...] = ()
    levels: tuple[str, ...] | None = None
    order: str = BY_ADDRESS
    accelerator_memory: int | None = None
    host_memory: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> ClusterFacts:
        """Return the facts of a ``cluster`` section that the core has read."""
        topology = values.get("topology", {})
        levels = topology.get("levels")
        return cls(
            node_groups=tuple(map(NodeGroup.of, values.get("node_groups", ()))),
            exclude=tuple(values.get("exclude", ())),
            levels=None if levels is None else tuple(levels),
            order=topology.get("order", BY_ADDRESS),
            accelerator_memory=values.get("accelerator_memory"),
            host_memory=values.get("host_memory"),
            environment=dict(values.get("environment") or {}),
        )

    def groups_within(self, num_nodes: int) -> tuple[NodeGroup, ...]:
        """Return the node groups that lie within the first nodes."""
        return tuple(group for group in self.node_groups if group.node_ranks[-1] < num_nodes)


NO_FACTS = ClusterFacts()
