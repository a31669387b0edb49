"""The memory of nodes: what their ranks keep there, and whether they have it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from rankplan._core import host_store
from rankplan.errors import Diagnostic
from rankplan.memory import faults
from rankplan.memory.need import SWITCH
from rankplan.memory.needs import Needs
from rankplan.memory.slots import Bounds


@dataclass
class _Host:
    """The memory of a node, and what the ranks of each component on it keep there, in bytes."""

    node: int
    size: float
    kept: dict[str, Bounds] = field(default_factory=dict)

    def add(self, name: str, bounds: Bounds) -> None:
        """Add what a component keeps in one of its phases: on some accelerators it may be less."""
        low, high = self.kept.get(name, bounds)
        self.kept[name] = min(bounds[0], low), max(bounds[1], high)

    @property
    def lower(self) -> float:
        """What its ranks keep at least."""
        return sum(low for low, _ in self.kept.values())

    def upper(self, store: float) -> float:
        """Return what its ranks keep at most: each of its components counts the object store, which they share."""
        return sum(high - store for _, high in self.kept.values() if high) + store

    @property
    def largest(self) -> str:
        """The component that keeps the most."""
        return max(self.kept, key=lambda name: self.kept[name])


def host_faults(needs: Needs) -> Iterator[tuple[str, Diagnostic]]:
    """Yield a fault for the nodes whose ranks need more memory than they have, and a warning for the first that may.

    Each has the name of the component that keeps the most.
    """
    has_warning = False
    store = host_store()[1]
    for host in _hosts(needs):
        name = host.largest
        is_stated = not needs.spelled(name) and needs.evaluations[name].entry.optimizer_on_host > 0
        upper = host.upper(store)
        if host.lower > host.size:
            yield name, faults.host_exceeded(host.node, host.size, host.lower, faults.host_help(name, stated=is_stated))
        elif host.size < upper < math.inf and upper > store and not has_warning:
            has_warning = True
            help = faults.host_help(name, stated=is_stated)
            yield name, faults.host_may_exceed(host.node, host.size, upper, store, help)


def _hosts(needs: Needs) -> list[_Host]:
    """Return the nodes whose memory is known and whose ranks state theirs; equal ones once."""
    hosts: dict[tuple[int, float], _Host] = {}
    for shared in needs.cards:
        if shared.host is None:
            continue
        node = shared.where[0]
        host = hosts.setdefault((node, shared.host), _Host(node, shared.host))
        for need in needs.on_card(shared):
            if need.phase != SWITCH:
                host.add(need.components[0], need.host)
    return [host for host in hosts.values() if host.kept]
