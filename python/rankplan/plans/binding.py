"""The CPUs and the memory that the processes of a component should use, from the facts of their nodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache

from rankplan._core import Placement, RankSet
from rankplan.errors import Diagnostic
from rankplan.hardware.machine import Machine
from rankplan.hardware.policies import (
    BY_NODE,
    NO_BINDING,
    NO_MEMORY,
    Bound,
    Unmet,
    memory_nodes,
    near_cpus,
    spare_cpus,
)
from rankplan.nodes.inventory import Inventory, NodeSpec
from rankplan.nodes.node import machine_of
from rankplan.words import first_node


class Cores:
    """Finds the CPUs of processes; equal nodes are looked at once."""

    def __init__(self, policy: str, memory: str, inventory: Inventory, taken: Mapping[int, RankSet]) -> None:
        """``taken`` are the accelerators, by node, whose cores other components use exclusively.

        A component without accelerators gets the other cores.
        """
        self._policy, self._memory, self._taken = policy, memory, taken
        self._near: dict[tuple[str, int, str], list[RankSet | Unmet]] = {}
        self._spec = cache(inventory.node)
        self._facts = cache(lambda rank: self._spec(rank).facts)
        self._machine = cache(lambda rank: machine_of(self._spec(rank)))

    @property
    def stated(self) -> bool:
        """Whether any policy is stated."""
        return self._policy != NO_BINDING or self._memory != NO_MEMORY

    def bound(self, row: Placement) -> Bound:
        """Return where a process should run, as far as the facts of its node tell."""
        spec = self._spec(row.cluster_node_rank)
        machine = self._machine(row.cluster_node_rank)
        if machine is None or not self.stated:
            return Bound()
        cpus = self._near_accelerators(row, self._policy)
        taken = self._taken.get(row.cluster_node_rank)
        if taken and not row.num_accelerators and self._policy != NO_BINDING:
            cpus = spare_cpus(machine, _numa(spec), taken)
        if self._memory == NO_MEMORY:
            return Bound(cpus)
        near = cpus or self._near_accelerators(row, BY_NODE)
        return Bound(cpus, self._memory, memory_nodes(machine, near))

    def faults(self, name: str, rows: Iterable[tuple[Placement, Sequence[int]]]) -> list[Diagnostic]:
        """Return why known facts contradict the policies, equal reasons together.

        Each row comes with the nodes that have an equal row and equal facts, its own first.
        """
        reasons: dict[tuple[str, str], dict[int, set[int]]] = {}
        for row, nodes in rows:
            for index, reason in self._unmet(row):
                where = reasons.setdefault(("accelerators", reason), {})
                for node in nodes:
                    where.setdefault(node, set()).add(index)
            bound = self.bound(row)
            sizes = self._spec(row.cluster_node_rank).memory
            if bound.cpus and self._memory != NO_MEMORY and sizes and not bound.memory_nodes:
                where = reasons.setdefault(("", "the NUMA nodes of its CPUs have no memory"), {})
                for node in nodes:
                    where.setdefault(node, set())
        return [self._fault(name, what, reason, where) for (what, reason), where in reasons.items()]

    def _fault(self, name: str, what: str, reason: str, where: Mapping[int, set[int]]) -> Diagnostic:
        node, indices = next(iter(where.items()))
        place = first_node(node, len(where))
        if what:
            noun = "accelerator" if len(indices) == 1 else what
            place = f"{noun} {RankSet(indices)} of {place}"
        policy = f"binding {self._policy}" if what else f"memory_binding {self._memory}"
        help = "use binding node, socket or none" if what else "use memory_binding none"
        return Diagnostic("binding-unmet", f"{name}: {policy} is not possible on {place}: {reason}", help)

    def _near_accelerators(self, row: Placement, policy: str) -> RankSet:
        return RankSet().union(*(found for found in self._answers(row, policy) if isinstance(found, RankSet)))

    def _answers(self, row: Placement, policy: str) -> Iterator[RankSet | Unmet]:
        """Yield the CPUs near each of its accelerators on its own node."""
        if policy == NO_BINDING or not row.num_accelerators:
            return
        spec = self._spec(row.cluster_node_rank)
        key = (self._facts(row.cluster_node_rank), spec.num_accelerators, policy)
        if key not in self._near:
            self._near[key] = near_cpus(policy, self._machine(row.cluster_node_rank) or Machine(), _numa(spec))
        for node, index in row.devices:
            if node == row.cluster_node_rank:
                yield self._near[key][index]

    def _unmet(self, row: Placement) -> Iterator[tuple[int, str]]:
        if self._machine(row.cluster_node_rank) is None or not row.num_accelerators:
            return
        own = [index for node, index in row.devices if node == row.cluster_node_rank]
        for index, found in zip(own, self._answers(row, self._policy), strict=False):
            if isinstance(found, Unmet) and found.contradicts:
                yield index, found.reason


def _numa(spec: NodeSpec) -> list[int | None]:
    return [device.numa for device in spec.devices] or [None] * spec.num_accelerators
