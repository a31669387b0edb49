"""The arrangement of the nodes that a job may use, before it is planned on them."""

from __future__ import annotations

from collections.abc import Sequence

from rankplan.arranging.exclusion import Exclusion
from rankplan.arranging.group_nodes import GroupNodes
from rankplan.arranging.rules import Network
from rankplan.arranging.sorted_arrangement import lined_up, lines_of
from rankplan.arranging.task import Arrangement, Task
from rankplan.nodes.inventory import Inventory
from rankplan.plans.plan import Plan
from rankplan.plans.pools import reserves
from rankplan.plans.rules import Rules


def arrangement_of(plan: Plan, inventory: Inventory, node_ids: Sequence[str] = ()) -> Arrangement:
    """Return the arrangement of an inventory for a plan that was made on its first nodes.

    What is excluded, and reserves, are machines: they leave their ranks with the others. ``node_ids`` are Ray's ids of
    the nodes. Raises `PlacementError` as `arrange` does, a broken rule at its place.
    """
    bare = _without_facts(inventory)
    marks = dict(bare.marks)
    for ranks, _ in reserves(plan.rules.pools):
        marks |= dict.fromkeys(ranks)
    network = Network.of(inventory, plan)
    if not network.levels:
        network = Network((), Rules(pools=plan.rules.pools))
    planned = _without_facts(plan.inventory)
    every = range(planned.num_nodes)
    groups = GroupNodes.of(plan, inventory, inventory, range(inventory.num_nodes))
    task = Task(bare, planned, plan, network, Exclusion(marks), were=every, groups=groups)
    return lined_up(task, lines_of(plan), plan.dialect, node_ids)


def _without_facts(inventory: Inventory) -> Inventory:
    """Return nodes whose exclusions are marks of their records, and not names."""
    if inventory.facts is None:
        return inventory
    levels = inventory.levels
    bare = inventory.without_groups().with_levels(levels)
    names = [name for name in inventory.facts.exclude if inventory.names.find(name)]
    return bare.without(names) if names else bare
