"""Writes a plan as a config with verl's draft of a ``topology`` section.

A cluster is a run of nodes with equally many accelerators, a pool the accelerators that some components share. A pool
of the plan's rules is one of verl's if it has all models on its accelerators.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from itertools import accumulate, groupby
from types import MappingProxyType
from typing import Any, NamedTuple

from rankplan import Component, Inventory, Plan
from rankplan.trainers.verl import faults, keys
from rankplan.trainers.verl.engines import SECTIONS
from rankplan.trainers.verl.training import TRAINED
from rankplan.trainers.verl.writing import devices_of, engine_values, nested, shape_of, training_values

_USUAL_SECTIONS = {"critic": keys.CRITIC, "reward": keys.REWARD}
"""The sections of the sizes of some workers; the others are in ``actor_rollout_ref``."""

Devices = frozenset[tuple[int, int]]
"""Accelerators: the rank of a node, and an index on it."""


class _Clusters:
    """Runs of nodes with equally many accelerators; nodes at the end without any are in none."""

    def __init__(self, inventory: Inventory) -> None:
        counts = (spec.num_accelerators for nodes, spec in inventory.stretches() for _ in nodes)
        runs = [(gpus, len(list(nodes))) for gpus, nodes in groupby(counts)]
        while runs and not runs[-1][0]:
            runs.pop()
        self._runs = runs
        self._starts = list(accumulate((nodes for _, nodes in runs), initial=0))
        self.gpus_of_nodes = [gpus for gpus, nodes in runs for _ in range(nodes)]

    def index(self, node: int) -> int:
        """Return which cluster a node is in."""
        return bisect_right(self._starts, node) - 1

    def first_node(self, node: int) -> int:
        """Return the first node of the cluster of a node."""
        return self._starts[self.index(node)]

    def entries(self) -> list[dict[str, Any]]:
        """Return their entries of the topology."""
        return [
            {keys.ENTRY_NAME.name: _cluster_name(index), **_size_values(nodes, gpus)}
            for index, (gpus, nodes) in enumerate(self._runs)
        ]


def _cluster_name(index: int) -> str:
    return f"cluster{index}"


def _size_values(nodes: int, gpus: int) -> dict[str, int]:
    return {key.name: size for key, size in zip(keys.ENTRY_POOL, (nodes, gpus), strict=True)}


class _Pool(NamedTuple):
    """A pool: the first accelerator that it takes of each node, and how many of each.

    ``models`` are on it; a pool without any is ``standby``. A pool without a name holds accelerators that stay idle.
    """

    name: str
    starts: tuple[tuple[int, int], ...]
    gpus_per_node: int
    models: tuple[str, ...] = ()
    attributes: Mapping[str, Any] = MappingProxyType({})

    @classmethod
    def of(
        cls, name: str, devices: Collection[tuple[int, int]], models: tuple[str, ...], attributes: Mapping[str, Any]
    ) -> _Pool:
        """Return the pool of these accelerators, which are as many on each node."""
        first_of_nodes = dict(sorted(devices, reverse=True))
        starts = tuple(sorted(first_of_nodes.items()))
        return cls(name, starts, len(devices) // len(starts), models, attributes)


def topology_written(planned: Plan) -> tuple[dict[str, Any], dict[str, str]]:
    """Return a config with verl's draft of a ``topology`` section, and why it cannot express some components."""
    clusters = _Clusters(planned.inventory)
    models, reasons = _models_by_devices(planned, clusters)
    if not models:
        return {}, reasons
    pools = list(_pools_of_models(planned, models))
    pools += _reserves(planned, {pool.name for pool in pools}, clusters)
    pools_of_models = {model: pool.name for pool in pools for model in pool.models}
    values: dict[str, Any] = {
        keys.CLUSTERS.path: clusters.entries(),
        keys.DEVICE_POOLS.path: [_pool_entry(pool, clusters) for pool in _FirstFit(pools, clusters).pools],
    }
    entries = []
    sizes: dict[str, Any] = {}
    for name, component in planned.items():
        if name in pools_of_models:
            entries.append(_model_entry(name, pools_of_models[name]))
            sizes |= _sizes_of_model(component)
    config = nested(values | {keys.MODELS.path: entries} | sizes)
    return {name: section for name, section in config.items() if section}, reasons


def _models_by_devices(planned: Plan, clusters: _Clusters) -> tuple[dict[Devices, list[str]], dict[str, str]]:
    """Return the components on the same accelerators together, and why the draft cannot express the others."""
    models: dict[Devices, list[str]] = {}
    reasons: dict[str, str] = {}
    for name, component in planned.items():
        devices = frozenset(devices_of(component))
        clusters_of_nodes = {clusters.index(node) for node, _ in devices}
        overlapping = next((names[0] for other, names in models.items() if other & devices and other != devices), None)
        if _worker(name) is None:
            reasons[name] = faults.NO_WORKER
        elif shape_of(component) is None:
            reasons[name] = faults.UNEVEN_NODES
        elif len(clusters_of_nodes) > 1:
            reasons[name] = faults.SEVERAL_MACHINE_TYPES
        elif overlapping is not None:
            reasons[name] = faults.part_of(overlapping)
        else:
            models.setdefault(devices, []).append(name)
    return models, reasons


def _pools_of_models(planned: Plan, models: Mapping[Devices, Sequence[str]]) -> Iterator[_Pool]:
    """Yield the pools of these accelerators: those of the plan's rules, and others with a name of their own."""
    stated = planned.rules.pools
    rules = {frozenset(rule.components): rule for rule in stated if rule.components}
    names = {rule.name for rule in stated}
    for devices, of_devices in models.items():
        rule = rules.get(frozenset(of_devices))
        if rule is None:
            yield _Pool.of(_unused(f"{of_devices[0]}_pool", names), devices, tuple(of_devices), {})
            continue
        bounds = {keys.LEAST_GPUS.name: rule.min_accelerators, keys.MOST_GPUS.name: rule.max_accelerators}
        bounds = {name: bound for name, bound in bounds.items() if bound is not None}
        attributes = {keys.ELASTIC.name: True, **bounds} if bounds else {}
        yield _Pool.of(rule.name, devices, rule.components, attributes)


def _reserves(planned: Plan, written: Container[str], clusters: _Clusters) -> list[_Pool]:
    """Return the reserves of the plan's rules, whole nodes of one cluster, for pools that are written."""
    reserves = []
    for rule in planned.rules.pools:
        protects = [name for name in rule.protects if name in written]
        clusters_of_nodes = {clusters.index(node) for node in rule.node_ranks}
        if len(clusters_of_nodes) == 1 and protects:
            starts = tuple((node, 0) for node in rule.node_ranks)
            gpus = clusters.gpus_of_nodes[rule.node_ranks[0]]
            attributes = {keys.STANDBY.name: True, keys.PROTECTS.name: protects}
            reserves.append(_Pool(rule.name, starts, gpus, (), attributes))
    return reserves


def _pool_entry(pool: _Pool, clusters: _Clusters) -> dict[str, Any]:
    """Return the entry of a pool."""
    first_node, _ = pool.starts[0]
    entry: dict[str, Any] = {
        keys.ENTRY_NAME.name: pool.name,
        keys.POOL_CLUSTER.name: _cluster_name(clusters.index(first_node)),
    }
    entry |= _size_values(len(pool.starts), pool.gpus_per_node)
    if pool.attributes:
        entry[keys.POOL_ATTRIBUTES.name] = dict(pool.attributes)
    return entry


class _FirstFit:
    """Pools in an order in which verl gives each of them the accelerators that it has in the plan.

    A pool takes the first nodes of its cluster with enough free accelerators. The next pool is one that gets its own.
    If none does, idle pools are added that take what one of them would get instead. Where that does not help either,
    the other pools come last, in any order.
    """

    def __init__(self, pools: Sequence[_Pool], clusters: _Clusters) -> None:
        self.pools: list[_Pool] = []
        self._clusters = clusters
        self._gpus_of_nodes = clusters.gpus_of_nodes
        self._taken = [0] * len(self._gpus_of_nodes)
        self._all_starts = {start for pool in pools for start in pool.starts}
        waiting = sorted(pools, key=lambda pool: pool.starts)
        while waiting:
            fitting = next((pool for pool in waiting if self._blocking_node(pool) is None), None)
            if fitting is None:
                fitting = next((pool for pool in waiting if self._unblocked(pool)), None)
            if fitting is None:
                self.pools += waiting
                break
            self._take(fitting)
            waiting.remove(fitting)
        names = {pool.name for pool in pools}
        for index, pool in enumerate(self.pools):
            if not pool.name:
                self.pools[index] = pool._replace(name=_unused(f"idle_pool{index}", names))

    def _unblocked(self, pool: _Pool) -> bool:
        """Add idle pools that take what a pool would get instead of its own; return whether it gets its own then."""
        while True:
            node = self._blocking_node(pool)
            if node is None:
                return True
            start = self._taken[node]
            whole = self._gpus_of_nodes[node]
            next_start = next((index for index in range(start, whole) if (node, index) in self._all_starts), whole)
            idle = _Pool("", ((node, start),), next_start - start, (), {keys.STANDBY.name: True})
            if next_start == start or not self._unblocked(idle):
                return False
            self._take(idle)

    def _take(self, pool: _Pool) -> None:
        """Take the accelerators of a pool; idle pools in a row are one."""
        for node, _ in pool.starts:
            self._taken[node] += pool.gpus_per_node
        last = self.pools[-1] if self.pools else None
        is_continued = last is not None and last.name == pool.name == "" and last.gpus_per_node == pool.gpus_per_node
        if last is not None and is_continued:
            self.pools[-1] = last._replace(starts=last.starts + pool.starts)
        else:
            self.pools.append(pool)

    def _blocking_node(self, pool: _Pool) -> int | None:
        """Return the first node that a pool would take and must not, ``None`` if it takes its own."""
        first, _ = pool.starts[0]
        node = self._clusters.first_node(first)
        taken: dict[int, int] = {}

        def taken_of(node: int) -> int:
            return taken.get(node, self._taken[node])

        for own_node, own_index in pool.starts:
            while node < own_node and self._gpus_of_nodes[node] - taken_of(node) < pool.gpus_per_node:
                node += 1
            index = taken_of(node)
            if (node, index) != (own_node, own_index):
                return node
            taken[node] = index + pool.gpus_per_node
        return None


def _unused(name: str, names: Container[str]) -> str:
    """Return a name that is not among others."""
    while name in names:
        name += "_"
    return name


def _worker(name: str) -> str | None:
    """Return the worker of verl's draft that a component of this name is: ``teacher`` for ``teacher.math``."""
    for worker in (*TRAINED, *SECTIONS):
        if re.fullmatch(rf"{worker}([._].*)?", name):
            return worker
    return None


def _section(name: str, worker: str) -> str:
    """Return the section with the sizes of a model: verl's own for its usual name."""
    if name == worker:
        return _USUAL_SECTIONS.get(worker, keys.ACTOR_ROLLOUT_REF)
    return re.sub(r"\W", "_", name)


_MODEL_KEYS = (keys.ENTRY_NAME, keys.WORKER, keys.CONFIG_KEY, keys.RESOURCE_POOL)


def _model_entry(name: str, pool: str) -> dict[str, str]:
    """Return the entry of a model on a pool."""
    worker = _worker(name) or ""
    values = (name, worker, _section(name, worker), pool)
    return {key.name: value for key, value in zip(_MODEL_KEYS, values, strict=True)}


def _sizes_of_model(component: Component) -> dict[str, Any]:
    """Return the sizes of a model, in the section that its entry names."""
    worker = _worker(component.name) or ""
    section = _section(component.name, worker)
    if worker in SECTIONS:
        return engine_values(f"{section}.{SECTIONS[worker]}", component)
    if section.rpartition(".")[2] != worker:
        section = f"{section}.{worker}"
    return training_values(section, component) or {section: {}}
