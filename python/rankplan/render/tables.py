"""Tables of a plan and of a weight map: a row per process if they fit on a screen, else one per fold of equal nodes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from itertools import chain, groupby, repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Any

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
            more = [str(rows.cpus(row.rank) or "any")] if bound else []
            more += need_cells(needs.worst(component, [row])) if needs is not None else []
            result.add_row(component, *cells(row), *more, *([coordinates_text(rows, row.rank)] if sized else []))
    return result


def _more(plan: Plan, needs: ProcessNeeds | None) -> list[str]:
    """Return the columns that only some tables have."""
    return [*(["CPUs"] if is_bound(plan) else []), *(["needs#", "of#"] if needs is not None else [])]


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
        found = _nodes(plan.inventory, rows, needs)
        folds = [(use, list(nodes)) for use, nodes in groupby(found, key=itemgetter(0))]
        for use, nodes in folds[:MOST_ROWS]:
            ranks = RankSet(chain.from_iterable(chain.from_iterable(here for _, _, here in nodes)))
            shown = str(ranks) if len(ranks.ranges) == 1 else f"{ranks[0]}-{ranks[-1]}, not all"
            where = RankSet(node for _, node, _ in nodes)
            result.add_row(component, shown, str(where), *use)
        if len(folds) > MOST_ROWS:
            result.add_row(component, f"and {len(folds) - MOST_ROWS} more lines")
    return result


def _nodes(
    inventory: Inventory, component: Component, needs: ProcessNeeds | None
) -> Iterator[tuple[tuple[str, ...], int, list[range]]]:
    """Yield each node of a component: the cells about the resources of its ranks, its node rank, and the ranks.

    Nodes with the same patterns and ids are read once.
    """
    rows, bound = component.rows, component.binding != NO_BINDING
    stretches = (
        repeat((spec.accelerator_type, spec.accelerator_ids, spec.facts if bound else ""), len(nodes))
        for nodes, spec in inventory.stretches()
    )
    kind_of = list(chain.from_iterable(stretches))
    by_group: dict[tuple[int, str], list[tuple[int, Pattern]]] = {}
    runs = rows.runs(at_home=True)
    for run in runs:
        pattern = run.pattern
        for offset in range(run.nodes):
            first = run.first_rank + offset * pattern.processes
            by_group.setdefault((run.node + offset, pattern.node_group), []).append((first, pattern))
    away = rows.runs() != runs or bool(component.beside)
    uses: dict[Any, tuple[str, ...]] = {}
    for (node, _), parts in by_group.items():
        ranks = [range(first, first + pattern.processes) for first, pattern in parts]
        # a pattern does not contain the other node of a device, nor the cores that other components take
        state = None if needs is None else needs.at(node)
        key = ranks[0].start if away else (kind_of[node], state, *(pattern for _, pattern in parts))
        if key not in uses:
            here = [rows[rank] for rank in chain.from_iterable(ranks)]
            use: tuple[str, ...] = str(len(here)), _what(here), _seen(here), here[0].node_group_label
            use = (*use, _cpus(component, here)) if bound else use
            uses[key] = use if needs is None else (*use, *need_cells(needs.worst(component.name, here)))
        yield uses[key], node, ranks


def _cpus(component: Component, rows: list[Placement]) -> str:
    """Return the CPUs of the processes of one node together, and whether each has only its own part."""
    each = [component.cpus(row.rank) for row in rows]
    every = RankSet().union(*(cpus for cpus in each if cpus is not None))
    if not every:
        return "any"
    return f"{every}{', each rank its own' if any(cpus != every for cpus in each) else ''}"


def _seen(rows: list[Placement]) -> str:
    """Return the devices that the processes of one node see, and whether each sees only its own part."""
    each = [tuple(row.visible_accelerators) for row in rows]
    seen = tuple(dict.fromkeys(chain.from_iterable(each)))
    first = " first" if rows[0].visibility == "own-first" else ""
    apart = f", each rank its own{first}" if any(visible != seen for visible in each) else ""
    return f"{ids(rows[0].accelerator_type, seen)}{apart}"


def _what(rows: list[Placement]) -> str:
    resource = rows[0].resource_type
    if resource == WHOLE_NODE:
        return "node"
    counts = Counter(chain.from_iterable(row.local_hardware_ranks for row in rows))
    each, sharing = {len(row.local_hardware_ranks) for row in rows}, set(counts.values())
    away = sum(len(row.devices) for row in rows) - counts.total()
    how = [f"{_span(each)} per rank"] if each != {1} else []
    how += [f"{_span(sharing)} ranks per {resource}"] if sharing != {1} else []
    how += [f"{away} more on other nodes"] if away else []
    return ", ".join([f"{resource}{'s' if len(counts) > 1 else ''} {RankSet(counts)}", *how])


def _span(numbers: set[int]) -> str:
    return str(min(numbers)) if len(numbers) == 1 else f"{min(numbers)}-{max(numbers)}"


def weights_table(weights: WeightMap) -> Table:
    """Return a row per sender with its receivers; equal consecutive nodes are folded if there are many senders."""
    if len(weights) > MOST_ROWS:
        return _folded_weights(weights)
    result = table(f"{weights.sender.name}#", "node#", "sends to", "nodes", "where")
    for slot, receivers in enumerate(weights):
        node, _ = weights.sender.layout.place(slot)
        nodes = RankSet({weights.receiver.layout.place(one)[0] for one in receivers})
        where = Counter(_near(weights, slot, one) for one in receivers)
        result.add_row(str(slot), str(node), _ranks(RankSet(receivers)), str(nodes) or "-", _counts(where))
    return result


def _folded_weights(weights: WeightMap) -> Table:
    result = table(weights.sender.name, "nodes", "sends to", "nodes", "each", "where")
    for lines, (key, nodes) in enumerate(groupby(_senders(weights), key=lambda node: node[0])):
        if lines == MOST_ROWS:
            result.add_row("and more lines")
            break
        _, senders, places, receivers, theirs = (list(part) for part in zip(*nodes, strict=True))
        each, where = key
        total = Counter({name: count * len(places) for name, count in where})
        result.add_row(
            _ranks(RankSet(slot for slots in senders for slot in slots)),
            str(RankSet(places)),
            _ranks(RankSet(slot for slots in receivers for slot in slots)),
            _ranks(RankSet(node for nodes_ in theirs for node in nodes_)),
            str(each[0]) if len(each) == 1 else f"{each[0]}-{each[-1]}",
            _counts(total),
        )
    return result


def _senders(weights: WeightMap) -> Iterator[tuple[Any, list[int], int, list[int], set[int]]]:
    """Yield the senders of each node: a key that equal nodes share, slots, node, receivers, nodes of the receivers."""
    places = weights.sender.layout.place
    for node, group in groupby(range(len(weights)), key=lambda slot: places(slot)[0]):
        senders = list(group)
        sent = [weights[slot] for slot in senders]
        where = Counter(
            _near(weights, slot, one) for slot, receivers in zip(senders, sent, strict=True) for one in receivers
        )
        receivers = [one for each in sent for one in each]
        key = tuple(sorted(set(map(len, sent)))), tuple(sorted(where.items()))
        yield key, senders, node, receivers, {weights.receiver.layout.place(one)[0] for one in receivers}


def _near(weights: WeightMap, sender: int, receiver: int) -> str:
    here, there = weights.sender.layout.place(sender), weights.receiver.layout.place(receiver)
    return _NEAR[0 if here == there and here[1] is not None else 1 if here[0] == there[0] else 2]


def _counts(where: Counter[str]) -> str:
    named = [name for name in _NEAR if name in where]
    return ", ".join(f"{where[name]} {name}" if len(named) > 1 and where[name] else name for name in named) or "-"


def _ranks(ranks: RankSet) -> str:
    if len(ranks.ranges) <= 8:
        return str(ranks) or "-"
    return f"{ranks[0]}-{ranks[-1]}, not all"


def weights_line(weights: WeightMap) -> str:
    """Return how many receivers have a sender on their device or node."""
    total = len(weights.receivers)
    where = Counter(_near(weights, weights.sender_of(slot), slot) for slot in weights.receivers)
    words = ("on the sender's device", "on the sender's node", "on another node")
    found = ", ".join(f"{where[name]:,} {word}" for name, word in zip(_NEAR, words, strict=True) if where[name])
    return f"{counted(total, 'receiver')}: {found}"


def plain_weights(weights: WeightMap) -> Iterator[dict[str, Any]]:
    """Yield every sender with its receivers: slots, and the process ranks of slots."""
    sender, receiver = weights.sender.layout, weights.receiver.layout
    for slot, receivers in enumerate(weights):
        entry = {"slot": slot, "rank": sender.process_of(slot), "receivers": receivers}
        yield entry | {"receiver_ranks": [receiver.process_of(one) for one in receivers]}
