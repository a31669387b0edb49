"""Writes a plan as a verl config: pools of whole nodes, or of the same number of accelerators on each node."""

from __future__ import annotations

import re
from bisect import bisect_right
from itertools import accumulate, groupby
from typing import Any

from rankplan.dialects.verl_sizes import ENGINE_SECTIONS, KEYS
from rankplan.parallel import ENGINE_ORDER, MEGATRON
from rankplan.plans.component import Component
from rankplan.plans.plan import Plan

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


def topology_written(planned: Plan) -> tuple[dict[str, Any], dict[str, str]]:
    """Return a config with verl's draft of a ``topology`` section, and why it cannot express some components."""
    reasons: dict[str, str] = {}
    pools: dict[frozenset[tuple[int, int]], list[str]] = {}
    counts = (spec.num_accelerators for nodes, spec in planned.inventory.stretches() for _ in nodes)
    equal = [(each, sum(1 for _ in nodes)) for each, nodes in groupby(counts)]
    ends = list(accumulate((nodes for _, nodes in equal), initial=0))
    for name, component in planned.items():
        devices, nodes = frozenset(_devices(component)), [node for node, _ in _devices(component)]
        if _worker(name) is None:
            reasons[name] = "verl's draft has no such worker"
        elif _shape(component) is None:
            reasons[name] = "its accelerators are not as many on each node, in order"
        elif bisect_right(ends, min(nodes)) != bisect_right(ends, max(nodes)):
            reasons[name] = "its nodes are of several machine types"
        elif other := next((names[0] for pool, names in pools.items() if pool & devices and pool != devices), None):
            reasons[name] = f"it has a part of the accelerators of {other}"
        else:
            pools.setdefault(devices, []).append(name)
    if not pools:
        return {}, reasons
    clusters = [
        {"name": f"cluster{index}", "nnodes": nodes, "n_gpus_per_node": each}
        for index, (each, nodes) in enumerate(equal)
    ]
    config: dict[str, Any] = {"topology": {"clusters": clusters, "device_pools": [], "models": []}}
    for devices, names in sorted(pools.items(), key=lambda item: min(item[0])):
        shape = _shape(planned[names[0]]) or (0, 0)
        cluster = clusters[bisect_right(ends, min(devices)[0]) - 1]["name"]
        pool: dict[str, Any] = {"name": f"{names[0]}_pool", "cluster": cluster, **dict(zip(_POOL, shape, strict=True))}
        config["topology"]["device_pools"].append(pool)
        for name in names:
            config["topology"]["models"].append(_model(config, planned[name], pool["name"]))
    return {key: section for key, section in config.items() if section}, reasons


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
