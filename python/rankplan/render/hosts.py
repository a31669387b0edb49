"""Hostfiles and rankfiles of a component for Open MPI."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby

from rankplan._core import RankSet
from rankplan.errors import RankplanError
from rankplan.nodes.inventory import Inventory
from rankplan.plans.plan import Plan


def hostfile(plan: Plan, component: str) -> Iterator[str]:
    """Yield ``host slots=n`` for each node, in rank order: n processes of the component run there.

    Raises `RankplanError` for a node without an address, for an address that Open MPI cannot read, and if ranks on a
    host are not consecutive.
    """
    seen = set()
    for node, rows in groupby(plan[component], key=lambda row: row.cluster_node_rank):
        host = _host(plan.inventory, node)
        if host is None:
            raise RankplanError(
                f"node {node} has no address\n"
                "help: add an `ip` or a `hostname` to each node of the inventory (--inventory), "
                "or use a rankfile, which numbers the hosts given to mpirun"
            )
        if host in seen:
            raise RankplanError(
                f"ranks of {component} on host {host} are not consecutive; a hostfile fills one host after another\n"
                "help: use a rankfile, which has one line per rank"
            )
        seen.add(host)
        yield f"{host} slots={sum(1 for _ in rows)}\n"


def rankfile(plan: Plan, component: str) -> Iterator[str]:
    """Yield ``rank n=host slot=m`` for each process.

    The host is an address, or ``+n`` with the node rank if a node has no address. A slot is a CPU core as Open MPI
    counts them, socket by socket; without a binding or without facts about the cores, it is the local rank. Raises
    `RankplanError` for an address that Open MPI cannot read.
    """
    nodes = {row.cluster_node_rank for row in plan[component]}
    hosts = {node: _host(plan.inventory, node) for node in nodes}
    relative = None in hosts.values()
    for row in plan[component]:
        node = row.cluster_node_rank
        slot = _cores(plan, component, row.rank) or row.local_rank
        yield f"rank {row.rank}={f'+n{node}' if relative else hosts[node]} slot={slot}\n"


def _cores(plan: Plan, component: str, rank: int) -> RankSet | None:
    """Return the numbers of the cores that a process is bound to, ``None`` if they are unknown."""
    found = plan[component]
    cpus, machine = found.cpus(rank), plan.inventory.node(found[rank].cluster_node_rank).machine
    if cpus is None or machine is None:
        return None
    return RankSet(number for number, core in enumerate(machine.ordered_cores()) if core & cpus) or None


def _host(inventory: Inventory, node_rank: int) -> str | None:
    """Return the address; blanks, line ends, = and # have a meaning in Open MPI's files."""
    host = address(inventory, node_rank)
    if host is not None and re.search(r"[\s=#]", host):
        raise RankplanError(
            f"Open MPI cannot read the address {host!r} of node {node_rank} as one host\n"
            "help: change its `ip` or `hostname` in the inventory"
        )
    return host


def address(inventory: Inventory, node_rank: int) -> str | None:
    """Return the address of a node for a launcher: its ip, else its hostname, else None."""
    node = inventory.node(node_rank)
    return node.ip or node.hostname
