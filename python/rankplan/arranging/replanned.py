"""A plan with other nodes, and the changes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from rankplan._core import RankSet
from rankplan.arranging.exclusion import renamed
from rankplan.arranging.group_nodes import GroupNodes
from rankplan.arranging.task import Arrangement
from rankplan.frozen import frozen
from rankplan.nodes.facts import NO_FACTS, ClusterFacts
from rankplan.nodes.inventory import Inventory
from rankplan.nodes.node import NodeSpec
from rankplan.plans.component import Component
from rankplan.plans.diff import Move
from rankplan.plans.fitting import has_other_groups, moved
from rankplan.plans.plan import Plan
from rankplan.plans.rules import with_named_levels


@frozen
class Replanned:
    """A plan before and after a failure, or a change of its size, and the changes.

    ``moves`` are processes on another node (``replaced``), or on other accelerators of their node. ``losses`` are
    processes of data groups that are removed, ``gains`` those of data groups that are added. ``successors`` has the
    node before and the node now, by node rank of ``plan``, for the nodes of the processes that move. ``arrangement``
    has the groups that cross domains before and after. ``reasons`` says in words why processes leave healthy nodes.
    """

    before: Plan
    plan: Plan
    moves: tuple[Move, ...]
    losses: tuple[Move, ...]
    gains: tuple[Move, ...]
    successors: dict[int, tuple[NodeSpec, NodeSpec]]
    arrangement: Arrangement
    reasons: tuple[str, ...] = ()


def new_homes(moves: Iterable[Move]) -> set[int]:
    """Return the node ranks whose processes move to another machine."""
    return {move.after.cluster_node_rank for move in moves if move.after is not None and move.replaced}


def nodes_of(
    before: Plan,
    inventory: Inventory,
    known: Sequence[int | None],
    nodes: Sequence[int],
    facts: ClusterFacts | None,
) -> Inventory:
    """Return these nodes of an inventory with facts, and the exclusions of the plan before.

    ``known`` has the rank in the inventory of each node of that plan.
    """
    found = inventory.reordered(nodes)
    exclude = tuple(renamed(before.inventory, inventory, known, nodes))
    if facts is None and not exclude:
        return found
    facts = NO_FACTS if facts is None else with_named_levels(facts, before.rules, found)
    facts = GroupNodes.of(before, before.inventory, inventory, known).facts(facts, nodes)
    return found.with_facts(replace(facts, exclude=exclude), planned=True)


def resized_facts(
    facts: ClusterFacts, num_nodes: int, label: str | None = None, new: Sequence[int] = (), *, like: int = 0
) -> ClusterFacts:
    """Return facts for another number of nodes; a node group gets these new nodes, set up as the node ``like``."""
    nodes, groups = RankSet(range(num_nodes)), []
    for group in facts.node_groups:
        more = RankSet(new if group.label == label else ())
        environments = []
        for environment in group.environments:
            also = more if like in environment.node_ranks else RankSet()
            if left := environment.node_ranks & nodes | also:
                environments.append(replace(environment, node_ranks=left))
        ranks = group.node_ranks & nodes | more
        groups.append(replace(group, node_ranks=ranks, environments=tuple(environments)))
    return replace(facts, node_groups=tuple(groups))


def unmarked(inventory: Inventory) -> Inventory:
    """Return the nodes of a plan, and its node groups, as if all hardware could be used."""
    facts = inventory.facts
    if not inventory.marks and not (facts and facts.exclude):
        return inventory
    entries = []
    for _, record in inventory.stretches():
        usable = record.healthy and not record.unhealthy and record.taken is None
        entries.append(record if usable else record.changed(healthy=True, unhealthy=RankSet(), taken=None))
    return Inventory(entries, facts and replace(facts, exclude=()), inventory.levels or None)


def moved_to(component: Component, nodes: Inventory) -> Component:
    """Return a component in the same places of other nodes; in a node group with other nodes, its rule changes."""
    if component.inventory is nodes:
        return component
    if has_other_groups(component, nodes):
        return moved(component, nodes)
    return replace(component, inventory=nodes, rows=component.rows.on(nodes.core))


def ranks_at(component: Component, nodes: set[int]) -> RankSet:
    """Return the ranks that run on these nodes, also with only some of their devices."""
    found: set[int] = set()
    for run in component.rows.runs() if nodes else ():
        for node in nodes.intersection(range(run.node, run.node + run.nodes)):
            start = run.first_rank + (node - run.node) * run.pattern.processes
            # A process on several nodes has a run on each of them.
            found.update(range(start, start + run.pattern.processes))
    return RankSet(found)
