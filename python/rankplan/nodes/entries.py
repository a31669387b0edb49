"""The entries of an inventory, each the record of one node or of several equal ones: numbering and marking them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain

from rankplan._core import RankSet
from rankplan.config.hardware import HardwareConfig
from rankplan.config.models import NodeGroup
from rankplan.errors import Diagnostic
from rankplan.nodes.exclusion import Marks
from rankplan.nodes.node import NodeSpec
from rankplan.words import did_you_mean, unknown


def marked(stretches: Iterable[tuple[range, NodeSpec]], marks: Marks) -> tuple[list[range], list[NodeSpec]]:
    """Return ranges of equal nodes and their records, those of marked nodes not healthy."""
    ranges: list[range] = []
    records: list[NodeSpec] = []
    known: dict[tuple[int, RankSet | None], NodeSpec] = {}
    ordered = sorted(marks)
    for nodes, record in stretches:
        start = nodes.start
        for node in ordered[bisect_left(ordered, start) : bisect_left(ordered, nodes.stop)]:
            local = marks[node]
            key = id(record), local
            if key not in known:
                new = {"healthy": False} if local is None else {"unhealthy": record.unhealthy | local}
                known[key] = record.model_copy(update=new)
            ranges += [range(start, node)] if start < node else []
            records += [record] if start < node else []
            ranges.append(range(node, node + 1))
            records.append(known[key])
            start = node + 1
        if start < nodes.stop:
            ranges.append(range(start, nodes.stop))
            records.append(record)
    return ranges, records


def cut(ranges: list[range], records: list[NodeSpec], num_nodes: int) -> tuple[list[range], list[NodeSpec]]:
    """Return the ranges and the records of the first nodes."""
    count = bisect_left(ranges, num_nodes, key=lambda nodes: nodes.start)
    return [*ranges[: count - 1], range(ranges[count - 1].start, num_nodes)], records[:count]


def numbered(stretches: Iterable[tuple[range, NodeSpec]]) -> list[NodeSpec]:
    """Return one entry per record, with the ranks of its ranges, in the order of their first ranges."""
    alike: dict[int, tuple[NodeSpec, list[range]]] = {}
    found: list[NodeSpec] = []
    for nodes, record in stretches:
        if len(record.ranks) == 1 == len(nodes):
            found.append(record.at(RankSet(nodes)))
        else:
            alike.setdefault(id(record), (record, []))[1].append(nodes)
    found += [record.at(RankSet(chain.from_iterable(ranges))) for record, ranges in alike.values()]
    return sorted(found, key=lambda entry: entry.rank) if alike else found


def label_keys(entries: Iterable[NodeSpec]) -> set[str]:
    """Return the keys of the labels of all nodes."""
    return {key for entry in entries for key in entry.labels}


def labelled(levels: Sequence[str], entries: Sequence[NodeSpec]) -> tuple[str, ...]:
    """Return the levels that are the key of a label."""
    return tuple(level for level in levels if any(level in entry.labels for entry in entries))


def unlabelled(levels: Sequence[str], keys: Collection[str]) -> Iterator[tuple[int, Diagnostic]]:
    """Yield the index and the fault of each level that is the key of no label."""
    for index, level in enumerate(levels):
        if level not in keys:
            help = did_you_mean(level, sorted(keys), "the labels are") or "add labels to the nodes"
            yield index, Diagnostic("unknown-level", f"no node has the label `{level}`", help)


def equipped(group: NodeGroup, stretches: Iterable[tuple[range, NodeSpec]]) -> NodeGroup:
    """Return a node group whose hardware has configs: those of the nodes, if it states none."""
    hardware = group.hardware
    if hardware is None or hardware.configs is not None:
        return group
    pieces = [
        HardwareConfig(node_rank=node)
        for nodes, record in stretches
        for node in (RankSet(nodes) & group.node_ranks if hardware.type in record.hardware else ())
        for _ in range(record.hardware[hardware.type])
    ]
    return group.model_copy(update={"hardware": hardware.model_copy(update={"configs": pieces})})


def unknown_group(label: str, known: Sequence[str]) -> Diagnostic:
    """Return the fault of an unknown node group."""
    if not label:
        help = did_you_mean(label, known, "the groups are")
        return Diagnostic("unknown-node-group", "a node group is empty", f"write a label between the commas; {help}")
    return unknown("node group", label, known, "the groups are")
