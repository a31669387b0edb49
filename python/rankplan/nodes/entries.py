"""The entries of an inventory, each the record of one node or of several equal ones.

They are numbered, and marked by the names of hardware that must not be used: nodes, accelerators, and domains.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import chain, islice

from rankplan._core import Inventory as Core
from rankplan._core import RankSet
from rankplan.errors import Diagnostic, PlacementError
from rankplan.nodes.node import NodeSpec
from rankplan.words import counted, did_you_mean, must_be, nearest, shown, unknown

Marks = dict[int, RankSet | None]
"""By node: the local indices of its accelerators that must not be used, ``None`` for the whole node."""


def add_mark(marks: Marks, node: int, local: RankSet | None) -> None:
    """Add accelerators of a node, or the whole node, to hardware that must not be used."""
    known = marks.get(node, RankSet())
    marks[node] = None if known is None or local is None else known | local


def labelled(levels: Sequence[str], core: Core) -> tuple[str, ...]:
    """Return the levels that are the key of a label."""
    keys = core.label_keys()
    return tuple(level for level in levels if level in keys)


def with_labels(entries: Iterable[NodeSpec], labels: Mapping[str, Mapping[str, str]]) -> tuple[list[NodeSpec], RankSet]:
    """Return the record of each node with these labels added, by its name, and the ranks of the others.

    A name may lack the domain of a hostname, or have one that the node does not state.
    """
    short = {name.partition(".")[0]: known for name, known in reversed(list(labels.items()))}
    records: list[NodeSpec] = []
    unlisted: list[int] = []
    for entry in entries:
        for node in [entry.at(RankSet([rank])) for rank in entry.ranks]:
            host = node.hostname or ""
            found = labels.get(node.name) or labels.get(host.partition(".")[0]) or short.get(host)
            if found is None:
                unlisted.append(node.rank)
            records.append(node if found is None else node.changed(labels={**node.labels, **found}))
    return records, RankSet(unlisted)


def unknown_group(label: str, known: Sequence[str]) -> Diagnostic:
    """Return the fault of an unknown node group."""
    if not label:
        help = did_you_mean(label, known, "the groups are")
        return Diagnostic("unknown-node-group", "a node group is empty", f"write a label between the commas; {help}")
    return unknown("node group", label, known, "the groups are")


def one_or_several(argument: str, names: str | Iterable[str], help: str) -> Iterable[str]:
    """Return the names of an argument; a text is one name, not its letters. Raises `PlacementError` for no names."""
    if not isinstance(names, Iterable):
        raise PlacementError([must_be((argument,), names, "a name, or several", help)])
    return [names] if isinstance(names, str) else names


def hardware_names(names: str | Iterable[str]) -> Iterable[str]:
    """Return names of hardware that must not be used. Raises `PlacementError` for no names."""
    return one_or_several("without", names, "write names of nodes or accelerators: node-3, node-5/2")


class Names:
    """The names of nodes, accelerators and domains, given each range of equal nodes with their record, ascending."""

    def __init__(self, stretches: Sequence[tuple[range, NodeSpec]]) -> None:
        self._ranges = [nodes for nodes, _ in stretches]
        self._records = [record for _, record in stretches]
        self._labels: dict[str, dict[str, list[range]]] = {}
        self._first: dict[str, tuple[dict[str, int], set[str]]] = {}

    def first(self, kind: str) -> tuple[dict[str, int], set[str]]:
        """Return the first node of each ``hostname`` or ``ip``, and the names that several nodes share."""
        if kind not in self._first:
            first: dict[str, int] = {}
            shared: set[str] = set()
            for nodes, record in zip(self._ranges, self._records, strict=True):
                if name := getattr(record, kind):
                    if len(nodes) > 1 or name in first:
                        shared.add(name)
                    first.setdefault(name, nodes.start)
            self._first[kind] = first, shared
        return self._first[kind]

    def marks(
        self, names: Iterable[str], *, missing: Collection[str] = ()
    ) -> tuple[Marks, list[tuple[int, Diagnostic]]]:
        """Return the hardware of these names, and the faults with the index of their name.

        The hardware of names in ``missing`` may be elsewhere, or gone.
        """
        marks: Marks = {}
        faults: list[tuple[int, Diagnostic]] = []
        for index, name in enumerate(names):
            found = self.find(name)
            if isinstance(found, Mapping):
                for node, local in found.items():
                    add_mark(marks, node, local)
            elif found is not None:
                faults.append((index, found))
            elif name not in missing:
                faults.append((index, self._unknown(name)))
        return marks, faults

    def find(self, name: str) -> Marks | Diagnostic | None:
        """Return the hardware of a name, ``None`` if no node has it, or the fault of a name that several nodes have."""
        if not isinstance(name, str):
            help = "write the name of a node or an accelerator: node-3, node-5/2"
            return _fault(f"{shown(name)} is not a name", help)
        if (node := self._node(name)) is not None:
            return node if isinstance(node, Diagnostic) else {node: None}
        key, equals, value = name.partition("=")
        if equals:
            return dict.fromkeys(chain.from_iterable(self._values(key).get(value, ()))) or None
        if name in self._accelerators:
            places = self._accelerators[name]
            if len(places) == 1:
                return {places[0][0]: RankSet([places[0][1]])}
            help = f"write the node and the local index, e.g. {self._name(places[0][0])}/{places[0][1]}"
            return _fault(f"{counted(len(places), 'accelerator')} have the id {name}", help)
        host, _, index = name.rpartition("/")
        if isinstance(node := self._node(host), int):
            local = _number(index)
            if local is None or local >= self._record(node).num_accelerators:
                return None
            return {node: RankSet([local])}
        return node

    def by_rank(self, name: str) -> tuple[int, int | None] | None:
        """Return the node rank of a name such as ``node-3`` or ``node-3/2``, and the local index of the accelerator.

        ``None`` for names that are independent of the order of the nodes.
        """
        host, slash, index = name.partition("/")
        rank = None if host in self._nodes or name in self._accelerators else self._rank(host)
        local = _number(index) if slash else None
        return None if rank is None or (slash and local is None) else (rank, local)

    def lasting(self, node: int) -> str | None:
        """Return a name of a node that is independent of the order of the nodes, if it has one."""
        record = self._record(node)
        names = (name for name in (record.hostname, record.ip) if name is not None)
        return next((name for name in names if len(self._nodes[name]) == 1), None)

    def _unknown(self, name: str) -> Diagnostic:
        """Return the fault of a name that no node has."""
        key, equals, value = name.partition("=")
        if equals:
            if not (values := self._values(key)):
                keys = {label for record in self._records for label in record.labels}
                help = did_you_mean(key, sorted(keys), "the labels are") or "add labels to the nodes of the inventory"
                return _fault(f"no node has the label `{key}`", help)
            help = did_you_mean(value, sorted(values), f"{key} is one of")
            return _fault(f"no node has the label {key}={value}", help)
        host, _, index = name.rpartition("/")
        if isinstance(node := self._node(host), int):
            count = self._record(node).num_accelerators
            has = f"it has {counted(count, 'accelerator')}" + (f", 0-{count - 1}" if count > 1 else "")
            return _fault(f"unknown accelerator {shown(index)} of {host}: {has}", "write a local index, e.g. node-5/2")
        return _fault(f"unknown node or accelerator {shown(name)}", self._nearest(name))

    def _nearest(self, name: str) -> str:
        """Return the nearest name, or list the nodes if a number is the only difference to one of them."""
        near = nearest(name, self._some)
        if near is not None and re.sub(r"\d", "", near) != re.sub(r"\d", "", name):
            return f"did you mean `{near}`?"
        more = f" and {self._ranges[-1].stop - 10:,} more" if self._ranges[-1].stop > 10 else ""
        return f"the nodes are: {', '.join(self._some[:10])}{more}" if self._some else ""

    def _node(self, name: str) -> int | Diagnostic | None:
        """Return the rank of a node by hostname or address, or by ``node-3`` if no hostname looks like this."""
        if nodes := self._nodes.get(name):
            if len(nodes) == 1:
                return nodes[0]
            ranks = RankSet(nodes)
            return _fault(f"nodes {ranks} are all named {name}", f"write their addresses, or node-{nodes[0]}")
        rank = self._rank(name)
        return None if rank is None or rank >= self._ranges[-1].stop else rank

    def _rank(self, name: str) -> int | None:
        """Return the rank in ``node-3``: of a node without a name, or of any node if no hostname looks like this."""
        rank = _number(name.removeprefix("node-")) if name.startswith("node-") else None
        if rank is None or not self._hosts_look_like_ranks:
            return rank
        nameless = rank < self._ranges[-1].stop and self._name(rank) == name
        return rank if nameless else None

    @cached_property
    def _hosts_look_like_ranks(self) -> bool:
        return any(_number(name.removeprefix("node-")) is not None for name in self._nodes if name.startswith("node-"))

    def _values(self, key: str) -> dict[str, list[range]]:
        """Return the nodes of each value of a label."""
        if key not in self._labels:
            values: dict[str, list[range]] = {}
            for nodes, record in zip(self._ranges, self._records, strict=True):
                if key in record.labels:
                    values.setdefault(record.labels[key], []).append(nodes)
            self._labels[key] = values
        return self._labels[key]

    def _name(self, node: int) -> str:
        record = self._record(node)
        return record.hostname or record.ip or f"node-{node}"

    def _record(self, node: int) -> NodeSpec:
        return self._records[bisect_right(self._ranges, node, key=lambda nodes: nodes.start) - 1]

    @cached_property
    def _some(self) -> list[str]:
        """The names of some nodes, to suggest one."""
        ranks = (node for nodes in self._ranges for node in nodes[:20])
        return [self._name(node) for node in islice(ranks, 2000)]

    @cached_property
    def _nodes(self) -> dict[str, Sequence[int]]:
        """Nodes by hostname and by address."""
        found: dict[str, Sequence[int]] = {}
        for nodes, record in zip(self._ranges, self._records, strict=True):
            for name in filter(None, {record.hostname, record.ip}):
                if name not in found:
                    found[name] = nodes
                elif isinstance(known := found[name], list):
                    known.extend(nodes)
                else:
                    found[name] = [*known, *nodes]
        return found

    @cached_property
    def _accelerators(self) -> dict[str, list[tuple[int, int]]]:
        """The node and the local index of accelerators, by id; ids that only count from 0 name nothing."""
        found: dict[str, list[tuple[int, int]]] = {}
        for nodes, record in zip(self._ranges, self._records, strict=True):
            for index, name in enumerate(record.accelerator_ids):
                if not name.isdecimal():
                    found.setdefault(name, []).extend((node, index) for node in nodes)
        return found


def _number(digits: str) -> int | None:
    """Return the number that these decimal digits are, without leading zeros."""
    plain = digits.isascii() and digits.isdecimal() and len(digits) < 10 and str(int(digits)) == digits
    return int(digits) if plain else None


def _fault(message: str, help: str) -> Diagnostic:
    return Diagnostic("invalid-value", message, help)
