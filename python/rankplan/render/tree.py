"""The nodes of an inventory as a tree: levels, domains, nodes."""

from __future__ import annotations

from collections.abc import Iterator

from rankplan._core import RankSet
from rankplan.nodes.inventory import Inventory
from rankplan.nodes.node import NodeSpec
from rankplan.words import counted, nodes_text

_MOST_NAMES = 4


def tree_lines(inventory: Inventory) -> list[str]:
    """Return the nodes as lines of text, domain below domain; nodes without a label at a level come last."""
    total: dict[str, int] = {}
    for nodes, spec in inventory.stretches():
        total[spec.accelerator_type] = total.get(spec.accelerator_type, 0) + len(nodes) * spec.num_accelerators
    hardware = [f"{count:,} {kind}" for kind, count in total.items() if count]
    levels = ", ".join(inventory.levels) or "none"
    heading = f"{', '.join([counted(inventory.num_nodes, 'node'), *hardware])}; levels: {levels}"
    tree = _Tree(inventory)
    return [heading, *tree.below(0, list(range(inventory.num_nodes)), "  ")]


class _Tree:
    def __init__(self, inventory: Inventory) -> None:
        self._domains = inventory.domains
        self._specs: dict[int, NodeSpec] = {}
        """The records of nodes with a name or a fault of their own."""
        for nodes, spec in inventory.stretches():
            if spec.hostname or spec.ip or spec.unhealthy or not spec.healthy:
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
            more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
            text += f" ({', '.join(names[:_MOST_NAMES])}{more})"
        broken = RankSet(spec.rank for spec in here if not spec.healthy)
        parts = [nodes_text(broken)] if broken else []
        parts += [
            f"accelerator {spec.unhealthy} of node {spec.rank}" for spec in here if spec.unhealthy and spec.healthy
        ]
        return f"{text}; excluded: {', '.join(parts)}" if parts else text
