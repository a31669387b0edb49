"""The order of addresses: by number if they are numbers, else as names in natural order."""

from __future__ import annotations

import ipaddress
import socket
from typing import TypeAlias

from rankplan.words import Name, natural

Key: TypeAlias = tuple[int, int, Name, str]


def address_key(address: str) -> Key:
    """Return a sort key: IPv4 by number, then IPv6 by number, then anything else as a name in natural order.

    Ignores brackets around an IPv6 address, and reads an IPv4 address mapped into IPv6 as IPv4. Two texts have the same
    key only if they are the same address. Does not look up names.
    """
    try:
        # Ten times as fast as ipaddress: a large cluster has thousands of these.
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
