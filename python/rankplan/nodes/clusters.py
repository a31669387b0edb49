"""Objects that stand for an inventory because they have one, such as a live cluster."""

from __future__ import annotations

from typing import Protocol

from rankplan.nodes.inventory import Inventory


class SupportsInventory(Protocol):
    """Any object with an ``inventory``: a live `Cluster`, or your own class.

    Strategies, `ComponentPlacement` and `rankplan.rlinf` take one wherever they take an `Inventory`. A class of yours
    need not inherit from this one::

        class Allocation:
            def __init__(self, num_nodes):
                self.inventory = Inventory.uniform(num_nodes, 8)

        strategy.get_placement(Allocation(2))

    They take the ``Cluster`` of RLinf's scheduler too.
    """

    @property
    def inventory(self) -> Inventory:
        """The nodes to place on."""


def inventory_of(cluster: Inventory | SupportsInventory) -> Inventory:
    """Return an inventory itself, or that of an object that has one. Raises ``TypeError`` for anything else."""
    if isinstance(cluster, Inventory):
        return cluster
    inventory = getattr(cluster, "inventory", None)
    if not isinstance(inventory, Inventory):
        kind = type(cluster).__name__
        found = kind if inventory is None else f"{kind}, whose inventory is a {type(inventory).__name__}"
        raise TypeError(f"expected a rankplan.Inventory or an object that has one, such as a Cluster, found {found}")
    return inventory
