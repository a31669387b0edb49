"""The nodes of an inventory as an arrangement sees them: records, domains, and which of them a plan means."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from rankplan._core import Hierarchy, RankSet
from rankplan.addresses import natural
from rankplan.errors import Diagnostic, PlacementError
from rankplan.words import as_int, shown


class Record(Protocol):
    """A node."""

    @property
    def accelerator_type(self) -> str: ...
    @property
    def accelerator_model(self) -> str | None: ...
    @property
    def accelerator_ids(self) -> tuple[str, ...]: ...
    @property
    def hostname(self) -> str | None: ...
    @property
    def ip(self) -> str | None: ...
    @property
    def labels(self) -> Mapping[str, str]: ...
    @property
    def unhealthy(self) -> RankSet: ...


class Nodes(Protocol):
    """Nodes in ranges with equal records, such as an `Inventory`."""

    @property
    def num_nodes(self) -> int: ...
    @property
    def levels(self) -> tuple[str, ...]: ...
    @property
    def section(self) -> Any: ...
    @property
    def excluded(self) -> list[tuple[RankSet, RankSet | None]]: ...
    def stretches(self) -> Iterator[tuple[range, Record]]: ...


@dataclass(frozen=True, slots=True)
class Rules:
    """What an arrangement has to keep.

    ``levels`` are keys of labels, outermost first. ``keep`` are levels that groups must stay within, by component and
    kind of group. ``segment`` is the number of nodes that must be in one innermost domain together.
    """

    levels: tuple[str, ...] = ()
    keep: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    segment: int = 1

    @classmethod
    def of(
        cls,
        inventory: Nodes,
        planned: Nodes,
        segment: int | None = None,
        keep: Mapping[str, Mapping[str, str]] | None = None,
    ) -> Rules:
        """Return the rules of a plan on an inventory: those of its cluster section, and the levels of its nodes.

        ``segment`` and ``keep`` replace those of the section. Raises `PlacementError` for an invalid segment.
        """
        topology = getattr(planned.section, "topology", None)
        stated = getattr(topology, "levels", None)
        levels = tuple(stated if stated is not None else inventory.levels or planned.levels)
        keep = keep if keep is not None else getattr(topology, "keep", None)
        segment = segment if segment is not None else getattr(topology, "segment", None) or 1
        if (size := as_int(segment)) is None or size < 1:
            message = f"`segment` is {shown(segment)}; it must be a whole number of 1 or more"
            raise PlacementError([Diagnostic("invalid-value", message, "use the number of nodes of a segment")])
        return cls(levels, keep or {}, size)


def records(nodes: Nodes) -> list[Record]:
    """Return the record of each node."""
    found: list[Record] = []
    for ranks, record in nodes.stretches():
        found += [record] * len(ranks)
    return found


def hierarchy(nodes: Sequence[Record], rules: Rules) -> Hierarchy:
    """Return the domains of these nodes at the levels of the rules."""
    columns = []
    for level in rules.levels:
        labels = [record.labels.get(level) for record in nodes]
        order = {label: index for index, label in enumerate(sorted({one for one in labels if one}, key=_label_key))}
        columns.append([order[label] if label else Hierarchy.UNKNOWN for label in labels])
    return Hierarchy(len(nodes), columns, rules.segment)


def _label_key(label: str) -> tuple[Any, str]:
    return natural(label), label


def same_nodes(planned: Nodes, inventory: Nodes) -> list[int | None]:
    """Return, by node rank, the rank in an inventory of the node that a plan was made for.

    A node is found by its hostname, else by its address, unless several nodes of either side share that name; one
    without names is the one of the same rank. ``None`` stands for a node that the inventory lacks.
    """
    here, there = (
        Counter(name for ranks, one in nodes.stretches() for name in _names(one) for _ in ranks)
        for nodes in (planned, inventory)
    )
    by_name: dict[tuple[str, str], int] = {}
    for nodes, record in inventory.stretches():
        for name in _names(record):
            by_name.setdefault(name, nodes.start)
    found: list[int | None] = []
    for nodes, record in planned.stretches():
        names = _names(record)
        telling = [name for name in names if here[name] == 1 and there[name] <= 1] or names
        place = next((by_name[name] for name in telling if name in by_name), None)
        for rank in nodes:
            found.append(place if names else rank if rank < inventory.num_nodes else None)
    return found


def _names(record: Record) -> list[tuple[str, str]]:
    return [(kind, name) for kind, name in (("hostname", record.hostname), ("ip", record.ip)) if name]
