"""slime: flags for the size of each side, and one pool of GPUs in a stable order that the sides are cut from.

The actor has the first GPUs, one per process. A critic shares them; with ``critic_num_nodes`` or
``critic_num_gpus_per_node``, which older versions of slime have, it has the next GPUs to itself. The rollout's engines
start at the rollout's offset: after the training, or at the first GPU if colocated. An engine larger than a node has
one process per node.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Protocol, TypeAlias, TypeVar

from rankplan._core import Placement
from rankplan.config.section import Config
from rankplan.config.text.faults import KeyPath
from rankplan.dialects.bundles import bundle_order, pool_order
from rankplan.dialects.pools import place, torn
from rankplan.dialects.reading import MEGATRON, KeyReader, sizes_in
from rankplan.errors import Diagnostic, PlacementError
from rankplan.nodes.inventory import Inventory
from rankplan.parallel import ENGINE_ORDER, NO_SIZES, ORDER, Parallel
from rankplan.plans.component import Component
from rankplan.plans.configured import ASSUMED
from rankplan.plans.plan import Plan
from rankplan.words import shown

__all__ = [
    "EngineProcess",
    "assumed_inventory",
    "bundle_order",
    "dist_init_addrs",
    "engine_processes",
    "layout",
    "plan",
    "read",
    "recognised",
    "written",
]


class _Namespace(Protocol):
    __dict__: dict[str, Any]


Flags: TypeAlias = Config | _Namespace | KeyReader
"""Flags by name, written with ``_`` or ``-``: a mapping, the path of a YAML file, or an ``argparse.Namespace``."""

_TELLING = frozenset({"actor_num_nodes", "actor_num_gpus_per_node", "rollout_num_gpus", "rollout_num_gpus_per_engine"})
"""Flags that only slime has."""

_PLACING = _TELLING | {
    "colocate",
    "debug_train_only",
    "debug_rollout_only",
    "rollout_external",
    "use_critic",
    "critic_num_nodes",
    "critic_num_gpus_per_node",
    "num_gpus_per_node",
}

_IMPLYING = frozenset(
    {"advantage_estimator", "load_debug_rollout_data", "megatron_config_path", "rollout_external_engine_addrs"}
)
"""Other flags, from which slime derives some of the placing ones."""

_ENGINE = {
    "pp": ("sglang_pipeline_parallel_size", "sglang_pp_size"),
    "ep": ("sglang_expert_parallel_size", "sglang_ep_size"),
}
_SIZES = frozenset(flag for flags in (*MEGATRON.values(), *_ENGINE.values()) for flag in flags)
"""Flags of parallel sizes."""

_Value = TypeVar("_Value", str, int | str)


@dataclass(frozen=True, slots=True)
class EngineProcess:
    """The position of a rollout process in its engine.

    ``engine`` counts engines from 0, ``node_rank`` the processes of the engine (one per node in slime). ``first_node``
    is the cluster node rank of the engine's first process; its address is the ``dist_init_addr`` of the whole engine.
    """

    engine: int
    node_rank: int
    first_node: int


@dataclass(frozen=True, slots=True)
class _Sides:
    """Numbers of GPUs: 0 for a side that does not run here; ``per_node`` is 0 if unspecified."""

    actor: int
    critic: int
    critic_shares: bool
    rollout: int
    per_engine: int
    per_node: int
    num_gpus: int
    rollout_offset: int

    @property
    def colocated(self) -> bool:
        return bool((self.actor or self.critic) and self.rollout) and self.rollout_offset == 0


def recognised(config: Mapping[Any, Any]) -> bool:
    """Return whether a config is written for slime: its flags include the size of a side."""
    return "cluster" not in config and any(_flag(key) in _TELLING for key in config)


def read(flags: Flags) -> _Reading:
    """Read flags; flags that are already read are returned. Raises `PlacementError` if they are not a mapping."""
    return flags if isinstance(flags, _Reading) else _Reading(flags)


def layout(flags: Flags) -> tuple[int, int]:
    """Return the number of GPUs of all sides together, and the position of the rollout's first GPU among them.

    Raises `PlacementError` with every fault.
    """
    reading = read(flags)
    reading.finish()
    return reading.sides.num_gpus, reading.sides.rollout_offset


def plan(config: Flags, inventory: Inventory, isolate_accelerator: bool = True) -> Plan:
    """Return the plan of slime's flags on an inventory: the components ``actor``, ``critic`` and ``rollout``.

    The pool is the first GPUs of the inventory in the order of `bundle_order`, node by node; nodes are in rank order
    unless every node has an address. Colocated, the training has a share of 0.8 and the rollout of 0.2; an actor and a
    critic on the same GPUs have half of the training's share each. Raises `PlacementError` with every fault, among them
    ``resource-out-of-range`` for too few GPUs and ``spans-nodes`` for a rollout process that would need two nodes.
    """
    reading = read(config).fork()
    sides = reading.sides
    if reading.switch("debug_train_only") and reading.switch("debug_rollout_only"):
        message = "`debug_train_only` and `debug_rollout_only` are both set"
        reading.add_flag("debug_rollout_only", Diagnostic("invalid-value", message, "remove one of them"))
    elif not reading.faults and not (sides.actor or sides.critic or sides.rollout):
        message = "these flags give GPUs neither to the training nor to the rollout"
        reading.add((), Diagnostic("empty-placement", message, "give one of them some"))
    reading.finish()
    if reading.lacks_accelerators(inventory, ()):
        raise reading.refusal()
    gpus, nodes = pool_order(inventory)
    if sides.num_gpus > len(gpus):
        reading.add((), _too_few(sides, len(gpus)))
    per_process = _per_process(reading, sides, inventory, nodes)
    reading.finish()
    training, rollout = (0.8, 0.2) if sides.colocated else (1.0, 1.0)
    if sides.critic and sides.critic_shares:
        training /= 2
    components = []
    for name, start, count, each, share in (
        ("actor", 0, sides.actor, 1, training),
        ("critic", 0 if sides.critic_shares else sides.actor, sides.critic, 1, training),
        ("rollout", sides.rollout_offset, sides.rollout, per_process, rollout),
    ):
        if count:
            engines = sides.per_engine // each if name == "rollout" else 1
            more: dict[str, Any] = {"share": share, "engines": engines}
            parallel = reading.engine if name == "rollout" else reading.training
            path = reading.path_of_sizes(parallel)
            taken = gpus[start : start + count]
            placed = place(reading, name, inventory, taken, path, each, isolate_accelerator, parallel, **more)
            components += [placed] if placed is not None else []
    reading.finish()
    return Plan(inventory, components)


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


def assumed_inventory(config: Flags) -> Inventory:
    """Return the smallest inventory with enough GPUs: ``num_gpus_per_node`` per node (default 8)."""
    reading = read(config)
    reading.finish()
    each = reading.sides.per_node or ASSUMED
    return reading.fork().assumed(max(1, -(-reading.sides.num_gpus // each)), each)


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
    counts = {spec.accelerators for _, spec in inventory.stretches()}
    per_node = counts.pop() if len(counts) == 1 else 0
    config: dict[str, Any] = {"num_gpus_per_node": per_node} if per_node else {}
    training = [("actor", actor)] if actor or critic else []
    if critic:
        config["use_critic"] = True
        training += [("critic", critic)] if _devices(critic) != _devices(actor) else []
    for name, rows in training:
        nodes = max(1, len(rows) // per_node) if per_node and len(rows) % per_node == 0 else 1
        config |= {f"{name}_num_nodes": nodes, f"{name}_num_gpus_per_node": len(rows) // nodes}
    sizes = {rows.parallel for rows in (actor, critic) if isinstance(rows, Component)}
    if len(sizes) == 1:
        config |= _written_sizes(sizes.pop())
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


def _written_sizes(parallel: Parallel) -> dict[str, int]:
    """Return the flags of the training's parallel sizes."""
    sizes = {name: getattr(parallel, name) for name in MEGATRON}
    return {MEGATRON[name][0]: size for name, size in sizes.items() if size > 1 or (name == "etp" and sizes["ep"] > 1)}


def _devices(rows: Sequence[Placement]) -> list[list[tuple[int, int]]]:
    return [row.devices for row in rows]


class _Reading(KeyReader):
    """slime's flags by name, in whatever form they came, and the sizes that they give."""

    def __init__(self, flags: Flags) -> None:
        plain = isinstance(flags, (str, os.PathLike, Mapping))
        super().__init__(flags if plain else getattr(flags, "__dict__", flags))  # type: ignore[arg-type]
        self._written: dict[str, str] = {}
        self._values: dict[str, Any] = {}
        self._doubtful = False
        others: list[str] = []
        for written in self.content:
            key = str(written)
            flag = _flag(key)
            if flag not in _PLACING | _IMPLYING | _SIZES:
                others.append(key)
            elif flag in self._written:
                message = f"`{key}` and `{self._written[flag]}` are the same flag"
                self.add((key,), Diagnostic("duplicate-key", message, "remove one of them"))
            else:
                self._written[flag] = key
                before = len(self.faults)
                value = self.value(self.content, written, ())
                if len(self.faults) == before:
                    self._values[flag] = value
                else:
                    self._doubtful = True
        self._reject_misspelt(others)
        self.sides = self._sides()
        self.training = self._sizes(MEGATRON, ORDER) or NO_SIZES
        self.engine = self._engine_sizes()

    def _sizes(self, flags: Mapping[str, Sequence[str]], order: str) -> Parallel | None:
        """Return the sizes that flags state, ``None`` if any is invalid, which is recorded."""
        given = {name: [self._written[flag] for flag in each if self._has(flag)] for name, each in flags.items()}
        values = {key: self._values[_flag(key)] for keys in given.values() for key in keys}
        return sizes_in(self, values, given, (), order)

    def _engine_sizes(self) -> Parallel:
        """Return the sizes of an engine: its GPUs without the pipeline stages are its tensor size, as in slime."""
        stated, gpus = self._sizes(_ENGINE, ENGINE_ORDER), self.sides.per_engine
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
                self.add_flag(flag, Diagnostic("parallel-not-divisible", message, help))
                return NO_SIZES
        return Parallel(
            tp=tensor, pp=stages, ep=experts, etp=tensor // experts if experts > 1 else 1, order=ENGINE_ORDER
        )

    def path_of_sizes(self, parallel: Parallel) -> KeyPath:
        """Return the path of the flag of the largest size."""
        flags = {"tp": ("rollout_num_gpus_per_engine",), **_ENGINE} if parallel is self.engine else MEGATRON
        given = {name: flag for name, each in flags.items() for flag in each if self._has(flag)}
        largest = max(given, key=lambda name: getattr(parallel, name), default=None)
        return () if largest is None else (self._written[given[largest]],)

    def add_flag(self, flag: str, diagnostic: Diagnostic) -> None:
        """Record a fault of a flag, under the name that it is written with."""
        self.add((self._written.get(flag, flag),), diagnostic)

    def switch(self, flag: str, implied: bool = False) -> bool:
        """Return whether a flag is on; ``implied`` if it is missing or invalid, which is recorded."""
        value = self._values.get(flag, implied)
        if isinstance(value, bool):
            return value
        message = f"`{self._written.get(flag, flag)}` is {shown(value)}; it must be true or false"
        self.add_flag(flag, Diagnostic("invalid-value", message, "write true or false"))
        self._values[flag], self._doubtful = implied, True
        return implied

    def _sides(self) -> _Sides:
        """Return the number of GPUs of each side, and record the faults of the flags."""
        train_only = self.switch("debug_train_only", self._has("load_debug_rollout_data"))
        rollout_only = self.switch("debug_rollout_only") and not train_only
        colocate = self.switch("colocate")
        external = self.switch("rollout_external", self._has("rollout_external_engine_addrs"))
        nodes, each = self._number("actor_num_nodes", 1, 0), self._number("actor_num_gpus_per_node", 8, 0)
        actor, critic, critic_shares = nodes * each, 0, not self._has_separate_critic()
        if self.switch("use_critic", self._values.get("advantage_estimator") == "ppo"):
            if not critic_shares:
                nodes = self._number("critic_num_nodes", nodes, 0)
                each = self._number("critic_num_gpus_per_node", each, 0)
            critic = nodes * each
        training = actor if critic_shares else actor + critic
        rollout = 0
        if not train_only and not external:
            rollout = self._number("rollout_num_gpus", training, 0)
            if not (self._has("rollout_num_gpus") or colocate or self._doubtful):
                message = "`rollout_num_gpus` is missing; only a colocated rollout defaults to the training's GPUs"
                help = "add it, or set colocate, debug_train_only or rollout_external"
                self.add((), Diagnostic("missing-key", message, help))
        if rollout_only:
            num_gpus, offset, actor, critic = training if external else rollout, 0, 0, 0
        elif train_only or (colocate and not external):
            num_gpus, offset = max(training, rollout), 0
        else:
            num_gpus, offset = training + rollout, training
        per_engine = self._number("rollout_num_gpus_per_engine", 1, 1)
        per_node = self._number("num_gpus_per_node", 0, 1)
        return _Sides(actor, critic, critic_shares, rollout, per_engine, per_node, num_gpus, offset)

    def _has_separate_critic(self) -> bool:
        # A slime whose critic shares the actor's GPUs sets these flags too, to the actor's sizes; it also has
        # `megatron_config_path`.
        given = self._has("critic_num_nodes") or self._has("critic_num_gpus_per_node")
        return given and "megatron_config_path" not in self._written

    def _has(self, flag: str) -> bool:
        return self._values.get(flag) is not None

    def _number(self, flag: str, default: int, least: int) -> int:
        """Return a whole number; the default if it is missing or invalid, which is recorded."""
        if not self._has(flag):
            return default
        number = self.number(self._values[flag], (self._written[flag],), least)
        return default if number is None else number

    def _reject_misspelt(self, keys: Sequence[str]) -> None:
        """Record likely typos of flags that are not given: slime ignores them silently."""
        missing = sorted(_PLACING - self._written.keys())
        for key in keys:
            if self.reject_misspelt(_flag(key), missing, (key,)):
                self._doubtful = True


def _flag(key: Any) -> str:
    """Return the name of a flag, which may be written as on a command line."""
    return str(key).removeprefix("--").replace("-", "_")


def _too_few(sides: _Sides, present: int) -> Diagnostic:
    critic = 0 if sides.critic_shares else sides.critic
    parts = [("actor", sides.actor), ("critic", critic), ("rollout", sides.rollout)]
    needed = ", ".join(f"{name} {count}" for name, count in parts if count) + (", colocated" if sides.colocated else "")
    message = f"the flags need {sides.num_gpus} GPUs ({needed}), but the cluster has {present}"
    return Diagnostic("resource-out-of-range", message, "use a larger cluster, or fewer GPUs")


def _per_process(reading: _Reading, sides: _Sides, inventory: Inventory, nodes: Sequence[int]) -> int:
    """Return the number of GPUs per rollout process, and record why engines cannot be divided so."""
    engine, offset = sides.per_engine, sides.rollout_offset
    here = nodes[offset : offset + sides.rollout]
    if not here:
        return 1
    largest = max(inventory.node(rank).accelerators for rank in set(here))
    per_node = sides.per_node or largest
    each = min(engine, per_node)
    if engine % each:
        message = f"an engine of {engine} GPUs cannot be divided into processes of {each}, the GPUs of a node"
        help = f"use a multiple of {each}, or fewer than {each}"
        reading.add_flag("rollout_num_gpus_per_engine", Diagnostic("not-multiple", message, help))
        return each
    if sides.rollout % engine:
        below = sides.rollout // engine * engine
        counts = " or ".join(str(count) for count in (below, below + engine) if count)
        message = f"{sides.rollout} GPUs cannot be divided into engines of {engine}"
        help = f"use {counts} GPUs, or change rollout_num_gpus_per_engine"
        reading.add_flag("rollout_num_gpus", Diagnostic("not-multiple", message, help))
    if (found := torn(here, each)) is not None:
        fitting = next(size for size in range(each - 1, 0, -1) if each % size == 0 and torn(here, size) is None)
        flag = "num_gpus_per_node" if engine > each or each > largest else "rollout_num_gpus_per_engine"
        pair = f"{here[found * each]} and {here[found * each + each - 1]}"
        message = f"process {found} of the rollout would need {each} GPUs on nodes {pair}"
        help = f"set {flag} to {fitting}"
        if offset and nodes[offset - 1] == here[0]:
            help += f", or let the {offset} GPUs before the rollout fill whole nodes"
        reading.add_flag(flag, Diagnostic("spans-nodes", message, help))
    return each
