"""The domains of each level, from the labels of the nodes.

A level is the key of a node label. A value is unique only within its parent, so a domain is the tuple of the labels
from the outermost level inwards. A node without the label is a domain of its own.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TypeAlias

from rankplan import _core
from rankplan._core import Domains as Column
from rankplan.frozen import frozen

RANK_LABELS = ("rankplan.io/topology-rank", "topo_rank")
"""Labels that order domains: a domain has the smallest rank of its nodes. The second one is NeMo-RL's."""

Name: TypeAlias = tuple[str | None, ...]
"""The labels of a domain, from the outermost level inwards; ``None`` where its only node has no label."""


@frozen(slots=False)
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

    @cached_property
    def column(self) -> Column:
        """``ids`` as the core takes them."""
        return Column(self.ids.tobytes())

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


def domains(labels: Sequence[Mapping[str, str]], levels: Sequence[str]) -> tuple[Domains, ...]:
    """Return the domains of nodes with these labels at each of these levels, outermost first."""
    return levels_of(levels, _core.domains(labels, levels))


def levels_of(levels: Sequence[str], found: Iterable[tuple[bytes, list[Name], tuple[int, ...]]]) -> tuple[Domains, ...]:
    """Return the domains that the core found at these levels."""
    return tuple(
        Domains(level, array("I", ids), tuple(names), parents)
        for level, (ids, names, parents) in zip(levels, found, strict=True)
    )
