"""The record of a node, and the machine that its facts describe."""

from __future__ import annotations

from rankplan._core import AcceleratorFacts, NicFacts, NodeSpec
from rankplan.hardware.machine import Machine

__all__ = ["AcceleratorFacts", "NicFacts", "NodeSpec", "machine_of"]


def machine_of(node: NodeSpec) -> Machine | None:
    """Return the cores and the NUMA nodes of a node, or ``None`` if they are unknown."""
    if not node.numa:
        return None
    return Machine(node.numa, node.memory, node.sockets, node.cores, node.caches)
