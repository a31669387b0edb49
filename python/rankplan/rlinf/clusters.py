"""RLinf's cluster as an inventory, so that strategies and placements take it too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rankplan._core import CLUSTER, NODE
from rankplan.dialects.interface.cluster import AnyCluster
from rankplan.nodes import clusters
from rankplan.nodes.inventory import Inventory


def inventory_of(cluster: AnyCluster) -> Inventory:
    """Return an inventory itself, that of an object that has one, or that of RLinf's cluster.

    Raises ``TypeError`` for anything else.
    """
    given: Any = cluster
    if callable(getattr(given, "get_node_info", None)) and getattr(given, "inventory", None) is None:
        return _rlinf_inventory(given)
    return clusters.inventory_of(given)


def _rlinf_inventory(cluster: Any) -> Inventory:
    """Return the nodes and node groups of RLinf's cluster (``rlinf/scheduler/cluster``, 0.3.0)."""
    from rankplan.rlinf.section import with_section  # only for such a cluster

    nodes = [_node(cluster.get_node_info(rank)) for rank in range(cluster.num_nodes)]
    groups = getattr(cluster, "_node_groups", ())
    groups = groups.values() if isinstance(groups, Mapping) else groups
    stated = [_group(group) for group in groups if group.label not in (CLUSTER, NODE)]
    return with_section(Inventory.from_dict({"nodes": nodes}), {"num_nodes": len(nodes), "node_groups": stated})


def _node(node: Any) -> dict[str, Any]:
    entry = {"ranks": node.node_rank, "accelerators": node.num_accelerators, "ip": node.node_ip}
    kind = {"accelerator_type": getattr(node.accelerator_type, "value", node.accelerator_type)}
    return entry | kind if node.num_accelerators else entry


def _group(group: Any) -> dict[str, Any]:
    entry: dict[str, Any] = {"label": str(group.label), "node_ranks": list(group.node_ranks)}
    if group.ignore_hardware:
        return entry | {"ignore_hardware": True}
    kind, configs = group.hardware_type, []
    if kind in (None, "Accelerator"):
        return entry
    for node in group.nodes:
        for info in (info for found in node.hardware_resources if found.type == kind for info in found.infos):
            stated = vars(info.config) if hasattr(info, "config") else {}
            known = {name: value for name, value in stated.items() if value is not None}
            configs.append(known | {"node_rank": node.node_rank})
    return entry | {"hardware": {"type": kind, "configs": configs}}
