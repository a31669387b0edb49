"""What a dialect states of its jobs: the values of a config, the nodes they need, and where their components go."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

from rankplan.dialects.keys.config import Config
from rankplan.dialects.placing.placer import Placer
from rankplan.errors import Diagnostic, Faults
from rankplan.nodes.inventory import Inventory
from rankplan.plans.requests import NodeOrder
from rankplan.read.components import ASSUMED

if TYPE_CHECKING:
    from rankplan.plans.model import Model
    from rankplan.plans.node_command import NodeCommand
    from rankplan.read.cluster import StatedCluster


class Job(ABC):
    """The values of a config whose components take their accelerators by number.

    The constructor reads the values of the config, and records their faults in ``config.faults``. The other methods
    are called for a config without faults, unless the job ``finds_all``. A job is read once, and placed several times:
    methods change nothing in it.
    """

    sorts_first: ClassVar[bool] = False
    """Whether the trainer sorts all nodes before it takes accelerators, and not only those of a pool."""
    usual_accelerators: ClassVar[int] = ASSUMED
    """The accelerators of a node that nothing states otherwise."""
    finds_all: ClassVar[bool] = False
    """Whether faults of the config are reported together with those of its places, and not before them."""

    states_memory: bool = True
    """Whether the keys of memory say what its components keep."""
    has_defaults: bool = True
    """Whether a key that is missing has its default: no other config, which is not read, states it."""
    undivided: bool = True
    """Whether only the keys can state the parallel sizes of a component."""
    not_on_ray: Diagnostic | None = None
    """The warning of a config whose trainer starts its processes without Ray, so that no plan is bound."""
    starts: Literal["ray", "processes"] | None = None
    """How this job starts its processes, for a system with both ways; ``None``: as its dialect says."""
    model: Model | None = None
    """The model of components whose own is unknown."""

    @abstractmethod
    def __init__(self, config: Config) -> None:
        """Read the values, and record their faults."""

    @abstractmethod
    def size(self) -> tuple[int, int]:
        """Return the nodes that the config needs, and the accelerators of each, where no nodes are given."""

    @abstractmethod
    def place(self, placer: Placer) -> None:
        """Take accelerators, and place the components on them."""

    def node_order(self) -> NodeOrder | None:
        """Return what the trainer sorts the nodes from Ray by; ``None`` if it does not sort them."""
        return None

    def largest_node(self) -> int | None:
        """Return the most accelerators of a node, for a config that does not state its nodes; else ``None``.

        Where no nodes are given, such a job has the fewest on which it fits, at most those of `size`.
        """
        return None

    def assumed(self) -> Inventory | None:
        """Return the nodes that the config is meant for where none are given; ``None``: those of its `size`."""
        return None

    def commands(self, collector: Faults) -> Sequence[NodeCommand]:
        """Return the commands that start a job without Ray on its nodes, servers first; words of a run are faults."""
        return ()

    def cluster(self) -> StatedCluster | None:
        """Return what the config states of its cluster, for a launch on it; ``None`` if it has no keys for that."""
        return None

    def inventory(self, inventory: Inventory, collector: Faults, *, pinned: bool) -> Inventory:
        """Return the nodes that the config uses: by default, all of them. Nodes that contradict it are faults."""
        return inventory
