"""slime: flags for the size of each side, and one pool of GPUs in a stable order that the sides are cut from.

The actor has the first GPUs, one per process. A critic shares them; with ``critic_num_nodes`` or
``critic_num_gpus_per_node``, which older versions of slime have, it has the next GPUs to itself. The rollout's engines
start at the rollout's offset: after the training, or at the first GPU if colocated. An engine larger than a node has
one process per node.

Follows slime's ``create_placement_groups`` and ``init_rollout_engines``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Protocol, TypeAlias

from rankplan._core import Placement
from rankplan.config.text.reader import Config, Reader
from rankplan.dialects.bundles import bundle_order, pool_order
from rankplan.dialects.keys import SLIME
from rankplan.dialects.pools import place, torn
from rankplan.dialects.slime_flags import ENGINE, Job, Sides, flag_name
from rankplan.errors import Diagnostic, PlacementError
from rankplan.nodes.inventory import Inventory
from rankplan.parallel import MEGATRON, Parallel
from rankplan.plans.component import Component
from rankplan.plans.configured import ASSUMED, assumed, lacks_accelerators
from rankplan.plans.plan import Plan

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


Flags: TypeAlias = Config | _Namespace | Reader
"""Flags by name, written with ``_`` or ``-``: a mapping, the path of a YAML file, or an ``argparse.Namespace``."""


@dataclass(frozen=True, slots=True)
class EngineProcess:
    """The position of a rollout process in its engine.

    ``engine`` counts engines from 0, ``node_rank`` the processes of the engine (one per node in slime). ``first_node``
    is the cluster node rank of the engine's first process; its address is the ``dist_init_addr`` of the whole engine.
    """

    engine: int
    node_rank: int
    first_node: int


def recognised(config: Mapping[Any, Any]) -> bool:
    """Return whether a config is written for slime: its flags include the size of a side."""
    return SLIME.recognises({flag_name(key): None for key in config})


def read(flags: Flags) -> Reader:
    """Read flags; flags that are already read are returned. Raises `PlacementError` if they are not a mapping."""
    plain = isinstance(flags, (str, os.PathLike, Mapping, Reader))
    return Reader.of(flags if plain else getattr(flags, "__dict__", flags), Job)


def layout(flags: Flags) -> tuple[int, int]:
    """Return the number of GPUs of all sides together, and the position of the rollout's first GPU among them.

    Raises `PlacementError` with every fault.
    """
    reader = read(flags)
    reader.finish()
    job: Job = reader.state
    return job.sides.num_gpus, job.sides.rollout_offset


def plan(config: Flags, inventory: Inventory, *, isolate_accelerator: bool = True) -> Plan:
    """Return the plan of slime's flags on an inventory: the components ``actor``, ``critic`` and ``rollout``.

    The pool is the first GPUs of the inventory in the order of `bundle_order`, node by node; nodes are in rank order
    unless every node has an address. Colocated, the training has a share of 0.8 and the rollout of 0.2; an actor and a
    critic on the same GPUs have half of the training's share each. Raises `PlacementError` with every fault, among them
    ``resource-out-of-range`` for too few GPUs and ``spans-nodes`` for a rollout process that would need two nodes.
    """
    reader = read(config).fork()
    job: Job = reader.state
    sides = job.sides
    if job.contradicts:
        message = "`debug_train_only` and `debug_rollout_only` are both set"
        reader.add(job.path("debug_rollout_only"), Diagnostic("invalid-value", message, "remove one of them"))
    elif not reader.faults and not (sides.actor or sides.critic or sides.rollout):
        message = "these flags give GPUs neither to the training nor to the rollout"
        reader.add((), Diagnostic("empty-placement", message, "give one of them some"))
    reader.finish()
    if lacks_accelerators(reader, inventory, ()):
        raise reader.refusal()
    gpus, nodes = pool_order(inventory)
    if sides.num_gpus > len(gpus):
        reader.add((), _too_few(sides, len(gpus)))
    per_process = _per_process(reader, job, inventory, nodes)
    reader.finish()
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
            more: dict[str, Any] = {"share": share, "engines": engines, "isolate": isolate_accelerator}
            parallel = job.engine if name == "rollout" else job.training
            path = job.path_of_sizes(parallel)
            taken = gpus[start : start + count]
            placed = place(reader, name, inventory, taken, path, each, parallel=parallel, **more)
            components += [placed] if placed is not None else []
    reader.finish()
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
    reader = read(config)
    reader.finish()
    sides: Sides = reader.state.sides
    each = sides.per_node or ASSUMED
    return assumed(reader, max(1, -(-sides.num_gpus // each)), each)


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
    config |= {ENGINE[kind][0]: size for kind in ENGINE if (size := getattr(sizes_of_engine, kind)) > 1}
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


def _too_few(sides: Sides, present: int) -> Diagnostic:
    critic = 0 if sides.critic_shares else sides.critic
    parts = [("actor", sides.actor), ("critic", critic), ("rollout", sides.rollout)]
    needed = ", ".join(f"{name} {count}" for name, count in parts if count) + (", colocated" if sides.colocated else "")
    message = f"the flags need {sides.num_gpus} GPUs ({needed}), but the cluster has {present}"
    return Diagnostic("resource-out-of-range", message, "use a larger cluster, or fewer GPUs")


def _per_process(reader: Reader, job: Job, inventory: Inventory, nodes: Sequence[int]) -> int:
    """Return the number of GPUs per rollout process, and record why engines cannot be divided so."""
    sides = job.sides
    engine, offset = sides.per_engine, sides.rollout_offset
    here = nodes[offset : offset + sides.rollout]
    if not here:
        return 1
    largest = max(inventory.node(rank).num_accelerators for rank in set(here))
    per_node = sides.per_node or largest
    each = min(engine, per_node)
    if engine % each:
        message = f"an engine of {engine} GPUs cannot be divided into processes of {each}, the GPUs of a node"
        help = f"use a multiple of {each}, or fewer than {each}"
        reader.add(job.path("rollout_num_gpus_per_engine"), Diagnostic("not-multiple", message, help))
        return each
    if sides.rollout % engine:
        below = sides.rollout // engine * engine
        counts = " or ".join(str(count) for count in (below, below + engine) if count)
        message = f"{sides.rollout} GPUs cannot be divided into engines of {engine}"
        help = f"use {counts} GPUs, or change rollout_num_gpus_per_engine"
        reader.add(job.path("rollout_num_gpus"), Diagnostic("not-multiple", message, help))
    if (found := torn(here, each)) is not None:
        fitting = next(size for size in range(each - 1, 0, -1) if each % size == 0 and torn(here, size) is None)
        flag = "num_gpus_per_node" if engine > each or each > largest else "rollout_num_gpus_per_engine"
        pair = f"{here[found * each]} and {here[found * each + each - 1]}"
        message = f"process {found} of the rollout would need {each} GPUs on nodes {pair}"
        help = f"set {flag} to {fitting}"
        if offset and nodes[offset - 1] == here[0]:
            help += f", or let the {offset} GPUs before the rollout fill whole nodes"
        reader.add(job.path(flag), Diagnostic("spans-nodes", message, help))
    return each
