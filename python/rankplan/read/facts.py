"""Node groups, pools and rules that a config states, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rankplan.errors import PlacementError
from rankplan.nodes.groups import GroupHardware, NodeEnvironment, NodeGroup, Piece
from rankplan.plans.rules import TOPOLOGY_RULES, Pool, Rules

if TYPE_CHECKING:
    from rankplan.read import hardware as hardware_models
    from rankplan.read import node_groups
    from rankplan.read.network import Topology
    from rankplan.read.pools import PoolEntry


def topology_rules(topology: Topology) -> dict[str, Any]:
    """Return what the network of a section states about the components, by the names of `Rules`."""
    return {key: getattr(topology, key) for key in TOPOLOGY_RULES}


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
