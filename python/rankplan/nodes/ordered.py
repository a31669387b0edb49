"""The nodes that a job uses, in the order in which it uses them, with what is stated of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rankplan.nodes.facts import NO_FACTS
from rankplan.nodes.inventory import Inventory


def reordered(inventory: Inventory, ranks: Sequence[int]) -> Inventory:
    """Return the nodes of these ranks, which are all of them, in this order, with the facts that are stated of them."""
    nodes = inventory.reordered(ranks)
    facts = inventory.facts
    if facts is None:
        return nodes
    new_ranks = {rank: index for index, rank in enumerate(ranks)}
    groups = tuple(group.renumbered(new_ranks) for group in facts.node_groups)
    exclude = tuple(_name_in_order(inventory, ranks, name) for name in facts.exclude)
    return nodes.with_facts(replace(facts, node_groups=groups, exclude=exclude), planned=True)


def first_nodes(inventory: Inventory, num_nodes: int) -> Inventory:
    """Return the first nodes, with what is excluded and the node groups of them; no other facts.

    Raises `PlacementError` (``too-few-nodes``).
    """
    facts = NO_FACTS
    if inventory.facts is not None and inventory.facts.node_groups:
        same = {rank: rank for rank in range(num_nodes)}
        groups = (group.renumbered(same) for group in inventory.facts.node_groups)
        facts = replace(NO_FACTS, node_groups=tuple(group for group in groups if group.node_ranks))
    return inventory.with_facts(facts, num_nodes)


def _name_in_order(inventory: Inventory, ranks: Sequence[int], name: str) -> str:
    """Return the name of excluded hardware once nodes are in this order: ``node-3/2`` is a name by rank."""
    by_rank = inventory.names.by_rank(name)
    if by_rank is None:
        return name
    rank, index = by_rank
    node = inventory.names.lasting(rank) or f"node-{ranks.index(rank)}"
    return node if index is None else f"{node}/{index}"
