"""The processes of slime's engines, and where they meet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rankplan import Component, Inventory


class EngineProcess(NamedTuple):
    """The position of a rollout process in its engine.

    ``engine`` counts engines from 0, ``node_rank`` the processes of the engine (one per node in slime). ``first_node``
    is the cluster node rank of the engine's first process; its address is the ``dist_init_addr`` of the whole engine.
    """

    engine: int
    node_rank: int
    first_node: int


def engine_processes(rollout: Component) -> list[EngineProcess]:
    """Return the position of each process of a planned rollout in its engine."""
    size = rollout.engines
    first_nodes = [rollout[first].cluster_node_rank for first in range(0, len(rollout), size)]
    return [EngineProcess(rank // size, rank % size, first_nodes[rank // size]) for rank in range(len(rollout))]


def dist_init_addrs(processes: Sequence[EngineProcess], inventory: Inventory, ports: Sequence[range]) -> list[str]:
    """Return the rendezvous of each rollout process's engine: the address of its first node and a port there.

    ``ports`` are the free ports of each process (`WorkerGroup.free_ports`); an engine uses those of its first process.
    Raises ``ValueError`` for a node without an address, ports that are not one range per process, or an engine without
    its first process.
    """
    if len(ports) != len(processes) or not all(ports):
        ranges = sum(map(bool, ports))
        raise ValueError(f"ports are given for {ranges} of {len(processes)} processes; pass a range for each")
    if processes and processes[0].node_rank:
        raise ValueError("the first process is not the first of its engine; pass all processes of the rollout")
    addresses: list[str] = []
    for rank, process in enumerate(processes):
        if process.node_rank == 0:
            host = inventory.node(process.first_node).ip
            if host is None:
                raise ValueError(f"node {process.first_node} has no address; pass the inventory of a live cluster")
            bracketed = f"[{host}]" if ":" in host and host[0] != "[" else host
            addresses.append(f"{bracketed}:{ports[rank][0]}")
        else:
            addresses.append(addresses[-1])
    return addresses
