"""What the processes of a plan reserve on their nodes, and the nodes that have too little of it.

Each process is bound to its node, so that nothing but other nodes, or smaller amounts, can help.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from rankplan._core import RankSet
from rankplan.errors import Diagnostic
from rankplan.nodes.inventory import Inventory
from rankplan.plans.component import Component, reserves
from rankplan.plans.reserving import CODE
from rankplan.words import amount_text, nodes_text

SETTINGS = {"CPU": "cpus_per_process", "memory": "host_memory_per_process"}
"""The setting of a component that states what each of its processes reserves of a resource."""

_FACTS = {"CPU": "cpus", "memory": "reservable_memory"}
"""The field of a node that states how much can be reserved there."""

_CURES = {
    "CPU": "give Ray more CPUs there (`ray start --num-cpus`, Slurm's --cpus-per-task, the limits of pods)",
    "memory": "give Ray more memory there (`ray start --memory`, Slurm's --mem, the limits of pods)",
}


class ProcessFault(NamedTuple):
    """Nodes that have too little for their processes; ``component`` reserves the most of it there."""

    component: str
    setting: str
    fault: Diagnostic


class _Short(NamedTuple):
    """What a node has, and what the processes of each component reserve there."""

    present: float
    needed: tuple[tuple[str, float], ...]


def process_faults(inventory: Inventory, components: Iterable[Component]) -> list[ProcessFault]:
    """Return the nodes that have too little for the processes there; one whose amounts are unknown may have any."""
    reserving = [component for component in components if reserves(component)]
    faults: list[ProcessFault] = []
    for resource, setting in SETTINGS.items():
        needed = _needed(reserving, setting)
        for short, nodes in _short_nodes(inventory, needed, _FACTS[resource]).items():
            largest = max(short.needed, key=lambda part: part[1])[0]
            faults.append(ProcessFault(largest, setting, _fault(resource, short, RankSet(nodes))))
    return faults


def _needed(components: Iterable[Component], setting: str) -> dict[int, dict[str, float]]:
    """Return what the processes of each component reserve on each node."""
    needed: dict[int, dict[str, float]] = {}
    for component in components:
        amount = getattr(component, setting)
        for run in component.rows.runs(at_home=True) if amount else ():
            for node in range(run.node, run.node + run.nodes):
                parts = needed.setdefault(node, {})
                parts[component.name] = parts.get(component.name, 0) + amount * run.pattern.processes
    return needed


def _short_nodes(inventory: Inventory, needed: Mapping[int, Mapping[str, float]], fact: str) -> dict[_Short, list[int]]:
    short: dict[_Short, list[int]] = {}
    for nodes, record in inventory.stretches() if needed else ():
        present = getattr(record, fact)
        if present is None:
            continue
        for node in nodes:
            parts = needed.get(node, {})
            if round(sum(parts.values()), 4) > present:  # Ray counts ten-thousandths
                short.setdefault(_Short(present, tuple(parts.items())), []).append(node)
    return short


def _fault(resource: str, short: _Short, nodes: RankSet) -> Diagnostic:
    have, whose = ("has", "its") if len(nodes) == 1 else ("have", "their")
    total = amount_text(resource, round(sum(amount for _, amount in short.needed), 4))
    parts = ", ".join(f"{amount:g} for {name}" for name, amount in short.needed)
    message = f"{nodes_text(nodes)} {have} {short.present:g} of the {total} that {whose} processes reserve: {parts}"
    return Diagnostic(CODE, message, f"{_CURES[resource]}, lower `{SETTINGS[resource]}`, or use more nodes")
