"""The content of a map in any format: nodes, strips of cells on them, and bands of processes on the cells."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import groupby, islice

from rankplan._core import ACCELERATOR, WHOLE_NODE, Placement, RankSet
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

    ``lanes`` are the bands, by component. ``idle`` lists unused cells, ``excluded`` those that must not be used, and
    ``rest`` describes cells that are not shown. ``gauges`` are the phases of each cell with their memory.
    """

    resource: str
    cells: range
    lanes: tuple[tuple[Band, ...], ...]
    idle: tuple[int, ...]
    rest: str = ""
    excluded: tuple[int, ...] = ()
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
            excluded = tuple(index for index in self.excluded if index in cells)
            gauges = {index: self.gauges[index] for index in cells if index in self.gauges}
            shown = tuple(lane for lane in lanes if lane)
            yield Strip(self.resource, cells, shown, idle, excluded=excluded, gauges=gauges)

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
    legend = _legend(plan, by)
    marked = {} if notes is None else notes.marked
    drawing = _Drawing(plan, by, legend, marked, Memory(plan))
    nodes, num_shown = _drawn(drawing, most_bands)
    network = network_of(plan, [node.rank for node in nodes], list(legend))
    rest = _rest(plan.inventory.num_nodes - num_shown, len(plan) - len(legend))
    summary = _summary(plan, by, legend)
    return Map(summary, tuple(legend.values()), tuple(nodes), rest, by, chart_of(plan, around), network)


def _legend(plan: Plan, by: str | None) -> dict[str, Entry]:
    """Return the entries of the first components, by name."""
    legend: dict[str, Entry] = {}
    for name, component in islice(plan.items(), MOST_COMPONENTS):
        num_groups = len(component.groups(by)) if by is not None and has_groups(component, by) else 0
        legend[name] = Entry(clean(name), len(legend), len(component), num_groups)
    return legend


def _drawn(drawing: _Drawing, most_bands: int) -> tuple[list[Node], int]:
    """Return the nodes in the picture, and the number of those that they stand for.

    Nodes are drawn until the picture has so many bands or nodes; the first one always is.
    """
    nodes: list[Node] = []
    num_shown = num_bands = 0
    for kind in _kinds(drawing.plan, drawing.marked):
        node = drawing.node(kind, drawing.plan.inventory.node(kind.nodes[0]))
        num_bands += sum(len(lane) for strip in node.strips for lane in strip.lanes)
        if nodes and (num_bands > most_bands or len(nodes) == MOST_NODES):
            break
        nodes.append(node)
        num_shown += len(kind.nodes)
    return nodes, num_shown


def _kinds(plan: Plan, marked: Mapping[str, RankSet]) -> Sequence[NodeKind]:
    """Return the nodes to draw, equal ones together if there are many; marked ranks keep theirs apart, and first."""
    inventory = plan.inventory
    are_few = inventory.num_nodes <= EACH_NODE
    if not are_few and not marked:
        return plan.node_kinds
    kinds = list(node_kinds(inventory, plan, fold=False))
    if are_few:
        return kinds
    with_marks: set[int] = set()
    for name, ranks in marked.items():
        for rank in ranks:
            with_marks.update(node for node, _ in plan[name][rank].devices)
    return sorted(kinds, key=lambda kind: kind.nodes[0] not in with_marks)


def _rest(more_nodes: int, more_components: int) -> str:
    """Return what the picture leaves out, in words."""
    left_out = []
    if more_nodes:
        left_out.append(f"{counted(more_nodes, 'more node')} with other processes")
    if more_components > 0:
        left_out.append(counted(more_components, "more component"))
    return f"and {'; '.join(left_out)}" if left_out else ""


def _summary(plan: Plan, by: str | None, legend: Mapping[str, Entry]) -> str:
    """Return the size of a plan in words, and what the numbers of the picture are."""
    processes = counted(sum(map(len, plan.values())), "process", "processes")
    accelerators = counted(len(plan.inventory.core.accelerators()), "accelerator")
    summary = f"{counted(plan.inventory.num_nodes, 'node')}, {accelerators}, {processes}"
    if by is None:
        return summary
    summary += f"; numbers are {by} groups"
    if not all(entry.groups for entry in legend.values()):
        summary += ", or ranks (grey) of components without"
    return summary


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
        has_whole_nodes = any(stay.pattern.resource_type == WHOLE_NODE for stay in kind.stays)
        counts = {ACCELERATOR: kind.num_accelerators, **kind.hardware, WHOLE_NODE: int(has_whole_nodes)}
        strips = tuple(self._strip(kind, resource, count) for resource, count in counts.items() if count)
        facts = tuple(clean(fact) for fact in self._facts(kind, spec) if fact)
        return Node(spec.rank, facts, strips, self._same(kind))

    def _facts(self, kind: NodeKind, spec: NodeSpec) -> Iterator[str | None]:
        """Yield what is written beside a node."""
        yield f"{kind.num_accelerators} x {kind.accelerator_type}" if kind.num_accelerators else "no accelerators"
        yield kind.accelerator_model
        records = self._records(kind)
        if len({record.hostname for record in records}) == 1:
            yield spec.hostname
        if len({record.ip for record in records}) == 1:
            yield spec.ip
        yield self._domain(kind)
        yield _use(kind) if self.plan else None

    def _records(self, kind: NodeKind) -> list[NodeSpec]:
        """Return the records of the nodes of a kind, each different one once."""
        stretches = self.plan.inventory.stretches()
        return [record for nodes, record in stretches if not kind.nodes.isdisjoint(RankSet(nodes))]

    def _domain(self, kind: NodeKind) -> str | None:
        """Return the innermost domain that has all nodes of a kind, where no frames show the domains."""
        if self.plan.inventory.num_nodes <= EACH_NODE:
            return None
        for level in reversed(self.plan.inventory.domains):
            domains = {level.ids[node] for node in kind.nodes}
            if len(domains) == 1:
                return f"in {level.text(domains.pop())}"
        return None

    def _same(self, kind: NodeKind) -> str:
        """Return in words the other nodes of a kind, and the ranks on them."""
        others = kind.nodes - RankSet([kind.nodes[0]])
        if not others:
            return ""
        text = f"{'node' if len(others) == 1 else 'nodes'} {ranks_text(others, 40)}: the same"
        numbers = self._numbers(kind.ranks)
        return f"{text}, with {', '.join(numbers)}" if numbers else text

    def _numbers(self, ranks: Mapping[str, RankSet]) -> list[str]:
        """Return the ranks of the components in the legend, or the groups that the map shows, in words."""
        texts = []
        for name, of_name in ranks.items():
            if of_name and name in self.legend:
                numbers = self._groups_of(name, of_name) or of_name
                texts.append(f"{self.legend[name].name} {ranks_text(numbers, 24)}")
        return texts

    def _groups_of(self, name: str, ranks: RankSet) -> RankSet:
        """Return the groups of the slots of these processes; empty if the map shows ranks."""
        if self.by is None or not self.legend[name].groups:
            return RankSet()
        layout = self.plan[name].layout
        groups = layout.groups(self.by)
        numbers: set[int] = set()
        for rank in ranks:
            numbers.update(map(groups.of, layout.slots_of(rank)))
        return RankSet(numbers)

    def _strip(self, kind: NodeKind, resource: str, count: int) -> Strip:
        """Return the strip of one resource on the first node of a kind."""
        cells_of = _cells(kind, resource)
        used = {index for cells in cells_of.values() for index in cells}
        shown = range(min(count, MOST_CELLS))
        lanes = []
        for name, cells in cells_of.items():
            if name in self.legend:
                lanes.append(tuple(self._bands(name, kind.nodes[0], cells, shown)))
        unused = [index for index in shown if index not in used]
        excluded = tuple(index for index in unused if _is_excluded(kind, resource, index))
        idle = tuple(index for index in unused if index not in excluded)
        rest = self._hidden(cells_of, used, range(len(shown), count))
        gauges = self.memory.of_kind(kind) if resource == ACCELERATOR else {}
        bands = tuple(lane for lane in lanes if lane)
        return Strip(clean(resource), shown, bands, idle, rest, excluded, gauges)

    def _hidden(self, cells_of: Mapping[str, Mapping[int, list[int]]], used: set[int], hidden: range) -> str:
        """Return in words what is on the cells of a strip that are not drawn."""
        if not hidden:
            return ""
        ranks = {name: RankSet(_ranks_on(cells, hidden)) for name, cells in cells_of.items()}
        parts = self._numbers(ranks)
        unused = sum(index not in used for index in hidden)
        if unused:
            parts.append(f"{unused} idle")
        return f"and {hidden[0]}-{hidden[-1]}: {', '.join(parts)}"

    def _bands(self, name: str, node: int, cells: dict[int, list[int]], shown: range) -> Iterator[Band]:
        entry = self.legend[name]
        indices = sorted(index for index in cells if index in shown)
        groups = {index: self._groups(name, node, index, cells[index]) for index in indices}
        for (_, ranks, of_band), run in groupby(
            enumerate(indices), key=lambda at: (at[1] - at[0], cells[at[1]], groups[at[1]])
        ):
            on = [index for _, index in run]
            color: int | None = entry.index
            if self.by is not None:
                color = of_band[0] if of_band else None
            is_marked = not self.marked.get(name, RankSet()).isdisjoint(RankSet(ranks))
            yield Band(entry, RankSet(ranks), node, range(on[0], on[-1] + 1), of_band, color, is_marked)

    def _groups(self, name: str, node: int, index: int, ranks: list[int]) -> RankSet:
        """Return the groups of the slots that these processes have on a cell."""
        if self.by is None or not self.legend[name].groups:
            return RankSet()
        layout = self.plan[name].layout
        groups = layout.groups(self.by)
        numbers: set[int] = set()
        for rank in ranks:
            slots = layout.slots_of(rank)
            on_cell = [slot for slot in slots if len(slots) == 1 or layout.place(slot) == (node, index)]
            numbers.update(map(groups.of, on_cell))
        return RankSet(numbers)


def _use(kind: NodeKind) -> str | None:
    """Return in words why a node, or a part of it, has no processes; ``None`` if it has."""
    if kind.excluded is None:
        return None if kind.stays else "spare"
    if kind.excluded.job is not None:
        return f"of {short(kind.excluded.job)}"
    if kind.excluded.accelerators is None:
        return "excluded"
    return f"excluded: {kind.excluded.accelerators}"


def _is_excluded(kind: NodeKind, resource: str, index: int) -> bool:
    """Return whether a cell of a node must not be used."""
    if kind.excluded is None:
        return False
    if kind.excluded.accelerators is None:
        return True
    return resource == ACCELERATOR and index in kind.excluded.accelerators


def _cells(kind: NodeKind, resource: str) -> dict[str, dict[int, list[int]]]:
    """Return, by component and index of a resource, the ranks on it on the first node of a kind."""
    cells_of: dict[str, dict[int, list[int]]] = {}
    for stay, first in zip(kind.stays, kind.first_ranks, strict=True):
        pattern = stay.pattern
        if pattern.resource_type != resource:
            continue
        cells = cells_of.setdefault(stay.component_name, {})
        for rank, indices in enumerate(pattern.devices or [(0,)] * pattern.processes, first):
            for index in indices:
                cells.setdefault(index, []).append(rank)
    return cells_of


def _ranks_on(cells: Mapping[int, list[int]], indices: Iterable[int]) -> Iterator[int]:
    """Yield the ranks on some cells."""
    for index in indices:
        yield from cells.get(index, ())


def tip(plan: Plan, band: Band, strip: Strip, notes: Notes | None = None) -> str:
    """Return the tooltip of a band: its place, its devices, its coordinates and its environment, or else its notes."""
    name = list(plan)[band.component.index]
    component = plan[name]
    rows = [component[rank] for rank in islice(band.ranks, _MOST_RANKS)]
    has_more = len(band.ranks) > len(rows)
    lines = [*_place_lines(plan.inventory.node(band.node), band, strip)]
    elsewhere = {row.cluster_node_rank for row in rows} - {band.node}
    lines += [f"its process runs on node {node}" for node in sorted(elsewhere)]
    if notes is None:
        lines += _rank_lines(plan, component, rows, has_more=has_more)
    else:
        lines += [notes.tips[name][row.rank] for row in rows]
        if has_more:
            lines.append("...")
    return "\n".join(short(line) for line in lines)


def _place_lines(spec: NodeSpec, band: Band, strip: Strip) -> Iterator[str]:
    """Yield the ranks of a band, their node and the devices on it."""
    noun = "rank" if len(band.ranks) == 1 else "ranks"
    yield f"{band.component.name}, {noun} {ranks_text(band.ranks, 40)} of {band.component.processes}"
    names = [clean(fact) for fact in (spec.hostname, spec.ip) if fact]
    yield ", ".join([f"node {band.node}", *names])
    if strip.resource == WHOLE_NODE:
        return
    if strip.resource == ACCELERATOR:
        plural = "s" if len(band.cells) > 1 else ""
        kind = " ".join(filter(None, (spec.accelerator_type, spec.accelerator_model)))
        ids = ",".join(spec.accelerator_ids[index] for index in band.cells)
        yield f"accelerator{plural} {RankSet(band.cells)}: {kind}, id{plural} {ids}"
    else:
        yield f"{strip.resource} {RankSet(band.cells)}"
    yield from texts_of(strip.gauges, band.cells)


def _rank_lines(plan: Plan, component: Component, rows: Sequence[Placement], *, has_more: bool) -> Iterator[str]:
    """Yield the CPUs, the coordinates and the environment of ranks; several values are side by side."""
    others = " | ..." if has_more else ""

    def listed(values: Iterable[str]) -> str:
        different = list(dict.fromkeys(values))
        return " | ".join(different) + (others if len(different) > 1 else "")

    bound = [component.cpus(row.rank) for row in rows]
    texts = [str(cpus) for cpus in bound if cpus is not None]
    if texts:
        yield f"CPUs {listed(texts)}"
    yield f"node group {rows[0].node_group_label}"
    if component.parallel.stated:
        yield " | ".join(coordinates_text(component, row.rank) for row in rows) + others
    environments = []
    interpreter = None
    for row in rows:
        given, interpreter = plan.inventory.environment(row.cluster_node_rank, row.node_group_label)
        environments.append({**given, **planned_environment(row)})
    for name in environments[0]:
        yield f"{name}={listed(environment.get(name, '') for environment in environments)}"
    if interpreter:
        yield f"python {interpreter}"
