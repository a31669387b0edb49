"""The rules within and between node groups, which hold once each of them is valid on its own."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from rankplan._core import RankSet
from rankplan.errors import Diagnostic, KeyPath
from rankplan.read.node_groups import NodeGroup
from rankplan.read.ranks import node_rank_faults

if TYPE_CHECKING:
    from rankplan.read.hardware import Hardware
from rankplan.words import nodes_text

Fault = tuple[KeyPath, Diagnostic]
"""A fault and its path within the list of node groups."""


def group_faults(groups: Mapping[int, NodeGroup], num_nodes: int | None) -> Iterator[Fault]:
    """Yield the faults within each node group, by its index in the list, and between groups.

    ``num_nodes`` is ``None`` if the number of nodes is unknown.
    """
    labels: set[str] = set()
    owners: dict[tuple[str, int], str] = {}
    for index, group in groups.items():
        if group.label in labels:
            message = f"two node groups have the label `{group.label}`"
            yield (index, "label"), Diagnostic("duplicate-node-group", message, "give each group a label of its own")
        labels.add(group.label)
        for found in (node_rank_faults(group.node_ranks, num_nodes), _env_faults(group), _hardware_faults(group)):
            yield from (((index, *path), fault) for path, fault in found)
        if group.hardware is not None:
            yield from (((index, "hardware"), fault) for fault in _shared_hardware(group, group.hardware, owners))


def _env_faults(group: NodeGroup) -> Iterator[Fault]:
    earlier = RankSet()
    inside = f"use nodes of the group: {group.node_ranks}"
    for index, config in enumerate(group.env_configs):
        path = ("env_configs", index, "node_ranks")
        if not config.node_ranks:
            yield path, Diagnostic("invalid-value", "node_ranks is empty", inside)
        if outside := config.node_ranks - group.node_ranks:
            message = f"env_configs name {nodes_text(outside)}, not part of node group `{group.label}`"
            yield path, Diagnostic("node-out-of-range", message, inside)
        if both := config.node_ranks & earlier:
            verb = "is" if len(both) == 1 else "are"
            message = f"{nodes_text(both)} of node group `{group.label}` {verb} in two env_configs"
            yield path, Diagnostic("overlapping-env", message, "give each node one env_config")
        earlier = earlier | config.node_ranks


def _hardware_faults(group: NodeGroup) -> Iterator[Fault]:
    hardware, seen = group.hardware, set[str]()
    if hardware is None:
        return
    from pydantic import ValidationError

    from rankplan.read.hardware import hardware_model
    from rankplan.read.text.faults import diagnostics

    model = hardware_model(hardware.type)
    for index, piece in enumerate(hardware.configs or ()):
        path: KeyPath = ("hardware", "configs", index)
        if piece.node_rank not in group.node_ranks:
            message = f"{hardware.type} hardware is configured on node {piece.node_rank}, not part of node group "
            message += f"`{group.label}` ({group.node_ranks})"
            help = f"use a node of the group ({group.node_ranks}), or add node {piece.node_rank} to its node_ranks"
            yield (*path, "node_rank"), Diagnostic("node-out-of-range", message, help)
        try:
            model.model_validate(piece.model_dump())
        except ValidationError as error:
            found = diagnostics(error, {"": model})
            yield from (((*path, *where), fault) for where, fault in found)
        content = json.dumps(piece.model_dump(), sort_keys=True, default=str)
        if content in seen:
            message = f"two configs of node group `{group.label}` describe the same piece of hardware"
            help = "configure each piece once, or add a field that distinguishes them, e.g. name"
            yield path, Diagnostic("duplicate-hardware", message, help)
        seen.add(content)


def _shared_hardware(group: NodeGroup, hardware: Hardware, owners: dict[tuple[str, int], str]) -> Iterator[Diagnostic]:
    """Yield a fault for each earlier group with the same hardware; ``owners`` has the group of each type and node."""
    shared: dict[str, list[int]] = {}
    for node in group.node_ranks if hardware.configs is None else (node for node, _ in hardware.counts()):
        owner = owners.setdefault((hardware.type, node), group.label)
        if owner != group.label:
            shared.setdefault(owner, []).append(node)
    for owner, nodes in shared.items():
        both, where = f"`{owner}` and `{group.label}`", nodes_text(RankSet(nodes))
        message = f"node groups {both} both configure {hardware.type} hardware on {where}"
        yield Diagnostic(
            "duplicate-hardware", message, "configure all hardware of one type on a node in the same group"
        )
