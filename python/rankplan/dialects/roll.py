"""ROLL: roles with a ``device_mapping`` over the cluster's accelerators, or with a ``world_size`` on its CPUs.

A role's accelerators are cut into consecutive chunks in the order written, ``num_gpus_per_worker`` for each worker; by
its strategy it is the product of the parallel sizes (vllm), or one (all others but sglang and hf_infer). A chunk may
span nodes; the worker runs where its first accelerator is. A role with a ``world_size`` alone has rank r on node r mod
the number of nodes. The name of a nested role is its dotted path.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rankplan._core import Chunks, Placements
from rankplan.config.faults import RESOLVE, KeyPath, unresolved
from rankplan.config.models import CLUSTER, MOST_PROCESSES, NODE, WHOLE_NODE
from rankplan.config.section import Config
from rankplan.dialects.device_mapping import parse_device_mapping
from rankplan.dialects.reading import ASSUMED, Reader, misspelt, resource_lists
from rankplan.errors import Diagnostic, PlacementError
from rankplan.inventory import Inventory
from rankplan.plan import Plan
from rankplan.words import shown

__all__ = ["assumed_inventory", "parse_device_mapping", "plan", "recognised", "shares", "written"]

_DEEPEST = 50
_AS_WRITTEN = frozenset({"hf_infer", "sglang"})
"""Strategies with as many accelerators a worker as are written; all but these and vllm have one."""

_CLUSTER = ("num_gpus_per_node", "num_nodes")
_ROLE = ("device_mapping", "num_gpus_per_worker", "strategy_args", "world_size")
_PARALLEL = ("tensor_parallel_size", "pipeline_parallel_size")


@dataclass(frozen=True, slots=True)
class _Role:
    """A role as it is written; ``devices`` is ``None`` for one that only has a ``world_size``."""

    name: str
    path: KeyPath
    devices: list[int] | None
    per_worker: int
    world_size: int


def recognised(config: Mapping[Any, Any]) -> bool:
    """Whether a config is written for ROLL: it has a role with a ``device_mapping``, or ``num_gpus_per_node``."""
    if "cluster" in config:
        return False
    roles = _candidates(config, ())
    return "num_gpus_per_node" in config or next(roles, None) is not None


def plan(config: Config, inventory: Inventory, isolate_accelerator: bool = True) -> Plan:
    """Return the plan of a ROLL config on an inventory.

    Accelerators are counted node by node over the inventory; ``num_nodes`` takes its first ones, and
    ``num_gpus_per_node`` must be what the nodes have. Raises `PlacementError` with every fault.
    """
    reader = Reader(config)
    roles = list(_roles(reader))
    inventory = _fitting(reader, inventory)
    components: dict[str, Placements] = {}
    for role in roles:
        by_node = role.devices is None
        if not by_node and reader.lacks_accelerators(inventory, (*role.path, "device_mapping")):
            continue
        pool = inventory.pool((NODE if by_node else CLUSTER,))
        nodes = [rank % inventory.num_nodes for rank in range(role.world_size)] if by_node else []
        try:
            components[role.name] = pool.apply(Chunks(role.devices or nodes, role.per_worker), isolate_accelerator)
        except PlacementError as error:
            reader.add_all((*role.path, "world_size" if by_node else "device_mapping"), error)
    reader.finish()
    return Plan(inventory, components)


def assumed_inventory(config: Config) -> Inventory:
    """Return the smallest inventory that the config could be meant for: ``num_gpus_per_node`` accelerators a node.

    Raises `PlacementError` with every fault of a config that cannot be read.
    """
    reader = Reader(config)
    written = _optional(reader, "num_gpus_per_node", 0)
    each = ASSUMED if written is None else written
    highest = max((max(role.devices) for role in _roles(reader) if role.devices), default=-1)
    nodes = _optional(reader, "num_nodes", 1) or 1
    needed = highest // each + 1 if each else 1
    assumed = reader.assumed(max(nodes, needed), each)
    if reader.faults:
        plan(config, assumed)  # raises them, and with them what shows only on an inventory
    return assumed


def shares(config: Config, planned: Plan) -> dict[str, float | None]:
    """Return what each role may reserve of its accelerators, so that all that share one fit on it.

    A role without accelerators reserves nothing.
    """
    users: Counter[tuple[int, int]] = Counter()
    for rows in planned.values():
        users.update(device for row in rows if row.num_accelerators for device in row.devices)
    result: dict[str, float | None] = {}
    for name, rows in planned.items():
        most = max((users[device] for row in rows if row.num_accelerators for device in row.devices), default=0)
        result[name] = int(10_000 / most) / 10_000 if most else None
    return result


def written(planned: Plan) -> tuple[dict[str, Any], dict[str, str]]:
    """Return a config that places what this dialect can say, and why the other components are not in it."""
    inventory = planned.inventory
    counts = {inventory.node(node).accelerators for node in range(inventory.num_nodes)}
    config: dict[str, Any] = {"num_nodes": inventory.num_nodes}
    config |= {"num_gpus_per_node": counts.pop()} if len(counts) == 1 else {}
    unsaid: dict[str, str] = {}
    for name, rows in planned.items():
        try:
            lists = resource_lists(inventory, rows)
        except ValueError as error:
            unsaid[name] = str(error)
            continue
        sizes = {len(resources) for resources in lists}
        if rows[0].resource_type == WHOLE_NODE:
            role: dict[str, Any] = {"world_size": len(rows)}
        elif len(sizes) == 1:
            role = {"device_mapping": _mapping_text([rank for resources in lists for rank in resources])}
            role |= {"num_gpus_per_worker": size} if (size := sizes.pop()) > 1 else {}
        else:
            unsaid[name] = "its processes do not all have the same number of accelerators"
            continue
        *sections, last = name.split(".")
        inner = config
        for section in sections:
            inner = inner.setdefault(section, {})
            if not isinstance(inner, dict) or _is_role(inner):
                break
        if not isinstance(inner, dict) or _is_role(inner) or last in inner:
            unsaid[name] = "another key of the config has its name"
        else:
            inner[last] = role
    return config, unsaid


def _mapping_text(devices: list[int]) -> str:
    """Return a ``device_mapping``: runs as ranges, the rest one by one."""
    parts: list[str] = []
    single: list[int] = []
    start = 0
    while start < len(devices):
        end = start + 1
        while end < len(devices) and devices[end] == devices[end - 1] + 1:
            end += 1
        if end - start > 2:
            parts += [str(single)] if single else []
            parts.append(f"list(range({devices[start]},{devices[end - 1] + 1}))")
            single = []
        else:
            single += devices[start:end]
        start = end
    return " + ".join([*parts, *([str(single)] if single else [])])


def _candidates(
    mapping: Mapping[Any, Any], path: KeyPath, inside: bool = False
) -> Iterator[tuple[KeyPath, Mapping[Any, Any]]]:
    """Yield what may be a role, and its path.

    It is a mapping that says where its workers are or, where it is not inside of another role, how many there are. In a
    list it has an index for a name, which ROLL does not take.
    """
    for key in mapping:
        try:
            value = mapping[key]
            items = list(value) if isinstance(value, Sequence) and not isinstance(value, (str, bytes)) else []
        except Exception:  # a trainer's own key, which need not be readable here
            continue
        for index, item in enumerate(items):
            if isinstance(item, Mapping) and "device_mapping" in item:
                yield (*path, str(key), index), item
        if not isinstance(value, Mapping) or len(path) >= _DEEPEST:
            continue
        if any(misspelt(str(key), ("device_mapping",)) for key in value) or ("world_size" in value and not inside):
            yield (*path, str(key)), value
        yield from _candidates(value, (*path, str(key)), inside or _is_role(value))


def _is_role(mapping: Mapping[Any, Any]) -> bool:
    try:
        return any(mapping.get(key) is not None for key in ("device_mapping", "world_size"))
    except Exception:  # it is there, and cannot be read
        return True


def _roles(reader: Reader) -> Iterator[_Role]:
    names: set[str] = set()
    _refuse_misspelt(reader, reader.config, _CLUSTER, ())
    for path, values in _candidates(reader.config, ()):
        name = ".".join(map(str, path))
        mapping = reader.value(values, "device_mapping", path)
        world_size = reader.value(values, "world_size", path)
        _refuse_misspelt(reader, values, _ROLE, path)
        if mapping is None and world_size is None:
            continue  # a role that is switched off
        if isinstance(path[-1], int):
            message = f"`{path[-2]}` is a list; roles are the keys of a mapping"
            reader.add(path, Diagnostic("invalid-value", message, "write `name: {device_mapping: ...}` for each role"))
            continue
        if not all(path):
            reader.add(path, Diagnostic("empty-name", f"{shown(name)} has an empty name in it", "name the role"))
            continue
        if not name.isprintable():
            reader.add(path, Diagnostic("invalid-value", f"{shown(name)} is not a name", "rename the role"))
            continue
        if name in names:
            fault = Diagnostic("duplicate-component", f"role `{name}` is there twice", "rename one of the two")
            reader.add(path, fault)
            continue
        names.add(name)
        if mapping is None:
            workers = reader.number(world_size, (*path, "world_size"), 1)
            if workers is not None and workers > MOST_PROCESSES:
                message = f"{workers:,} workers; a component has at most {MOST_PROCESSES:,}"
                reader.add((*path, "world_size"), Diagnostic("too-many-processes", message, "split the role"))
            elif workers is not None:
                yield _Role(name, path, None, 1, workers)
            continue
        devices, per_worker = _devices(reader, mapping, path), _per_worker(reader, values, path)
        if not devices or per_worker is None:
            continue
        if len(devices) % per_worker:
            below = len(devices) // per_worker * per_worker
            fitting = " or ".join(str(count) for count in (below, below + per_worker) if count)
            message = f"{len(devices)} accelerators cannot be cut into workers of {per_worker}"
            fault = Diagnostic("not-multiple", message, f"name {fitting} accelerators, or change num_gpus_per_worker")
            reader.add((*path, "device_mapping"), fault)
            continue
        yield _Role(name, path, devices, per_worker, len(devices) // per_worker)
    if not names and not reader.faults:
        message = "no role has a `device_mapping` or a `world_size`"
        reader.add((), Diagnostic("missing-key", message, "add roles such as actor_train: {device_mapping: ...}"))


def _devices(reader: Reader, mapping: Any, path: KeyPath) -> list[int] | None:
    path = (*path, "device_mapping")
    if unresolved(mapping):
        message = f"{mapping!r} still has an interpolation in it"
        reader.add(path, Diagnostic("syntax", message, RESOLVE))
        return None
    try:
        devices = parse_device_mapping(mapping)
    except PlacementError as error:
        reader.add_all(path, error)
        return None
    if not devices:
        fault = Diagnostic("empty-placement", "the role has no accelerators", "name some, or take the role out")
        reader.add(path, fault)
    return devices


def _per_worker(reader: Reader, values: Mapping[Any, Any], path: KeyPath) -> int | None:
    """Return the accelerators of each worker, by ROLL's rules for its strategies."""
    inner = (*path, "strategy_args")
    strategy = reader.mapping(values, "strategy_args", path)
    name = reader.value(strategy, "strategy_name", inner)
    if not isinstance(name, (str, type(None))) or unresolved(name):
        message = f"`strategy_name` is {shown(name)}; it must be text"
        help = RESOLVE if unresolved(name) else "write a name such as vllm"
        reader.add((*inner, "strategy_name"), Diagnostic("invalid-value", message, help))
        return None
    if name == "vllm":
        product = 1
        settings = reader.mapping(strategy, "strategy_config", inner)
        inner = (*inner, "strategy_config")
        _refuse_misspelt(reader, settings, _PARALLEL, inner)
        for key in _PARALLEL:
            written = reader.value(settings, key, inner)
            size = 1 if written is None else reader.number(written, (*inner, key), 1)
            if size is None:
                return None
            product *= size
        return product
    if reader.value(values, "strategy_args", path) is not None and name not in _AS_WRITTEN:
        return 1
    written = reader.value(values, "num_gpus_per_worker", path)
    return 1 if written is None else reader.number(written, (*path, "num_gpus_per_worker"), 1)


def _refuse_misspelt(reader: Reader, mapping: Mapping[Any, Any], known: tuple[str, ...], path: KeyPath) -> None:
    missing = [key for key in known if key not in mapping]
    for key in mapping:
        if key not in known:
            reader.refuse_misspelt(str(key), missing, (*path, str(key)), "ROLL's keys")


def _optional(reader: Reader, key: str, least: int) -> int | None:
    value = reader.value(reader.config, key, ())
    return None if value is None or unresolved(value) else reader.number(value, (key,), least)


def _fitting(reader: Reader, inventory: Inventory) -> Inventory:
    """Return the nodes that the config means, and take note of what contradicts it."""
    nodes = _optional(reader, "num_nodes", 1)
    if nodes not in (None, inventory.num_nodes):
        try:
            inventory = inventory.with_config({"num_nodes": nodes})
        except PlacementError as error:
            reader.add_all(("num_nodes",), error)
    each = _optional(reader, "num_gpus_per_node", 0)
    if each is not None:
        counts = inventory.core.by_node(inventory.core.accelerators())
        for node, accelerators in counts.items():
            if len(accelerators) != each:
                message = f"num_gpus_per_node is {each}, but node {node} has {len(accelerators)} accelerators"
                help = f"write {len(accelerators)}, leave it out if nodes differ, or use another cluster"
                reader.add(("num_gpus_per_node",), Diagnostic("invalid-value", message, help))
                break
    return inventory
