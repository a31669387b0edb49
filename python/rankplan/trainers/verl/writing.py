"""Writes a plan as a verl config: pools of whole nodes, or of the same number of accelerators on each node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from rankplan import Component, Parallel, Plan
from rankplan.trainers.verl import faults, keys
from rankplan.trainers.verl.keys import PoolKeys
from rankplan.trainers.verl.training import TRAINED

_ROLES = (*TRAINED, "rollout", "reward")

Values = dict[str, Any]
"""Values of a config by their dotted paths."""


class Shape(NamedTuple):
    """Equal numbers of accelerators on some nodes."""

    nodes: int
    gpus_per_node: int


def written(planned: Plan) -> tuple[dict[str, Any], dict[str, str]]:
    """Return a verl config for the components that verl can express, and why it cannot express the others."""
    reasons: dict[str, str] = {}
    shapes: dict[str, Shape] = {}
    actor = planned.get("actor")
    for name, component in planned.items():
        shape = shape_of(component)
        reason = _reason(name, component, shape, actor)
        if reason is not None:
            reasons[name] = reason
        elif shape is not None:
            shapes[name] = shape
    if "actor" not in shapes:
        return {}, reasons | dict.fromkeys(shapes, faults.NEEDS_ACTOR)
    return nested(_values(planned, shapes)), reasons


def _reason(name: str, component: Component, shape: Shape | None, actor: Component | None) -> str | None:
    """Return why verl cannot express a component, ``None`` if it can."""
    gpus_of_processes = {row.num_accelerators for row in component}
    if name not in _ROLES:
        return faults.NO_ROLE
    if shape is None:
        return faults.UNEVEN_NODES
    if name in TRAINED and gpus_of_processes != {1}:
        return faults.SEVERAL_GPUS
    if len(gpus_of_processes) > 1:
        return faults.UNEVEN_PROCESSES
    if actor is None:
        return faults.NEEDS_ACTOR
    if name in ("critic", "ref") and devices_of(component) != devices_of(actor):
        return faults.ON_ACTOR
    return None


def _values(planned: Plan, shapes: Mapping[str, Shape]) -> Values:
    """Return the values of a config with the components that have these shapes."""
    actor = planned["actor"]
    values: Values = {keys.ESTIMATOR.path: "gae" if "critic" in shapes else "grpo"}
    values |= _pool_values(keys.TRAINER, keys.TRAINER_POOL, shapes["actor"])
    values |= training_values(keys.ACTOR, actor)
    if "ref" in shapes:
        values[keys.USE_KL_LOSS.path] = True
        values |= training_values(keys.REFERENCE, planned["ref"])
    if "rollout" in shapes:
        values |= engine_values(keys.ROLLOUT, planned["rollout"])
    else:
        values[keys.ENGINE_SIZES["tp"].path_in(keys.ROLLOUT)] = 1
    if "critic" in shapes:
        values[keys.CRITIC_ENABLED.path] = True
        values |= training_values(keys.CRITIC, planned["critic"])
    if "rollout" in shapes and not _share_devices(planned["rollout"], actor):
        values |= _pool_values(keys.OWN_ROLLOUT, keys.OWN_ROLLOUT_POOL, shapes["rollout"])
    if "reward" in shapes:
        values[keys.REWARD_ENABLED.path_in(keys.REWARD)] = True
        values |= engine_values(keys.REWARD_ENGINE, planned["reward"])
        if not _share_devices(planned["reward"], actor):
            values[keys.REWARD_HAS_POOL.path_in(keys.REWARD)] = True
            values |= _pool_values(keys.REWARD, keys.REWARD_POOL, shapes["reward"])
    return values


def _pool_values(section: str, pool: PoolKeys, shape: Shape) -> Values:
    """Return the values of a pool."""
    return {key.path_in(section): size for key, size in zip(pool, shape, strict=True)}


def training_values(section: str, component: Component) -> Values:
    """Return the sizes of a component with a process per accelerator, in a section: Megatron's, else FSDP's."""
    sizes = component.parallel
    values: Values = {}
    if {sizes.tp, sizes.pp, sizes.ep, sizes.etp} == {1}:
        if sizes.cp > 1:
            values[keys.ULYSSES.path_in(section)] = sizes.cp
        shards = sizes.fsdp * sizes.cp
        if sizes.fsdp > 1 and shards < len(component):
            values[keys.FSDP_SIZE.path_in(section)] = shards
        return values
    values[keys.STRATEGY.path_in(section)] = "megatron"
    for kind, key in keys.MEGATRON.items():
        size = getattr(sizes, kind)
        if size > 1 or kind in ("ep", "etp"):
            values[key.path_in(f"{section}.megatron")] = size
    return values


def engine_values(section: str, component: Component) -> Values:
    """Return the sizes of an engine, in a section.

    Accelerators beyond its tensor and pipeline size are data parallel. Without known sizes, it is one tensor group.
    """
    sizes = component.parallel
    total = component[0].num_accelerators * component.engines
    is_known = sizes.stated or sizes.order == Parallel.ENGINE_ORDER  # a dialect states the sizes of engines
    size_of_replica = sizes.tp * sizes.pp
    engine = {"tp": total}
    if is_known and total % size_of_replica == 0:
        engine = {"tp": sizes.tp, "dp": total // size_of_replica, "pp": sizes.pp}
    values: Values = {}
    for kind, size in engine.items():
        if size > 1 or kind == "tp":
            values[keys.ENGINE_SIZES[kind].path_in(section)] = size
    if sizes.ep > 1:
        values[keys.ENGINE_EXPERTS.path_in(section)] = sizes.ep
    return values


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config with these values, in their order."""
    config: dict[str, Any] = {}
    for path, value in values.items():
        *sections, name = path.split(".")
        section = config
        for part in sections:
            section = section.setdefault(part, {})
        section[name] = value
    return config


def devices_of(component: Component) -> list[tuple[int, int]]:
    """Return the node and the index of each accelerator of a component, process by process."""
    return [device for row in component for device in row.devices]


def _share_devices(component: Component, other: Component) -> bool:
    """Return whether two components have the same accelerators, in any order."""
    return set(devices_of(component)) == set(devices_of(other))


def shape_of(component: Component) -> Shape | None:
    """Return the nodes of a component and its accelerators of each.

    ``None`` if these are not equally many, or the processes do not go through the nodes one by one.
    """
    nodes = [node for node, _ in devices_of(component)]
    distinct = list(dict.fromkeys(nodes))
    if not distinct or len(nodes) % len(distinct):
        return None
    each = len(nodes) // len(distinct)
    if any(node != distinct[index // each] for index, node in enumerate(nodes)):
        return None
    return Shape(len(distinct), each)
