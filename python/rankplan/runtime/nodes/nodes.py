"""The nodes of a live cluster, as everything that launches or reserves sees them."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import psutil
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from rankplan.nodes.inventory import Inventory
from rankplan.nodes.matching import same_nodes
from rankplan.plans.component import Component, fitted
from rankplan.plans.crossings import check_keep


@dataclass(frozen=True, slots=True)
class Nodes:
    """Ray's ids of the nodes by node rank, their facts, whether they are raylets started here, and the exports."""

    ids: tuple[str, ...]
    inventory: Inventory
    simulated: bool = False
    exports: Mapping[str, str] = field(default_factory=dict)

    def address(self, rank: int) -> str:
        """Return the address of a node."""
        return str(self.inventory.node(rank).ip)

    def of_plan(self, planned: Inventory) -> Nodes:
        """Return these nodes in the order of a plan that names them: its node 3 may be a spare of this cluster."""
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

        Raises `PlacementError`: ``plan-mismatch``, or ``group-spans`` against ``cluster.topology.keep``.
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


def live_nodes() -> dict[str, dict[str, Any]]:
    """Return Ray's entries of the live nodes, by Ray's id of the node."""
    return {entry["NodeID"]: entry for entry in ray.nodes() if entry["Alive"]}


def inherited() -> dict[str, str]:
    """Return the environment that this process was started with: Ray may have changed it for a task."""
    try:
        found: dict[str, str] = psutil.Process().environ()
    except (psutil.Error, OSError):
        return dict(os.environ)
    return found


def age(pid: int) -> float:
    """Return the seconds since a process started, infinity if unknown."""
    try:
        started = float(psutil.Process(pid).create_time() - psutil.boot_time())
        return time.clock_gettime(time.CLOCK_BOOTTIME) - started  # the time of the boot is in whole seconds
    except (psutil.Error, AttributeError):
        return math.inf
