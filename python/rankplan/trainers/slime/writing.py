"""Writes plans as slime's flags."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from rankplan import Component, Inventory, Placement, PlacementError, Plan
from rankplan.trainers.slime import keys
from rankplan.trainers.slime.dialect import DIALECT


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
                again = DIALECT.plan(config, planned.inventory)
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
    parallels = {rows.parallel for rows in (actor, critic) if isinstance(rows, Component)}
    if len(parallels) == 1:
        sizes = {kind: getattr(parallel, kind) for parallel in parallels for kind in keys.TRAINING}
        stated = {kind for kind, size in sizes.items() if size > 1 or (kind == "etp" and sizes["ep"] > 1)}
        config |= {keys.TRAINING[kind].path: size for kind, size in sizes.items() if kind in stated}
    if not isinstance(rollout, Component):
        return config | {"debug_train_only": True}
    each = rollout[0].num_accelerators
    engine, sizes_of_engine = each * rollout.engines, rollout.parallel
    if rollout.engines == 1 and each == per_node:  # an engine of several processes has one per node
        engine = max(each, sizes_of_engine.tp * sizes_of_engine.pp)
    config |= {"rollout_num_gpus": len(rollout) * each, "rollout_num_gpus_per_engine": engine}
    for kind, (usual, _) in keys.ENGINE.items():
        size = getattr(sizes_of_engine, kind)
        if size > 1:
            config[usual.path] = size
    if rollout.engines > 1 and each != per_node:
        config["num_gpus_per_node"] = each
    if not training:
        return config | {"debug_rollout_only": True}
    together = rollout[0].devices[0] == [*actor, *critic][0].devices[0]
    return config | ({"colocate": True} if together else {})


def _devices(rows: Sequence[Placement]) -> list[list[tuple[int, int]]]:
    return [row.devices for row in rows]
