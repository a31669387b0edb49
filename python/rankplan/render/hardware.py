"""The hardware facts of an inventory as lines of text, with equal nodes together."""

from __future__ import annotations

from collections.abc import Iterator

from rankplan._core import RankSet
from rankplan.nodes.inventory import Inventory
from rankplan.nodes.node import AcceleratorFacts, NicFacts, NodeSpec
from rankplan.words import counted, nodes_text, printable

MOST = 16
"""How many kinds of nodes are listed, and how many problems."""


def hardware_lines(inventory: Inventory) -> list[str]:
    """Return the known cores, memory, accelerators and network cards; uuids and addresses are only in the file."""
    kinds: dict[tuple[str, ...], list[range]] = {}
    problems: list[str] = []
    for nodes, spec in inventory.stretches():
        if spec.facts:
            kinds.setdefault(tuple(_described(spec)), []).append(nodes)
            name = spec.at(RankSet([nodes[0]])).name
            problems += [f"{name}: accelerator {index}: {printable(problem)}" for index, problem in spec.problems()]
    lines = []
    for described, ranges in list(kinds.items())[:MOST]:
        ranks = RankSet(rank for nodes in ranges for rank in nodes)
        lines += [f"hardware of {nodes_text(ranks)}:", *(f"  {line}" for line in described)]
    if len(kinds) > MOST:
        lines.append(f"and {counted(len(kinds) - MOST, 'more kind')} of nodes")
    lines += problems[:MOST]
    if len(problems) > MOST:
        lines.append(f"and {counted(len(problems) - MOST, 'more problem')} of accelerators")
    return lines


def _described(spec: NodeSpec) -> Iterator[str]:
    if spec.numa:
        yield _cores(spec)
    for node in sorted({*spec.numa, *spec.memory}):
        size = f"{spec.memory[node] / 1024:.0f} GiB" if node in spec.memory else ""
        cpus = f"CPUs {spec.numa[node]}" if spec.numa.get(node) else "no CPUs"
        yield f"NUMA node {node}: {', '.join(filter(None, (cpus, size)))}"
    alike: dict[str, list[int]] = {}
    for index, device in enumerate(spec.devices):
        alike.setdefault(_accelerator(device), []).append(index)
    for text, indices in alike.items():
        if text:
            yield f"accelerator{'s' if len(indices) > 1 else ''} {RankSet(indices)}: {text}"
    for nic in spec.nics:
        yield _nic(nic)


def _cores(spec: NodeSpec) -> str:
    parts = [counted(len(spec.sockets), "socket")] if spec.sockets else []
    cores = [usable for core in spec.cores for here in spec.numa.values() if (usable := core & here)]
    if cores:
        sizes = sorted({len(core) for core in cores})
        span = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]}-{sizes[-1]}"
        each = "" if sizes == [1] else f" with {span} threads"
        parts.append(f"{counted(len(cores), 'core')}{each}")
    if spec.caches:
        parts.append(counted(len(spec.caches), "largest cache"))
    return ", ".join(parts) or counted(sum(map(len, spec.numa.values())), "CPU")


def _accelerator(device: AcceleratorFacts) -> str:
    memory = f"{device.memory / 1024:.0f} GiB" if device.memory is not None else None
    numa = f"NUMA node {device.numa}" if device.numa is not None else None
    card = None
    if device.nic is not None:
        card = f"card {device.nic}" + (f" ({device.distance})" if device.distance else "")
    model = None if device.model is None else printable(device.model)
    return ", ".join(filter(None, (model, memory, numa, card)))


def _nic(nic: NicFacts) -> str:
    state = None if nic.active else "down"
    rate = f"{nic.rate:g} Gbit/s" if nic.rate is not None else None
    numa = f"NUMA node {nic.numa}" if nic.numa is not None else None
    facts = ", ".join(filter(None, (state, "bonded" if nic.bonded else None, rate, numa)))
    return f"card {printable(nic.name)}{': ' if facts else ''}{facts}"
