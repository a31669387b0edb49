"""Writes a plan as a verl config: pools of whole nodes, or of the same number of accelerators on each node."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import field, replace
from itertools import accumulate, groupby
from typing import Any

from rankplan.frozen import frozen
from rankplan.parallel import ENGINE_ORDER, MEGATRON
from rankplan.plans.component import Component
from rankplan.plans.plan import Plan
from rankplan.trainers.verl import keys as verl_keys
from rankplan.trainers.verl.engines import SECTIONS as ENGINE_SECTIONS

KEYS = {kind: key.name for kind, key in verl_keys.ENGINE_SIZES.items()}

_POOL = ("nnodes", "n_gpus_per_node")
_TRAINING = ("actor", "critic", "ref")


def written(planned: Plan) -> tuple[dict[str, Any], dict[str, str]]:
    """Return a verl config for the components that verl can express, and why it cannot express the others."""
    reasons: dict[str, str] = {}
    shapes: dict[str, tuple[int, int]] = {}
    actor = planned.get("actor")
    for name, component in planned.items():
        counts = [row.num_accelerators for row in component]
        shape = _shape(component)
        if name not in (*_TRAINING, "rollout", "reward"):
            reasons[name] = "verl has no such role"
        elif shape is None:
            reasons[name] = "its accelerators are not as many on each node, in order"
        elif name in _TRAINING and set(counts) != {1}:
            reasons[name] = "its processes do not have one accelerator each"
        elif len(set(counts)) > 1:
            reasons[name] = "its processes have different numbers of accelerators"
        elif actor is None:
            reasons[name] = "verl needs an actor"
        elif name in ("critic", "ref") and _devices(component) != _devices(actor):
            reasons[name] = "verl places it on the actor's accelerators"
        else:
            shapes[name] = shape
    if actor is None or "actor" not in shapes:
        return {}, reasons | dict.fromkeys(shapes, "verl needs an actor")
    return _config(planned, shapes), reasons


def _config(planned: Plan, shapes: dict[str, tuple[int, int]]) -> dict[str, Any]:
    actor = planned["actor"]
    nodes, each = shapes["actor"]
    config: dict[str, Any] = {
        "algorithm": {"adv_estimator": "gae" if "critic" in shapes else "grpo"},
        "trainer": {"nnodes": nodes, "n_gpus_per_node": each},
        "actor_rollout_ref": {"actor": _training_keys(actor)},
    }
    roles = config["actor_rollout_ref"]
    if "ref" in shapes:
        roles["actor"]["use_kl_loss"] = True
        roles["ref"] = _training_keys(planned["ref"])
    if "critic" in shapes:
        config["critic"] = {"enable": True, **_training_keys(planned["critic"])}
    rollout = planned.get("rollout") if "rollout" in shapes else None
    roles["rollout"] = _engine_keys(rollout) if rollout is not None else {"tensor_model_parallel_size": 1}
    if rollout is not None and set(_devices(rollout)) != set(_devices(actor)):
        config["rollout"] = dict(zip(_POOL, shapes["rollout"], strict=True))
    config["actor_rollout_ref"] = {name: keys for name, keys in roles.items() if keys}
    if "reward" in shapes:
        reward: dict[str, Any] = {"enable": True, "rollout": _engine_keys(planned["reward"])}
        if set(_devices(planned["reward"])) != set(_devices(actor)):
            reward |= {"enable_resource_pool": True, **dict(zip(_POOL, shapes["reward"], strict=True))}
        config["reward"] = {"reward_model": reward}
    return config


def _training_keys(component: Component) -> dict[str, Any]:
    sizes = component.parallel
    if {sizes.tp, sizes.pp, sizes.ep, sizes.etp} == {1}:
        sharding = sizes.fsdp * sizes.cp if sizes.fsdp > 1 else -1
        fsdp = {"fsdp_config": {"fsdp_size": sharding}} if 0 < sharding < len(component) else {}  # as `_sharded` reads
        return {"ulysses_sequence_parallel_size": sizes.cp, **fsdp} if sizes.cp > 1 else fsdp
    stated = {keys[0]: getattr(sizes, name) for name, keys in MEGATRON.items()}
    return {
        "strategy": "megatron",
        "megatron": {key: size for key, size in stated.items() if size > 1 or "expert" in key},
    }


def _engine_keys(component: Component) -> dict[str, int]:
    """Return the sizes of an engine; accelerators beyond its tensor and pipeline size are data parallel."""
    sizes = component.parallel
    total = component[0].num_accelerators * component.engines
    known = sizes.stated or sizes.order == ENGINE_ORDER  # a dialect states the sizes of engines
    tensor = sizes.tp if known and total % (sizes.tp * sizes.pp) == 0 else total
    data = total // (tensor * sizes.pp) if tensor == sizes.tp else 1
    stages = sizes.pp if tensor == sizes.tp else 1
    engine = {"tp": tensor, "dp": data, "pp": stages}
    keys = {KEYS[kind]: size for kind, size in engine.items() if size > 1 or kind == "tp"}
    return keys | ({"expert_parallel_size": sizes.ep} if sizes.ep > 1 else {})


def _devices(component: Component) -> list[tuple[int, int]]:
    return [device for row in component for device in row.devices]


def _shape(component: Component) -> tuple[int, int] | None:
    """Return the nodes and the accelerators on each, ``None`` if the accelerators are not in such an order."""
    devices = _devices(component)
    nodes = list(dict.fromkeys(node for node, _ in devices))
    each, rest = divmod(len(devices), len(nodes)) if nodes else (0, 1)
    if rest or any(node != nodes[position // each] for position, (node, _) in enumerate(devices)):
        return None
    return len(nodes), each


@frozen
class _Pool:
    """A pool of verl's draft: its name, the first accelerator that it takes of each node, and how many of each.

    ``names`` are its models. A pool without any is ``standby``.
    """

    name: str
    starts: tuple[tuple[int, int], ...]
    each: int
    names: tuple[str, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str, devices: Collection[tuple[int, int]], *rest: Any) -> _Pool:
        """Return the pool of these accelerators, which are as many on each node."""
        firsts = dict(sorted(devices, reverse=True))
        return cls(name, tuple(sorted(firsts.items())), len(devices) // len(firsts), *rest)


def topology_written(planned: Plan) -> tuple[dict[str, Any], dict[str, str]]:
    """Return a config with verl's draft of a ``topology`` section, and why it cannot express some components.

    A pool of the plan's cluster section is one of verl's if it has all models on its accelerators.
    """
    reasons: dict[str, str] = {}
    used: dict[frozenset[tuple[int, int]], list[str]] = {}
    counts = (spec.num_accelerators for nodes, spec in planned.inventory.stretches() for _ in nodes)
    equal = [(each, sum(1 for _ in nodes)) for each, nodes in groupby(counts)]
    while equal and not equal[-1][0]:  # a cluster is a part of the nodes from the first one
        equal.pop()
    ends = list(accumulate((nodes for _, nodes in equal), initial=0))
    for name, component in planned.items():
        devices, nodes = frozenset(_devices(component)), [node for node, _ in _devices(component)]
        if _worker(name) is None:
            reasons[name] = "verl's draft has no such worker"
        elif _shape(component) is None:
            reasons[name] = "its accelerators are not as many on each node, in order"
        elif bisect_right(ends, min(nodes)) != bisect_right(ends, max(nodes)):
            reasons[name] = "its nodes are of several machine types"
        elif other := next((names[0] for pool, names in used.items() if pool & devices and pool != devices), None):
            reasons[name] = f"it has a part of the accelerators of {other}"
        else:
            used.setdefault(devices, []).append(name)
    if not used:
        return {}, reasons
    clusters = [
        {"name": f"cluster{index}", "nnodes": nodes, "n_gpus_per_node": each}
        for index, (each, nodes) in enumerate(equal)
    ]
    sizes = [each for each, nodes in equal for _ in range(nodes)]
    pools = _pools(planned, used, sizes, ends)
    config: dict[str, Any] = {"topology": {"clusters": clusters, "device_pools": [], "models": []}}
    for pool in _FirstFit(pools, sizes, ends).pools:
        cluster = clusters[bisect_right(ends, pool.starts[0][0]) - 1]["name"]
        entry: dict[str, Any] = {"name": pool.name, "cluster": cluster}
        entry |= dict(zip(_POOL, (len(pool.starts), pool.each), strict=True))
        entry |= {"attributes": dict(pool.attributes)} if pool.attributes else {}
        config["topology"]["device_pools"].append(entry)
    homes = {name: pool.name for pool in pools for name in pool.names}
    for name in planned:
        if name in homes:
            config["topology"]["models"].append(_model(config, planned[name], homes[name]))
    return {key: section for key, section in config.items() if section}, reasons


def _pools(
    planned: Plan,
    used: Mapping[frozenset[tuple[int, int]], Sequence[str]],
    sizes: Sequence[int],
    ends: Sequence[int],
) -> list[_Pool]:
    """Return verl's pools of these accelerators, and the reserves for them."""
    stated = planned.rules.with_pools_of(planned).pools
    entries = {frozenset(one.components): one for one in stated if one.components}
    known = {one.name for one in stated}
    pools = []
    for devices, names in used.items():
        entry = entries.get(frozenset(names))
        if entry is None:
            pools.append(_Pool.of(_unused(f"{names[0]}_pool", known), devices, tuple(names)))
            continue
        bounds = {"min_gpus": entry.min_accelerators, "max_gpus": entry.max_accelerators}
        bounds = {key: bound for key, bound in bounds.items() if bound is not None}
        attributes = {"elastic": True, **bounds} if bounds else {}
        pools.append(_Pool.of(entry.name, devices, entry.components, attributes))
    written = {pool.name for pool in pools}
    for entry in stated:
        protects = [one for one in entry.protects if one in written]
        clusters = {bisect_right(ends, node) for node in entry.node_ranks}
        if len(clusters) == 1 and protects:
            starts, each = tuple((node, 0) for node in entry.node_ranks), sizes[entry.node_ranks[0]]
            pools.append(_Pool(entry.name, starts, each, (), {"standby": True, "protects": protects}))
    return pools


class _FirstFit:
    """Pools in an order in which verl gives each of them the accelerators that it has in the plan.

    A pool takes the first nodes of its cluster with enough free accelerators. Where these must stay idle, a standby
    pool takes them before. Pools that get others in any order come last.
    """

    def __init__(self, pools: Sequence[_Pool], sizes: Sequence[int], ends: Sequence[int]) -> None:
        self.pools: list[_Pool] = []
        self._sizes, self._ends, self._taken = sizes, ends, [0] * len(sizes)
        self._wanted = {start for pool in pools for start in pool.starts}
        left = sorted(pools, key=lambda pool: pool.starts)
        while left:
            ready = (pool for pool in left if self._blocking(pool) is None)
            placed = next(ready, None) or next((pool for pool in left if self._unblocked(pool)), None)
            if placed is None:
                self.pools += left
                break
            self._take(placed)
            left.remove(placed)
        names = {pool.name for pool in pools}
        for index, pool in enumerate(self.pools):
            self.pools[index] = pool if pool.name else replace(pool, name=_unused(f"idle_pool{index}", names))

    def _unblocked(self, pool: _Pool) -> bool:
        """Add pools that take what a pool would get instead of its own; return whether it gets its own then."""
        while (node := self._blocking(pool)) is not None:
            start = self._taken[node]
            ends = (local for local in range(start, self._sizes[node]) if (node, local) in self._wanted)
            each = next(ends, self._sizes[node]) - start
            idle = _Pool("", ((node, start),), each, (), {"standby": True})
            if not each or not self._unblocked(idle):
                return False
            self._take(idle)
        return True

    def _take(self, pool: _Pool) -> None:
        for node, _ in pool.starts:
            self._taken[node] += pool.each
        last = self.pools[-1] if self.pools else None
        if last is not None and last.name == pool.name == "" and last.each == pool.each:
            self.pools[-1] = replace(last, starts=last.starts + pool.starts)
        else:
            self.pools.append(pool)

    def _blocking(self, pool: _Pool) -> int | None:
        """Return the first node that a pool would take and must not, ``None`` if it takes its own."""
        node, taken = self._ends[bisect_right(self._ends, pool.starts[0][0]) - 1], dict[int, int]()
        for wanted in pool.starts:
            while node < wanted[0] and self._sizes[node] - taken.get(node, self._taken[node]) < pool.each:
                node += 1
            here = taken.get(node, self._taken[node])
            if (node, here) != wanted:
                return node
            taken[node] = here + pool.each
        return None


def _unused(name: str, names: Container[str]) -> str:
    while name in names:
        name += "_"
    return name


def _worker(name: str) -> str | None:
    """Return the worker of verl's draft that a component of this name is: ``teacher`` for ``teacher.math``."""
    return next((one for one in (*_TRAINING, *ENGINE_SECTIONS) if re.fullmatch(rf"{one}([._].*)?", name)), None)


def _model(config: dict[str, Any], component: Component, pool: str) -> dict[str, str]:
    """Return the entry of a model; its sizes are written to the section that it names."""
    worker = _worker(component.name) or ""
    usual = {"critic": "critic", "reward": "reward.reward_model"}.get(worker, "actor_rollout_ref")
    key = usual if component.name == worker else re.sub(r"\W", "_", component.name)
    here = config
    for part in key.split("."):
        here = here.setdefault(part, {})
    if worker in _TRAINING:
        sizes = _training_keys(component)
        if key.rpartition(".")[2] != worker:
            here = here.setdefault(worker, {})
        here.update(sizes)
    else:
        here[ENGINE_SECTIONS[worker]] = _engine_keys(component)
    return {"name": component.name, "worker": worker, "config_key": key, "resource_pool": pool}
