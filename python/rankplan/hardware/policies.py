"""Which CPUs a process should run on: the policies of PyTorch's ``torch.numa.binding``, and where they leave a gap.

Every function counts accelerators by their index on the node and NUMA nodes by number, never by rank.
"""

from __future__ import annotations

from collections.abc import Sequence

from rankplan._core import RankSet
from rankplan.frozen import frozen
from rankplan.hardware.machine import Machine
from rankplan.words import counted

POLICIES = ("none", "node", "socket", "exclusive", "core-complex")
NO_BINDING, BY_NODE, BY_SOCKET, EXCLUSIVE, CORE_COMPLEX = POLICIES
NO_MEMORY, PREFERRED, BOUND = MEMORY_POLICIES = ("none", "preferred", "bind")

NIC_POLICIES = ("check", "set")
"""Whether nearby network cards are only reported, or used."""

VISIBILITIES = ("own", "node", "own-first")
"""Whether a process sees its own accelerators only, all of its node, or all of its node with its own first."""

NOTHING = RankSet()


@frozen
class Bound:
    """Where a process should run: its CPUs, and the NUMA nodes of its memory with a policy; empty means any."""

    cpus: RankSet = NOTHING
    memory: str = NO_MEMORY
    memory_nodes: RankSet = NOTHING

    def __bool__(self) -> bool:
        return bool(self.cpus or self.memory_nodes)


@frozen
class Unmet:
    """Why a policy cannot be met for an accelerator; ``contradicts``: because of known facts, not of missing ones."""

    reason: str
    contradicts: bool = True


def near_cpus(policy: str, machine: Machine, numa: Sequence[int | None]) -> list[RankSet | Unmet]:
    """Return the CPUs for each accelerator of a node; ``numa`` is the NUMA node of each, ``None`` if unknown.

    - ``node``: the CPUs of its NUMA node; ``socket``: those of all NUMA nodes of its package.
    - ``exclusive``: the cores of its NUMA node, split evenly over the accelerators there, the first ones getting one
      more.
    - ``core-complex``: the CPUs of one largest cache of its NUMA node, in turn, those with most CPUs first.
    """
    homes = [home(machine, node) for node in numa]
    return [_near(policy, machine, homes, index) for index in range(len(numa))]


def home(machine: Machine, node: int | None) -> int | None:
    """Return the NUMA node of an accelerator; an unknown one is the only one with CPUs, or else ``None``."""
    if node is not None and node >= 0:
        return node
    with_cpus = [number for number, cpus in machine.numa.items() if cpus]
    return with_cpus[0] if len(with_cpus) == 1 else None


def spare_cpus(machine: Machine, numa: Sequence[int | None], taken: RankSet) -> RankSet:
    """Return the CPUs that ``exclusive`` leaves if only the accelerators in ``taken`` are used so."""
    shares = near_cpus(EXCLUSIVE, machine, numa)
    return machine.cpus - RankSet().union(*(cpus for index in taken if isinstance(cpus := shares[index], RankSet)))


def memory_nodes(machine: Machine, cpus: RankSet) -> RankSet:
    """Return the NUMA nodes that have memory and some of these CPUs."""
    return RankSet(node for node, here in machine.numa.items() if here & cpus and node in machine.memory)


def _near(policy: str, machine: Machine, homes: Sequence[int | None], index: int) -> RankSet | Unmet:
    node = homes[index]
    if node is None:
        return Unmet("its NUMA node is unknown", contradicts=False)
    if node not in machine.numa:
        return Unmet(f"it is on NUMA node {node}, which the machine does not have")
    here = machine.numa[node]
    if policy == BY_SOCKET:
        socket = next((nodes for nodes in machine.sockets if node in nodes), None)
        if socket is None:
            return Unmet(f"the socket of NUMA node {node} is unknown", contradicts=False)
        cpus = RankSet().union(*(machine.numa.get(other, RankSet()) for other in socket))
        return cpus or Unmet(f"none of the CPUs of its socket (NUMA nodes {socket}) may be used")
    if not here:
        return Unmet(f"no CPU of its NUMA node {node} may be used")
    if policy == BY_NODE:
        return here
    turn = [other for other, where in enumerate(homes) if where == node].index(index)
    if policy == EXCLUSIVE:
        return _share_of_cores(machine, node, turn, sum(where == node for where in homes))
    parts = (cache & here for cache in machine.caches)
    complexes = sorted((part for part in parts if part), key=lambda part: (-len(part), part[0]))
    if not complexes:
        return Unmet(f"the caches of NUMA node {node} are unknown", contradicts=False)
    return complexes[turn % len(complexes)]


def _share_of_cores(machine: Machine, node: int, turn: int, sharers: int) -> RankSet | Unmet:
    cores = [core for core in machine.ordered_cores() if core <= machine.numa[node]]
    if not cores:
        return Unmet(f"the cores of NUMA node {node} are unknown", contradicts=False)
    each, more = divmod(len(cores), sharers)
    if not each:
        return Unmet(f"NUMA node {node} has {counted(len(cores), 'usable core')} for {sharers} accelerators")
    start = turn * each + min(turn, more)
    return RankSet().union(*cores[start : start + each + (turn < more)])
