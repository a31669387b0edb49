"""The content of a map in any format: nodes, strips of cells on them, and bands of processes on the cells."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import groupby, islice

from rankplan._core import ACCELERATOR, WHOLE_NODE, RankSet
from rankplan.environment import planned_environment
from rankplan.frozen import frozen
from rankplan.nodes.inventory import Inventory, NodeSpec
from rankplan.plans.component import Component
from rankplan.plans.node_kinds import NodeKind, node_kinds
from rankplan.plans.plan import Plan
from rankplan.render.lines import coordinates_text
from rankplan.render.map.domains import NO_CHART, Chart, chart_of
from rankplan.render.map.memory import MOST_GAUGES, Gauge, Gauges, Memory, texts_of
from rankplan.render.map.network import NO_NETWORK, Network, network_of
from rankplan.render.map.text import clean, ranks_text, short
from rankplan.words import counted

EACH_NODE = 16
"""With more nodes, equal nodes are folded."""
MOST_NODES, MOST_CELLS, MOST_COMPONENTS = 64, 64, 64
MOST_BANDS = 4096
"""Bands on all nodes together, so that a page can hold the picture of any plan."""
_MOST_RANKS = 4


@frozen
class Notes:
    """What a map of running processes says, in place of what a plan knows of them.

    ``lines`` stand at its top, ``tips`` describe each rank of a component, and ``marked`` ranks differ from a plan.
    """

    lines: tuple[str, ...]
    tips: Mapping[str, Sequence[str]]
    marked: Mapping[str, RankSet]


@frozen
class Entry:
    """A component in the legend. ``groups`` is the number of its parallel groups of the kind that the map shows."""

    name: str
    index: int
    processes: int
    groups: int = 0


@frozen
class Band:
    """Processes of one component, each on all of the adjacent ``cells``.

    ``groups`` are the parallel groups of their slots there, if the map shows a kind that the component has. ``color``
    is the index of a color: of the component or, in a map of groups, of the first group; ``None`` if there is no group.
    ``marked``: its processes differ from a plan.
    """

    component: Entry
    ranks: RankSet
    node: int
    cells: range
    groups: RankSet
    color: int | None
    marked: bool = False

    def text(self, room: int) -> str:
        """Return the ranks of the band, or its groups, within this number of characters; ``!`` marks differing ones."""
        return f"! {ranks_text(self.ranks, room - 2)}" if self.marked else ranks_text(self.groups or self.ranks, room)

    def on(self, cells: range) -> Band | None:
        """Return the part on these cells, if any."""
        shared = range(max(self.cells.start, cells.start), min(self.cells.stop, cells.stop))
        return replace(self, cells=shared) if shared else None


@frozen
class Strip:
    """Cells of one kind on a node, by local index: accelerators, hardware of one type, or the node itself.

    ``lanes`` are the bands, by component. ``idle`` lists unused cells, and ``rest`` describes cells that are not shown.
    ``gauges`` are the phases of each cell with their memory.
    """

    resource: str
    cells: range
    lanes: tuple[tuple[Band, ...], ...]
    idle: tuple[int, ...]
    rest: str = ""
    gauges: Gauges = field(default_factory=dict)

    def name(self, index: int) -> str:
        """Return the name of a cell."""
        return str(index) if self.resource == ACCELERATOR else f"{self.resource} {index}"

    @property
    def phases(self) -> list[str]:
        """The names of the phases on the cells; every cell has its bars in this order."""
        names = dict.fromkeys(one.name for cell in self.gauges.values() for one in cell)
        return list(names)[:MOST_GAUGES]

    def parts(self, across: int) -> Iterator[Strip]:
        """Yield the strip with its bands in pieces of at most ``across`` cells."""
        for start in range(0, len(self.cells), across):
            cells = self.cells[start : start + across]
            lanes = (tuple(filter(None, (band.on(cells) for band in lane))) for lane in self.lanes)
            idle = tuple(index for index in self.idle if index in cells)
            gauges = {index: self.gauges[index] for index in cells if index in self.gauges}
            yield Strip(self.resource, cells, tuple(lane for lane in lanes if lane), idle, gauges=gauges)

    def packed(self) -> list[list[Band]]:
        """Return the lanes, with components on different cells side by side in one lane."""
        packed: list[tuple[set[int], list[Band]]] = []
        for lane in self.lanes:
            cells = {index for band in lane for index in band.cells}
            taken, bands = next((held for held in packed if held[0].isdisjoint(cells)), (set(), []))
            if not bands:
                packed.append((taken, bands))
            taken |= cells
            bands += lane
        return [bands for _, bands in packed]


@frozen
class Node:
    """A shown node; ``same`` lists the nodes folded into it and their ranks."""

    rank: int
    facts: tuple[str, ...]
    strips: tuple[Strip, ...]
    same: str


@frozen
class Map:
    """The whole picture; ``more`` counts the nodes and components left out. Colors stand for groups of kind ``by``.

    ``chart`` has the domains of the network, ``network`` the frames and lines around nodes that are shown one by one.
    """

    summary: str
    legend: tuple[Entry, ...]
    nodes: tuple[Node, ...]
    more: str
    by: str | None = None
    chart: Chart = NO_CHART
    network: Network = NO_NETWORK

    @property
    def bands(self) -> Iterator[Band]:
        """The bands on cells, of all nodes."""
        strips = (strip for node in self.nodes for strip in node.strips if strip.resource != WHOLE_NODE)
        return (band for strip in strips for lane in strip.lanes for band in lane)

    @property
    def gauges(self) -> list[Gauge]:
        """The phases of the accelerators, each kind once."""
        every = (one for node in self.nodes for strip in node.strips for cell in strip.gauges.values() for one in cell)
        return list({one.name: one for one in every}.values())

    @property
    def across(self) -> int:
        """The number of cells of the longest strip."""
        return max((len(strip.cells) for node in self.nodes for strip in node.strips), default=1)


def has_groups(component: Component, kind: str) -> bool:
    """Return whether a component states sizes that give it groups of a kind with two or more slots."""
    return component.parallel.stated and kind in component.layout.kinds and component.layout.size(kind) > 1


def map_of(
    plan: Plan,
    by: str | None = None,
    most_bands: int = MOST_BANDS,
    notes: Notes | None = None,
    around: Inventory | None = None,
) -> Map:
    """Return the map of a plan. The work is linear in the plan; the size of the picture is limited.

    Colors stand for components or, with ``by``, for the parallel groups of that kind. With ``notes``, no node is folded
    if ranks are marked, and those with marked ranks come first. ``around`` are the nodes of the cluster: the network
    shows those that the plan does not use, too.
    """
    inventory = plan.inventory
    legend: dict[str, Entry] = {}
    for name, component in islice(plan.items(), MOST_COMPONENTS):
        groups = len(component.groups(by)) if by is not None and has_groups(component, by) else 0
        legend[name] = Entry(clean(name), len(legend), len(component), groups)
    marked = {} if notes is None else notes.marked
    drawing = _Drawing(plan, by, legend, marked, Memory(plan))
    nodes: list[Node] = []
    shown = bands = 0
    few = inventory.num_nodes <= EACH_NODE
    kinds = list(node_kinds(inventory, plan, fold=False)) if few or marked else plan.node_kinds
    if marked and not few:
        first = {node for name, ranks in marked.items() for rank in ranks for node, _ in plan[name][rank].devices}
        kinds = sorted(kinds, key=lambda kind: kind.nodes[0] not in first)
    for kind in kinds:
        node = drawing.node(kind, inventory.node(kind.nodes[0]))
        bands += sum(len(lane) for strip in node.strips for lane in strip.lanes)
        if nodes and (bands > most_bands or len(nodes) == MOST_NODES):
            break
        nodes.append(node)
        shown += len(kind.nodes)
    left = inventory.num_nodes - shown
    more = [f"{counted(left, 'more node')} with other processes"] if left else []
    more += [counted(len(plan) - len(legend), "more component")] if len(plan) > len(legend) else []
    rest = f"and {'; '.join(more)}" if more else ""
    processes = counted(sum(map(len, plan.values())), "process", "processes")
    accelerators = counted(len(inventory.core.accelerators()), "accelerator")
    summary = f"{counted(inventory.num_nodes, 'node')}, {accelerators}, {processes}"
    if by is not None:
        others = all(entry.groups for entry in legend.values())
        summary += f"; numbers are {by} groups{'' if others else ', or ranks (grey) of components without'}"
    network = network_of(plan, [node.rank for node in nodes], list(legend))
    return Map(summary, tuple(legend.values()), tuple(nodes), rest, by, chart_of(plan, around), network)


@frozen
class _Drawing:
    """The parts of a map of one plan."""

    plan: Plan
    by: str | None
    legend: dict[str, Entry]
    marked: Mapping[str, RankSet]
    memory: Memory

    def node(self, kind: NodeKind, spec: NodeSpec) -> Node:
        """Return the first node of a kind."""
        by_node = any(stay.pattern.resource_type == WHOLE_NODE for stay in kind.stays)
        counts = {ACCELERATOR: kind.num_accelerators, **kind.hardware, WHOLE_NODE: int(by_node)}
        strips = tuple(self._strip(kind, resource, count) for resource, count in counts.items() if count)
        devices = f"{kind.num_accelerators} x {kind.accelerator_type}" if kind.num_accelerators else "no accelerators"
        broken = self.plan.inventory.marks.get(spec.rank, RankSet())
        excluded = "excluded" if broken is None else f"excluded: {broken}" if broken else ""
        where = ""
        if len(kind.nodes) > 1 and (domains := self.plan.inventory.domains):
            where = f"in {domains[-1].text(domains[-1].ids[spec.rank])}"
        facts = (devices, kind.accelerator_model, spec.hostname, spec.ip, where, excluded)
        same = ""
        if others := kind.nodes - RankSet([kind.nodes[0]]):
            held = self._held(kind.ranks)
            same = f"{'node' if len(others) == 1 else 'nodes'} {ranks_text(others, 40)}: the same"
            same += f", with {', '.join(held)}" if held else ""
        return Node(spec.rank, tuple(clean(fact) for fact in facts if fact), strips, same)

    def _held(self, ranks: Mapping[str, RankSet]) -> list[str]:
        """Return the ranks of the components in the legend."""
        held = ((self.legend[name].name, ranks) for name, ranks in ranks.items() if ranks and name in self.legend)
        return [f"{name} {ranks_text(ranks, 24)}" for name, ranks in held]

    def _strip(self, kind: NodeKind, resource: str, count: int) -> Strip:
        """Return the strip of one resource on the first node of a kind."""
        on_cells: dict[str, dict[int, list[int]]] = {}
        for stay, first in zip(kind.stays, kind.first_ranks, strict=True):
            pattern = stay.pattern
            if pattern.resource_type == resource:
                cells = on_cells.setdefault(stay.component_name, {})
                for rank, indices in enumerate(pattern.devices or [(0,)] * pattern.processes, first):
                    for index in indices:
                        cells.setdefault(index, []).append(rank)
        used = {index for cells in on_cells.values() for index in cells}
        shown = range(min(count, MOST_CELLS))
        found = (self._bands(name, kind.nodes[0], on_cells[name], shown) for name in on_cells if name in self.legend)
        idle = tuple(index for index in shown if index not in used)
        rest = ""
        if hidden := range(len(shown), count):
            ranks = {
                name: RankSet(rank for index in hidden for rank in held.get(index, ()))
                for name, held in on_cells.items()
            }
            unused = sum(index not in used for index in hidden)
            parts = self._held(ranks) + ([f"{unused} idle"] if unused else [])
            rest = f"and {hidden[0]}-{hidden[-1]}: {', '.join(parts)}"
        lanes = tuple(lane for lane in map(tuple, found) if lane)
        gauges = self.memory.of_kind(kind) if resource == ACCELERATOR else {}
        return Strip(clean(resource), shown, lanes, idle, rest, gauges)

    def _bands(self, name: str, node: int, cells: dict[int, list[int]], shown: range) -> Iterator[Band]:
        entry = self.legend[name]
        indices = sorted(index for index in cells if index in shown)
        groups = {index: self._groups(name, node, index, cells[index]) for index in indices}
        for (_, ranks, here), found in groupby(
            enumerate(indices), key=lambda at: (at[1] - at[0], cells[at[1]], groups[at[1]])
        ):
            held = [index for _, index in found]
            color = entry.index if self.by is None else here[0] if here else None
            marked = not self.marked.get(name, RankSet()).isdisjoint(RankSet(ranks))
            yield Band(entry, RankSet(ranks), node, range(held[0], held[-1] + 1), here, color, marked)

    def _groups(self, name: str, node: int, index: int, ranks: list[int]) -> RankSet:
        """Return the groups of the slots that these processes have on a cell."""
        if self.by is None or not self.legend[name].groups:
            return RankSet()
        layout = self.plan[name].layout
        groups = layout.groups(self.by)
        found: set[int] = set()
        for rank in ranks:
            slots = layout.slots_of(rank)
            here = slots if len(slots) == 1 else [slot for slot in slots if layout.place(slot) == (node, index)]
            found.update(map(groups.of, here))
        return RankSet(found)


def tip(plan: Plan, band: Band, strip: Strip, notes: Notes | None = None) -> str:
    """Return the tooltip of a band: its place, its devices, its coordinates and its environment, or else its notes."""
    name = list(plan)[band.component.index]
    component = plan[name]
    rows = [component[rank] for rank in islice(band.ranks, _MOST_RANKS)]
    spec = plan.inventory.node(band.node)
    noun = "rank" if len(band.ranks) == 1 else "ranks"
    lines = [f"{band.component.name}, {noun} {ranks_text(band.ranks, 40)} of {band.component.processes}"]
    lines.append(", ".join([f"node {band.node}", *(clean(fact) for fact in (spec.hostname, spec.ip) if fact)]))
    if strip.resource != WHOLE_NODE:
        what, plural = f"{strip.resource} {RankSet(band.cells)}", "s" if len(band.cells) > 1 else ""
        if strip.resource == ACCELERATOR:
            kind = " ".join(filter(None, (spec.accelerator_type, spec.accelerator_model)))
            ids = ",".join(spec.accelerator_ids[index] for index in band.cells)
            what = f"accelerator{plural} {RankSet(band.cells)}: {kind}, id{plural} {ids}"
        lines.append(what)
        lines += texts_of(strip.gauges, band.cells)
    home = {row.cluster_node_rank for row in rows if row.cluster_node_rank != band.node}
    lines += [f"its process runs on node {node}" for node in sorted(home)]
    if notes is not None:
        lines += [notes.tips[name][row.rank] for row in rows]
        return "\n".join(short(line) for line in lines + ["..."] * (len(band.ranks) > len(rows)))
    others = " | ..." if len(band.ranks) > len(rows) else ""

    def listed(values: Iterable[str]) -> str:
        different = list(dict.fromkeys(values))
        return " | ".join(different) + (others if len(different) > 1 else "")

    if texts := [str(cpus) for row in rows if (cpus := component.cpus(row.rank)) is not None]:
        lines.append(f"CPUs {listed(texts)}")
    lines.append(f"node group {rows[0].node_group_label}")
    if component.parallel.stated:
        lines.append(" | ".join(coordinates_text(component, row.rank) for row in rows) + others)
    environments, interpreter = [], None
    for row in rows:
        given, interpreter = plan.inventory.environment(row.cluster_node_rank, row.node_group_label)
        environments.append({**given, **planned_environment(row)})
    for name in environments[0]:
        lines.append(f"{name}={listed(environment.get(name, '') for environment in environments)}")
    lines += [f"python {interpreter}"] if interpreter else []
    return "\n".join(short(line) for line in lines)
