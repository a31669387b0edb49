"""The forms in which the users of a system give a cluster to rankplan, besides its configs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from rankplan.frozen import frozen
from rankplan.nodes.clusters import SupportsInventory
from rankplan.nodes.inventory import Inventory

if TYPE_CHECKING:
    from rankplan.read.cluster import StatedCluster


class SchedulerCluster(Protocol):
    """The ``Cluster`` of RLinf's scheduler: the methods that its placement code uses, besides the node groups."""

    @property
    def num_nodes(self) -> int:
        """The number of nodes."""

    def get_node_info(self, node_rank: int, /) -> Any:
        """Return the record of a node."""


AnyCluster: TypeAlias = Inventory | SupportsInventory | SchedulerCluster


ReadsSection: TypeAlias = Callable[[Any], "StatedCluster"]
ReadsCluster: TypeAlias = Callable[[Any], Inventory]


@frozen
class ClusterForms:
    """A section that states a cluster, and an object that is one. Each may be a reference, ``"module:NAME"``.

    ``read`` returns what a mapping states that is such a section, and ``schema`` the JSON schema of the section.
    ``inventory`` returns the nodes of an object: of an inventory, of what has one, and of a live cluster of the system.
    It raises ``TypeError`` for anything else.
    """

    read: ReadsSection | str
    schema: Callable[[], dict[str, Any]] | str
    inventory: ReadsCluster | str
