"""What a dialect states of its jobs: the values of a config, the nodes they need, and where their components go."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import suppress
from typing import Any, ClassVar

from rankplan.dialects.keys.table import KeyTable
from rankplan.dialects.memory.read import MemoryReader
from rankplan.dialects.placing.placer import Packing, Placer
from rankplan.errors import PlacementError
from rankplan.nodes.inventory import Inventory
from rankplan.plans.plan import Plan
from rankplan.plans.requests import NodeOrder
from rankplan.read.components import assumed, lacks_accelerators
from rankplan.read.text.reader import Reader


class Job(ABC):
    """The values of a config whose components take their accelerators by number.

    The functions of the dialect's module are ``read``, ``plan`` and ``assumed_inventory`` of its class, and ``order``
    as ``node_order``.
    """

    name: ClassVar[str]
    keys: ClassVar[KeyTable]
    sorts_first: ClassVar[bool] = False
    """Whether the trainer sorts all nodes before it takes accelerators, and not only those of a pool."""

    @abstractmethod
    def __init__(self, reader: Reader) -> None:
        """Read the values, and record their faults."""

    @abstractmethod
    def place(self, placer: Placer) -> None:
        """Take accelerators, and place the components on them."""

    def node_order(self) -> NodeOrder | None:
        """Return by what the trainer sorts the nodes that Ray gives it; ``None`` if it does not sort them."""
        return None

    def memory(self, reader: Reader) -> MemoryReader:
        """Return what reads the memory of components from the keys of the config."""
        return MemoryReader(reader, self.keys.roles)

    @abstractmethod
    def size(self) -> tuple[int, int]:
        """Return the nodes that the config needs, and the accelerators of each."""

    def inventory(self, reader: Reader, inventory: Inventory) -> Inventory:
        """Return the nodes that the config uses."""
        return inventory

    @classmethod
    def read(cls, config: Any) -> Reader:
        """Read a config; one that is already read is returned. Raises `PlacementError` if it is not a mapping."""
        return cls.keys.read(config, cls)

    @classmethod
    def plan(cls, config: Any, inventory: Inventory, *, isolate_accelerator: bool = True, pinned: bool = False) -> Plan:
        """Return the plan of a config on an inventory; see `Dialect.plan`."""
        reader = cls.read(config).fork()
        reader.finish()
        job: Job = reader.state
        if job.size()[1]:
            lacks_accelerators(reader.faults, inventory, reader.where(()))
        reader.finish()
        inventory = job.inventory(reader, inventory)
        reader.finish()
        order = job.node_order()

        def placed(*, whole: bool) -> Plan:
            attempt = reader.fork()
            packing = Packing(pinned=pinned, whole=whole, order=order, sorted_first=cls.sorts_first)
            placer = Placer(attempt, inventory, packing, isolate=isolate_accelerator)
            job.place(placer)
            return placer.plan(cls.name, job.memory(attempt))

        if pinned:
            with suppress(PlacementError):  # whole steps may leave too little for what comes after them
                return placed(whole=True)
        return placed(whole=False)

    @classmethod
    def order(cls, config: Any) -> NodeOrder | None:
        """Return by what the trainer of a config sorts its nodes; see `Dialect.node_order`."""
        reader = cls.read(config)
        reader.finish()
        job: Job = reader.state
        return job.node_order()

    @classmethod
    def assumed_inventory(cls, config: Any) -> Inventory:
        """Return as many equal nodes as the config needs. Raises `PlacementError` with every fault of the config."""
        reader = cls.read(config)
        reader.finish()
        job: Job = reader.state
        return assumed(reader, *job.size())
