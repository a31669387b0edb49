"""The domains of each level, from the labels of the nodes, and the order of addresses.

A level is the key of a node label. A value is unique only within its parent, so a domain is the tuple of the labels
from the outermost level inwards. A node without the label is a domain of its own.
"""

from __future__ import annotations

import ipaddress
import socket
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from rankplan._core import Domains as Column
from rankplan.words import natural

RANK_LABELS = ("rankplan.io/topology-rank", "topo_rank")
"""Labels that order domains: a domain has the smallest rank of its nodes. The second one is NeMo-RL's."""

_RANKED = frozenset(RANK_LABELS)
_Labels: TypeAlias = tuple[tuple[str | None, ...], int]

Name: TypeAlias = tuple[str | None, ...]
"""The labels of a domain, from the outermost level inwards; ``None`` where its only node has no label."""


@dataclass(frozen=True)
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


def domains(stretches: Iterable[tuple[range, Mapping[str, str]]], levels: Sequence[str]) -> tuple[Domains, ...]:
    """Return the domains of each of these levels, outermost first.

    ``stretches`` are the ranges of nodes with equal labels, ascending, and these labels. Takes time in proportion to
    these ranges, and to the nodes without labels.
    """
    if not levels:
        return ()
    # Nodes with the same labels are looked at together: there are far fewer domains than nodes.
    alike: dict[_Labels, int] = {}
    by_node: list[int] = []
    ranked: list[tuple[int, int]] = []
    for nodes, of_node in stretches:
        labels = tuple(map(of_node.get, levels))
        if None in labels:
            # a node without a label is a domain of its own, named by its rank
            found = [alike.setdefault((labels, node), len(alike)) for node in nodes]
        else:
            found = [alike.setdefault((labels, 0), len(alike))] * len(nodes)
        by_node += found
        if not _RANKED.isdisjoint(of_node) and (rank := _rank_of(of_node)) is not None:
            ranked += ((index, rank) for index in found)
    all_levels: list[Domains] = []
    parents = [0] * len(alike)
    names: tuple[Name, ...] = ((),)
    for depth, level in enumerate(levels):
        keys: list[tuple[int, str | None, int]] = [
            (parent, labels[depth], node if labels[depth] is None else 0)
            for parent, (labels, node) in zip(parents, alike, strict=True)
        ]
        lowest: dict[tuple[int, str | None, int], int | None] = dict.fromkeys(keys)
        for index, rank in ranked:
            known = lowest[keys[index]]
            lowest[keys[index]] = rank if known is None else min(known, rank)
        order = {key: index for index, key in enumerate(sorted(lowest, key=lambda key: _position(key, lowest[key])))}
        parents = [order[key] for key in keys]
        names = tuple((*names[parent], label) for parent, label, _ in order)
        ids = array("I", [parents[index] for index in by_node])
        all_levels.append(Domains(level, ids, names, tuple(parent for parent, _, _ in order)))
    return tuple(all_levels)


def _position(key: tuple[int, str | None, int], rank: int | None) -> tuple[object, ...]:
    """Return where a domain is sorted: within its parent, ranked ones first, unlabelled ones last."""
    parent, label, node = key
    if label is None:
        return parent, 1, 0, 0, (), "", node
    return parent, 0, rank is None, rank or 0, natural(label), label, node


def _rank_of(labels: Mapping[str, str]) -> int | None:
    """Return the explicit rank of a node, if it has one."""
    text = labels.get(RANK_LABELS[0], labels.get(RANK_LABELS[1]))
    return int(text) if text is not None and text.isascii() and text.isdecimal() and len(text) < 10 else None


def one_by_one(labels: Iterable[Mapping[str, str]]) -> Iterator[tuple[range, Mapping[str, str]]]:
    """Yield the labels of each node of a list, as `domains` takes them."""
    return ((range(index, index + 1), of_node) for index, of_node in enumerate(labels))


def natural_order(labels: Sequence[Mapping[str, str]], levels: Sequence[str]) -> list[int]:
    """Return the indices of nodes domain after domain, depth first.

    Within a domain, nodes with an explicit rank come first, and equal ones keep their order.
    """
    innermost = domains(one_by_one(labels), levels)[-1].ids if levels else array("I", bytes(4 * len(labels)))
    ranks = list(map(_rank_of, labels))
    return sorted(range(len(labels)), key=lambda index: (innermost[index], ranks[index] is None, ranks[index] or 0))


Key: TypeAlias = tuple[int, int, tuple[tuple[str, int], ...], str]


def address_key(address: str) -> Key:
    """Return a sort key: IPv4 by number, then IPv6 by number, then anything else as a name in natural order.

    Ignores brackets around an IPv6 address, and reads an IPv4 address mapped into IPv6 as IPv4. Two texts have the same
    key only if they are the same address. Does not look up names.
    """
    try:
        # Ten times as fast as ipaddress: a large cluster has thousands of these.
        return (4, int.from_bytes(socket.inet_pton(socket.AF_INET, address), "big"), (), "")
    except (OSError, ValueError):
        pass
    try:
        found = ipaddress.IPv6Address(address[1:-1] if address[:1] + address[-1:] == "[]" else address)
    except ValueError:
        return (99, 0, natural(address), address)
    if found.ipv4_mapped is not None:
        return (4, int(found.ipv4_mapped), (), "")
    return (6, int(found), (), found.scope_id or "")
