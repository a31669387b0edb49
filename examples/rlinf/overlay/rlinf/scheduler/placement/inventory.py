"""The nodes and node groups of RLinf's cluster as a rankplan inventory."""

from __future__ import annotations

from typing import Any

from rankplan import Inventory

_RESERVED = {"cluster", "node"}
_ACCELERATOR = "Accelerator"


def inventory_of(cluster: Any) -> Inventory:
    """Return the inventory of a cluster. It is made once: RLinf never changes the nodes of a cluster."""
    found = vars(cluster).get("_inventory")
    if found is None:
        nodes = [cluster.get_node_info(rank) for rank in range(cluster.num_nodes)]
        groups = [group for group in cluster._node_groups if group.label not in _RESERVED]
        section = {"num_nodes": len(nodes), "node_groups": [_group(group) for group in groups]}
        found = Inventory.from_dict({"nodes": [_node(node) for node in nodes]}).with_config(section)
        cluster._inventory = found
    return found


def _node(node: Any) -> dict[str, Any]:
    entry = {"ranks": node.node_rank, "accelerators": node.num_accelerators, "ip": node.node_ip}
    if node.num_accelerators:
        kind = node.accelerator_type
        entry["accelerator_type"] = getattr(kind, "value", kind)
    return entry


def _group(group: Any) -> dict[str, Any]:
    entry: dict[str, Any] = {"label": str(group.label), "node_ranks": list(group.node_ranks)}
    if group.ignore_hardware:
        entry["ignore_hardware"] = True
    elif group.hardware_type not in (None, _ACCELERATOR):
        configs = [
            _hardware(info, node.node_rank) for node in group.nodes for info in _infos(node, group.hardware_type)
        ]
        entry["hardware"] = {"type": group.hardware_type, "configs": configs}
    return entry


def _infos(node: Any, kind: str) -> list[Any]:
    return [info for resource in node.hardware_resources if resource.type == kind for info in resource.infos]


def _hardware(info: Any, node_rank: int) -> dict[str, Any]:
    stated = vars(info.config) if hasattr(info, "config") else {}
    return {name: value for name, value in stated.items() if value is not None} | {"node_rank": node_rank}
