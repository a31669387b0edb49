"""The orders that systems give to the nodes and the GPUs of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from rankplan._core import AddressKey, RankSet
from rankplan.errors import Diagnostic, PlacementError
from rankplan.nodes.inventory import Inventory

_Value = TypeVar("_Value", str, int | str)


def by_address_text(inventory: Inventory) -> Inventory:
    """Return the nodes in the order of their addresses as text, 10.0.0.10 before 10.0.0.9.

    Follows verl's ``sort_placement_group_by_node_ip``.
    Raises `PlacementError` (``missing-key``) for a node without an address.
    """
    order = inventory.core.order("text")
    nodes = [spec for ranks, spec in inventory.stretches() for _ in ranks]
    if order is None:
        rank = next(rank for rank, spec in enumerate(nodes) if spec.ip is None)
        raise PlacementError([_no_address(rank)])
    return Inventory([nodes[node].at(RankSet([rank])) for rank, node in enumerate(order)], inventory.facts)


def _no_address(rank: int) -> Diagnostic:
    help = "add `ip` to every node of the inventory"
    return Diagnostic("missing-key", f"node {rank} has no address to order it by", help)


def bundle_order(bundles: Iterable[tuple[int, str, int | str]]) -> list[int]:
    """Return the indices of bundles in slime's order (``sort_key``); each bundle is (index, node address, GPU id).

    Nodes are ordered by address: IPv4, then IPv6, both as numbers, then hostnames in natural order. On a node, numeric
    GPU ids come first, as numbers, then UUIDs as text. Equal bundles keep their order. No name is looked up.
    """
    bundles = list(bundles)
    nodes = _places({address for _, address, _ in bundles}, AddressKey)
    gpus = _places({gpu_id for _, _, gpu_id in bundles}, _gpu_key)
    return [index for index, _, _ in sorted(bundles, key=lambda bundle: (nodes[bundle[1]], gpus[bundle[2]]))]


def _places(values: set[_Value], key: Callable[[_Value], Any]) -> dict[_Value, int]:
    """Return a number for each value in the order of their keys; equal keys share a number."""
    keys = {value: key(value) for value in values}
    places = {found: place for place, found in enumerate(sorted(set(keys.values())))}
    return {value: places[found] for value, found in keys.items()}


def _gpu_key(gpu_id: int | str) -> tuple[int, int, str]:
    if isinstance(gpu_id, str) and not (gpu_id.isascii() and gpu_id.isdigit()):
        return (1, 0, gpu_id)
    return (0, int(gpu_id), "")
