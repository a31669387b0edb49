"""The rules within and between node groups, which hold once each of them is valid on its own."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from rankplan._core import RankSet
from rankplan.errors import Diagnostic, KeyPath
from rankplan.nodes import faults
from rankplan.nodes.groups import GroupHardware, NodeGroup

Fault = tuple[KeyPath, Diagnostic]
"""A fault and its path within a list."""


def group_faults(groups: Mapping[int, NodeGroup], num_nodes: int | None) -> Iterator[Fault]:
    """Yield the faults within each node group, by its index in the list, and between groups.

    ``num_nodes`` is ``None`` if the number of nodes is unknown.
    """
    labels: set[str] = set()
    owners: dict[tuple[str, int], str] = {}
    for index, group in groups.items():
        if group.label in labels:
            yield (index, "label"), faults.label_twice(group.label)
        labels.add(group.label)
        for part in (node_rank_faults(group.node_ranks, num_nodes), _environment_faults(group), _piece_faults(group)):
            yield from (((index, *path), fault) for path, fault in part)
        if group.hardware is not None:
            shared = _shared_hardware(group, group.hardware, owners)
            yield from (((index, "hardware"), fault) for fault in shared)


def node_rank_faults(ranks: RankSet, num_nodes: int | None) -> Iterator[Fault]:
    """Yield the fault of node ranks that name no node, or nodes that the cluster lacks."""
    if not ranks:
        yield ("node_ranks",), faults.no_nodes()
    elif num_nodes is not None and ranks[-1] >= num_nodes:
        yield ("node_ranks",), faults.beyond_cluster(ranks, num_nodes)


def _environment_faults(group: NodeGroup) -> Iterator[Fault]:
    earlier = RankSet()
    for index, environment in enumerate(group.environments):
        path = ("env_configs", index, "node_ranks")
        ranks = environment.node_ranks
        if not ranks:
            yield path, faults.no_nodes_of_group(group.node_ranks)
        if outside := ranks - group.node_ranks:
            yield path, faults.beyond_group(outside, group.label, group.node_ranks)
        if both := ranks & earlier:
            yield path, faults.two_environments(both, group.label)
        earlier = earlier | ranks


def _piece_faults(group: NodeGroup) -> Iterator[Fault]:
    hardware = group.hardware
    if hardware is None:
        return
    seen: set[str] = set()
    for index, piece in enumerate(hardware.pieces or ()):
        path: KeyPath = ("hardware", "configs", index)
        if piece.node_rank not in group.node_ranks:
            fault = faults.hardware_beyond_group(hardware.type, piece.node_rank, group.label, group.node_ranks)
            yield (*path, "node_rank"), fault
        content = json.dumps(piece.plain(), sort_keys=True, default=str)
        if content in seen:
            yield path, faults.same_hardware(group.label)
        seen.add(content)


def _shared_hardware(
    group: NodeGroup, hardware: GroupHardware, owners: dict[tuple[str, int], str]
) -> Iterator[Diagnostic]:
    """Yield a fault for each earlier group with the same hardware; ``owners`` has the group of each type and node."""
    shared: dict[str, list[int]] = {}
    nodes = group.node_ranks if hardware.pieces is None else (node for node, _ in hardware.counts())
    for node in nodes:
        owner = owners.setdefault((hardware.type, node), group.label)
        if owner != group.label:
            shared.setdefault(owner, []).append(node)
    for owner, both in shared.items():
        yield faults.shared_hardware(owner, group.label, hardware.type, RankSet(both))
