"""A ``cluster`` section as plain data: what it states of the nodes, and the rules about the components."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from rankplan.errors import PlacementError
from rankplan.nodes.facts import ClusterFacts
from rankplan.nodes.groups import GroupHardware, NodeEnvironment, NodeGroup, Piece
from rankplan.plans.rules import Pool, Rules
from rankplan.read import models
from rankplan.read.models import ClusterSection
from rankplan.read.network import Topology
from rankplan.read.pools import PoolEntry
from rankplan.read.text.faults import diagnostics


def facts_of(section: ClusterSection) -> ClusterFacts:
    """Return what a section states of the nodes."""
    return ClusterFacts(
        node_groups=tuple(map(_group, section.node_groups)),
        exclude=section.exclude,
        levels=section.topology.levels,
        order=section.topology.order,
        accelerator_memory=section.accelerator_memory,
        host_memory=section.host_memory,
    )


def rules_of(section: ClusterSection) -> Rules:
    """Return the rules of a section, without their places."""
    topology = section.topology
    return Rules(
        keep=topology.keep,
        segment=topology.segment,
        prefer=topology.prefer,
        balance=topology.balance,
        cap=topology.cap,
        pools=tuple(map(_pool, section.pools)),
    )


def with_stated(rules: Rules, stated: Mapping[str, Any]) -> Rules:
    """Return rules in which these replace those of the same names.

    Raises `PlacementError` with every invalid value.
    """
    if not stated:
        return rules
    try:
        read = Topology.model_validate(stated)
    except ValidationError as error:
        faults = [found for _, found in diagnostics(error, {"": Topology})]
        # A wrong word of an option is a wrong value; in a config, it is a key.
        wrong = [replace(one, code="invalid-value") if one.code == "unknown-key" else one for one in faults]
        raise PlacementError(wrong) from None
    return replace(rules, **{key: getattr(read, key) for key in stated})


def _group(group: models.NodeGroup) -> NodeGroup:
    environments = [
        NodeEnvironment(each.node_ranks, each.env_vars, each.python_interpreter_path, each.path_env)
        for each in group.env_configs
    ]
    hardware = None if group.hardware is None else _hardware(group.hardware)
    return NodeGroup(group.label, group.node_ranks, tuple(environments), hardware, group.ignore_hardware)


def _hardware(hardware: models.Hardware) -> GroupHardware:
    if hardware.configs is None:
        return GroupHardware(hardware.type)
    pieces = []
    for config in hardware.configs:
        fields = config.model_dump()
        pieces.append(Piece(fields.pop("node_rank"), fields))
    return GroupHardware(hardware.type, tuple(pieces))


def _pool(pool: PoolEntry) -> Pool:
    bounds = pool.min_accelerators, pool.max_accelerators
    return Pool(pool.name, pool.components, *bounds, pool.node_ranks, pool.protects)
