"""Placement of RLinf's workers by rankplan: same names, constructors and rows as before."""

from rankplan import (
    ComponentPlacement,
    FlexiblePlacementStrategy,
    NodePlacementStrategy,
    PackedPlacementStrategy,
    Placement,
    PlacementStrategy,
)
from rlinf.scheduler.cluster import Cluster
from rlinf.scheduler.placement.inventory import inventory_of

# Everything of rankplan that takes a cluster takes any object with an `inventory`.
Cluster.inventory = property(inventory_of)

__all__ = [
    "ComponentPlacement",
    "FlexiblePlacementStrategy",
    "NodePlacementStrategy",
    "PackedPlacementStrategy",
    "Placement",
    "PlacementStrategy",
]
