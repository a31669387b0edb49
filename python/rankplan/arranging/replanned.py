"""A plan with other nodes, and the changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rankplan._core import RankSet
from rankplan.arranging.arrange import Arrangement
from rankplan.arranging.exclusion import renamed
from rankplan.config.models import ClusterSection
from rankplan.config.pools import with_nodes
from rankplan.nodes.inventory import Inventory
from rankplan.nodes.node import NodeSpec
from rankplan.plans.component import Component
from rankplan.plans.diff import Move
from rankplan.plans.plan import Plan


@dataclass(frozen=True, slots=True)
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


def nodes_of(
    planned: Inventory,
    inventory: Inventory,
    known: Sequence[int | None],
    nodes: Sequence[int],
    section: ClusterSection | None,
) -> Inventory:
    """Return these nodes of an inventory with the node groups of a section and the exclusions of a plan.

    ``known`` has the rank in the inventory of each node of the plan before.
    """
    found = inventory.reordered(nodes)
    exclude = tuple(renamed(planned, inventory, known, nodes))
    if section is None and not exclude:
        return found
    section = ClusterSection(num_nodes=found.num_nodes) if section is None else section
    changes = {"num_nodes": found.num_nodes, "exclude": exclude}
    return found.with_config(section.model_copy(update=changes), planned=True)


def resized_section(
    section: ClusterSection, num_nodes: int, label: str | None = None, new: Sequence[int] = (), *, like: int = 0
) -> ClusterSection:
    """Return a section for another number of nodes; a node group gets these new nodes, set up as the node ``like``."""
    nodes, groups = RankSet(range(num_nodes)), []
    for group in section.node_groups:
        more = RankSet(new if group.label == label else ())
        configs = [
            config.model_copy(update={"node_ranks": left})
            for config in group.env_configs
            if (left := config.node_ranks & nodes | (more if like in config.node_ranks else RankSet()))
        ]
        changes = {"node_ranks": group.node_ranks & nodes | more, "env_configs": configs}
        groups.append(group.model_copy(update=changes))
    pools = with_nodes(section.pools, nodes)
    return section.model_copy(update={"num_nodes": num_nodes, "node_groups": groups, "pools": pools})


def without_reserve(section: ClusterSection, ranks: RankSet) -> ClusterSection:
    """Return a section in which these node ranks are no reserve."""
    return section.model_copy(update={"pools": with_nodes(section.pools, RankSet(range(section.num_nodes)) - ranks)})


def unmarked(inventory: Inventory) -> Inventory:
    """Return the nodes of a plan, and its node groups, as if all hardware could be used."""
    if not inventory.marks and not (inventory.section and inventory.section.exclude):
        return inventory
    entries = [
        record.changed(healthy=True, unhealthy=RankSet()) if record.unhealthy or not record.healthy else record
        for _, record in inventory.stretches()
    ]
    section = inventory.section and inventory.section.model_copy(update={"exclude": ()})
    return Inventory(entries, section, inventory.levels or None)


def moved_to(component: Component, nodes: Inventory) -> Component:
    """Return a component in the same places of other nodes."""
    if component.inventory is nodes:
        return component
    return replace(component, inventory=nodes, rows=component.rows.on(nodes.core))


def ranks_at(component: Component, nodes: set[int]) -> RankSet:
    """Return the ranks that run on these nodes."""
    found: list[int] = []
    for run in component.rows.runs() if nodes else ():
        for node in nodes.intersection(range(run.node, run.node + run.nodes)):
            start = run.first_rank + (node - run.node) * run.pattern.processes
            # A process on several nodes has a run on each of them.
            here = range(start, start + run.pattern.processes)
            found.extend(rank for rank in here if component.rows[rank].cluster_node_rank == node)
    return RankSet(found)
