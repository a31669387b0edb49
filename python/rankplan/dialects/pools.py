"""Pools: the accelerators that a system takes by number, cut into consecutive chunks for processes and engines."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import lcm
from typing import Any, ClassVar

from rankplan._core import CLUSTER, NODE, Chunks
from rankplan.config.text.reader import Reader
from rankplan.dialects.keys import Keys
from rankplan.dialects.memory.read import MemoryReader
from rankplan.errors import Diagnostic, KeyPath, PlacementError
from rankplan.nodes.inventory import Inventory
from rankplan.parallel import ENGINE_ORDER, NO_SIZES, Parallel
from rankplan.plans.component import Component
from rankplan.plans.configured import assumed, lacks_accelerators, with_memory, with_sizes
from rankplan.plans.plan import SHARE_UNIT, Plan
from rankplan.plans.requests import NodeOrder, Request
from rankplan.words import counted, path_text


class Free:
    """The accelerators of an inventory that no pool has taken and that are not excluded, counted node by node."""

    def __init__(self, inventory: Inventory) -> None:
        counts = [spec.num_accelerators for nodes, spec in inventory.stretches() for _ in nodes]
        self._firsts = list(accumulate(counts, initial=0))
        self._usable: list[Sequence[int]] = [range(*span) for span in pairwise(self._firsts)]
        excluded = inventory.excluded_accelerators
        for node in inventory.core.by_node(excluded):
            self._usable[node] = [rank for rank in self._usable[node] if rank not in excluded]
        self._taken = [0] * len(counts)
        self._from: dict[int, int] = {}

    def _left(self, node: int) -> int:
        return len(self._usable[node]) - self._taken[node]

    def _take(self, node: int, count: int) -> list[int]:
        start = self._taken[node]
        self._taken[node] += count
        return list(self._usable[node][start : start + count])

    def together(self, count: int) -> list[int] | None:
        """Take accelerators of the first node with enough of them; ``None`` if no node has."""
        node = self._from.get(count, 0)  # accelerators are never given back
        while node < len(self._taken) and self._left(node) < count:
            node += 1
        self._from[count] = node
        return self._take(node, count) if node < len(self._taken) else None

    def has(self, times: int, count: int) -> bool:
        """Return whether so many accelerators of a node are free, so many times."""
        return sum(self._left(node) // count for node in range(len(self._taken))) >= times

    def packed(self, count: int) -> list[int] | None:
        """Take accelerators of one node if one has enough of them, else node by node; ``None`` if there are too few."""
        taken = self.together(count)
        return self.next(count) if taken is None else taken

    def next(self, count: int) -> list[int] | None:
        """Take accelerators node by node; ``None`` if there are too few."""
        return None if count > self.left else self._of(range(len(self._taken)), count)

    def _of(self, nodes: Iterable[int], count: int) -> list[int]:
        taken: list[int] = []
        for node in nodes:
            taken += self._take(node, min(self._left(node), count - len(taken)))
        return taken

    def stepped(self, count: int, sizes: Collection[int], *, ascending: bool) -> list[int] | None:
        """Take accelerators of one node if one has enough of them, else in whole steps, each on one node.

        A step is the largest of these sizes with which all steps fit. If none does, as many whole steps as fit come
        first, and the rest from other nodes, unless nodes must be ``ascending``; else they are taken node by node.
        ``None`` if there are too few.
        """
        taken = self.together(count)
        for step in () if taken is not None else whole_sizes(sizes):
            rooms = [self._left(node) for node in range(len(self._taken))]
            sequence = steps_of(count, step)
            if (nodes := steps_on(rooms, sequence)) is not None:
                return [rank for node, size in zip(nodes, sequence, strict=True) for rank in self._take(node, size)]
        for step in () if taken is not None or ascending else whole_sizes(sizes):
            whole, others, rest = dict[int, int](), list[int](), count
            for node in range(len(self._taken)):
                if here := min(self._left(node), rest) // step * step:
                    whole[node] = here
                    rest -= here
                else:
                    others.append(node)
            if whole and sum(map(self._left, others)) >= rest:
                return [rank for node, size in whole.items() for rank in self._take(node, size)] + self._of(
                    others, rest
                )
        return self.next(count) if taken is None else taken

    @property
    def left(self) -> int:
        """Number of accelerators that are still free."""
        return sum(map(len, self._usable)) - sum(self._taken)

    def node_of(self, resources: Sequence[int]) -> list[int]:
        """Return the node of each of these accelerators."""
        return [bisect_right(self._firsts, rank) - 1 for rank in resources]


def whole_sizes(sizes: Collection[int]) -> list[int]:
    """Return the steps to try for these sizes, the largest first: their common multiple, then each of them."""
    wanted = {size for size in sizes if size > 1}
    return sorted(wanted | ({lcm(*wanted)} if wanted else set()), reverse=True)


def steps_of(count: int, step: int) -> list[int]:
    """Return a number of accelerators as steps of a size; the last one may be smaller."""
    return [step] * (count // step) + [count % step] * (count % step > 0)


def steps_on(rooms: Sequence[int], steps: Iterable[int]) -> list[int] | None:
    """Return the node of each step, ascending, if every step is on one node; ``None`` if they do not fit.

    ``rooms`` has the free accelerators of each node. Every step takes the first node that has room after the step
    before it, so that nodes that are sorted stay sorted.
    """
    node, used = 0, 0
    nodes: list[int] = []
    for step in steps:
        while node < len(rooms) and rooms[node] - used < step:
            node, used = node + 1, 0
        if node == len(rooms):
            return None
        nodes.append(node)
        used += step
    return nodes


@dataclass(frozen=True, slots=True)
class Engine:
    """An inference engine: its number of accelerators, the keys that give it, and its sizes.

    ``path`` is the path of the largest size, ``where`` that of the section.
    """

    size: int
    keys: str
    parallel: Parallel
    path: KeyPath
    where: KeyPath


class Pools:
    """The pools that a config takes of an inventory, and the components on them.

    ``pinned``: they will be bound to their nodes, so that no bundle may be on two. ``steps``: they take whole steps.
    ``ascending``: the trainer sorts the nodes of a pool.
    """

    def __init__(
        self, reader: Reader, inventory: Inventory, *, isolate: bool, pinned: bool, steps: bool, ascending: bool
    ) -> None:
        self.reader, self.inventory, self.pinned = reader, inventory, pinned
        self.steps, self._ascending = steps, ascending
        self.visibility = "own" if isolate else "node"
        self.free = Free(inventory)
        self.components: list[Component] = []
        self.requests: list[Request] = []
        self.facts: dict[str, dict[str, Any]] = {}
        """What the dialect knows of a component besides the keys of its memory, by name."""

    def request(
        self,
        component: str,
        resources: Sequence[int],
        each: int = 1,
        *,
        name: str | None = None,
        strategy: str | None = "PACK",
        order: NodeOrder | None = None,
    ) -> None:
        """Record the request for a placement group, whose bundles are ``each`` of these accelerators in turn."""
        if resources:
            nodes = tuple(self.free.node_of(resources[::each]))
            self.requests.append(Request(component, name, (each,) * len(nodes), nodes, strategy, order=order))

    def packed(self, count: int, name: str, path: KeyPath, sizes: Collection[int] = ()) -> list[int]:
        """Take accelerators of one node if one has enough, else node by node; too few are a fault.

        ``sizes`` are those of the groups on them, for whole steps.
        """
        taken = self.stepped(count, sizes) if self.steps else self.free.packed(count)
        if taken is None:
            self.too_many(path, name, count, self.free.left, "what is left of the cluster")
        return taken or []

    def stepped(self, count: int, sizes: Collection[int]) -> list[int] | None:
        """Take accelerators in whole steps; see `Free.stepped`."""
        return self.free.stepped(count, sizes, ascending=self._ascending)

    def nodes(
        self, nodes: int, each: int, name: str, path: KeyPath, cure: Callable[[], str | None] = lambda: None
    ) -> list[int]:
        """Take ``each`` accelerators of a node, ``nodes`` times; too few are a fault, for which there may be a cure."""
        enough = nodes * each <= self.free.left
        chunks = [self.free.together(each) for _ in range(nodes if enough else 0)]
        if not enough or None in chunks:
            counts = [spec.num_accelerators for on, spec in self.inventory.stretches() for _ in on]
            message = f"{name} needs {counted(nodes, 'node')} with {each} free accelerators each, but the cluster has "
            fitting = f", {sum(count >= each for count in counts) or 'none'} of them with {each} or more"
            message += counted(len(counts), "node") + (f" with {max(counts)}" if len({*counts}) == 1 else fitting)
            if excluded := len(self.inventory.excluded_accelerators):
                message += f", and {counted(excluded, 'accelerator')} {'is' if excluded == 1 else 'are'} excluded"
            help = cure() or "use a larger cluster, or fewer nodes or accelerators per node"
            self.reader.add(path, Diagnostic("resource-out-of-range", message, help))
            return []
        return [rank for chunk in chunks for rank in chunk or ()]

    def too_many(self, path: KeyPath, name: str, count: int, present: int, where: str) -> None:
        """Record the fault of a component that needs more accelerators than there are."""
        message = f"{name} needs {counted(count, 'accelerator')}, more than {where}: {present}"
        fault = Diagnostic("resource-out-of-range", message, "use a larger cluster, or fewer accelerators")
        self.reader.add(path, fault)

    def place(
        self,
        name: str,
        resources: Sequence[int],
        path: KeyPath,
        each: int = 1,
        *,
        parallel: Parallel = NO_SIZES,
        **settings: Any,
    ) -> None:
        """Place a component whose processes take ``each`` of these accelerators in turn, if there are any.

        Faults are recorded at the path of the sizes.
        """
        if not resources:
            return
        try:
            rule, settings["visibility"] = Chunks(list(resources), each), self.visibility
            placed = Component.place(name, self.inventory, (CLUSTER,), rule, **settings)
        except PlacementError as error:
            self.reader.add_all(path, error)
        else:
            self.components.append(with_sizes(self.reader, placed, parallel, path))

    def on_nodes(self, name: str, processes: int, path: KeyPath) -> None:
        """Place a component without accelerators: its processes take the nodes in turn."""
        marks = self.inventory.marks
        nodes = [node for node in range(self.inventory.num_nodes) if marks.get(node, ()) is not None]
        resources = [nodes[rank % len(nodes)] for rank in range(processes if nodes else 0)]
        rule = Chunks(resources, 1)
        try:
            placed = Component.place(name, self.inventory, (NODE,), rule, visibility=self.visibility)
        except PlacementError as error:
            self.reader.add_all(path, error)
        else:
            self.components.append(placed)

    def engines(self, name: str, pool: list[int], per_node: int, engine: Engine, share: float | None) -> None:
        """Place engines one after the other on a pool with ``per_node`` accelerators per node, unless it is empty."""
        if not pool:
            return  # the pool is a fault already
        each = min(per_node, engine.size)
        faults = engine_faults(name, engine.size, each, self.free.node_of(pool), engine.keys)
        for fault in faults:
            self.reader.add(engine.path, fault)
        if not faults:
            engines = engine.size // each
            self.place(name, pool, engine.where, each, parallel=engine.parallel, share=share, engines=engines)

    @staticmethod
    def share(users: int) -> float:
        """Return the share of one of so many equal users of an accelerator."""
        return SHARE_UNIT // users / SHARE_UNIT


class Job(ABC):
    """The values of a config whose components take their accelerators by number.

    The functions of the dialect's module are ``read``, ``plan`` and ``assumed_inventory`` of its class, and ``order``
    as ``node_order``.
    """

    name: ClassVar[str]
    keys: ClassVar[Keys]

    @abstractmethod
    def __init__(self, reader: Reader) -> None:
        """Read the values, and record their faults."""

    @abstractmethod
    def place(self, pools: Pools) -> None:
        """Take pools, and place the components on them."""

    def node_order(self) -> NodeOrder | None:
        """Return by what the trainer sorts the nodes that Ray gives it; ``None`` if it does not sort them."""
        return None

    def memory(self, reader: Reader) -> MemoryReader:
        """Return what reads the memory of components from the keys of the config."""
        return MemoryReader(reader, self.name)

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
            lacks_accelerators(reader, inventory, ())
        reader.finish()
        inventory, ascending = job.inventory(reader, inventory), job.node_order() is not None
        reader.finish()

        def placed(*, steps: bool) -> Plan:
            attempt = reader.fork()
            pools = Pools(
                attempt, inventory, isolate=isolate_accelerator, pinned=pinned, steps=steps, ascending=ascending
            )
            job.place(pools)
            read = job.memory(attempt).memory
            components = [with_memory(one, read, pools.facts.get(one.name, {})) for one in pools.components]
            attempt.finish()
            return Plan(pools.inventory, components, None, cls.name, pools.requests)

        with suppress(PlacementError):  # whole steps may leave too little for what comes after them
            if pinned:
                return placed(steps=True)
        return placed(steps=False)

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


def differing(
    reader: Reader,
    system: str,
    sizes: Mapping[str, tuple[int, int]],
    paths: Mapping[str, tuple[KeyPath, KeyPath]],
    flag: KeyPath,
) -> None:
    """Record the fault of a model that shares the GPUs of another, but has other nodes or GPUs of a node.

    ``sizes`` and ``paths`` are those of the other model and of this one, ``flag`` is the path of the key that makes
    them share. The fault is at a size that differs, or at the flag if the config states none.
    """
    (host, its), (name, size) = sizes.items()
    message = f"{name} shares the GPUs of {host}, but has {size[0]} x {size[1]} GPUs instead of {its[0]} x {its[1]}"
    differ = [index for index in range(2) if size[index] != its[index]]
    asked = [paths[model][index] for index in differ for model in (name, host)]
    stated = [path for path in asked if reader.at(path) is not None]
    if unset := [path_text(path) for path in asked if path not in stated]:
        message += f"; {' and '.join(unset)} {'are' if len(unset) > 1 else 'is'} {system}'s default"
    help = f"give both the same nodes and GPUs of a node, or do not set {path_text(reader.stated(flag))}"
    reader.add((stated or [flag])[0], Diagnostic("invalid-value", message, help))


def torn(nodes: Sequence[int], each: int) -> int | None:
    """Return the first chunk of ``each`` accelerators that spans two nodes; ``nodes`` has the node of each."""
    lasts = range(each - 1, len(nodes), each)
    return next((last // each for last in lasts if nodes[last - each + 1] != nodes[last]), None) if each > 1 else None


def engine_sizes(tp: int, pp: int, ep: int) -> Parallel:
    """Return the sizes of an engine; experts of an engine with pipeline stages are not counted."""
    return Parallel(tp=tp, pp=pp, ep=ep if pp == 1 else 1, order=ENGINE_ORDER)


def engine_faults(name: str, engine: int, each: int, nodes: Sequence[int], sizes: str) -> list[Diagnostic]:
    """Return the faults of engines of ``engine`` accelerators, cut into processes of ``each``.

    ``nodes`` has the node of each accelerator of the pool, ``sizes`` names the keys that give an engine its size.
    """
    total = len(nodes)
    pool = f"the {counted(total, 'accelerator')} of its pool"
    if engine > total:
        message = f"an engine of the {name} needs {engine} accelerators ({sizes}), more than {pool}: none would start"
        return [Diagnostic("parallel-idle", message, f"use at most {total}, or a larger pool")]
    if engine % each:
        message = f"an engine of {engine} accelerators ({sizes}) cannot be divided into nodes of {each}"
        return [Diagnostic("not-multiple", message, f"use a multiple of {each}, or at most {each}")]
    faults: list[Diagnostic] = []
    used = nodes[: total // engine * engine]
    if (found := torn(used, each)) is not None:
        pair = f"{used[found * each]} and {used[found * each + each - 1]}"
        number = found * each // engine
        message = f"engine {number} of the {name} would need {each} accelerators ({sizes}) on nodes {pair}"
        fitting = [size for size in range(each - 1, 0, -1) if total % size == 0 and torn(nodes, size) is None]
        help = f"use {fitting[0]} per engine" if fitting else "use nodes with more accelerators"
        faults.append(Diagnostic("spans-nodes", message, help))
    if idle := total % engine:
        fitting = [size for size in range(engine - 1, 0, -1) if total % size == 0]
        message = f"engines of {engine} accelerators ({sizes}) leave {idle} of {total} of the {name}'s pool idle"
        help = f"use {fitting[0]} per engine, or a pool of {total - idle} or {total - idle + engine}"
        faults.append(Diagnostic("parallel-idle", message, help))
    return faults
