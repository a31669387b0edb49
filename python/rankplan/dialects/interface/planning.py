"""From the config of a dialect to its job, and from the job to a plan."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from rankplan._core import RankSet
from rankplan.dialects.interface.job import Job
from rankplan.dialects.keys.config import Config
from rankplan.dialects.keys.system import System
from rankplan.dialects.keys.table import KeyTable
from rankplan.dialects.placing.placer import Packing, Placer
from rankplan.errors import Faults, PlacementError
from rankplan.frozen import frozen
from rankplan.nodes.inventory import Inventory
from rankplan.plans.component import used_nodes
from rankplan.plans.crossings import torn_groups
from rankplan.plans.plan import Plan
from rankplan.plans.plan_job import PlanJob
from rankplan.plans.requests import NodeOrder
from rankplan.read.components import assumed, lacks_accelerators
from rankplan.read.read_config import ReadConfig
from rankplan.read.sources import Planned
from rankplan.read.text.reader import Reader

if TYPE_CHECKING:
    from rankplan.dialects.memory.read import MemoryReader
    from rankplan.dialects.placing.grouping import ComponentGroups


class Planner(Protocol):
    """How the configs of a dialect become plans. A config that was read can be passed in place of the config."""

    def read(self, config: Any) -> ReadConfig:
        """Read and validate a config, once. Raises `PlacementError` if it is not a mapping."""

    def planned(
        self,
        config: Any,
        inventory: Inventory,
        *,
        isolate_accelerator: bool = True,
        pinned: bool = False,
        groups: ComponentGroups | None = None,
    ) -> Planned:
        """Return the plan of a config, and where the config states it. Raises `PlacementError` with every fault.

        ``groups`` are the node groups that a job file gives components.

        The plan predicts what the trainer does on its own, filling nodes as Ray does. A ``pinned`` one is to be bound
        to its nodes, which are in the trainer's order already: its pools take whole tensor groups and engines.
        """

    def node_order(self, config: Any) -> NodeOrder | None:
        """Return what the trainer sorts the nodes from Ray by; ``None`` if it does not sort them."""

    def assumed_inventory(self, config: Any) -> Inventory:
        """Return the inventory that a config is probably meant for. Raises `PlacementError`."""


@frozen
class JobPlanner:
    """Plans the jobs of a system, whose values are read by its keys.

    ``dialect`` is its name in plans, ``None`` for a system that asks Ray for no placement groups.
    """

    dialect: str | None
    system: System
    keys: KeyTable
    job: Callable[[Config], Job]
    starts_on_ray: bool = True

    def read(self, config: Any) -> ReadConfig:
        """Read a config; see `Planner.read`. Flags may be an ``argparse.Namespace``."""
        if isinstance(config, ReadConfig):
            return config
        if self.keys.flags and not isinstance(config, str | os.PathLike | Mapping):
            config = getattr(config, "__dict__", config)
        reader = Reader.load(config)
        self.keys.reject_typos(reader)
        job = self.job(self._config(reader))
        return ReadConfig(reader, job, frozenset(entry.path for entry in self.keys.placing), job.cluster())

    def planned(
        self,
        config: Any,
        inventory: Inventory,
        *,
        isolate_accelerator: bool = True,
        pinned: bool = False,
        groups: ComponentGroups | None = None,
    ) -> Planned:
        """Return the plan of a config on an inventory; see `Planner.planned`."""
        read = self.read(config)
        reader = read.reader.fork()
        job: Job = read.values
        if not job.finds_all:
            reader.finish()
            if job.size()[1]:
                lacks_accelerators(reader.faults, inventory, reader.where(()))
            reader.finish()
        nodes = job.inventory(inventory, reader.faults, pinned=pinned)
        if groups and (not self.is_on_ray(job) or job.not_on_ray is not None):
            from rankplan.dialects.placing.faults import group_without_ray  # few jobs state groups of components

            for name, group in groups.items():
                reader.faults.add(group.where, group_without_ray(name, group.label))
            reader.finish()
        attempts = _Attempts(self, job, reader, nodes, isolate=isolate_accelerator, groups=groups)
        planned = attempts.pinned() if pinned else attempts.placed(Packing())
        return planned if self.is_on_ray(job) else _with_commands(planned, job)

    def is_on_ray(self, job: Job) -> bool:
        """Return whether Ray starts the processes of a job."""
        return self.starts_on_ray if job.starts is None else job.starts == "ray"

    def memory(self, reader: Reader, job: Job) -> MemoryReader | None:
        """Return what reads the memory of components from the keys of a config; ``None`` if these say nothing."""
        if not job.states_memory or not self.keys.memory:
            return None
        from rankplan.dialects.memory.read import MemoryReader

        roles = self.keys.roles
        return MemoryReader(
            self._config(reader), roles, has_defaults=job.has_defaults, model=job.model, undivided=job.undivided
        )

    def _config(self, reader: Reader) -> Config:
        flags = self.keys.written(reader.content) or {}
        return Config(reader, reader.faults, flags=flags, of=self.system)

    def node_order(self, config: Any) -> NodeOrder | None:
        """Return what the trainer of a config sorts its nodes by; see `Planner.node_order`."""
        read = self.read(config)
        job: Job = read.values
        if not job.finds_all:
            read.reader.finish()
        return job.node_order()

    def assumed_inventory(self, config: Any) -> Inventory:
        """Return the nodes that the config needs. Raises `PlacementError` with every fault of the config."""
        read = self.read(config)
        job: Job = read.values
        if not job.finds_all:
            read.reader.finish()
        inventory = job.assumed() or assumed(read.reader, *job.size())
        if not read.reader.faults and (job.largest_node() is not None or read.reader.allocation is not None):
            from rankplan.dialects.interface.fewest import probable_nodes

            inventory = probable_nodes(read, inventory)
        if read.reader.faults:
            self.planned(read, inventory)  # raises them, with those of the places
        return inventory


def _with_commands(planned: Planned, job: Job) -> Planned:
    """Return a plan with the commands of its job; without them if one has a fault, which `emit` and `exec` report."""
    collector = Faults()
    commands = tuple(job.commands(collector))
    if collector or not commands:
        return planned
    return Planned(planned.plan.with_job(PlanJob(commands=commands)), planned.sources)


class _Attempts:
    """Places a job on nodes, in one way after another."""

    def __init__(
        self,
        planner: JobPlanner,
        job: Job,
        reader: Reader,
        nodes: Inventory,
        *,
        isolate: bool,
        groups: ComponentGroups | None,
    ) -> None:
        self._planner, self._job, self._reader, self._nodes = planner, job, reader, nodes
        self._isolates = isolate
        self._groups = groups
        self._order = job.node_order()
        self._sorts_nodes = (
            job.sorts_first and self._order is not None and nodes.core.other_order(self._order) is not None
        )
        self._has_other_turn = False
        """Whether pools take in another turn if the largest are first, as far as is known."""

    def placed(self, packing: Packing) -> Planned:
        """Return the plan in which accelerators are taken like this. Raises `PlacementError`."""
        attempt = self._reader.fork()
        packing = replace(packing, order=self._order, sorted_first=self._job.sorts_first)
        if self._sorts_nodes:
            packing = replace(packing, chosen=self._chosen(packing))
        placer = Placer(attempt.faults, self._nodes, packing, isolate=self._isolates, groups=self._groups)
        try:
            self._job.place(placer)
        finally:
            self._has_other_turn |= placer.has_other_turn
        dialect = self._planner.dialect if self._planner.is_on_ray(self._job) else None
        return placer.planned(dialect, self._planner.memory(attempt, self._job))

    def _chosen(self, packing: Packing) -> RankSet | None:
        """Return the nodes that the job takes in rank order; ``None`` for all, also if it cannot be placed like that.

        A trainer that sorts accelerators before it takes them sorts those that Ray has given it, not those of the
        cluster.
        """
        packing = replace(packing, sorted_first=False)
        placer = Placer(self._reader.fork().faults, self._nodes, packing, groups=self._groups)
        with suppress(PlacementError):
            self._job.place(placer)
        nodes = used_nodes(placer.components)
        return None if placer.faults or len(nodes) == self._nodes.num_nodes else nodes

    def pinned(self) -> Planned:
        """Return the plan in whole steps that keeps most groups on one node, else one without. Raises `PlacementError`.

        A pool with small steps takes from the first nodes, and may leave less on each of them than a step of a later
        pool needs. Larger steps that come first leave room for smaller ones: if each size divides the next one, all
        groups stay on one node wherever they can. The trainer's order is preferred, as its own plan has it.
        """
        in_steps = Packing(pinned=True, whole=True)
        plans: list[Planned] = []
        for packing in (in_steps, replace(in_steps, largest_first=True)):
            with suppress(PlacementError):
                plans.append(self.placed(packing))
                if not _torn(plans[-1].plan):
                    return plans[-1]
            if not self._has_other_turn:
                break  # the largest pools come first already
        if not plans:
            return self.placed(Packing(pinned=True))
        return min(plans, key=lambda planned: _torn(planned.plan))


def _torn(plan: Plan) -> int:
    """Return the number of groups that should stay on one node, and are on several."""
    return sum(torn_groups(component.layout) for component in plan.values())
