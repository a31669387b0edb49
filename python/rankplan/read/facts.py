"""A ``cluster`` section as plain data: what it states of the nodes, and the rules about the components."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rankplan.errors import PlacementError
from rankplan.nodes.facts import BY_ADDRESS, ClusterFacts
from rankplan.nodes.groups import GroupHardware, NodeEnvironment, NodeGroup, Piece
from rankplan.plans.rules import NO_RULES, Pool, Rules

if TYPE_CHECKING:
    from rankplan.read import hardware as hardware_models
    from rankplan.read import node_groups
    from rankplan.read.models import ClusterSection
    from rankplan.read.pools import PoolEntry


def facts_of(section: ClusterSection) -> ClusterFacts:
    """Return what a section states of the nodes."""
    topology = section.topology
    return ClusterFacts(
        node_groups=tuple(map(node_group, section.node_groups)),
        exclude=section.exclude,
        levels=None if topology is None else topology.levels,
        order=BY_ADDRESS if topology is None else topology.order,
        accelerator_memory=section.accelerator_memory,
        host_memory=section.host_memory,
    )


def rules_of(section: ClusterSection) -> Rules:
    """Return the rules of a section, without their places."""
    topology, pools = section.topology, tuple(map(pool_of, section.pools))
    if topology is None:
        return Rules(pools=pools) if pools else NO_RULES
    return Rules(
        keep=topology.keep,
        segment=topology.segment,
        prefer=topology.prefer,
        balance=topology.balance,
        cap=topology.cap,
        pools=pools,
    )


def with_stated(rules: Rules, stated: Mapping[str, Any]) -> Rules:
    """Return rules in which these replace those of the same names.

    Raises `PlacementError` with every invalid value.
    """
    if not stated:
        return rules
    from pydantic import ValidationError

    from rankplan.read.network import Topology
    from rankplan.read.text.faults import diagnostics

    try:
        read = Topology.model_validate(stated)
    except ValidationError as error:
        faults = [found for _, found in diagnostics(error, {"": Topology})]
        # A wrong word of an option is a wrong value; in a config, it is a key.
        wrong = [replace(one, code="invalid-value") if one.code == "unknown-key" else one for one in faults]
        raise PlacementError(wrong) from None
    return replace(rules, **{key: getattr(read, key) for key in stated})


def node_group(group: node_groups.NodeGroup) -> NodeGroup:
    """Return a node group as plain data."""
    environments = [
        NodeEnvironment(each.node_ranks, each.env_vars, each.python_interpreter_path, each.path_env)
        for each in group.env_configs
    ]
    hardware = None if group.hardware is None else _hardware(group.hardware)
    return NodeGroup(group.label, group.node_ranks, tuple(environments), hardware, group.ignore_hardware)


def _hardware(hardware: hardware_models.Hardware) -> GroupHardware:
    if hardware.configs is None:
        return GroupHardware(hardware.type)
    pieces = []
    for config in hardware.configs:
        fields = config.model_dump()
        pieces.append(Piece(fields.pop("node_rank"), fields))
    return GroupHardware(hardware.type, tuple(pieces))


def pool_of(pool: PoolEntry) -> Pool:
    """Return a pool as plain data."""
    bounds = pool.min_accelerators, pool.max_accelerators
    return Pool(pool.name, pool.components, *bounds, pool.node_ranks, pool.protects)
