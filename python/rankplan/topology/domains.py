"""The domains of each level, from the labels of the nodes.

A level is the key of a node label. A value is unique only within its parent, so a domain is the tuple of the labels
from the outermost level inwards. A node without the label is a domain of its own.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from rankplan.addresses import natural

RANK_LABELS = ("rankplan.io/topology-rank", "topo_rank")
"""Labels that order domains: a domain has the smallest rank of its nodes. The second one is NeMo-RL's."""

Name: TypeAlias = tuple[str | None, ...]
"""The labels of a domain, from the outermost level inwards; ``None`` where its only node has no label."""


class Labelled(Protocol):
    """A record with the labels of a node."""

    @property
    def labels(self) -> Mapping[str, str]: ...


class Nodes(Protocol):
    """Nodes in ranges with equal labels, such as an `Inventory`."""

    def stretches(self) -> Iterator[tuple[range, Labelled]]: ...


@dataclass(frozen=True, slots=True)
class Domains:
    """The domains of one level.

    ``ids``, shape (nodes,): the domain of each node, by node rank. Domains are numbered depth first in natural order,
    so the domains of a parent are consecutive. ``names``, by id: the labels of the domain and of its parents.
    ``parents``, by id: its domain at the level outside, 0 at the outermost one.
    """

    level: str
    ids: array[int]
    names: tuple[Name, ...]
    parents: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.names)

    def text(self, index: int) -> str:
        """Return the name of a domain as messages show it: ``b0/a``."""
        return "/".join(label or "no label" for label in self.names[index])

    def nodes(self) -> list[list[int]]:
        """Return the node ranks of each domain, by id, ascending."""
        found: list[list[int]] = [[] for _ in self.names]
        for node, index in enumerate(self.ids):
            found[index].append(node)
        return found

    def sizes(self) -> list[int]:
        """Return the number of nodes of each domain, by id."""
        counts = [0] * len(self.names)
        for index in self.ids:
            counts[index] += 1
        return counts


def domains(inventory: Nodes, levels: Sequence[str]) -> tuple[Domains, ...]:
    """Return the domains of each of these levels, outermost first.

    Takes time in proportion to the ranges of equal nodes, and to the nodes without labels.
    """
    found: list[Domains] = []
    parts = [(nodes, record.labels, 0, _rank_of(record.labels)) for nodes, record in inventory.stretches()]
    names: tuple[Name, ...] = ((),)
    for level in levels:
        lowest: dict[tuple[int, str | None, int], int | None] = {}
        keyed = []
        for nodes, labels, parent, rank in parts:
            label = labels.get(level)
            # a node without the label is a domain of its own, named by its rank
            for part in (nodes,) if label is not None else (range(node, node + 1) for node in nodes):
                key = (parent, label, part.start if label is None else 0)
                known = lowest.get(key)
                lowest[key] = rank if known is None else known if rank is None else min(known, rank)
                keyed.append((part, labels, key, rank))
        order = {key: index for index, key in enumerate(sorted(lowest, key=lambda key: _position(key, lowest[key])))}
        ids = array("I")
        for part, _, key, _ in keyed:
            ids.extend(array("I", (order[key],)) * len(part))
        names = tuple((*names[parent], label) for parent, label, _ in order)
        found.append(Domains(level, ids, names, tuple(parent for parent, _, _ in order)))
        parts = [(part, labels, order[key], rank) for part, labels, key, rank in keyed]
    return tuple(found)


def _position(key: tuple[int, str | None, int], rank: int | None) -> tuple[object, ...]:
    """Return where a domain is sorted: within its parent, ranked ones first, unlabelled ones last."""
    parent, label, node = key
    if label is None:
        return parent, 1, 0, 0, (), "", node
    return parent, 0, rank is None, rank or 0, natural(label), label, node


def _rank_of(labels: Mapping[str, str]) -> int | None:
    """Return the explicit rank of a node, if it has one."""
    text = next((labels[key] for key in RANK_LABELS if key in labels), None)
    return int(text) if text is not None and text.isascii() and text.isdecimal() and len(text) < 10 else None


@dataclass(frozen=True, slots=True)
class _Listed:
    """Nodes in a list, each with its labels."""

    nodes: Sequence[Labelled]

    def stretches(self) -> Iterator[tuple[range, Labelled]]:
        """Yield each node."""
        return ((range(index, index + 1), node) for index, node in enumerate(self.nodes))


def natural_order(nodes: Iterable[Labelled], levels: Sequence[str]) -> list[int]:
    """Return the indices of nodes domain after domain, depth first.

    Within a domain, nodes with an explicit rank come first, and equal ones keep their order.
    """
    listed = list(nodes)
    innermost = domains(_Listed(listed), levels)[-1].ids if levels else array("I", bytes(4 * len(listed)))
    ranks = [_rank_of(node.labels) for node in listed]
    return sorted(range(len(listed)), key=lambda index: (innermost[index], ranks[index] is None, ranks[index] or 0))
