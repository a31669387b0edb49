"""Plans as configs of ROLL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, groupby
from typing import Any

from rankplan import Component, Inventory, Parallel, Plan
from rankplan.sdk import Key
from rankplan.trainers.roll import keys
from rankplan.trainers.roll.job import nodes_up_to

_SHORTEST_RUN = 3
"""Accelerators in a row that are written as a range."""


def written(planned: Plan) -> tuple[dict[str, Any], dict[str, str]]:
    """Return a ROLL config for the components that ROLL can express, and why it cannot express the others."""
    config: dict[str, Any] = dict.fromkeys((keys.NUM_NODES.name, keys.GPUS_PER_NODE.name))
    inexpressible: dict[str, str] = {}
    cluster = planned.inventory.without_groups()
    highest = -1
    for name, component in planned.items():
        try:
            resources = _resources(component, cluster)
            role = _role(component, resources)
        except ValueError as error:
            inexpressible[name] = str(error)
            continue
        if not _put(config, name, role):
            inexpressible[name] = "its name is already a key of the config"
        elif keys.DEVICES.name in role:
            highest = max(highest, *chain.from_iterable(resources))
    num_nodes = planned.inventory.num_nodes if highest < 0 else nodes_up_to(planned.inventory, highest)
    config |= {keys.NUM_NODES.name: num_nodes, keys.GPUS_PER_NODE.name: _gpus_per_node(planned.inventory, num_nodes)}
    return {key: value for key, value in config.items() if value is not None}, inexpressible


def _resources(component: Component, cluster: Inventory) -> list[list[int]]:
    """Return the resources of each process: accelerators counted over the cluster, or its node.

    ``cluster`` is the component's inventory without node groups. Raises ``ValueError`` for processes that use anything
    else, such as robots.
    """
    kinds = {run.pattern.resource_type for run in component.rows.runs()}
    if kinds not in ({"node"}, {"accelerator"}):
        raise ValueError(f"{' and '.join(sorted(kinds))} of a node group cannot be converted")
    return cluster.pool(("node" if kinds == {"node"} else "cluster",)).ranks_of(component.rows)


def _gpus_per_node(inventory: Inventory, num_nodes: int) -> int | None:
    """Return the number of accelerators of the first nodes, if they have equally many."""
    counts = {spec.num_accelerators for nodes, spec in inventory.stretches() if nodes[0] < num_nodes}
    return counts.pop() if len(counts) == 1 else None


def _role(component: Component, resources: Sequence[Sequence[int]]) -> dict[str, Any]:
    """Return the section of a role whose processes have these resources. Raises ``ValueError`` if there is none."""
    if component[0].resource_type == "node":
        return {keys.WORLD_SIZE.name: len(component)}
    sizes = {len(devices) for devices in resources}
    if len(sizes) > 1:
        raise ValueError("its processes have different numbers of accelerators")
    devices = list(chain.from_iterable(resources))
    return {keys.DEVICES.name: _mapping_text(devices), **_workers(component.parallel, sizes.pop())}


def _put(config: dict[str, Any], name: str, role: dict[str, Any]) -> bool:
    """Put a role with a dotted name into a config, and return whether its place was free."""
    *sections, last = name.split(".")
    inner: Any = config
    for section in sections:
        inner = inner.setdefault(section, {})
        if not isinstance(inner, dict) or keys.is_role(inner):
            return False
    if keys.is_role(inner) or last in inner:
        return False
    inner[last] = role
    return True


def _workers(parallel: Parallel, each: int) -> dict[str, Any]:
    """Return the accelerators of a worker, by the strategy that has these sizes if one does."""
    if parallel.order == Parallel.ENGINE_ORDER and each == parallel.tp * parallel.pp == parallel.dense:
        return _strategy("vllm", keys.VLLM_SIZES, parallel)  # whose workers have as many accelerators
    if parallel.order == Parallel.ORDER and parallel.dense * parallel.expert > 1 == each:
        return _strategy("megatron_train", keys.MEGATRON_SIZES, parallel)
    return {keys.GPUS_PER_WORKER.name: each} if each > 1 else {}


def _strategy(name: str, sizes: Mapping[str, Key[int | None]], parallel: Parallel) -> dict[str, Any]:
    """Return a strategy with those of its sizes that are not its defaults."""
    config: dict[str, int] = {}
    for kind, key in sizes.items():
        is_expert_tensor = kind == "etp" and parallel.ep > 1  # the tensor size by default
        if getattr(parallel, kind) > 1 or is_expert_tensor:
            config[key.name] = getattr(parallel, kind)
    strategy: dict[str, Any] = {keys.STRATEGY_NAME.name: name}
    if config:
        strategy[keys.STRATEGY_CONFIG.name] = config
    return {keys.STRATEGY.name: strategy}


def _mapping_text(devices: Sequence[int]) -> str:
    """Return a ``device_mapping``: runs of at least three as ranges, other ranks one by one."""
    runs = [[rank for _, rank in run] for _, run in groupby(enumerate(devices), lambda pair: pair[1] - pair[0])]
    parts: list[str] = []
    for are_ranges, group in groupby(runs, lambda run: len(run) >= _SHORTEST_RUN):
        if are_ranges:
            parts += (f"list(range({run[0]},{run[-1] + 1}))" for run in group)
        else:
            parts.append(str(list(chain.from_iterable(group))))
    return " + ".join(parts)
