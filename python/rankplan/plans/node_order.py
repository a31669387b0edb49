"""The order in which trainers sort the nodes that Ray gives them, and plans in that order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rankplan._core import CLUSTER, RankSet, Sorting
from rankplan.errors import Diagnostic, PlacementError
from rankplan.nodes.group_ranks import accelerators_of, counted_within
from rankplan.nodes.inventory import Inventory
from rankplan.plans.component import Component
from rankplan.plans.faults import leaves_group
from rankplan.plans.plan import Plan
from rankplan.plans.requests import NodeOrder

NODE_RANK = "NODE_RANK"
"""The variable, and the label, with the rank that a node states to ROLL."""

_HELP = "plan the config again with --pinned, on the nodes of this cluster (--ray or --inventory)"
_MOST = 8
"""Nodes named in a message."""

_EXCHANGEABLE: tuple[NodeOrder, ...] = ("id", "topology", "topology-id", "rank", "rank-cpus")
"""Orders that are known only on the cluster. Addresses are known before: a plan in another order of them is wrong."""

ORDER_WORDS: dict[NodeOrder, str] = {
    "text": "addresses as text",
    "number": "addresses as numbers",
    "id": "Ray node ids",
    "topology": "ranks in the network",
    "topology-id": "ranks in the network, or else Ray node ids",
    "rank": NODE_RANK,
    "rank-cpus": f"{NODE_RANK}, or else the number of CPUs",
}
"""What trainers sort nodes by, in words."""


def in_pools_order(plan: Plan, node_ids: Sequence[str] = (), *, together: bool = False) -> list[int] | None:
    """Return the node that each node rank should have for every pool of a plan to be in its trainer's order.

    ``None`` if all are; a pool counts as in order if the order is unknown. Only the nodes of a pool change places with
    each other, and those of pools that share a node; with ``together``, those of all pools. ``node_ids`` are Ray's.
    """
    return plan.requests.order_of_pools(plan.inventory.core, node_ids, together=together)


def in_trainers_order(plan: Plan, node_ids: Sequence[str] = ()) -> tuple[Plan, list[Diagnostic]]:
    """Return a plan whose pools have their nodes in the order in which the trainer sorts them, and what changed.

    Every pool keeps its accelerators. Its nodes are exchanged if what decides is known only on the cluster: ranks, or
    Ray's ids (``node_ids``, by node rank). Raises `PlacementError` (``order-not-kept``) for another order of addresses,
    and for nodes that cannot be exchanged.
    """
    rows = {name: component.rows for name, component in plan.items()}
    sorting = plan.requests.sorting(plan.inventory.core, node_ids, rows, _EXCHANGEABLE)
    faults: list[Diagnostic] = []
    changes: list[Diagnostic] = []
    for component, order, here, there, exchanged in sorting.unsorted:
        found = _difference(plan, component, order, here, there)
        if exchanged:
            changes.append(replace(found, warning=True, help="Ray gives nodes other ids when it starts"))
        else:
            faults.append(found)
    if faults:
        raise PlacementError(faults)
    if not changes:
        return plan, []
    components = [_exchanged(one, sorting) for one in plan.values()]
    known = plan.dialect, sorting.requests, plan.rules, plan.job, plan.actors
    return Plan(plan.inventory, components, plan.mode, *known), changes


def _exchanged(component: Component, sorting: Sorting) -> Component:
    """Return a component whose processes have the new accelerators. Raises `PlacementError` for torn ones."""
    taken = sorting.exchanged(component.rows)
    if taken is None:
        return component
    inventory, label = component.inventory, component.node_groups[0]
    if label != CLUSTER:
        nodes = RankSet() if (group := inventory.group(label)) is None else group.node_ranks
        if outside := taken.used_nodes(inventory.core) - nodes:
            raise PlacementError([leaves_group(component.name, label, node_names(inventory, list(outside)))])
        taken = counted_within(taken, accelerators_of(inventory, nodes))
    rule = taken.chunks(component[0].num_accelerators)
    return Component.place(component.name, inventory, (label,), rule, component.settings, component.beside)


def _difference(plan: Plan, component: str, order: NodeOrder, here: Sequence[int], there: Sequence[int]) -> Diagnostic:
    """Return the diagnostic of a pool with both orders of its nodes."""
    pool = f"the pool of `{component}`" if component else "the cluster"
    message = f"{pool} has the nodes {node_names(plan.inventory, here)}; {plan.dialect or 'the trainer'} sorts them by "
    message += f"{ORDER_WORDS[order]}: {node_names(plan.inventory, there)}"
    return Diagnostic("order-not-kept", message, _HELP)


def node_names(inventory: Inventory, nodes: Sequence[int]) -> str:
    """Return the addresses of the first nodes, or else their names."""
    specs = [inventory.node(node) for node in nodes[:_MOST]]
    more = [f"and {len(nodes) - _MOST} more"] if len(nodes) > _MOST else []
    return ", ".join([*(spec.ip or spec.name for spec in specs), *more])
