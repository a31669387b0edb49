"""slime: flags for the size of each side, and one pool of GPUs in a stable order that the sides are cut from.

The actor has the first GPUs, one for each process. A critic shares them; with ``critic_num_nodes`` or
``critic_num_gpus_per_node``, which slime had before they shared, it has the next ones to itself. The rollout's engines
have the GPUs from the rollout's offset on: after the training, or from the first one when colocated. An engine that is
larger than a node is one process a node.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Protocol, TypeAlias, TypeVar

from rankplan._core import Chunks, Placement, Placements
from rankplan.addresses import address_key
from rankplan.config.models import CLUSTER
from rankplan.config.section import Config
from rankplan.dialects.reading import ASSUMED, Reader
from rankplan.errors import Diagnostic, PlacementError
from rankplan.inventory import Inventory
from rankplan.plan import Plan
from rankplan.words import shown

__all__ = [
    "EngineProcess",
    "assumed_inventory",
    "bundle_order",
    "dist_init_addrs",
    "engines",
    "layout",
    "plan",
    "recognised",
    "shares",
    "written",
]


class _Namespace(Protocol):
    __dict__: dict[str, Any]


Flags: TypeAlias = Config | _Namespace
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
"""Flags about something else, by which slime sets some of the others."""

_Value = TypeVar("_Value", str, int | str)


@dataclass(frozen=True, slots=True)
class EngineProcess:
    """Where a process of the rollout stands in its engine.

    ``engine`` counts the engines from 0, ``node_rank`` the processes of this engine (slime has one a node).
    ``first_node`` is the node rank, in the cluster, of the engine's first process: the address of that node is in the
    ``dist_init_addr`` of all its processes.
    """

    engine: int
    node_rank: int
    first_node: int


@dataclass(frozen=True, slots=True)
class _Sides:
    """Numbers of GPUs. A side that does not run here has none; ``per_node`` is 0 where it is not written."""

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
    """Whether a config is written for slime: it has the size of a side among its flags."""
    return "cluster" not in config and any(_flag(key) in _TELLING for key in config)


def layout(flags: Flags) -> tuple[int, int]:
    """Return how many GPUs all sides need together, and the position of the rollout's first one among them.

    Raises `PlacementError` with every fault.
    """
    reading = _Reading(flags)
    sides = reading.sides()
    reading.finish()
    return sides.num_gpus, sides.rollout_offset


def bundle_order(bundles: Iterable[tuple[int, str, int | str]]) -> list[int]:
    """Return the indices of bundles in a stable order; each bundle is given as (index, node address, GPU id).

    Nodes are in the order of their addresses: IPv4, then IPv6, both as numbers, then hostnames in natural order. On a
    node, GPU ids that are numbers come first, as numbers, then UUIDs as text. Bundles that compare equal stay as they
    are. No name is looked up.
    """
    bundles = list(bundles)
    gpus = _places({gpu_id for _, _, gpu_id in bundles}, _gpu_key)
    nodes = _places({address for _, address, _ in bundles}, address_key, len(gpus))
    return [index for index, _, _ in sorted(bundles, key=lambda bundle: nodes[bundle[1]] + gpus[bundle[2]])]


def plan(config: Flags, inventory: Inventory, isolate_accelerator: bool = True) -> Plan:
    """Return the plan of slime's flags on an inventory: the components ``actor``, ``critic`` and ``rollout``.

    The pool is the first GPUs of the inventory in the order of `bundle_order`, node by node; nodes are in the order of
    their ranks where not every one has an address. Raises `PlacementError` with every fault, among others
    ``resource-out-of-range`` for too few GPUs and ``spans-nodes`` for an engine's process that would need two nodes.
    """
    reading = _Reading(config)
    sides = reading.sides()
    if reading.switch("debug_train_only") and reading.switch("debug_rollout_only"):
        message = "`debug_train_only` and `debug_rollout_only` are both set"
        reading.add("debug_rollout_only", Diagnostic("invalid-value", message, "keep one of the two"))
    elif not reading.faults and not (sides.actor or sides.critic or sides.rollout):
        message = "with these flags, neither training nor rollout has a GPU here"
        reading.add("", Diagnostic("empty-placement", message, "give one of them some"))
    reading.finish()
    reading.require_accelerators(inventory)
    pool = inventory.pool((CLUSTER,))
    gpus, nodes = _pool_order(inventory)
    if sides.num_gpus > len(gpus):
        reading.add("", _too_few(sides, len(gpus)))
    per_process = _per_process(reading, sides, inventory, nodes)
    reading.finish()
    components: dict[str, Placements] = {}
    for name, start, count, each in (
        ("actor", 0, sides.actor, 1),
        ("critic", 0 if sides.critic_shares else sides.actor, sides.critic, 1),
        ("rollout", sides.rollout_offset, sides.rollout, per_process),
    ):
        if count:
            components[name] = pool.apply(Chunks(gpus[start : start + count], each), isolate_accelerator)
    return Plan(inventory, components)


def engines(flags: Flags, planned: Plan) -> list[EngineProcess]:
    """Return, for each process of the rollout, where it stands in its engine; nothing without a rollout.

    Raises `PlacementError` (``invalid-plan``) when the plan is not one of these flags.
    """
    reading = _Reading(flags)
    sides = reading.sides()
    reading.finish()
    rows = planned.get("rollout", ())
    each = rows[0].num_accelerators if rows else 1
    if len(rows) * each != sides.rollout or sides.per_engine % each:
        message = f"the plan's rollout has {len(rows) * each} GPUs, {each} for each process, unlike what the flags say"
        raise PlacementError([Diagnostic("invalid-plan", message, "plan these flags again")])
    size = sides.per_engine // each
    first_nodes = [rows[first].cluster_node_rank for first in range(0, len(rows), size)]
    return [EngineProcess(rank // size, rank % size, first_nodes[rank // size]) for rank in range(len(rows))]


def dist_init_addrs(processes: Sequence[EngineProcess], inventory: Inventory, ports: Sequence[range]) -> list[str]:
    """Return, for each process of the rollout, where its engine meets: the first node's address and a port there.

    ``ports`` has the free ports of each process (`WorkerGroup.free_ports`); those of the engine's first process count.
    Raises ``ValueError`` for a node without address in the inventory, ports that are not one range a process, or an
    engine without its first process.
    """
    if len(ports) != len(processes) or not all(ports):
        ranges = sum(map(bool, ports))
        raise ValueError(f"ports are given for {ranges} processes of {len(processes)}; give a range for each")
    if processes and processes[0].node_rank:
        raise ValueError("the first process is not the first of its engine; give all processes of the rollout")
    addresses: list[str] = []
    for rank, process in enumerate(processes):
        if process.node_rank == 0:
            host = inventory.node(process.first_node).ip
            if host is None:
                raise ValueError(f"node {process.first_node} has no address; take the inventory of a live cluster")
            bracketed = f"[{host}]" if ":" in host and host[0] != "[" else host
            addresses.append(f"{bracketed}:{ports[rank][0]}")
        else:
            addresses.append(addresses[-1])
    return addresses


def assumed_inventory(config: Flags) -> Inventory:
    """Return the smallest inventory with enough GPUs: ``num_gpus_per_node`` (without it 8) a node."""
    reading = _Reading(config)
    sides = reading.sides()
    reading.finish()
    each = sides.per_node or ASSUMED
    return reading.assumed(max(1, -(-sides.num_gpus // each)), each)


def shares(config: Flags, planned: Plan) -> dict[str, float | None]:
    """Return what each component reserves of its GPUs: when colocated, 0.8 for the training and 0.2 for the rollout.

    An actor and a critic on the same GPUs have half of the training's share each.
    """
    reading = _Reading(config)
    sides = reading.sides()
    reading.finish()
    training, rollout = (0.8, 0.2) if sides.colocated else (1.0, 1.0)
    if sides.critic and sides.critic_shares:
        training /= 2
    return {name: rollout if name == "rollout" else training for name in planned}


def written(planned: Plan) -> tuple[dict[str, Any], dict[str, str]]:
    """Return flags that place what slime can say, and why the other components are not among them.

    The places of slime's components hang together, so what they say of all of them is planned again and compared.
    """
    unsaid: dict[str, str] = {}
    for name, rows in planned.items():
        sizes = {row.num_accelerators for row in rows}
        if name not in ("actor", "critic", "rollout"):
            unsaid[name] = "slime has an actor, a critic and a rollout only"
        elif name != "rollout" and sizes != {1}:
            unsaid[name] = "its processes do not have one accelerator each"
        elif len(sizes) > 1 or 0 in sizes:
            unsaid[name] = "its processes do not all have the same number of accelerators"
    sayable = {name: rows for name, rows in planned.items() if name not in unsaid}
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
                return config, unsaid | dict.fromkeys(dropped, "slime would place it elsewhere")
    return {}, unsaid | dict.fromkeys(sayable, "slime would place it elsewhere")


def _written(components: Mapping[str, Placements], inventory: Inventory) -> dict[str, Any]:
    """Return the flags for as many GPUs as the components have."""
    actor, critic, rollout = (list(components.get(name, ())) for name in ("actor", "critic", "rollout"))
    counts = {inventory.node(rank).accelerators for rank in range(inventory.num_nodes)}
    per_node = counts.pop() if len(counts) == 1 else 0
    config: dict[str, Any] = {"num_gpus_per_node": per_node} if per_node else {}
    training = [("actor", actor)] if actor or critic else []
    if critic:
        config["use_critic"] = True
        training += [("critic", critic)] if _devices(critic) != _devices(actor) else []
    for name, rows in training:
        nodes = max(1, len(rows) // per_node) if per_node and len(rows) % per_node == 0 else 1
        config |= {f"{name}_num_nodes": nodes, f"{name}_num_gpus_per_node": len(rows) // nodes}
    if not rollout:
        return config | {"debug_train_only": True}
    each = rollout[0].num_accelerators
    config |= {"rollout_num_gpus": len(rollout) * each, "rollout_num_gpus_per_engine": each}
    if not training:
        return config | {"debug_rollout_only": True}
    together = rollout[0].devices[0] == [*actor, *critic][0].devices[0]
    return config | ({"colocate": True} if together else {})


def _devices(rows: Sequence[Placement]) -> list[list[tuple[int, int]]]:
    return [row.devices for row in rows]


class _Reading:
    """slime's flags by name, whatever they came in, and the faults found in them."""

    def __init__(self, flags: Flags) -> None:
        plain = isinstance(flags, (str, os.PathLike, Mapping))
        self._reader = Reader(flags if plain else getattr(flags, "__dict__", flags))  # type: ignore[arg-type]
        self._keys: dict[str, str] = {}
        self._values: dict[str, Any] = {}
        self._doubtful = False
        others: list[str] = []
        for written in self._reader.config:
            key = str(written)
            flag = _flag(key)
            if flag not in _PLACING | _IMPLYING:
                others.append(key)
            elif flag in self._keys:
                message = f"`{key}` is `{self._keys[flag]}`, which is given too"
                self._reader.add((key,), Diagnostic("duplicate-key", message, "keep one of the two"))
            else:
                self._keys[flag] = key
                before = len(self.faults)
                value = self._reader.value(self._reader.config, written, ())
                if len(self.faults) == before:
                    self._values[flag] = value
                else:
                    self._doubtful = True
        self._refuse_misspelt(others)

    @property
    def faults(self) -> list[Diagnostic]:
        """Those found so far."""
        return self._reader.faults

    def add(self, flag: str, diagnostic: Diagnostic) -> None:
        """Take note of a fault of a flag or, without a flag, of all of them together."""
        self._reader.add((self._written(flag),) if flag else (), diagnostic)

    def assumed(self, num_nodes: int, accelerators: int) -> Inventory:
        """Return an inventory of this size; see `Reader.assumed`."""
        return self._reader.assumed(num_nodes, accelerators)

    def require_accelerators(self, inventory: Inventory) -> None:
        """Raise `PlacementError` when no node has an accelerator."""
        if self._reader.lacks_accelerators(inventory, ()):
            self.finish()

    def finish(self) -> None:
        """Raise `PlacementError` with every fault; do nothing without any."""
        self._reader.finish()

    def switch(self, flag: str, implied: bool = False) -> bool:
        """Return whether a flag is on; ``implied`` where it is not written, or a fault was taken note of."""
        value = self._values.get(flag, implied)
        if isinstance(value, bool):
            return value
        message = f"`{self._written(flag)}` is {shown(value)}; it must be true or false"
        self.add(flag, Diagnostic("invalid-value", message, "write true or false"))
        self._values[flag], self._doubtful = implied, True
        return implied

    def sides(self) -> _Sides:
        """Return what the flags give to each side, and take note of what is wrong with them."""
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
                message = "`rollout_num_gpus` is missing; only a colocated rollout has the training's GPUs without it"
                help = "add it, or set colocate, debug_train_only or rollout_external"
                self.add("", Diagnostic("missing-key", message, help))
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
        # A slime in which the critic shares the actor's GPUs fills in these flags too, with the actor's sizes; such a
        # slime also has `megatron_config_path`.
        given = self._has("critic_num_nodes") or self._has("critic_num_gpus_per_node")
        return given and "megatron_config_path" not in self._keys

    def _has(self, flag: str) -> bool:
        return self._values.get(flag) is not None

    def _written(self, flag: str) -> str:
        return self._keys.get(flag, flag)

    def _number(self, flag: str, default: int, least: int) -> int:
        """Return a whole number; the default where none is written, or a fault was taken note of."""
        if not self._has(flag):
            return default
        number = self._reader.number(self._values[flag], (self._written(flag),), least)
        return default if number is None else number

    def _refuse_misspelt(self, keys: Sequence[str]) -> None:
        """Take note of what is nearly a flag that is not there: slime passes over it without a word."""
        missing = sorted(_PLACING - self._keys.keys())
        for key in keys:
            if self._reader.refuse_misspelt(_flag(key), missing, (key,), "slime's flags"):
                self._doubtful = True


def _flag(key: Any) -> str:
    """Return the name of a flag that may be written as on a command line."""
    return str(key).removeprefix("--").replace("-", "_")


def _places(values: set[_Value], key: Callable[[_Value], Any], apart: int = 1) -> dict[_Value, int]:
    """Return a place for each value, in the order of their keys and so far apart; equal keys have the same place."""
    keys = {value: key(value) for value in values}
    places = {found: apart * place for place, found in enumerate(sorted(set(keys.values())))}
    return {value: places[found] for value, found in keys.items()}


def _gpu_key(gpu_id: int | str) -> tuple[int, int, str]:
    if isinstance(gpu_id, str) and not (gpu_id.isascii() and gpu_id.isdigit()):
        return (1, 0, gpu_id)
    return (0, int(gpu_id), "")


def _pool_order(inventory: Inventory) -> tuple[list[int], list[int]]:
    """Return the accelerators of an inventory, counted node by node, in stable order; and the node rank of each."""
    nodes = [inventory.node(rank) for rank in range(inventory.num_nodes)]
    firsts = inventory.first_accelerators
    if all(node.ip is not None for node in nodes):
        nodes.sort(key=lambda node: address_key(node.ip or ""))
    within: dict[tuple[str, ...], list[int]] = {}
    gpus: list[int] = []
    owners: list[int] = []
    for node in nodes:
        ids = node.accelerator_ids
        if ids not in within:
            within[ids] = sorted(range(len(ids)), key=lambda index: _gpu_key(ids[index]))
        gpus += [firsts[node.rank] + index for index in within[ids]]
        owners += [node.rank] * len(ids)
    return gpus, owners


def _too_few(sides: _Sides, present: int) -> Diagnostic:
    critic = 0 if sides.critic_shares else sides.critic
    parts = [("actor", sides.actor), ("critic", critic), ("rollout", sides.rollout)]
    needed = ", ".join(f"{name} {count}" for name, count in parts if count) + (", colocated" if sides.colocated else "")
    message = f"{sides.num_gpus} GPUs are needed ({needed}), but the cluster has {present}"
    return Diagnostic("resource-out-of-range", message, "use a larger cluster, or give them fewer GPUs")


def _per_process(reading: _Reading, sides: _Sides, inventory: Inventory, nodes: Sequence[int]) -> int:
    """Return the GPUs of each process of the rollout, and take note of what keeps engines from being cut so."""
    engine, offset = sides.per_engine, sides.rollout_offset
    here = nodes[offset : offset + sides.rollout]
    if not here:
        return 1
    largest = max(inventory.node(rank).accelerators for rank in set(here))
    per_node = sides.per_node or largest
    each = min(engine, per_node)
    if engine % each:
        message = f"an engine of {engine} GPUs cannot be cut into processes of {each}, which is the number a node has"
        help = f"use a multiple of {each}, or fewer than {each}"
        reading.add("rollout_num_gpus_per_engine", Diagnostic("not-multiple", message, help))
        return each
    if sides.rollout % engine:
        below = sides.rollout // engine * engine
        counts = " or ".join(str(count) for count in (below, below + engine) if count)
        message = f"{sides.rollout} GPUs cannot be cut into engines of {engine}"
        help = f"use {counts} GPUs, or change rollout_num_gpus_per_engine"
        reading.add("rollout_num_gpus", Diagnostic("not-multiple", message, help))
    if (torn := _torn(here, each)) is not None:
        fitting = next(size for size in range(each - 1, 0, -1) if each % size == 0 and _torn(here, size) is None)
        flag = "num_gpus_per_node" if engine > each or each > largest else "rollout_num_gpus_per_engine"
        pair = f"{here[torn * each]} and {here[torn * each + each - 1]}"
        message = f"process {torn} of the rollout would need {each} GPUs over the nodes {pair}"
        help = f"set {flag} to {fitting}"
        if offset and nodes[offset - 1] == here[0]:
            help += f", or let the {offset} GPUs before it fill whole nodes"
        reading.add(flag, Diagnostic("spans-nodes", message, help))
    return each


def _torn(nodes: Sequence[int], each: int) -> int | None:
    """Return the first chunk of this many GPUs that is not all on one node."""
    lasts = range(each - 1, len(nodes), each)
    return next((last // each for last in lasts if nodes[last - each + 1] != nodes[last]), None) if each > 1 else None
