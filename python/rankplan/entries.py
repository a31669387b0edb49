"""The entries of an inventory, each the record of one node or of several equal ones: cutting and marking them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from rankplan._core import RankSet
from rankplan.errors import Diagnostic
from rankplan.exclusion import Marks
from rankplan.node import NodeSpec
from rankplan.words import did_you_mean


def cut(entries: Iterable[NodeSpec], num_nodes: int) -> list[NodeSpec]:
    """Return the entries of the first nodes."""
    kept = RankSet(f"0-{num_nodes - 1}")
    found = [entry.at(entry.ranks & kept) for entry in entries]
    return [entry for entry in found if entry.ranks]


def marked(entries: Iterable[NodeSpec], marks: Marks) -> list[NodeSpec]:
    """Return entries with marked nodes as entries of their own that are not healthy."""
    if not marks:
        return list(entries)
    found, nodes = [], RankSet(marks)
    for entry in entries:
        if len(entry.ranks) == 1 and entry.rank not in marks:
            found.append(entry)
            continue
        here = entry.ranks & nodes
        if rest := entry.ranks - here:
            found.append(entry.at(rest))
        alike: dict[RankSet | None, list[int]] = {}
        for node in here:
            alike.setdefault(marks[node], []).append(node)
        for local, ranks in alike.items():
            new = {"healthy": False} if local is None else {"unhealthy": entry.unhealthy | local}
            found.append(entry.model_copy(update={"ranks": RankSet(ranks), **new}))
    return found


def reordered(nodes: Sequence[NodeSpec], order: Iterable[int]) -> list[NodeSpec]:
    """Return the entries of nodes that are numbered from 0 in this order; ``nodes`` has the entry of each node now."""
    found: list[NodeSpec] = []
    shared: dict[int, tuple[NodeSpec, list[int]]] = {}
    for rank, node in enumerate(order):
        entry = nodes[node]
        if len(entry.ranks) == 1:
            found.append(entry.at(RankSet([rank])))
        else:
            shared.setdefault(id(entry), (entry, []))[1].append(rank)
    found += [entry.at(RankSet(ranks)) for entry, ranks in shared.values()]
    return sorted(found, key=lambda entry: entry.rank) if shared else found


def label_keys(entries: Iterable[NodeSpec]) -> set[str]:
    """Return the keys of the labels of all nodes."""
    return {key for entry in entries for key in entry.labels}


def unlabelled(levels: Sequence[str], keys: Collection[str]) -> Iterator[tuple[int, Diagnostic]]:
    """Yield the index and the fault of each level that is the key of no label."""
    for index, level in enumerate(levels):
        if level not in keys:
            help = did_you_mean(level, sorted(keys), "the labels are") or "add labels to the nodes"
            yield index, Diagnostic("unknown-level", f"no node has the label `{level}`", help)
