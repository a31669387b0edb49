"""Plans in the same places of another cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, groupby, islice, pairwise
from operator import itemgetter

from rankplan._core import Chunks, RankMap, RankSet
from rankplan.errors import Diagnostic, PlacementError
from rankplan.nodes.inventory import Inventory, NodeSpec
from rankplan.plans.component import Component, used_nodes
from rankplan.plans.rules import with_named_levels
from rankplan.words import counted, nodes_text

_MOST_MISMATCHES = 20


def fitted(components: Sequence[Component], cluster: Inventory) -> list[Component]:
    """Return components of one plan in the same places of a cluster that they fit, with its accelerator ids.

    Raises `PlacementError` (``plan-mismatch``), node by node, for a cluster that they do not fit.
    """
    if not components:
        return []
    inventory = components[0].inventory
    if inventory.facts is not None:
        facts = with_named_levels(inventory.facts, components[0].plan_rules, cluster)
        cluster = cluster.with_facts(facts, inventory.num_nodes, planned=True)
    used = used_nodes(components)
    different: dict[str, RankSet] = {}
    for nodes, planned, found in _pairs(inventory, cluster):
        if here := RankSet(nodes) & used:
            for difference in _differences(planned, found):
                different[difference] = different.get(difference, RankSet()) | here
    if different:
        raise PlacementError(_mismatches(different, cluster))
    _reject_excluded(components, cluster)
    return [moved(one, cluster) for one in components]


def moved(component: Component, inventory: Inventory) -> Component:
    """Return a component with the same node ranks and devices on another inventory.

    Its rule keeps its places, which have other resource ranks if nodes before them have other accelerators.
    """
    rows, rule = component.rows.on(inventory.core), component.rule
    size = component.inventory.num_nodes
    if _counts(component.inventory, size) != _counts(inventory, size) or has_other_groups(component, inventory):
        before, lists = (
            nodes.pool(component.node_groups, by_node=component.by_node).ranks_of(placed)
            for nodes, placed in ((component.inventory, component.rows), (inventory, rows))
        )
        if lists != before:
            flat = list(chain.from_iterable(lists))
            rule = RankMap.from_lists(lists) if isinstance(rule, RankMap) else Chunks(flat, len(lists[0]))
    return replace(component, inventory=inventory, rule=rule, rows=rows)


def has_other_groups(component: Component, inventory: Inventory) -> bool:
    """Return whether a node group of a component has other node ranks in another inventory."""
    for label in component.node_groups:
        own, other = component.inventory.group(label), inventory.group(label)
        if own is not None and other is not None and own.node_ranks != other.node_ranks:
            return True
    return False


def _counts(inventory: Inventory, size: int) -> list[tuple[int, int]]:
    """Return where the number of accelerators changes among so many nodes."""
    found = ((nodes.start, spec.num_accelerators) for nodes, spec in inventory.stretches() if nodes.start < size)
    return [next(alike) for _, alike in groupby(found, itemgetter(1))]


def _reject_excluded(components: Sequence[Component], cluster: Inventory) -> None:
    """Reject components that use resources which the cluster excludes."""
    if not cluster.excluded:
        return
    for component in components:
        cluster.pool(component.node_groups, by_node=component.by_node).apply(component.rule)


def _pairs(inventory: Inventory, cluster: Inventory) -> Iterator[tuple[range, NodeSpec, NodeSpec | None]]:
    """Yield ranges of nodes that are equal in a plan and equal in a cluster, with both records."""
    last = inventory.num_nodes
    starts = {nodes.start for each in (inventory, cluster) for nodes, _ in each.stretches()} | {cluster.num_nodes}
    for first, end in pairwise(sorted({start for start in starts if start < last} | {last})):
        yield range(first, end), inventory.node(first), cluster.node(first) if first < cluster.num_nodes else None


def _differences(planned: NodeSpec, found: NodeSpec | None) -> Iterator[str]:
    """Yield, in words, each statement of a plan about a node that the cluster contradicts."""
    if found is None:
        yield "the cluster has fewer nodes"
        return
    both = planned, found
    sizes = [
        f"{each} {node.accelerator_type}" if (each := node.num_accelerators) else "no accelerators" for node in both
    ]
    if sizes[0] != sizes[1]:
        yield f"the plan has {sizes[0]}, the cluster has {sizes[1]}"
    elif planned.states("accelerator_ids") and planned.accelerator_ids != found.accelerator_ids:
        ids = [",".join(node.accelerator_ids) for node in both]
        yield f"the plan has accelerator ids {ids[0]}, the cluster has {ids[1]}"
    for name in ("hostname", "ip"):
        wanted, here = getattr(planned, name), getattr(found, name)
        if wanted is not None and wanted != here:
            yield f"the plan has {name} {wanted}, the cluster has {here or 'none'}"


def _named(nodes: RankSet, cluster: Inventory) -> str:
    """Return nodes as a message names them; a single node with the name that the cluster knows it by."""
    if len(nodes) > 1 or nodes[0] >= cluster.num_nodes or cluster.node(nodes[0]).hostname is None:
        return nodes_text(nodes)
    return f"{nodes_text(nodes)} ({cluster.node(nodes[0]).name})"


def _mismatches(different: Mapping[str, RankSet], cluster: Inventory) -> list[Diagnostic]:
    """Return the faults of nodes that differ from those of the plan; the last one says how many are not shown."""
    faults = [
        _mismatch(_named(nodes, cluster), difference)
        for difference, nodes in islice(different.items(), _MOST_MISMATCHES)
    ]
    if (more := len(different) - len(faults)) > 0:
        rest = f"({counted(more, 'more mismatch', 'more mismatches')} not shown)"
        faults[-1] = replace(faults[-1], help=f"{faults[-1].help} {rest}")
    return faults


def _mismatch(nodes: str, difference: str) -> Diagnostic:
    help = "plan on this cluster (`rankplan plan --ray ADDRESS`, or its Cluster.inventory)"
    return Diagnostic("plan-mismatch", f"{nodes}: {difference}", help)
