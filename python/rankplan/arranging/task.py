"""Node ranks to nodes: what a plan needs and what an inventory has, as a problem that the core solves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, TypeAlias

from rankplan._core import Arrangement, Hierarchy, Layout, Placements, Problem, RankSet, pack_segments
from rankplan.arranging.physical import Nodes, Rules, hierarchy, records, same_nodes
from rankplan.config.network import GROUP_KINDS, NODE_LEVEL
from rankplan.errors import Diagnostic, PlacementError
from rankplan.nodes.topology import Domains, domains, one_by_one
from rankplan.words import counted, did_you_mean, nodes_text

KINDS = ("tensor or context", "expert", "data", "pipeline")
"""The groups whose crossings are counted together, those whose crossings cost most first."""

_Kind: TypeAlias = tuple[str, int, str | None, RankSet]  # type, number and model of accelerators; the broken ones

Together: TypeAlias = tuple[int, list[int]]
"""A level, and node ranks that must be in one domain of it."""


class Part(Protocol):
    """A component of a plan."""

    @property
    def rows(self) -> Placements: ...
    @property
    def layout(self) -> Layout: ...
    @property
    def parallel(self) -> Any: ...
    def used_nodes(self) -> RankSet: ...


class Planned(Protocol):
    """A plan: components by name, and the inventory that they are placed on."""

    @property
    def inventory(self) -> Nodes: ...
    def items(self) -> Iterable[tuple[str, Part]]: ...


@dataclass(frozen=True, slots=True)
class Solution:
    """A node for every node rank.

    ``nodes`` has, by node rank, a rank in the inventory; the others are ``spares``, domain after domain. ``before`` and
    ``after``, shape (levels, 4): the groups of each of `KINDS` that cross a domain. ``optimal``: it is proved that no
    arrangement costs less. ``as_block`` is the number of processes that would have to move so that the smallest torn
    group is whole again, if that is possible.
    """

    nodes: tuple[int, ...]
    spares: tuple[int, ...]
    before: list[list[int]]
    after: list[list[int]]
    optimal: bool
    moved: int
    as_block: int | None = None


@dataclass(frozen=True)
class Task:
    """A plan and the nodes that it can use.

    ``old`` has, by node rank, the rank in the inventory of the node that it may keep, or ``None``; it is empty without
    an old plan. ``staying`` are node ranks that keep their node, though some of its accelerators are broken. ``were``
    has the node that each had, lost or not.
    """

    inventory: Nodes
    planned: Nodes
    parts: Mapping[str, Part]
    rules: Rules
    old: Sequence[int | None] = ()
    staying: frozenset[int] = frozenset()
    were: Sequence[int | None] = ()

    def solve(self) -> Solution:
        """Find a node for every node rank.

        Raises `PlacementError`: ``too-few-nodes``, ``segment-incomplete``, ``domain-too-small`` or ``group-spans``.
        """
        segments = [(level, list(ranks)) for level, ranks in dict.fromkeys(self._segments())]
        problem = self._problem(segments)
        try:
            found = problem.solve()
        except ValueError as error:
            raise PlacementError([self._shortage(*one) for one in error.args[0]]) from None
        if broken := problem.broken(found):
            raise PlacementError([self._broken(broken, segments, found.optimal)])
        usable = self._usable
        nodes = [None if node is None else usable[node] for node in found.nodes]
        self._fill(nodes)
        filled = [node for node in nodes if node is not None]
        taken = set(filled)
        spares = tuple(usable[node] for node in self._hierarchy.order if usable[node] not in taken)
        listed = taken.union(spares)
        rest = tuple(node for node in range(self.inventory.num_nodes) if node not in listed)
        block = problem.moved_as_block(found) if self.old else None
        return Solution(
            nodes=tuple(filled),
            spares=spares + rest,
            before=self._before(),
            after=problem.crossings(found.nodes),
            optimal=found.optimal,
            moved=found.moved,
            as_block=block.moved if block is not None and _tears_less(block, found) else None,
        )

    @cached_property
    def needed(self) -> RankSet:
        """The node ranks with processes."""
        return RankSet().union(*(part.used_nodes() for part in self.parts.values()))

    @cached_property
    def _usable(self) -> list[int]:
        """The ranks in the inventory of the nodes that are not excluded."""
        excluded = (ranks for ranks, accelerators in self.inventory.excluded if accelerators is None)
        return list(RankSet(range(self.inventory.num_nodes)) - RankSet().union(*excluded))

    @cached_property
    def _hierarchy(self) -> Hierarchy:
        return hierarchy(self._domains, self._usable, self.rules.largest_segment)

    @cached_property
    def _domains(self) -> tuple[Domains, ...]:
        """The domains of the inventory at each level of the rules."""
        same = self.rules.levels == self.inventory.levels
        return (
            self.inventory.domains
            if same
            else domains(((nodes, one.labels) for nodes, one in self.inventory.stretches()), self.rules.levels)
        )

    @cached_property
    def _places(self) -> Sequence[int | None]:
        """By node rank, the rank in the inventory of its node before."""
        return self.old or same_nodes(self.planned, self.inventory)

    @cached_property
    def _needs(self) -> list[int]:
        """The hardware of each node rank in the plan, as an index of `_kinds`."""
        return self._hardware(self.planned)

    @cached_property
    def _present(self) -> list[int]:
        """The hardware of each node of the inventory, as an index of `_kinds`."""
        return self._hardware(self.inventory)

    @cached_property
    def _kinds(self) -> dict[_Kind, int]:
        """The index of each kind of hardware."""
        return {}

    def _hardware(self, inventory: Nodes) -> list[int]:
        by_model, kinds = self._by_model, self._kinds
        found: list[int] = []
        for nodes, record in inventory.stretches():
            model = record.accelerator_model if by_model else None
            kind = record.accelerator_type, len(record.accelerator_ids), model, record.unhealthy
            found += [kinds.setdefault(kind, len(kinds))] * len(nodes)
        return found

    @cached_property
    def _by_model(self) -> bool:
        return any(record.accelerator_model is not None for _, record in self.planned.stretches())

    def _problem(self, segments: Sequence[Together]) -> Problem:
        position = {node: index for index, node in enumerate(self._usable)}
        needs, present = self._needs, self._present
        node_classes = [present[node] for node in self._usable]
        rank_classes: list[int | None] = [None] * self.planned.num_nodes
        for rank in self.needed:
            rank_classes[rank] = needs[rank]
        own = len(self._kinds)
        old = [None if node is None else position.get(node) for node in self.old]
        pinned: list[int | None] = [None] * self.planned.num_nodes
        for rank in self._fixtures():
            place = self._places[rank]
            if place is not None and rank_classes[rank] is not None:
                pinned[rank] = position.get(place)
        for rank, index in enumerate(old):
            if rank in self.staying and index is not None:
                # A class of its own: nobody else gets the node, and it gets no other.
                node_classes[index] = rank_classes[rank] = own
                own += 1
            elif index is not None and node_classes[index] != rank_classes[rank]:
                old[rank] = None
        return Problem(
            self._hierarchy,
            node_classes=node_classes,
            rank_classes=rank_classes,
            parts=self._parts(),
            kept=self._kept(),
            sets=segments,
            pinned=pinned,
            old=old,
            segment=self.rules.largest_segment,
        )

    def _parts(self) -> list[tuple[Placements, Layout | None]]:
        return [(part.rows, part.layout if part.parallel.stated else None) for part in self.parts.values()]

    def _kept(self) -> list[tuple[int, str, int]]:
        """Return the groups that must be within a domain: index of the component, kind, level."""
        kept, names, levels = [], list(self.parts), self.rules.levels
        for key, kinds in self.rules.keep.items():
            for name in map(str.strip, key.split(",")):
                if name not in names:
                    help = did_you_mean(name, names, "the components are")
                    raise PlacementError([Diagnostic("unknown-component", f"unknown component `{name}` in keep", help)])
                for kind, level in kinds.items():
                    if kind not in GROUP_KINDS:
                        help = did_you_mean(kind, GROUP_KINDS, "the kinds are")
                        raise PlacementError([Diagnostic("invalid-value", f"unknown kind of group `{kind}`", help)])
                    if level in levels:
                        kept.append((names.index(name), kind, levels.index(level)))
                    elif level != NODE_LEVEL:  # within a node rank, a group never crosses a node
                        help = did_you_mean(level, [*levels, NODE_LEVEL], "the levels are")
                        raise PlacementError([Diagnostic("unknown-level", f"unknown level `{level}`", help)])
        return kept

    def _segments(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Yield the node ranks of each segment, with the innermost level; components may have the same ones."""
        for name, size, nodes in self._sized():
            if size < 2:
                continue
            if not self.rules.levels:
                help = "label the nodes of the inventory and state the levels, or remove `segment`"
                message = f"segment is {size}, but the nodes have no known domains"
                raise PlacementError([Diagnostic("segment-incomplete", message, help)])
            ranks = tuple(nodes)
            if len(ranks) % size:
                below = len(ranks) // size * size
                choices = " or ".join(str(count) for count in (below, below + size) if count)
                who = f"{name}: " if name else ""
                message = f"{who}{counted(len(ranks), 'node')} cannot be divided into segments of {size}"
                raise PlacementError(
                    [Diagnostic("segment-incomplete", message, f"use {choices} nodes, or another segment")]
                )
            for at in range(0, len(ranks), size):
                yield len(self.rules.levels) - 1, ranks[at : at + size]

    def _sized(self) -> Iterator[tuple[str | None, int, RankSet]]:
        """Yield the components whose node ranks are divided into segments, ``None`` for all together, and the size."""
        if isinstance(self.rules.segment, int):
            yield None, self.rules.segment, self.needed
            return
        for key, size in self.rules.segment.items():
            for name in map(str.strip, key.split(",")):
                if name not in self.parts:
                    help = did_you_mean(name, self.parts, "the components are")
                    message = f"unknown component `{name}` in segment"
                    raise PlacementError([Diagnostic("unknown-component", message, help)])
                yield name, size, self.parts[name].used_nodes()

    def _fixtures(self) -> Iterator[int]:
        """Yield the node ranks with configured hardware, such as robots, which stay on their nodes."""
        for group in self.planned.section.node_groups if self.planned.section else ():
            if group.hardware is not None:
                yield from (node for node, _ in group.hardware.counts())

    def _fill(self, nodes: list[int | None]) -> None:
        """Give node ranks without processes the nodes that they had, else others of the same hardware."""
        needs, present = self._needs, self._present
        whole = [kind[:3] for kind in self._kinds]  # a broken accelerator does not matter here
        taken = {node for node in nodes if node is not None}
        for rank in [rank for rank, node in enumerate(nodes) if node is None]:
            place = self._places[rank]
            if place is not None and place not in taken and whole[present[place]] == whole[needs[rank]]:
                nodes[rank] = place
                taken.add(place)
        if None not in nodes:
            return
        usable = set(self._usable)
        # Nodes that nobody can use are taken first, so that spares stay.
        free: dict[tuple[Any, ...], list[int]] = {}
        unused = (node for node in range(self.inventory.num_nodes) if node not in taken)
        for node in sorted(unused, key=lambda node: (node not in usable, node)):
            free.setdefault(whole[present[node]], []).append(node)
        for rank in [rank for rank, node in enumerate(nodes) if node is None]:
            same = free.get(whole[needs[rank]])
            if not same:
                alike = [node for node, kind in zip(nodes, needs, strict=True) if whole[kind] == whole[needs[rank]]]
                raise PlacementError([self._shortage(needs[rank], len(alike), len(alike) - alike.count(None))])
            nodes[rank] = same.pop()

    def _before(self) -> list[list[int]]:
        """Return the crossings on the nodes before; on those of the plan where the inventory does not have them."""
        count = self.planned.num_nodes
        problem = Problem(
            self._hierarchy_before(),
            node_classes=[0] * count,
            rank_classes=[0] * count,
            parts=self._parts(),
            kept=[],
            sets=[],
            pinned=[None] * count,
            old=[],
            segment=1,
        )
        return problem.crossings(list(range(count)))

    def _hierarchy_before(self) -> Hierarchy:
        places = self.were or self._places
        known = [place for place in places if place is not None]
        if len(known) == len(places):
            return hierarchy(self._domains, known, 1)
        planned, present = records(self.planned), records(self.inventory)
        nodes = [planned[rank] if place is None else present[place] for rank, place in enumerate(places)]
        return hierarchy(domains(one_by_one(node.labels for node in nodes), self.rules.levels), range(len(nodes)), 1)

    def _shortage(self, kind: int, needed: int, found: int) -> Diagnostic:
        accelerator_type, count, model, unhealthy = list(self._kinds)[kind]
        what = f"{count} {' '.join(part for part in (model, accelerator_type) if part)}" if count else "no accelerators"
        broken = f" (accelerators {unhealthy} excluded)" if unhealthy else ""
        message = f"the plan needs {counted(needed, 'node')} with {what}{broken}; {found} can be used"
        return Diagnostic("too-few-nodes", message, f"add {counted(needed - found, 'node')}, or place fewer processes")

    def _broken(
        self, broken: Sequence[tuple[int | None, int, list[int]]], segments: Sequence[Together], optimal: bool
    ) -> Diagnostic:
        """Return the fault of the smallest set that must be within a domain and is not."""
        source, level, ranks = min(broken, key=lambda one: (one[0] is None, len(one[2]), one[2]))
        name, sizes = self.rules.levels[level], self._hierarchy.sizes(level)
        unproved = "" if optimal else " (the search ended early)"
        if source is None:
            return self._incomplete(segments, name, sizes, unproved)
        part, kind, _ = self._kept()[source]
        component = list(self.parts)[part]
        where = f"on {nodes_text(RankSet(ranks))}"
        if len(ranks) > max(sizes):
            message = (
                f"{component}: {kind} groups need {counted(len(ranks), 'node')} in one {name} domain; "
                f"the largest has {max(sizes)}"
            )
            help = f"use a smaller {kind} size, or keep the groups within an outer level"
            return Diagnostic("domain-too-small", message, help)
        message = (
            f"{component}: no arrangement keeps every {kind} group within a {name} domain{unproved}; "
            f"the smallest that crosses one is {where}"
        )
        help = f"use more nodes, a smaller {kind} size, or remove `{kind}: {name}` from `keep`"
        return Diagnostic("group-spans", message, help)

    def _incomplete(self, segments: Sequence[Together], name: str, sizes: list[int], unproved: str) -> Diagnostic:
        """Return the fault of segments of which not all are within domains of these sizes."""
        wants = _counted(ranks for _, ranks in segments)
        texts = [f"{counted(count, 'segment')} of {counted(size, 'node')}" for size, count in wants]
        taken: set[int] = set()
        apart = []
        for _, ranks in sorted(segments, key=lambda one: -len(one[1])):
            if taken.isdisjoint(ranks):  # others share nodes with larger ones
                taken.update(ranks)
                apart.append(ranks)
        try:
            fits = pack_segments(sizes, _counted(apart)) is not None
        except ValueError:  # the search ended early
            fits = True
        if fits:
            message = f"found no place for {' and '.join(texts)}{unproved}"
            help = "use smaller segments, or keep fewer groups together"
        elif len(wants) == 1:
            whole = sum(count // wants[0][0] for count in sizes)
            message = f"the plan needs {texts[0]}; the {name} domains hold {whole}"
            help = f"use {whole * wants[0][0]} nodes or less, a smaller segment, or a larger cluster"
        else:
            message = f"the plan needs {' and '.join(texts)}; the {name} domains cannot hold all of them"
            help = "use fewer nodes, smaller segments, or a larger cluster"
        return Diagnostic("segment-incomplete", message, help)


def _counted(segments: Iterable[list[int]]) -> list[tuple[int, int]]:
    """Return the sizes of segments, the largest first, and how many there are of each."""
    return sorted(Counter(map(len, segments)).items(), reverse=True)


def _tears_less(block: Arrangement, found: Arrangement) -> bool:
    return block.cost[3:] < found.cost[3:]
