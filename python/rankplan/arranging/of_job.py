"""The arrangement of the nodes that a job may use, and of those that a saved plan has got."""

from __future__ import annotations

from collections.abc import Sequence

from rankplan.arranging.exclusion import Exclusion
from rankplan.arranging.group_nodes import GroupNodes
from rankplan.arranging.rules import Network
from rankplan.arranging.sorted_arrangement import lined_up, lines_of
from rankplan.arranging.task import Arrangement, Task
from rankplan.nodes.inventory import Inventory
from rankplan.plans.exchange import Exchange, keeps_rules, shows_domains
from rankplan.plans.plan import Plan
from rankplan.plans.pools import reserves
from rankplan.plans.rules import Rules


def arrangement_of(
    plan: Plan, inventory: Inventory, node_ids: Sequence[str] = (), *, keeping: bool = False
) -> Arrangement:
    """Return the arrangement of an inventory for a plan that was made on its first nodes.

    What is excluded, and reserves, are machines: they leave their ranks with the others. ``node_ids`` are Ray's ids of
    the nodes. ``keeping``: node ranks keep their nodes as far as the rules allow. Raises `PlacementError` as `arrange`
    does, a broken rule at its place.
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
    old = every if keeping else ()
    task = Task(bare, planned, plan, network, Exclusion(marks), old=old, were=every, groups=groups)
    return lined_up(task, lines_of(plan), plan.dialect, node_ids)


def exchange_for_rules(plan: Plan, planned: Inventory, node_ids: Sequence[str] = ()) -> Exchange | None:
    """Return a saved plan on nodes of a cluster with nodes exchanged so that its rules hold, in its trainer's order.

    Pods come up anywhere: two nodes that were planned in one rack may be in two. ``planned`` are the nodes that the
    plan was made for. ``None``: the rules hold, or the nodes do not show their domains. Raises `PlacementError` as
    `arrangement_of` does, also for levels and components that are unknown.
    """
    if not shows_domains(plan, planned) or keeps_rules(plan):
        return None
    return Exchange.of(plan, arrangement_of(plan, plan.inventory, node_ids, keeping=True).nodes)


def _without_facts(inventory: Inventory) -> Inventory:
    """Return nodes whose exclusions are marks of their records, and not names."""
    if inventory.facts is None:
        return inventory
    levels = inventory.levels
    bare = inventory.without_groups().with_levels(levels)
    names = [name for name in inventory.facts.exclude if inventory.names.find(name)]
    return bare.without(names) if names else bare
