"""slime: flags for the size of each side, and one pool of GPUs in a stable order that the sides are cut from.

The actor has the first GPUs, one per process. A critic shares them; with ``critic_num_nodes`` or
``critic_num_gpus_per_node``, which older versions of slime have, it has the next GPUs to itself. The rollout's engines
start at the rollout's offset: after the training, or at the first GPU if colocated. An engine larger than a node has
one process per node.

The pool is the first GPUs of the inventory in the order of `bundle_order`, node by node; nodes are in rank order unless
every node has an address. Colocated, the training has a share of 0.8 and the rollout of 0.2; an actor and a critic on
the same GPUs have half of the training's share each. Faults are ``resource-out-of-range`` for too few GPUs and
``spans-nodes`` for a rollout process that would need two nodes, among others.

Follows slime's ``create_placement_groups`` and ``start_rollout_servers`` (624b824).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Protocol, TypeAlias

from rankplan._core import Inventory as Core
from rankplan._core import Placement, Taken, step_sizes
from rankplan.dialects.memory.read import MemoryReader
from rankplan.dialects.orders import bundle_order
from rankplan.dialects.placing.job import Job
from rankplan.dialects.placing.placer import Placer
from rankplan.dialects.tables import SLIME, flag_name
from rankplan.errors import Diagnostic, KeyPath, PlacementError
from rankplan.nodes.inventory import Inventory
from rankplan.parallel import ENGINE_ORDER, MEGATRON, NO_SIZES, ORDER, Parallel
from rankplan.plans.component import Component
from rankplan.plans.plan import Plan
from rankplan.plans.requests import NodeOrder
from rankplan.read.components import ASSUMED
from rankplan.read.text.reader import Config, Reader
from rankplan.words import must_be

__all__ = [
    "EngineProcess",
    "assumed_inventory",
    "bundle_order",
    "dist_init_addrs",
    "engine_processes",
    "layout",
    "node_order",
    "plan",
    "read",
    "written",
]

_IMPLYING = {"advantage_estimator", "load_debug_rollout_data", "megatron_config_path", "rollout_external_engine_addrs"}
"""Other flags, from which slime derives some of the placing ones."""

_ENGINE = {
    "pp": ("sglang_pipeline_parallel_size", "sglang_pp_size"),
    "ep": ("sglang_expert_parallel_size", "sglang_ep_size"),
}
"""Flags of the sizes of an engine."""

_GPUS = 8
"""slime's default ``actor_num_gpus_per_node``."""

_SIZES = {flag for flags in (*MEGATRON.values(), *_ENGINE.values()) for flag in flags}
_PLACING = SLIME.known[()].keys() - _SIZES


class _Namespace(Protocol):
    __dict__: dict[str, Any]


Flags: TypeAlias = Config | _Namespace | Reader
"""Flags by name, written with ``_`` or ``-``: a mapping, the path of a YAML file, or an ``argparse.Namespace``."""


class _Job(Job):
    """The sides that slime's flags describe, and the parallel sizes of the training and of an engine.

    Sides are numbers of GPUs: 0 for a side that does not run here.
    """

    name, keys = "slime", SLIME
    sorts_first = True

    def __init__(self, reader: Reader) -> None:
        self._keys: dict[str, str] = {}  # flags as they are written
        self._values: dict[str, Any] = {}
        others: list[str] = []
        reader.asked.update((flag,) for flag in _PLACING | _IMPLYING | _SIZES)
        for key in map(str, reader.content):
            flag = flag_name(key)
            if flag not in _PLACING | _IMPLYING | _SIZES:
                others.append(key)
            elif flag in self._keys:
                message = f"`{key}` and `{self._keys[flag]}` are the same flag"
                reader.add((key,), Diagnostic("duplicate-key", message, "remove one of them"))
            else:
                self._keys[flag] = key
                before = len(reader.faults)
                value = reader.value(reader.content, key, ())
                self._values |= {flag: value} if len(reader.faults) == before else {}
        missing = sorted(_PLACING - self._keys.keys())
        for key in others:  # slime ignores a typo silently
            reader.reject_misspelt(flag_name(key), missing, (key,))
        self._read_sides(reader)
        self.parallel = self._sizes(reader, MEGATRON, ORDER) or NO_SIZES
        self.engine = self._engine_sizes(reader)

    @classmethod
    def read(cls, config: Flags) -> Reader:
        """Read flags; flags that are already read are returned. Raises `PlacementError` if they are not a mapping."""
        plain = isinstance(config, str | os.PathLike | Mapping | Reader)
        return Reader.of(config if plain else getattr(config, "__dict__", config), cls)

    def _read_sides(self, reader: Reader) -> None:
        """Read the number of GPUs of each side (slime: ``create_placement_groups``)."""
        train_only = self._switch(reader, "debug_train_only", implied=self._has("load_debug_rollout_data"))
        rollout_only = self._switch(reader, "debug_rollout_only")
        colocate = self._switch(reader, "colocate")
        external = self._switch(reader, "rollout_external", implied=self._has("rollout_external_engine_addrs"))
        with_critic = self._switch(reader, "use_critic", implied=self._values.get("advantage_estimator") == "ppo")
        doubtful = any(fault.code != "duplicate-key" for fault in reader.faults)
        self._contradicts = rollout_only and self._values.get("debug_train_only") is True
        nodes = self._number(reader, "actor_num_nodes", 1, 0)
        each = self._number(reader, "actor_num_gpus_per_node", _GPUS, 0)
        self.actor, self.critic = nodes * each, 0
        # A slime whose critic shares the actor's GPUs sets these flags too, to the actor's sizes; it also has
        # `megatron_config_path`.
        separate = self._has("critic_num_nodes") or self._has("critic_num_gpus_per_node")
        self.critic_shares = not separate or "megatron_config_path" in self._keys
        if with_critic:
            if not self.critic_shares:
                nodes = self._number(reader, "critic_num_nodes", nodes, 0)
                each = self._number(reader, "critic_num_gpus_per_node", each, 0)
            self.critic = nodes * each
        training = self.actor if self.critic_shares else self.actor + self.critic
        self.rollout = 0
        if not train_only and not external:
            self.rollout = self._number(reader, "rollout_num_gpus", training, 0)
            if not (self._has("rollout_num_gpus") or colocate or doubtful):
                message = "`rollout_num_gpus` is missing; only a colocated rollout defaults to the training's GPUs"
                help = "add it, or set colocate, debug_train_only or rollout_external"
                reader.add((), Diagnostic("missing-key", message, help))
        self.rollout_offset = 0
        if rollout_only and not train_only:
            self.num_gpus = training if external else self.rollout
            self.actor = self.critic = 0
        elif train_only or (colocate and not external):
            self.num_gpus = max(training, self.rollout)
        else:
            self.num_gpus, self.rollout_offset = training + self.rollout, training
        self.per_engine = self._number(reader, "rollout_num_gpus_per_engine", 1, 1)
        self.per_node = self._number(reader, "num_gpus_per_node", 0, 1)

    def _has(self, flag: str) -> bool:
        return self._values.get(flag) is not None

    def _path(self, flag: str) -> KeyPath:
        """Return the path of a flag, under the name that it is written with."""
        return (self._keys.get(flag, flag),)

    def _switch(self, reader: Reader, flag: str, *, implied: bool = False) -> bool:
        """Return whether a flag is on; ``implied`` if it is missing or invalid, which is recorded."""
        value = self._values.get(flag, implied)
        if isinstance(value, bool):
            return value
        reader.add(self._path(flag), must_be(self._path(flag), value, "true or false", "write true or false"))
        return implied

    def _number(self, reader: Reader, flag: str, default: int, least: int) -> int:
        """Return a whole number; the default if it is missing or invalid, which is recorded."""
        number = reader.number(self._values[flag], self._path(flag), least) if self._has(flag) else None
        return default if number is None else number

    def _sizes(self, reader: Reader, flags: Mapping[str, Sequence[str]], order: str) -> Parallel | None:
        """Return the sizes that flags state, ``None`` if any is invalid, which is recorded."""
        given = {name: [self._keys[flag] for flag in each if self._has(flag)] for name, each in flags.items()}
        return reader.sizes_in({self._keys[flag]: value for flag, value in self._values.items()}, given, (), order)

    def _engine_sizes(self, reader: Reader) -> Parallel:
        """Return the sizes of an engine; its tensor size follows from its GPUs (slime: ``_compute_server_args``)."""
        stated, gpus = self._sizes(reader, _ENGINE, ENGINE_ORDER), self.per_engine
        if stated is None:
            return NO_SIZES
        tensor, stages, experts = gpus // stated.pp, stated.pp, stated.ep
        for name, size, whole in (("pp", stages, gpus), ("ep", experts, tensor)):
            if whole % size or not whole:
                near = [str(n) for n in range(1, whole + 1) if whole % n == 0][-4:]
                word = "pipeline stages" if name == "pp" else "expert groups"
                message = f"an engine of {whole} GPUs cannot be divided into {size} {word}"
                help = f"use {' or '.join([', '.join(near[:-1]), near[-1]] if near[1:] else near)}"
                flag = next(flag for flag in _ENGINE[name] if self._has(flag))
                reader.add(self._path(flag), Diagnostic("parallel-not-divisible", message, help))
                return NO_SIZES
        etp = tensor // experts if experts > 1 else 1
        return Parallel(tp=tensor, pp=stages, ep=experts, etp=etp, order=ENGINE_ORDER)

    def size(self) -> tuple[int, int]:
        """Return the nodes with enough GPUs: ``num_gpus_per_node`` per node (default 8)."""
        each = self.per_node or ASSUMED
        return max(1, -(-self.num_gpus // each)), each

    def place(self, placer: Placer) -> None:
        """Place ``actor``, ``critic`` and ``rollout``."""
        reader = placer.reader
        if self._contradicts:
            message = "`debug_train_only` and `debug_rollout_only` are both set"
            reader.add(self._path("debug_rollout_only"), Diagnostic("invalid-value", message, "remove one of them"))
        elif not (self.actor or self.critic or self.rollout):
            message = "these flags give GPUs neither to the training nor to the rollout"
            reader.add((), Diagnostic("empty-placement", message, "give one of them some"))
        reader.finish()
        colocated = bool((self.actor or self.critic) and self.rollout) and self.rollout_offset == 0
        pool = self._take(placer, colocated=colocated)
        each = self._per_process(reader, placer.inventory.core, pool)
        reader.finish()
        first = "actor" if self.actor else "critic" if self.critic else "rollout"
        placer.ask(first, pool, order="number")
        share = 0.8 if colocated else 1.0
        share /= 2 if self.critic and self.critic_shares else 1
        critic = 0 if self.critic_shares else self.actor
        self._place_training(placer, "actor", pool.slice(0, self.actor), share)
        self._place_training(placer, "critic", pool.slice(critic, critic + self.critic), share)
        rollout = pool.slice(self.rollout_offset, self.rollout_offset + self.rollout)
        flags = {"tp": ("rollout_num_gpus_per_engine",), **_ENGINE}
        path = self._sizes_path(reader, flags, self.engine, self.rollout)
        engines, share = self.per_engine // each, 0.2 if colocated else 1.0
        placer.component("rollout", rollout, path, each, sizes=self.engine, share=share, engines=engines)

    def _place_training(self, placer: Placer, name: str, taken: Taken, share: float) -> None:
        path = self._sizes_path(placer.reader, MEGATRON, self.parallel, len(taken))
        placer.component(name, taken, path, sizes=self.parallel, share=share)

    def _sizes_path(
        self, reader: Reader, flags: Mapping[str, Sequence[str]], parallel: Parallel, count: int
    ) -> KeyPath:
        """Return the path of the sizes of a component, and tell the reader the flag of each."""
        path = self._decisive(flags, parallel, count)
        reader.size_names[path] = {kind: self._path(names[0]) for kind, names in flags.items()}
        return path

    def _take(self, placer: Placer, *, colocated: bool) -> Taken:
        """Take the GPUs of all sides; too few are a fault, with those that there are."""
        present = placer.free
        if self.num_gpus <= present:
            return self._taken(placer)
        critic = 0 if self.critic_shares else self.critic
        parts = [("actor", self.actor), ("critic", critic), ("rollout", self.rollout)]
        needed = ", ".join(f"{name} {count}" for name, count in parts if count)
        needed += ", colocated" if colocated else ""
        message = f"the flags need {self.num_gpus} GPUs ({needed}), but the cluster has {present}"
        if self.actor and not self._has("actor_num_gpus_per_node"):
            message += f"; {_GPUS} GPUs per node is slime's default actor_num_gpus_per_node"
        help = "use a larger cluster, or fewer GPUs"
        placer.reader.add(self._counting(), Diagnostic("resource-out-of-range", message, help))
        return placer.take(present, "", (), node_by_node=True)

    def _taken(self, placer: Placer) -> Taken:
        """Take the GPUs of all sides in their order; pinned, tensor and context groups and engine processes are whole.

        Apart, the sizes of the training are tried before the engines, which come next in whole processes.
        """
        if not placer.packing.whole:
            return placer.take(self.num_gpus, "", (), node_by_node=True)
        trains = self.actor or self.critic
        training = {self.parallel.tp, self.parallel.tp * self.parallel.cp} if trains else set[int]()
        engine = min(self.per_engine, self.per_node or placer.pool.largest)
        if not (self.rollout and self.rollout_offset):
            sizes = training | ({engine} if self.rollout else set())
            return placer.take(self.num_gpus, "", (), whole=sizes)
        rollout = _steps(self.rollout, engine)
        steps = step_sizes([size for size in training if size <= self.num_gpus])
        lists = [_steps(self.rollout_offset, size) + rollout for size in (*steps, 1)]
        return placer.lists(self.num_gpus, [[(1, self.num_gpus)], *lists])

    def memory(self, reader: Reader) -> MemoryReader:
        """Return what reads the memory, from flags as they are written."""
        return MemoryReader(reader, self.keys.roles, names={flag_name(key): key for key in map(str, reader.content)})

    def node_order(self) -> NodeOrder:
        """Return addresses as numbers (``sort_key``)."""
        return "number"

    def _decisive(self, flags: Mapping[str, Sequence[str]], parallel: Parallel, count: int) -> KeyPath:
        """Return the path of the flag of the size by which the GPUs cannot be divided, else of the largest one."""
        given = {name: flag for name, each in flags.items() for flag in each if self._has(flag)}
        largest = max(given, key=lambda name: getattr(parallel, name), default=None)
        breaking = parallel.breaking(count)
        name = breaking if breaking in given else "ep" if breaking == "etp" and "ep" in given else largest
        return () if name is None else self._path(given[name])

    def _counting(self) -> KeyPath:
        """Return the path of the flag that gives the larger side its GPUs."""
        training = ("actor_num_nodes", "actor_num_gpus_per_node")
        flags = ("rollout_num_gpus", *training) if self.rollout > self.actor else (*training, "rollout_num_gpus")
        return next((self._path(flag) for flag in flags if self._has(flag)), ())

    def _per_process(self, reader: Reader, core: Core, pool: Taken) -> int:
        """Return the number of GPUs per rollout process, and record why engines cannot be divided so."""
        engine, offset = self.per_engine, self.rollout_offset
        rollout = pool.slice(offset, offset + self.rollout)
        if not rollout:
            return 1
        largest = rollout.largest_node(core)
        each = min(engine, self.per_node or largest)
        if engine % each:
            message = f"an engine of {engine} GPUs cannot be divided into processes of {each}, the GPUs of a node"
            fault = Diagnostic("not-multiple", message, f"use a multiple of {each}, or fewer than {each}")
            reader.add(self._path("rollout_num_gpus_per_engine"), fault)
            return each
        if self.rollout % engine:
            below = self.rollout // engine * engine
            counts = " or ".join(str(count) for count in (below, below + engine) if count)
            message = f"{self.rollout} GPUs cannot be divided into engines of {engine}"
            help = f"use {counts} GPUs, or change rollout_num_gpus_per_engine"
            reader.add(self._path("rollout_num_gpus"), Diagnostic("not-multiple", message, help))
        torn = rollout.torn(core, each)
        if torn is not None:
            process, first, last = torn
            whole = (size for size in range(each - 1, 0, -1) if each % size == 0 and rollout.torn(core, size) is None)
            flag = "num_gpus_per_node" if engine > each or each > largest else "rollout_num_gpus_per_engine"
            message = f"process {process} of the rollout would need {each} GPUs on nodes {first} and {last}"
            help = f"set {flag} to {next(whole)}"
            if offset and pool.slice(offset - 1, offset + 1).torn(core, 2) is None:
                help += f", or let the {offset} GPUs before the rollout fill whole nodes"
            reader.add(self._path(flag), Diagnostic("spans-nodes", message, help))
        return each


def _steps(count: int, size: int) -> list[tuple[int, int]]:
    """Return a number of GPUs as steps of a size, with their number; the last one may be smaller."""
    return [(count // size, size), (1 if count % size else 0, count % size)]


read, plan, assumed_inventory, node_order = _Job.read, _Job.plan, _Job.assumed_inventory, _Job.order


def layout(flags: Flags) -> tuple[int, int]:
    """Return the number of GPUs of all sides together, and the position of the rollout's first GPU among them.

    Raises `PlacementError` with every fault.
    """
    reader = read(flags)
    reader.finish()
    job: _Job = reader.state
    return job.num_gpus, job.rollout_offset


@dataclass(frozen=True, slots=True)
class EngineProcess:
    """The position of a rollout process in its engine.

    ``engine`` counts engines from 0, ``node_rank`` the processes of the engine (one per node in slime). ``first_node``
    is the cluster node rank of the engine's first process; its address is the ``dist_init_addr`` of the whole engine.
    """

    engine: int
    node_rank: int
    first_node: int


def engine_processes(rollout: Component) -> list[EngineProcess]:
    """Return the position of each process of a planned rollout in its engine."""
    size = rollout.engines
    first_nodes = [rollout[first].cluster_node_rank for first in range(0, len(rollout), size)]
    return [EngineProcess(rank // size, rank % size, first_nodes[rank // size]) for rank in range(len(rollout))]


def dist_init_addrs(processes: Sequence[EngineProcess], inventory: Inventory, ports: Sequence[range]) -> list[str]:
    """Return the rendezvous of each rollout process's engine: the address of its first node and a port there.

    ``ports`` are the free ports of each process (`WorkerGroup.free_ports`); an engine uses those of its first process.
    Raises ``ValueError`` for a node without an address, ports that are not one range per process, or an engine without
    its first process.
    """
    if len(ports) != len(processes) or not all(ports):
        ranges = sum(map(bool, ports))
        raise ValueError(f"ports are given for {ranges} of {len(processes)} processes; pass a range for each")
    if processes and processes[0].node_rank:
        raise ValueError("the first process is not the first of its engine; pass all processes of the rollout")
    addresses: list[str] = []
    for rank, process in enumerate(processes):
        if process.node_rank == 0:
            host = inventory.node(process.first_node).ip
            if host is None:
                raise ValueError(f"node {process.first_node} has no address; pass the inventory of a live cluster")
            bracketed = f"[{host}]" if ":" in host and host[0] != "[" else host
            addresses.append(f"{bracketed}:{ports[rank][0]}")
        else:
            addresses.append(addresses[-1])
    return addresses


def written(planned: Plan) -> tuple[dict[str, Any], dict[str, str]]:
    """Return flags for the components that slime can express, and why it cannot express the others.

    The places of slime's components depend on each other, so every candidate is planned again and compared.
    """
    reasons: dict[str, str] = {}
    for name, component in planned.items():
        sizes = {row.num_accelerators for row in component}
        if name not in ("actor", "critic", "rollout"):
            reasons[name] = "slime only has an actor, a critic and a rollout"
        elif name != "rollout" and sizes != {1}:
            reasons[name] = "its processes do not have one accelerator each"
        elif len(sizes) > 1 or 0 in sizes:
            reasons[name] = "its processes have different numbers of accelerators"
    sayable = {name: component for name, component in planned.items() if name not in reasons}
    for size in range(len(sayable), 0, -1):
        for names in combinations(sayable, size):
            kept = {name: sayable[name] for name in names}
            config = _written(kept, planned.inventory)
            try:
                again = plan(config, planned.inventory)
            except PlacementError:
                continue
            if all(name in again and _devices(rows) == _devices(again[name]) for name, rows in kept.items()):
                dropped = [name for name in sayable if name not in kept]
                return config, reasons | dict.fromkeys(dropped, "slime would place it elsewhere")
    return {}, reasons | dict.fromkeys(sayable, "slime would place it elsewhere")


def _written(components: Mapping[str, Component], inventory: Inventory) -> dict[str, Any]:
    """Return the flags for as many GPUs as the components have."""
    actor, critic, rollout = (components.get(name, ()) for name in ("actor", "critic", "rollout"))
    counts = {spec.num_accelerators for _, spec in inventory.stretches()}
    per_node = counts.pop() if len(counts) == 1 else 0
    config: dict[str, Any] = {"num_gpus_per_node": per_node} if per_node else {}
    training = [("actor", actor)] if actor or critic else []
    if critic:
        config["use_critic"] = True
        training += [("critic", critic)] if _devices(critic) != _devices(actor) else []
    for name, rows in training:
        nodes = max(1, len(rows) // per_node) if per_node and len(rows) % per_node == 0 else 1
        config |= {f"{name}_num_nodes": nodes, f"{name}_num_gpus_per_node": len(rows) // nodes}
    parallels = {rows.parallel for rows in (actor, critic) if isinstance(rows, Component)}
    if len(parallels) == 1:
        sizes = {kind: getattr(parallel, kind) for parallel in parallels for kind in MEGATRON}
        stated = {kind for kind, size in sizes.items() if size > 1 or (kind == "etp" and sizes["ep"] > 1)}
        config |= {MEGATRON[kind][0]: size for kind, size in sizes.items() if kind in stated}
    if not isinstance(rollout, Component):
        return config | {"debug_train_only": True}
    each = rollout[0].num_accelerators
    engine, sizes_of_engine = each * rollout.engines, rollout.parallel
    if rollout.engines == 1 and each == per_node:  # an engine of several processes has one per node
        engine = max(each, sizes_of_engine.tp * sizes_of_engine.pp)
    config |= {"rollout_num_gpus": len(rollout) * each, "rollout_num_gpus_per_engine": engine}
    config |= {_ENGINE[kind][0]: size for kind in _ENGINE if (size := getattr(sizes_of_engine, kind)) > 1}
    if rollout.engines > 1 and each != per_node:
        config["num_gpus_per_node"] = each
    if not training:
        return config | {"debug_rollout_only": True}
    together = rollout[0].devices[0] == [*actor, *critic][0].devices[0]
    return config | ({"colocate": True} if together else {})


def _devices(rows: Sequence[Placement]) -> list[list[tuple[int, int]]]:
    return [row.devices for row in rows]
