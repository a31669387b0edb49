"""A component for Open MPI: which host starts how many of its processes, or which host each of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby

from rankplan.errors import RankplanError
from rankplan.inventory import Inventory
from rankplan.plan import Plan


def hostfile(plan: Plan, component: str) -> Iterator[str]:
    """Yield ``host slots=n`` for each node, in the order of the ranks: n processes of the component run there.

    Raises `RankplanError` for a node without an address, or with one that is no host's name, and where filling host
    after host is not the plan.
    """
    seen = set()
    for node, rows in groupby(plan[component], key=lambda row: row.cluster_node_rank):
        host = _host(plan.inventory, node)
        if host is None:
            raise RankplanError(
                f"node {node} has no address\n"
                "help: give each node an `ip` or a `hostname` in the inventory (--inventory), "
                "or write a rankfile, which counts the hosts that mpirun is given"
            )
        if host in seen:
            raise RankplanError(
                f"{component} comes to host {host} a second time, and a hostfile is filled host after host\n"
                "help: write a rankfile, which has a line for each rank"
            )
        seen.add(host)
        yield f"{host} slots={sum(1 for _ in rows)}\n"


def rankfile(plan: Plan, component: str) -> Iterator[str]:
    """Yield ``rank n=host slot=m`` for each process.

    The host is an address, or ``+n`` with the node rank where not every node has one. A slot is a CPU core, of which a
    plan knows nothing: it is the local rank. Raises `RankplanError` for an address that is no host's name.
    """
    nodes = {row.cluster_node_rank for row in plan[component]}
    hosts = {node: _host(plan.inventory, node) for node in nodes}
    relative = None in hosts.values()
    for row in plan[component]:
        node = row.cluster_node_rank
        yield f"rank {row.rank}={f'+n{node}' if relative else hosts[node]} slot={row.local_rank}\n"


def _host(inventory: Inventory, node_rank: int) -> str | None:
    """Return the address as Open MPI's files can hold it: blanks and line ends, = and # have a meaning there."""
    host = address(inventory, node_rank)
    if host is not None and re.search(r"[\s=#]", host):
        raise RankplanError(
            f"node {node_rank} is called {host!r}, which Open MPI would not read as one host\n"
            "help: mend its `ip` or its `hostname` in the inventory"
        )
    return host


def address(inventory: Inventory, node_rank: int) -> str | None:
    """Return what a launcher calls a node by: its ip, else its hostname, if the inventory has one of them."""
    node = inventory.node(node_rank)
    return node.ip or node.hostname
