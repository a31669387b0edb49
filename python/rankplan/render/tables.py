"""Tables of a plan and of a weight map: a row per process if they fit on a screen, else one per fold of equal nodes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import chain, groupby, repeat
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from rankplan._core import CLUSTER, WHOLE_NODE, Pattern, Placement, RankSet
from rankplan.hardware.policies import NO_BINDING
from rankplan.memory.rows import ProcessNeeds
from rankplan.nodes.inventory import Inventory
from rankplan.plans.component import Component
from rankplan.plans.plan import Plan
from rankplan.plans.weights import WeightMap
from rankplan.render.lines import coordinates_text
from rankplan.render.memory import need_cells
from rankplan.words import counted

if TYPE_CHECKING:
    from rich.table import Column, Table

_NEAR = ("same device", "same node", "other node")
MOST_ROWS = 64
"""A plan with more processes is folded."""
COLUMNS = ("rank#", "node#", "local rank#", "uses", "sees", "node group")
"""The columns of a process; `table` explains ``#``."""


def table(*columns: str, title: str | None = None) -> Table:
    """Return an empty table in the common style; columns that end in ``#`` hold numbers."""
    from rich.table import Table  # most commands print plain lines

    result = Table(
        title=title, box=None, pad_edge=False, header_style="bold", title_justify="left", padding=(0, 2, 0, 0)
    )
    for column in columns:
        number = column.endswith("#")
        result.add_column(column.rstrip("#"), justify="right" if number else "left", overflow="fold")
    return result


def plan_table(plan: Plan, needs: ProcessNeeds | None = None, *, is_narrow: bool = False) -> Table:
    """Return the placements of a plan, with what each process ``needs`` of its accelerators.

    A narrow table lacks the node groups if all processes are in those of all nodes.
    """
    result = _unfolded(plan, needs) if sum(map(len, plan.values())) <= MOST_ROWS else _folded(plan, needs)
    if is_narrow:
        result.columns = [column for column in result.columns if not _says_nothing(column)]
    return result


def _says_nothing(column: Column) -> bool:
    """Return whether a column only says that all processes are in the groups of all nodes."""
    return column.header == COLUMNS[-1] and {CLUSTER, WHOLE_NODE}.issuperset(column.cells)


def _unfolded(plan: Plan, needs: ProcessNeeds | None) -> Table:
    sized = any(component.parallel.stated for component in plan.values())
    bound = is_bound(plan)
    result = table("component", *COLUMNS, *_more(plan, needs), *(["coordinates"] if sized else []))
    for component, rows in plan.items():
        for row in rows:
            more = []
            if bound:
                more.append(str(rows.cpus(row.rank) or "any"))
            if needs is not None:
                more += need_cells(needs.worst(component, [row]))
            if sized:
                more.append(coordinates_text(rows, row.rank))
            result.add_row(component, *cells(row), *more)
    return result


def _more(plan: Plan, needs: ProcessNeeds | None) -> list[str]:
    """Return the columns that only some tables have."""
    columns = []
    if is_bound(plan):
        columns.append("CPUs")
    if needs is not None:
        columns += ["needs#", "of#"]
    return columns


def is_bound(plan: Plan) -> bool:
    """Whether a component of the plan selects CPUs."""
    return any(component.binding != NO_BINDING for component in plan.values())


def cells(row: Placement) -> list[str]:
    """Return the cells of a process, one for each of ``COLUMNS``."""
    ranks = row.rank, row.cluster_node_rank, row.local_rank
    sees = ids(row.accelerator_type, tuple(row.visible_accelerators))
    return [*map(str, ranks), _uses(row), sees, row.node_group_label]


def _uses(row: Placement) -> str:
    """Return the resources of a process: ``accelerators 0-3``."""
    if row.resource_type == WHOLE_NODE:
        return "node"
    noun = row.resource_type if len(row.devices) == 1 else f"{row.resource_type}s"
    by_node: dict[int, list[int]] = {}
    for node, index in row.devices:
        by_node.setdefault(node, []).append(index)
    if len(by_node) == 1:
        return f"{noun} {RankSet(row.local_hardware_ranks)}"
    return f"{noun} " + ", ".join(f"{RankSet(indices)} of node {node}" for node, indices in by_node.items())


@lru_cache(maxsize=1024)  # most nodes of a cluster have the same ids
def ids(accelerator_type: str, visible: tuple[str, ...]) -> str:
    """Return accelerators by type and the node's own ids: ``NV_GPU 0-7``."""
    if not visible:
        return "-"
    # Fold only small ascending numbers: a serial number may look like a number, but is not a rank.
    numbers = [int(item) for item in visible if re.fullmatch("0|[1-9][0-9]{0,8}", item)]
    folds = len(numbers) == len(visible) and numbers == sorted(numbers)
    return f"{accelerator_type} {RankSet(numbers) if folds else ','.join(visible)}"


def _folded(plan: Plan, needs: ProcessNeeds | None) -> Table:
    columns = "ranks", "nodes", "ranks per node#", "uses", "see", "node group"
    result = table("component", *columns, *_more(plan, needs))
    for component, rows in plan.items():
        by_cells = groupby(_nodes(plan.inventory, rows, needs), key=attrgetter("cells"))
        folds = [(cells, list(nodes)) for cells, nodes in by_cells]
        for cells, nodes in folds[:MOST_ROWS]:
            ranks = RankSet(chain.from_iterable(chain.from_iterable(node.ranks for node in nodes)))
            text = str(ranks) if len(ranks.ranges) == 1 else f"{ranks[0]}-{ranks[-1]}, not all"
            result.add_row(component, text, str(RankSet(node.rank for node in nodes)), *cells)
        if len(folds) > MOST_ROWS:
            result.add_row(component, f"and {len(folds) - MOST_ROWS} more lines")
    return result


class _Node(NamedTuple):
    """A node of a component: the cells about the resources of its ranks, its node rank, and the ranks."""

    cells: tuple[str, ...]
    rank: int
    ranks: list[range]


def _nodes(inventory: Inventory, component: Component, needs: ProcessNeeds | None) -> Iterator[_Node]:
    """Yield each node of a component and node group, with the cells about its ranks.

    Nodes with the same patterns, the same ids and the same need of memory have the same cells, which are made once.
    This does not hold for components with devices on other nodes, nor for cores that other components take: a pattern
    has neither. The cells of those are made for each node.
    """
    rows = component.rows
    kind_of = _node_kinds(inventory, component)
    parts_of: dict[tuple[int, str], list[tuple[int, Pattern]]] = {}
    runs = rows.runs(at_home=True)
    for run in runs:
        pattern = run.pattern
        for offset in range(run.nodes):
            first_rank = run.first_rank + offset * pattern.processes
            parts_of.setdefault((run.node + offset, pattern.node_group), []).append((first_rank, pattern))
    is_each_different = rows.runs() != runs or bool(component.beside)
    cells_of: dict[Any, tuple[str, ...]] = {}
    for (node, _), parts in parts_of.items():
        ranks = [range(first_rank, first_rank + pattern.processes) for first_rank, pattern in parts]
        state = None if needs is None else needs.at(node)
        key: Any = (kind_of[node], state, *(pattern for _, pattern in parts))
        if is_each_different:
            key = ranks[0].start
        if key not in cells_of:
            cells_of[key] = _node_cells(component, [rows[rank] for rank in chain.from_iterable(ranks)], needs)
        yield _Node(cells_of[key], node, ranks)


def _node_kinds(inventory: Inventory, component: Component) -> list[tuple[Any, ...]]:
    """Return, for each node, what the cells of a component show of its hardware."""
    is_bound = component.binding != NO_BINDING
    kinds: list[tuple[Any, ...]] = []
    for nodes, spec in inventory.stretches():
        kind = (spec.accelerator_type, spec.accelerator_ids, spec.facts if is_bound else "")
        kinds += repeat(kind, len(nodes))
    return kinds


def _node_cells(component: Component, rows: list[Placement], needs: ProcessNeeds | None) -> tuple[str, ...]:
    """Return the cells about the resources of the ranks of a component on one node."""
    cells = [str(len(rows)), _what(rows), _seen(rows), rows[0].node_group_label]
    if component.binding != NO_BINDING:
        cells.append(_cpus(component, rows))
    if needs is not None:
        cells += need_cells(needs.worst(component.name, rows))
    return tuple(cells)


def _cpus(component: Component, rows: list[Placement]) -> str:
    """Return the CPUs of the processes of one node together, and whether each has only its own part."""
    of_ranks = [component.cpus(row.rank) for row in rows]
    together = RankSet().union(*(cpus for cpus in of_ranks if cpus is not None))
    if not together:
        return "any"
    differ = any(cpus != together for cpus in of_ranks)
    return f"{together}, each rank its own" if differ else str(together)


def _seen(rows: list[Placement]) -> str:
    """Return the devices that the processes of one node see, and whether each sees only its own part."""
    of_ranks = [tuple(row.visible_accelerators) for row in rows]
    together = tuple(dict.fromkeys(chain.from_iterable(of_ranks)))
    text = ids(rows[0].accelerator_type, together)
    if all(visible == together for visible in of_ranks):
        return text
    return f"{text}, each rank its own{' first' if rows[0].visibility == 'own-first' else ''}"


def _what(rows: list[Placement]) -> str:
    resource = rows[0].resource_type
    if resource == WHOLE_NODE:
        return "node"
    users = Counter(chain.from_iterable(row.local_hardware_ranks for row in rows))
    noun = f"{resource}s" if len(users) > 1 else resource
    parts = [f"{noun} {RankSet(users)}"]
    per_rank = {len(row.local_hardware_ranks) for row in rows}
    if per_rank != {1}:
        parts.append(f"{_span(per_rank)} per rank")
    ranks_per_resource = set(users.values())
    if ranks_per_resource != {1}:
        parts.append(f"{_span(ranks_per_resource)} ranks per {resource}")
    on_other_nodes = sum(len(row.devices) for row in rows) - users.total()
    if on_other_nodes:
        parts.append(f"{on_other_nodes} more on other nodes")
    return ", ".join(parts)


def _span(numbers: set[int]) -> str:
    return str(min(numbers)) if len(numbers) == 1 else f"{min(numbers)}-{max(numbers)}"


def weights_table(weights: WeightMap) -> Table:
    """Return a row per sender with its receivers; equal consecutive nodes are folded if there are many senders."""
    if len(weights) > MOST_ROWS:
        return _folded_weights(weights)
    result = table(f"{weights.sender.name}#", "node#", "sends to", "nodes", "where")
    for slot, receivers in enumerate(weights):
        node, _ = weights.sender.layout.place(slot)
        nodes = RankSet(_receiver_nodes(weights, receivers))
        where = Counter(_near(weights, slot, receiver) for receiver in receivers)
        result.add_row(str(slot), str(node), _ranks(RankSet(receivers)), str(nodes) or "-", _counts(where))
    return result


def _folded_weights(weights: WeightMap) -> Table:
    result = table(weights.sender.name, "nodes", "sends to", "nodes", "each", "where")
    for lines, ((receivers_each, where), nodes) in enumerate(groupby(_senders(weights), _alike)):
        if lines == MOST_ROWS:
            result.add_row("and more lines")
            break
        folded = list(nodes)
        total = Counter({name: count * len(folded) for name, count in where})
        result.add_row(
            _ranks(RankSet(slot for node in folded for slot in node.senders)),
            str(RankSet(node.rank for node in folded)),
            _ranks(RankSet(slot for node in folded for slot in node.receivers)),
            _ranks(RankSet(other for node in folded for other in node.receiver_nodes)),
            "-".join(map(str, dict.fromkeys([receivers_each[0], receivers_each[-1]]))),
            _counts(total),
        )
    return result


class _SenderNode(NamedTuple):
    """The senders of a node, their receivers, how many each of them has, ascending, and how many are where."""

    rank: int
    senders: list[int]
    receivers: list[int]
    receiver_nodes: set[int]
    receivers_each: tuple[int, ...]
    where: tuple[tuple[str, int], ...]


def _alike(node: _SenderNode) -> tuple[tuple[int, ...], tuple[tuple[str, int], ...]]:
    """Return what the nodes of one row have in common."""
    return node.receivers_each, node.where


def _senders(weights: WeightMap) -> Iterator[_SenderNode]:
    """Yield the senders of each node, in the order of their slots."""
    place = weights.sender.layout.place
    for node, slots in groupby(range(len(weights)), key=lambda slot: place(slot)[0]):
        senders = list(slots)
        receivers: list[int] = []
        counts = set[int]()
        nearness: list[str] = []
        for sender in senders:
            of_sender = weights[sender]
            receivers += of_sender
            counts.add(len(of_sender))
            nearness += [_near(weights, sender, receiver) for receiver in of_sender]
        nodes = _receiver_nodes(weights, receivers)
        where = tuple(sorted(Counter(nearness).items()))
        yield _SenderNode(node, senders, receivers, nodes, tuple(sorted(counts)), where)


def _receiver_nodes(weights: WeightMap, receivers: Iterable[int]) -> set[int]:
    """Return the nodes of receivers."""
    place = weights.receiver.layout.place
    return {place(receiver)[0] for receiver in receivers}


def _near(weights: WeightMap, sender: int, receiver: int) -> str:
    """Return where a receiver is, as its sender sees it: one of ``_NEAR``."""
    sender_node, sender_index = weights.sender.layout.place(sender)
    node, index = weights.receiver.layout.place(receiver)
    same_device, same_node, other_node = _NEAR
    if sender_node != node:
        return other_node
    return same_device if sender_index == index and index is not None else same_node


def _counts(where: Counter[str]) -> str:
    names = [name for name in _NEAR if name in where]
    if len(names) > 1:
        names = [f"{where[name]} {name}" if where[name] else name for name in names]
    return ", ".join(names) or "-"


def _ranks(ranks: RankSet) -> str:
    if len(ranks.ranges) <= 8:
        return str(ranks) or "-"
    return f"{ranks[0]}-{ranks[-1]}, not all"


def weights_line(weights: WeightMap) -> str:
    """Return how many receivers have a sender on their device or node."""
    total = len(weights.receivers)
    where = Counter(_near(weights, weights.sender_of(slot), slot) for slot in weights.receivers)
    words = ("on the sender's device", "on the sender's node", "on another node")
    counts = [f"{where[name]:,} {word}" for name, word in zip(_NEAR, words, strict=True) if where[name]]
    return f"{counted(total, 'receiver')}: {', '.join(counts)}"


def plain_weights(weights: WeightMap) -> Iterator[dict[str, Any]]:
    """Yield every sender with its receivers: slots, and the process ranks of slots."""
    sender, receiver = weights.sender.layout, weights.receiver.layout
    for slot, receivers in enumerate(weights):
        entry = {"slot": slot, "rank": sender.process_of(slot), "receivers": receivers}
        yield entry | {"receiver_ranks": [receiver.process_of(other) for other in receivers]}
