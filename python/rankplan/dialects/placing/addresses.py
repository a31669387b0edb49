"""Addresses and ports that trainers give the processes of engines by counting them, and what goes wrong with them.

Some trainers do not ask a process of an engine where it is. They expect that as many are on each node as its GPUs have
room for, in order: the first of them gives all the others its host, and each node starts with the same port. On a node
that is cut differently, a process gets the host of another node. On a machine with the processes of two such nodes,
both get the same ports: none is in use yet when they are looked for.

The same code is in slime (624b824: ``_allocate_rollout_engine_addr_and_ports_normal`` in slime/ray/rollout.py,
slime#2373) and in NeMo-RL (7ea279a: nemo_rl/models/generation/sglang/utils/ip_port_utils.py).
"""

from __future__ import annotations

from rankplan._core import Taken
from rankplan.dialects.placing.placer import Placer
from rankplan.errors import Diagnostic, Where


def check_addresses(
    placer: Placer, system: str, taken: Taken, each: int, together: int, node_gpus: int, at: Where, help: str
) -> None:
    """Warn at a place of the first process that gets the address of another node, or the ports of another process.

    ``taken`` are the GPUs of all engines, ``each`` those of a process, ``together`` the number of processes that the
    trainer expects on a node of ``node_gpus`` GPUs. There is no warning if each node has as many as expected, except
    the last one.
    """
    miscounted = taken.miscounted(placer.inventory.core, each, together)
    if miscounted is None:
        return
    process, node, other, other_node = miscounted
    if other_node != node:
        warning = _other_host(system, (process, node), (other, other_node), node_gpus, help)
    else:
        warning = _same_ports(system, (process, node), other, node_gpus, help)
    placer.faults.warn(at, warning)


def _other_host(system: str, process: tuple[int, int], leader: tuple[int, int], gpus: int, help: str) -> Diagnostic:
    message = (
        f"{system} gives engine {process[0]} on node {process[1]} the address of engine {leader[0]} on node "
        f"{leader[1]}: it expects that every node has {gpus} GPUs, and that the rollout starts with a whole one"
    )
    return Diagnostic("engine-address", message, help, warning=True)


def _same_ports(system: str, process: tuple[int, int], other: int, gpus: int, help: str) -> Diagnostic:
    message = (
        f"{system} may give process {process[0]} of the engines on node {process[1]} the ports of process {other} "
        f"there: it expects that every node has {gpus} GPUs, and looks for ports from the same number on each"
    )
    return Diagnostic("engine-address", message, help, warning=True)
