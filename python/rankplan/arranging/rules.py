"""The rules of an arrangement: the levels of the network, the groups to keep within a domain, the segments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from pydantic import ValidationError

from rankplan._core import RankSet
from rankplan.config.network import GROUP_KINDS, NODE_LEVEL, Topology
from rankplan.config.text.faults import diagnostics
from rankplan.errors import Diagnostic, PlacementError
from rankplan.nodes.inventory import Inventory
from rankplan.plans.component import Component
from rankplan.words import counted, did_you_mean, unknown

_T = TypeVar("_T")

Segments: TypeAlias = int | Mapping[str, int]
"""A number of nodes, or numbers by component."""

Keep: TypeAlias = Mapping[str, Mapping[str, str]]
"""Levels by component and kind of group."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The levels of the network, and the rules of a plan about them.

    ``levels`` are keys of labels, outermost first. ``keep`` are levels that groups must stay within, by component and
    kind of group. ``segment`` is the number of nodes that must be in one innermost domain together: of all node ranks,
    or of those of each component.
    """

    levels: tuple[str, ...] = ()
    keep: Keep = field(default_factory=dict)
    segment: Segments = 1

    @classmethod
    def of(
        cls, inventory: Inventory, planned: Inventory, segment: Segments | None = None, keep: Keep | None = None
    ) -> Rules:
        """Return the rules of a plan on an inventory: those of its cluster section, and the levels of its nodes.

        ``segment`` and ``keep`` replace those of the section. Raises `PlacementError` for an invalid segment.
        """
        topology = planned.section.topology if planned.section is not None else Topology()
        levels = topology.levels if topology.levels is not None else inventory.levels or planned.levels
        try:
            sizes = topology.segment if segment is None else Topology.model_validate({"segment": segment}).segment
        except ValidationError as error:
            raise PlacementError([found for _, found in diagnostics(error, {"": Topology})]) from None
        return cls(levels, topology.keep if keep is None else keep, sizes or 1)

    @property
    def largest_segment(self) -> int:
        """The largest number of nodes that must be together."""
        return self.segment if isinstance(self.segment, int) else max(self.segment.values(), default=1)

    def kept(self, names: Sequence[str]) -> Iterator[tuple[str, str, int | None]]:
        """Yield the groups that must stay within a domain: component, kind, index of the level; ``None`` for a node.

        Raises `PlacementError` for an unknown component, kind or level.
        """
        for name, kinds in _each(self.keep, names, "keep"):
            for kind, level in kinds.items():
                if kind not in GROUP_KINDS:
                    raise PlacementError(
                        [unknown("kind of group", kind, GROUP_KINDS, "the kinds are", code="invalid-value")]
                    )
                if level != NODE_LEVEL and level not in self.levels:
                    raise PlacementError([unknown("level", level, [*self.levels, NODE_LEVEL], "the levels are")])
                yield name, kind, None if level == NODE_LEVEL else self.levels.index(level)

    def segments(self, parts: Mapping[str, Component], needed: RankSet) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Yield the innermost level and the node ranks of each segment; components may have the same segments.

        ``needed`` are the node ranks with processes. Raises `PlacementError`: ``segment-incomplete``, or
        ``unknown-component``.
        """
        sized: Iterator[tuple[str, int, RankSet]]
        if isinstance(self.segment, int):
            sized = iter([("", self.segment, needed)])
        else:
            names = list(parts)
            sized = ((name, size, parts[name].used_nodes()) for name, size in _each(self.segment, names, "segment"))
        for name, size, nodes in sized:
            if size < 2:
                continue
            if not self.levels:
                help = "label the nodes of the inventory and state the levels, or remove `segment`"
                message = f"segment is {size}, but the nodes have no known domains"
                raise PlacementError([Diagnostic("segment-incomplete", message, help)])
            ranks = tuple(nodes)
            if len(ranks) % size:
                below = len(ranks) // size * size
                choices = " or ".join(str(count) for count in (below, below + size) if count)
                who = f"{name}: " if name else ""
                message = f"{who}{counted(len(ranks), 'node')} cannot be divided into segments of {size}"
                help = f"use {choices} nodes, or another segment"
                raise PlacementError([Diagnostic("segment-incomplete", message, help)])
            for at in range(0, len(ranks), size):
                yield len(self.levels) - 1, ranks[at : at + size]


def _each(stated: Mapping[str, _T], names: Sequence[str], key: str) -> Iterator[tuple[str, _T]]:
    """Yield each component of keys such as ``actor, rollout`` with the value. Raises `PlacementError` if unknown."""
    for written, value in stated.items():
        for name in map(str.strip, written.split(",")):
            if name not in names:
                help = did_you_mean(name, names, "the components are")
                raise PlacementError([Diagnostic("unknown-component", f"unknown component `{name}` in {key}", help)])
            yield name, value
