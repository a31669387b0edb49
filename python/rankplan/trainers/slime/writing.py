"""Writes plans as slime's flags."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Any

from rankplan import Component, Inventory, PlacementError, Plan
from rankplan.sdk import Key
from rankplan.trainers.slime import keys
from rankplan.trainers.slime.dialect import DIALECT

_ELSEWHERE = "slime would place it elsewhere"

Flags = dict[str, Any]


def written(planned: Plan) -> tuple[Flags, dict[str, str]]:
    """Return flags for the components that slime can express, and why it cannot express the others.

    The places of slime's components depend on each other, so every candidate is planned again and compared.
    """
    reasons: dict[str, str] = {}
    candidates: dict[str, Component] = {}
    for name, component in planned.items():
        reason = _reason(name, component)
        if reason is None:
            candidates[name] = component
        else:
            reasons[name] = reason
    for size in range(len(candidates), 0, -1):
        for names in combinations(candidates, size):
            components = {name: candidates[name] for name in names}
            flags = _flags(components, planned.inventory)
            if _has_places(flags, components, planned.inventory):
                left_out = [name for name in candidates if name not in components]
                return flags, reasons | dict.fromkeys(left_out, _ELSEWHERE)
    return {}, reasons | dict.fromkeys(candidates, _ELSEWHERE)


def _reason(name: str, component: Component) -> str | None:
    """Return why slime cannot express a component wherever it is, ``None`` if it may."""
    sizes = {row.num_accelerators for row in component}
    if name not in ("actor", "critic", "rollout"):
        return "slime only has an actor, a critic and a rollout"
    if name != "rollout" and sizes != {1}:
        return "its processes do not have one accelerator each"
    if len(sizes) > 1 or 0 in sizes:
        return "its processes have different numbers of accelerators"
    return None


def _has_places(flags: Flags, components: Mapping[str, Component], inventory: Inventory) -> bool:
    """Return whether slime places the components of these flags where they are."""
    try:
        again = DIALECT.plan(flags, inventory)
    except PlacementError:
        return False
    return all(name in again and _devices(rows) == _devices(again[name]) for name, rows in components.items())


def _flags(components: Mapping[str, Component], inventory: Inventory) -> Flags:
    """Return the flags for as many GPUs as the components have."""
    counts = {spec.num_accelerators for _, spec in inventory.stretches()}
    per_node = counts.pop() if len(counts) == 1 else 0
    actor, critic, rollout = (components.get(name) for name in ("actor", "critic", "rollout"))
    flags: Flags = {keys.NODE_GPUS.path: per_node} if per_node else {}
    flags |= _training_flags(actor, critic, per_node)
    if rollout is None:
        return flags | {keys.TRAIN_ONLY.path: True}
    flags |= _rollout_flags(rollout, per_node)
    first = actor or critic
    if first is None:
        return flags | {keys.ROLLOUT_ONLY.path: True}
    if rollout[0].devices[0] == first[0].devices[0]:
        flags[keys.COLOCATE.path] = True
    return flags


def _training_flags(actor: Component | None, critic: Component | None, per_node: int) -> Flags:
    """Return the flags of the training; a critic on the actor's GPUs has no numbers of its own."""
    trained = [component for component in (actor, critic) if component is not None]
    if not trained:
        return {}
    flags: Flags = {}
    if critic is not None:
        flags[keys.USE_CRITIC.path] = True
    flags |= _counts(keys.ACTOR_NODES, keys.ACTOR_GPUS, 0 if actor is None else len(actor), per_node)
    if critic is not None and (actor is None or _devices(critic) != _devices(actor)):
        flags |= _counts(keys.CRITIC_NODES, keys.CRITIC_GPUS, len(critic), per_node)
    parallels = {component.parallel for component in trained}
    if len(parallels) > 1:
        return flags  # slime has one set of sizes for both
    parallel = parallels.pop()
    for kind, key in keys.TRAINING.items():
        size = getattr(parallel, kind)
        is_expert_tensor = kind == "etp" and parallel.ep > 1  # the tensor size by default
        if size > 1 or is_expert_tensor:
            flags[key.path] = size
    return flags


def _counts(nodes: Key[Any], gpus_of_node: Key[Any], gpus: int, per_node: int) -> Flags:
    """Return the flags of a number of GPUs: of whole nodes, or else of one."""
    is_whole = per_node > 0 and gpus % per_node == 0
    num_nodes = max(1, gpus // per_node) if is_whole else 1
    return {nodes.path: num_nodes, gpus_of_node.path: gpus // num_nodes}


def _rollout_flags(rollout: Component, per_node: int) -> Flags:
    """Return the flags of the rollout. An engine of several processes has one per node."""
    each = rollout[0].num_accelerators
    sizes = rollout.parallel
    engine = each * rollout.engines
    if rollout.engines == 1 and each == per_node:
        engine = max(each, sizes.tp * sizes.pp)
    flags: Flags = {keys.ROLLOUT_GPUS.path: len(rollout) * each, keys.ENGINE_GPUS.path: engine}
    for kind, (usual, _) in keys.ENGINE.items():
        size = getattr(sizes, kind)
        if size > 1:
            flags[usual.path] = size
    if rollout.engines > 1 and each != per_node:
        flags[keys.NODE_GPUS.path] = each
    return flags


def _devices(component: Component) -> list[list[tuple[int, int]]]:
    return [row.devices for row in component]
