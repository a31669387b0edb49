"""The nodes of an inventory as lines of text: the tree of levels and domains, and the facts about the hardware."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

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
        level = self._domains[depth]
        nodes_of: dict[int, list[int]] = {}
        for node in nodes:
            nodes_of.setdefault(level.ids[node], []).append(node)
        is_innermost = depth + 1 == len(self._domains)
        unlabelled: list[int] = []
        for domain, inside in sorted(nodes_of.items()):
            label = level.names[domain][-1]
            if label is None:
                unlabelled += inside
            elif is_innermost:
                yield f"{indent}{level.level} {label}: {self._named(RankSet(inside))}"
            else:
                yield f"{indent}{level.level} {label}: {counted(len(inside), 'node')}"
                yield from self.below(depth + 1, inside, indent + "  ")
        if unlabelled:
            yield f"{indent}no {level.level}: {self._named(RankSet(unlabelled))}"

    def _named(self, nodes: RankSet) -> str:
        """Return nodes in a line: ranks, names, excluded hardware, and what other jobs have."""
        text = nodes_text(nodes)
        specs = [self._specs[node] for node in nodes if node in self._specs]
        names = [spec.name for spec in specs if spec.hostname or spec.ip]
        if names:
            text += f" ({listed(names, _MOST_NAMES)})"
        excluded = _excluded(specs)
        if excluded:
            text += f"; excluded: {', '.join(excluded)}"
        taken = RankSet(spec.rank for spec in specs if spec.taken is not None)
        if taken:
            text += f"; taken: {nodes_text(taken)}"
        return text


def _excluded(specs: Sequence[NodeSpec]) -> list[str]:
    """Return the nodes that are out of use, and then the accelerators of other nodes that are."""
    excluded = []
    unhealthy = RankSet(spec.rank for spec in specs if not spec.healthy)
    if unhealthy:
        excluded.append(nodes_text(unhealthy))
    for spec in specs:
        if spec.healthy and spec.unhealthy:
            excluded.append(f"accelerator {spec.unhealthy} of node {spec.rank}")
    return excluded


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
        cpus = f"CPUs {spec.numa[node]}" if spec.numa.get(node) else "no CPUs"
        size = f", {spec.memory[node] / 1024:.0f} GiB" if node in spec.memory else ""
        yield f"NUMA node {node}: {cpus}{size}"
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
    usable = [core & cpus for core in spec.cores for cpus in spec.numa.values()]
    threads = [len(core) for core in usable if core]
    if threads:
        text = counted(len(threads), "core")
        if max(threads) > 1:
            text += f" with {'-'.join(map(str, sorted({min(threads), max(threads)})))} threads"
        parts.append(text)
    if spec.caches:
        parts.append(counted(len(spec.caches), "largest cache"))
    return ", ".join(parts) or counted(sum(map(len, spec.numa.values())), "CPU")


def _accelerator(device: AcceleratorFacts) -> str:
    facts = []
    if device.model:
        facts.append(printable(device.model))
    if device.memory is not None:
        facts.append(f"{device.memory / 1024:.0f} GiB")
    if device.numa is not None:
        facts.append(f"NUMA node {device.numa}")
    if device.nic is not None:
        distance = f" ({device.distance})" if device.distance else ""
        facts.append(f"card {device.nic}{distance}")
    return ", ".join(facts)


def _nic(nic: NicFacts) -> str:
    facts = []
    if not nic.active:
        facts.append("down")
    if nic.bonded:
        facts.append("bonded")
    if nic.rate is not None:
        facts.append(f"{nic.rate:g} Gbit/s")
    if nic.numa is not None:
        facts.append(f"NUMA node {nic.numa}")
    name = f"card {printable(nic.name)}"
    return f"{name}: {', '.join(facts)}" if facts else name
