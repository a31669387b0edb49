"""The domains of nodes at the levels of rules, as the solver takes them, and the groups that cross them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rankplan._core import Hierarchy, Layout, Placements, Problem
from rankplan.nodes.inventory import Inventory
from rankplan.nodes.topology import Domains
from rankplan.plans.component import Component


def crossings_at(
    parts: Mapping[str, Component], inventory: Inventory, levels: Sequence[str], nodes: Sequence[int]
) -> list[list[int]]:
    """Return the groups of components on these nodes of an inventory that cross a domain, by level and kind."""
    return crossings(parts, hierarchy_of(domains_at(inventory, levels), nodes), len(nodes))


def crossings(parts: Mapping[str, Component], hierarchy: Hierarchy, count: int) -> list[list[int]]:
    """Return the groups of components on the nodes of a hierarchy that cross a domain, by level and kind."""
    problem = Problem(
        hierarchy,
        node_classes=[0] * count,
        rank_classes=[0] * count,
        unfit=[],
        parts=layouts(parts),
        sets=[],
        preferred=[],
        balanced=[],
        caps=[],
        pinned=[None] * count,
        old=[],
        segment=1,
    )
    return problem.crossings(range(count))


def layouts(parts: Mapping[str, Component]) -> list[tuple[Placements, Layout | None]]:
    """Return the rows of components, with the groups of those that state sizes."""
    return [(part.rows, part.layout if part.parallel.stated else None) for part in parts.values()]


def domains_at(inventory: Inventory, levels: Sequence[str]) -> tuple[Domains, ...]:
    """Return the domains of an inventory at these levels."""
    return inventory.domains if levels == inventory.levels else inventory.domains_at(levels)


def hierarchy_of(levels: Iterable[Domains], nodes: Sequence[int]) -> Hierarchy:
    """Return the domains of these nodes, given those of all nodes of an inventory level by level."""
    columns = []
    for level in levels:
        ids = [level.ids[node] for node in nodes]
        if alone := {index for index, name in enumerate(level.names) if name[-1] is None}:
            ids = [Hierarchy.UNKNOWN if index in alone else index for index in ids]
        columns.append(ids)
    return Hierarchy(len(nodes), columns)
