"""The rules within and between node groups, and of pools, which hold once each of them is valid on its own."""

from __future__ import annotations

import json
from collections.abc import Collection, Container, Iterator, Mapping, Sequence

from pydantic import ValidationError

from rankplan._core import RankSet
from rankplan.errors import Diagnostic, KeyPath
from rankplan.read.hardware import hardware_model
from rankplan.read.models import Hardware, NodeGroup
from rankplan.read.pools import PoolEntry
from rankplan.read.text.faults import diagnostics
from rankplan.words import nodes_text, unknown

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
        for found in (_node_rank_faults(group.node_ranks, num_nodes), _env_faults(group), _hardware_faults(group)):
            yield from (((index, *path), fault) for path, fault in found)
        if group.hardware is not None:
            yield from (((index, "hardware"), fault) for fault in _shared_hardware(group, group.hardware, owners))


def pool_faults(
    pools: Mapping[int, PoolEntry], lost: Container[str], num_nodes: int | None, components: Sequence[str]
) -> Iterator[Fault]:
    """Yield the faults within each pool, by its index in the list, and between pools.

    ``lost`` are the names of pools that cannot be read. If unknown, ``num_nodes`` is ``None``, and ``components`` are
    empty.
    """
    earlier: list[PoolEntry] = []
    for index, pool in pools.items():
        if any(pool.name == other.name for other in earlier):
            message, help = f"two pools are named `{pool.name}`", "give each pool a name of its own"
            yield (index, "name"), Diagnostic("invalid-value", message, help)
        for at, name in enumerate(pool.components if components else ()):
            if name not in components:
                yield (index, "components", at), unknown("component", name, components, "the components are")
        for found in (_bound_faults(pool), _reserve_faults(pool, pools.values(), lost)):
            yield from (((index, *path), fault) for path, fault in found)
        if pool.node_ranks:
            yield from (((index, *path), fault) for path, fault in _node_rank_faults(pool.node_ranks, num_nodes))
        for other in earlier:
            if both := pool.node_ranks & other.node_ranks:
                verb = "is" if len(both) == 1 else "are"
                message = f"{nodes_text(both)} {verb} in two reserves, `{other.name}` and `{pool.name}`"
                yield (index, "node_ranks"), Diagnostic("invalid-value", message, "give each reserve nodes of its own")
        earlier.append(pool)


def _bound_faults(pool: PoolEntry) -> Iterator[Fault]:
    """Yield the faults of bounds, which only a pool with components has."""
    least, most = pool.min_accelerators, pool.max_accelerators
    for key, bound in (("min_accelerators", least), ("max_accelerators", most)):
        if bound is not None and pool.node_ranks and not pool.components:
            message = f"`{key}` has no effect: pool `{pool.name}` is a reserve"
            yield (key,), Diagnostic("invalid-value", message, f"remove {key}")
    if least is not None and most is not None and least > most:
        message = f"min_accelerators {least} is more than max_accelerators {most}"
        help = f"use at most {most}, or a larger max_accelerators"
        yield ("min_accelerators",), Diagnostic("invalid-value", message, help)


def _reserve_faults(pool: PoolEntry, pools: Collection[PoolEntry], lost: Container[str]) -> Iterator[Fault]:
    """Yield the faults of a pool that is neither one with components nor a reserve, and of what it protects."""
    keys = [key for key in ("node_ranks", "protects") if getattr(pool, key)]
    filled = [one.name for one in pools if one.components and one is not pool]
    if pool.components:
        for key in keys:
            message = f"pool `{pool.name}` has components; only a reserve without components has {key}"
            yield (key,), Diagnostic("invalid-value", message, "state the reserve as a pool of its own")
    elif not keys:
        message = f"pool `{pool.name}` has neither components nor node_ranks"
        help = "add the names of its components, or node_ranks and protects for a reserve"
        yield (), Diagnostic("missing-key", message, help)
    elif not pool.node_ranks:
        message = f"`node_ranks` is missing: pool `{pool.name}` protects others, but reserves no node"
        yield (), Diagnostic("missing-key", message, "add node_ranks, nodes without processes")
    elif not pool.protects:
        message = f"`protects` is missing: pool `{pool.name}` reserves nodes for no other pool"
        help = "add `protects` with the names of pools, or remove the pool: other spares are for every component"
        yield (), Diagnostic("missing-key", message, help)
    help = f"name pools with components: {', '.join(filled)}" if filled else "add a pool with components"
    for at, other in enumerate(pool.protects):
        path = ("protects", at)
        if other == pool.name:
            yield path, Diagnostic("invalid-value", f"pool `{other}` protects itself", help)
        elif any(one.name == other for one in pools):
            if other not in filled:
                message = f"pool `{other}` has no components that a reserve could protect"
                yield path, Diagnostic("invalid-value", message, help)
        elif other not in lost:
            yield path, unknown("pool", other, filled, "the pools are", code="invalid-value")


def _node_rank_faults(ranks: RankSet, num_nodes: int | None) -> Iterator[Fault]:
    if not ranks:
        help = "name at least one node, e.g. 0"
        yield ("node_ranks",), Diagnostic("invalid-value", "node_ranks is empty", help)
    elif num_nodes is not None and ranks[-1] >= num_nodes:
        nodes = "1 node, rank 0" if num_nodes == 1 else f"{num_nodes} nodes, ranks 0-{num_nodes - 1}"
        message = f"node_ranks {ranks} are out of range: the cluster has {nodes}"
        help = f"use ranks up to {num_nodes - 1}, or set num_nodes to {ranks[-1] + 1}"
        yield ("node_ranks",), Diagnostic("node-out-of-range", message, help)


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
