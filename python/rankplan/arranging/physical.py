"""The nodes of an inventory as an arrangement sees them: records, domains, and which of them a plan means."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Protocol, TypeAlias

from rankplan._core import Hierarchy, RankSet
from rankplan.config.models import ClusterSection
from rankplan.config.network import Topology, read_segments
from rankplan.nodes.topology import Domains

Segments: TypeAlias = int | Mapping[str, int]
"""A number of nodes, or numbers by component."""

_NAMES = ("hostname", "ip")


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
    def section(self) -> ClusterSection | None: ...
    @property
    def domains(self) -> tuple[Domains, ...]: ...
    @property
    def excluded(self) -> list[tuple[RankSet, RankSet | None]]: ...
    def stretches(self) -> Iterator[tuple[range, Record]]: ...


@dataclass(frozen=True, slots=True)
class Rules:
    """What an arrangement has to keep.

    ``levels`` are keys of labels, outermost first. ``keep`` are levels that groups must stay within, by component and
    kind of group. ``segment`` is the number of nodes that must be in one innermost domain together: of all node ranks,
    or of those of each component.
    """

    levels: tuple[str, ...] = ()
    keep: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    segment: Segments = 1

    @property
    def largest_segment(self) -> int:
        """The largest number of nodes that must be together."""
        return self.segment if isinstance(self.segment, int) else max(self.segment.values(), default=1)

    @classmethod
    def of(
        cls,
        inventory: Nodes,
        planned: Nodes,
        segment: Segments | None = None,
        keep: Mapping[str, Mapping[str, str]] | None = None,
    ) -> Rules:
        """Return the rules of a plan on an inventory: those of its cluster section, and the levels of its nodes.

        ``segment`` and ``keep`` replace those of the section. Raises `PlacementError` for an invalid segment.
        """
        topology = planned.section.topology if planned.section is not None else Topology()
        levels = topology.levels if topology.levels is not None else inventory.levels or planned.levels
        keep = keep if keep is not None else topology.keep
        return cls(levels, keep, read_segments(segment if segment is not None else topology.segment or 1))


def records(nodes: Nodes) -> list[Record]:
    """Return the record of each node."""
    found: list[Record] = []
    for ranks, record in nodes.stretches():
        found += [record] * len(ranks)
    return found


def hierarchy(levels: Iterable[Domains], nodes: Sequence[int], segment: int) -> Hierarchy:
    """Return the domains of these nodes, given those of all nodes of an inventory level by level."""
    columns = []
    for level in levels:
        ids = [level.ids[node] for node in nodes]
        if alone := {index for index, name in enumerate(level.names) if name[-1] is None}:
            ids = [Hierarchy.UNKNOWN if index in alone else index for index in ids]
        columns.append(ids)
    return Hierarchy(len(nodes), columns, segment)


def same_nodes(planned: Nodes, inventory: Nodes) -> list[int | None]:
    """Return, by node rank, the rank in an inventory of the node that a plan was made for.

    A node is found by its hostname, else by its address, unless several nodes of either side share that name; one
    without names is the one of the same rank. ``None`` stands for a node that the inventory lacks.
    """
    known = {kind: _first(inventory, kind) for kind in _NAMES}
    shared = {kind: _first(planned, kind)[1] | known[kind][1] for kind in _NAMES}
    hosts, shared_hosts = known["hostname"][0], shared["hostname"]
    found: list[int | None] = []
    for nodes, record in planned.stretches():
        if (host := record.hostname) in hosts and host not in shared_hosts:
            found += [hosts[host]] * len(nodes)
        elif names := [(kind, name) for kind in _NAMES if (name := getattr(record, kind))]:
            telling = [(kind, name) for kind, name in names if name not in shared[kind]] or names
            places = (known[kind][0].get(name) for kind, name in telling)
            found += [next((place for place in places if place is not None), None)] * len(nodes)
        else:
            found += (rank if rank < inventory.num_nodes else None for rank in nodes)
    return found


def _first(nodes: Nodes, kind: str) -> tuple[dict[str, int], set[str]]:
    """Return the first node of each name of a kind, and the names that several nodes share."""
    first: dict[str, int] = {}
    shared: set[str] = set()
    name_of = attrgetter(kind)
    for ranks, record in nodes.stretches():
        if name := name_of(record):
            if len(ranks) > 1 or name in first:
                shared.add(name)
            first.setdefault(name, ranks.start)
    return first, shared
