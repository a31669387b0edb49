"""By what trainers sort nodes, in plain Python, after the code of verl, slime, SkyRL, NeMo-RL and ROLL."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeAlias

from rankplan import Inventory
from rankplan.words import natural


def sort_key(
    inventory: Inventory, order: str | None, node_ids: Sequence[str], nodes: Collection[int]
) -> Callable[[int], Any] | None:
    """The key of a node rank by which a trainer sorts these nodes; ``None`` if it is not known for one of them."""
    specs = {node: inventory.node(node) for node in nodes}
    if order is None:
        return None
    if order in ("text", "number"):
        addresses = {node: spec.ip for node, spec in specs.items()}
        if None in addresses.values():
            return None
        return lambda node: addresses[node] if order == "text" else address_key(addresses[node] or "")
    if order == "rank":
        stated = {node: number(spec.labels.get("NODE_RANK", "0")) for node, spec in specs.items()}
        return stated.__getitem__ if list(stated.values()).count(0) < 2 else None
    if order == "id":
        return node_ids.__getitem__ if node_ids else None
    domains = {node: spec.labels.get("nvlink_domain") for node, spec in specs.items()}
    ranks = {node: number(spec.labels.get("topo_rank", "-1")) for node, spec in specs.items()}
    if any(domains.values()) or max(ranks.values(), default=-1) >= 0:
        lowest = {name: min(ranks[node] for node in domains if domains[node] == name) for name in domains.values()}
        return lambda node: (lowest[domains[node]], ranks[node])
    return node_ids.__getitem__ if order == "topology-id" and node_ids else None


def number(text: str) -> int:
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdecimal() and len(text) < 10 else -1


Key: TypeAlias = tuple[int, int, tuple[tuple[str, int], ...], str]


def address_key(address: str) -> Key:
    """Return a sort key: IPv4 by number, then IPv6 by number, then anything else as a name in natural order.

    Ignores brackets around an IPv6 address, and reads an IPv4 address mapped into IPv6 as IPv4. Two texts have the same
    key only if they are the same address. Does not look up names.
    """
    try:
        return (4, int.from_bytes(socket.inet_pton(socket.AF_INET, address), "big"), (), "")
    except (OSError, ValueError):
        pass
    try:
        found = ipaddress.IPv6Address(address[1:-1] if address[:1] + address[-1:] == "[]" else address)
    except ValueError:
        return (99, 0, natural(address), address)
    if found.ipv4_mapped is not None:
        return (4, int(found.ipv4_mapped), (), "")
    return (6, int(found), (), found.scope_id or "")
