"""The spares of a plan that has only the nodes that its trainer counts: the other nodes that its job may use."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from rankplan._core import RankSet
from rankplan.nodes.inventory import Inventory
from rankplan.nodes.node import NodeSpec
from rankplan.plans.diff import same_nodes
from rankplan.plans.plan import Plan
from rankplan.plans.plan_job import PlanJob


def known_nodes(plan: Plan) -> Inventory:
    """Return the nodes of a plan, then the spares of its job."""
    spares = None if plan.job is None else plan.job.spares
    return plan.inventory if spares is None else plan.inventory.updated([*_entries(plan.inventory, spares)])


def with_spares(plan: Plan, nodes: Inventory, used: Collection[int] | None = None) -> Plan:
    """Return a plan whose job has as spares the nodes of an inventory that are not those of the plan.

    ``used`` are the ranks there of the nodes of the plan; by default, they are found by name.
    """
    if used is None:
        used = {rank for rank in same_nodes(plan.inventory, nodes) if rank is not None}
    others = [rank for rank in range(nodes.num_nodes) if rank not in used]
    spares = Inventory([*_entries(nodes.reordered(others))]) if others else None  # the plan states the levels
    if spares is None and (plan.job is None or plan.job.spares is None):
        return plan
    return plan.with_job(replace(plan.job or PlanJob(), spares=spares))


def _entries(*inventories: Inventory) -> Iterator[NodeSpec]:
    """Yield the records of the nodes of inventories, one after another."""
    start = 0
    for inventory in inventories:
        for nodes, record in inventory.stretches():
            yield record.at(RankSet(range(start + nodes.start, start + nodes.stop)))
        start += inventory.num_nodes
