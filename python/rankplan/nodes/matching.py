"""The nodes of a plan in another inventory: found by hostname, else by address, else by rank."""

from __future__ import annotations

from operator import attrgetter

from rankplan.nodes.inventory import Inventory

_NAMES = ("hostname", "ip")


def same_nodes(planned: Inventory, inventory: Inventory) -> list[int | None]:
    """Return, by node rank of ``planned``, the rank of the same node in ``inventory``, ``None`` if it lacks the node.

    A node is found by its hostname, else by its address, unless several nodes of either side share that name. A node
    without names is the one of the same rank.
    """
    known = {kind: _first(inventory, kind) for kind in _NAMES}
    shared = {kind: _first(planned, kind)[1] | known[kind][1] for kind in _NAMES}
    hosts, shared_hosts = known["hostname"][0], shared["hostname"]
    found: list[int | None] = []
    for nodes, record in planned.stretches():
        if (host := record.hostname) in hosts and host not in shared_hosts:
            found += [hosts[host]] * len(nodes)
        elif names := [(kind, name) for kind in _NAMES if (name := getattr(record, kind))]:
            telling = [(kind, name) for kind, name in names if name not in shared[kind]] or names
            places = (known[kind][0].get(name) for kind, name in telling)
            found += [next((place for place in places if place is not None), None)] * len(nodes)
        else:
            found += (rank if rank < inventory.num_nodes else None for rank in nodes)
    return found


def _first(inventory: Inventory, kind: str) -> tuple[dict[str, int], set[str]]:
    """Return the first node of each name of a kind, and the names that several nodes share."""
    first: dict[str, int] = {}
    shared: set[str] = set()
    name_of = attrgetter(kind)
    for ranks, record in inventory.stretches():
        if name := name_of(record):
            if len(ranks) > 1 or name in first:
                shared.add(name)
            first.setdefault(name, ranks.start)
    return first, shared
