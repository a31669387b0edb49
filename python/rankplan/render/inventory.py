"""The nodes of an inventory as lines of text: the tree of levels and domains, and the facts about the hardware."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rankplan._core import RankSet
from rankplan.errors import printable
from rankplan.nodes.inventory import Inventory
from rankplan.nodes.node import AcceleratorFacts, NicFacts, NodeSpec
from rankplan.words import counted, listed, nodes_text

_MOST_NAMES = 4
_MOST = 16
"""How many kinds of nodes are listed, and how many problems."""


def tree_lines(inventory: Inventory) -> list[str]:
    """Return the nodes as lines of text, domain below domain; nodes without a label at a level come last."""
    total = Counter[str]()
    for nodes, spec in inventory.stretches():
        total[spec.accelerator_type] += len(nodes) * spec.num_accelerators
    hardware = [f"{count:,} {kind}" for kind, count in total.items() if count]
    levels = ", ".join(inventory.levels) or "none"
    heading = f"{', '.join([counted(inventory.num_nodes, 'node'), *hardware])}; levels: {levels}"
    return [heading, *_Tree(inventory).below(0, list(range(inventory.num_nodes)), "  ")]


class _Tree:
    def __init__(self, inventory: Inventory) -> None:
        self._domains = inventory.domains
        self._specs: dict[int, NodeSpec] = {}
        """The records of nodes with a name or a fault of their own."""
        for nodes, spec in inventory.stretches():
            if spec.hostname or spec.ip or spec.unhealthy or spec.taken is not None or not spec.healthy:
                self._specs.update((node, spec.at(RankSet([node]))) for node in nodes)

    def below(self, depth: int, nodes: list[int], indent: str) -> Iterator[str]:
        """Yield the lines of some nodes, from a level inwards."""
        if depth == len(self._domains):
            yield indent + self._named(RankSet(nodes))
            return
        domains = self._domains[depth]
        found: dict[int, list[int]] = {}
        for node in nodes:
            found.setdefault(domains.ids[node], []).append(node)
        unlabelled: list[int] = []
        for index, here in sorted(found.items()):
            label = domains.names[index][-1]
            if label is None:
                unlabelled += here
                continue
            last = depth + 1 == len(self._domains)
            text = self._named(RankSet(here)) if last else counted(len(here), "node")
            yield f"{indent}{domains.level} {label}: {text}"
            if not last:
                yield from self.below(depth + 1, here, indent + "  ")
        if unlabelled:
            yield f"{indent}no {domains.level}: {self._named(RankSet(unlabelled))}"

    def _named(self, nodes: RankSet) -> str:
        """Return nodes in a line: ranks, names, and excluded hardware."""
        text = nodes_text(nodes)
        here = [self._specs[node] for node in nodes if node in self._specs]
        names = [spec.name for spec in here if spec.hostname or spec.ip]
        if names:
            text += f" ({listed(names, _MOST_NAMES)})"
        broken = RankSet(spec.rank for spec in here if not spec.healthy)
        parts = [nodes_text(broken)] if broken else []
        partly = (spec for spec in here if spec.unhealthy and spec.healthy)
        parts += [f"accelerator {spec.unhealthy} of node {spec.rank}" for spec in partly]
        text = f"{text}; excluded: {', '.join(parts)}" if parts else text
        taken = RankSet(spec.rank for spec in here if spec.taken is not None)
        return f"{text}; taken: {nodes_text(taken)}" if taken else text


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
    for described, ranges in list(kinds.items())[:_MOST]:
        ranks = RankSet(rank for nodes in ranges for rank in nodes)
        lines += [f"hardware of {nodes_text(ranks)}:", *(f"  {line}" for line in described)]
    if len(kinds) > _MOST:
        lines.append(f"and {counted(len(kinds) - _MOST, 'more kind')} of nodes")
    lines += problems[:_MOST]
    if len(problems) > _MOST:
        lines.append(f"and {counted(len(problems) - _MOST, 'more problem')} of accelerators")
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
        least, most = min(map(len, cores)), max(map(len, cores))
        each = "" if most == 1 else f" with {least if least == most else f'{least}-{most}'} threads"
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
