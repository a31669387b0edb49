"""The changes from one plan to another as a table and as JSON, and lines about arrangements and repaired plans.

In a table, consecutive ranks that move together are one line.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, NamedTuple

from rankplan._core import ACCELERATOR, WHOLE_NODE, Placement, RankSet
from rankplan.arranging.faults import requests_lost
from rankplan.arranging.replanned import Replanned
from rankplan.arranging.task import KINDS, Arrangement
from rankplan.arranging.units import num_data_groups
from rankplan.frozen import frozen
from rankplan.nodes.node import NodeSpec
from rankplan.plans.component import Coordinates
from rankplan.plans.diff import Fields, Move, PlanDiff
from rankplan.render.tables import ids, table
from rankplan.words import by_nodes, counted, nodes_text

if TYPE_CHECKING:
    from rich.table import Table

_MOST_MOVES = 8
_MOST_NODES = 64
_MOST_NAMES = 4
MOST_LINES = 64
"""How many lines of one kind, or blocks of one component, a table shows; it counts the others."""

_WIDEST = 80
_APART = {"own": ", each rank its own", "own-first": ", each rank its own first"}


@frozen
class Side:
    """The places of a block in one plan: local indices by node. They ascend with the ranks.

    ``names`` are those of nodes that are another machine in the other plan.
    """

    resource: str
    node_group: str
    accelerator_type: str
    visibility: str
    nodes: dict[int, RankSet]
    sees: tuple[str, ...]
    coordinates: dict[str, RankSet]
    names: dict[int, str]

    def where(self) -> str:
        """Return the places as text, or their number if the text is long."""
        if self.resource == WHOLE_NODE:
            text = nodes_text(RankSet(self.nodes))
            if len(text) > _WIDEST:
                text = counted(len(self.nodes), "node")
        else:
            text = by_nodes(self.nodes, _WIDEST)
        if self.names:
            names = ", ".join(map(_value, islice(self.names.values(), _MOST_NAMES)))
            more = ", ..." if len(self.names) > _MOST_NAMES else ""
            text = f"{text} ({names}{more})"
        return text if self.resource in (ACCELERATOR, WHOLE_NODE) else f"{self.resource}: {text}"

    def sight(self) -> str:
        """Return the visible devices as text."""
        apart = _APART.get(self.visibility, "") if self.resource == ACCELERATOR else ""
        return f"sees {ids(self.accelerator_type, self.sees)}{apart}"

    def numbers(self) -> str:
        """Return the coordinates as text."""
        return ", ".join(f"{kind} {numbers}" for kind, numbers in self.coordinates.items()) or "no groups"


@frozen
class Block:
    """Consecutive ranks of a component that move together, or stay ``in_place`` with other coordinates.

    ``before`` is ``None`` for new ranks, ``after`` for removed ones.
    """

    component: str
    ranks: RankSet
    before: Side | None
    after: Side | None
    in_place: bool

    def cells(self) -> tuple[str, str]:
        """Return the difference as text, before and after."""
        before, after = self.before, self.after
        if before is None or after is None:
            return before.where() if before else "-", after.where() if after else "-"
        if (before.resource, before.nodes, before.names) != (after.resource, after.nodes, after.names):
            return before.where(), after.where()
        if self.in_place:
            return before.numbers(), after.numbers()
        if before.node_group != after.node_group:
            return f"node group {before.node_group}", f"node group {after.node_group}"
        return before.sight(), after.sight()


class _Step(NamedTuple):
    """What decides whether a move is in one block with the move before it.

    ``kind`` is the same for all moves of a block: in a block, ranks are consecutive, and either all processes stay in
    their places or all move. The places ascend.
    """

    kind: tuple[Any, ...]
    before: tuple[Any, ...]
    after: tuple[Any, ...]

    def continues(self, last: _Step) -> bool:
        """Return whether the move belongs to the block of the last one."""
        return self.kind == last.kind and self.before >= last.before and self.after >= last.after


def _step(index: int, move: Move) -> _Step:
    old_kind, old = _kind_and_place(move.before)
    new_kind, new = _kind_and_place(move.after)
    kind = (move.component, move.rank - index, old == new, move.in_place, move.replaced, old_kind, new_kind)
    return _Step(kind, old, new)


def blocks(diff: PlanDiff) -> Iterator[Block]:
    """Yield the processes that change, in blocks."""
    old_names = {node: diff.before.inventory.node(node).name for node in diff.replaced}
    new_names = {node: diff.after.inventory.node(node).name for node in diff.replaced}
    moves: list[Move] = []
    last: _Step | None = None
    for index, move in enumerate(diff.moves()):
        step = _step(index, move)
        if last is not None and not step.continues(last):
            yield _block(moves, old_names, new_names)
            moves = []
        moves.append(move)
        last = step
    if moves:
        yield _block(moves, old_names, new_names)


def _block(moves: Sequence[Move], old_names: Mapping[int, str], new_names: Mapping[int, str]) -> Block:
    before = _side([move.before for move in moves], [move.was for move in moves], old_names)
    after = _side([move.after for move in moves], [move.now for move in moves], new_names)
    ranks = RankSet(range(moves[0].rank, moves[-1].rank + 1))
    return Block(moves[0].component, ranks, before, after, moves[0].in_place)


def _side(
    places: Sequence[Placement | None], coordinates: Sequence[Sequence[Coordinates]], names: Mapping[int, str]
) -> Side | None:
    """Return one side of a block with these rows and coordinates; ``names`` are those of other machines."""
    rows = [row for row in places if row is not None]
    if not rows:
        return None
    nodes = _devices_by_node(rows)
    slots = list(chain.from_iterable(coordinates))
    kinds = slots[0] if slots else ()
    return Side(
        resource=rows[0].resource_type,
        node_group=rows[0].node_group_label,
        accelerator_type=rows[0].accelerator_type,
        visibility=rows[0].visibility,
        nodes={node: RankSet(indices) for node, indices in nodes.items()},
        sees=tuple(dict.fromkeys(device for row in rows for device in row.visible_accelerators)),
        coordinates={kind: RankSet({slot[kind] for slot in slots}) for kind in kinds},
        names={node: names[node] for node in nodes if node in names},
    )


def _devices_by_node(rows: Sequence[Placement]) -> dict[int, list[int]]:
    """Return the local indices of the devices that processes use, by node, also for a node where they only run."""
    nodes: dict[int, list[int]] = {}
    for row in rows:
        nodes.setdefault(row.cluster_node_rank, [])
        for node, index in row.devices:
            nodes.setdefault(node, []).append(index)
    return nodes


def _kind_and_place(row: Placement | None) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return the kind of a row, and its place in the cluster; both are empty without a row."""
    if row is None:
        return (), ()
    devices = row.devices
    kind = row.resource_type, row.node_group_label, row.accelerator_type, row.visibility, len(devices)
    return kind, (row.cluster_node_rank, devices)


def diff_json(diff: PlanDiff) -> str:
    """Return the changes as JSON."""
    content = {
        "rules": [change._asdict() for change in diff.rules],
        "nodes": [change._asdict() for change in diff.nodes],
        "node_groups": [change._asdict() for change in diff.node_groups],
        "world_sizes": {name: {"before": old, "after": new} for name, (old, new) in diff.world_sizes.items()},
        "processes": [
            {"component": block.component, "ranks": block.ranks, "before": block.before, "after": block.after}
            for block in blocks(diff)
        ],
    }
    if diff.starts:
        content["starts"] = {name: {"before": old, "after": new} for name, (old, new) in diff.starts.items()}
    return json.dumps(content, indent=2, default=_plain)


def _plain(value: RankSet | Side) -> Any:
    if isinstance(value, RankSet):
        return str(value)
    parts = {part.name: getattr(value, part.name) for part in fields(value)}
    return {name: part for name, part in parts.items() if part or name != "names"}


def diff_table(diff: PlanDiff) -> Table:
    """Return a table with one line per difference."""
    result = table("", "before", "after")
    for rule, old, new in diff.rules[:MOST_LINES]:
        result.add_row(f"rule {rule}", _value(old), _value(new))
    _rest(result, len(diff.rules), "rules: ")
    for changes in (diff.nodes, diff.node_groups):
        for change in changes[:MOST_LINES]:
            result.add_row(change.what, _fields(change.before), _fields(change.after))
        _rest(result, len(changes))
    for name, sizes in diff.world_sizes.items():
        result.add_row(name, *("-" if size is None else counted(size, "process", "processes") for size in sizes))
    for name, starts in diff.starts.items():
        result.add_row(f"{name}, started by", *starts)
    shown = Counter[str]()
    for block in blocks(diff):
        shown[block.component] += 1
        if shown[block.component] <= MOST_LINES:
            result.add_row(f"{block.component} {block.ranks}", *block.cells())
    for name, count in shown.items():
        _rest(result, count, f"{name}: ")
    return result


def _rest(result: Table, count: int, name: str = "") -> None:
    if count > MOST_LINES:
        result.add_row(f"{name}and {count - MOST_LINES} more lines", "", "")


def _fields(content: Fields | None) -> str:
    if content is None:
        return "-"
    shown = ", ".join(f"{key} {_value(value)}" for key, value in content.items())
    return shown if len(shown) <= _WIDEST else f"{shown[: _WIDEST - 3]}..."


def _value(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, str):
        return value if value.isprintable() else repr(value)
    return json.dumps(value, ensure_ascii=False)


def crossings_table(arrangement: Arrangement) -> Table | None:
    """Return a table of the groups that cross a domain before and after; ``None`` if no group ever does."""
    result = table("groups that cross", "before", "after")
    for level, before, after in zip(arrangement.levels, arrangement.before, arrangement.after, strict=True):
        for kind, old, new in zip(KINDS, before, after, strict=True):
            if old or new:
                result.add_row(f"{level}: {kind}", f"{old:,}", f"{new:,}")
    return result if result.rows else None


def arrangement_line(arrangement: Arrangement) -> str:
    """Return the number of nodes and of spares, and whether a better arrangement can exist."""
    spare = f"; {counted(len(arrangement.spares), 'spare')}" if arrangement.spares else ""
    return f"{counted(len(arrangement.nodes), 'node')}{spare}; {_proof(arrangement)}"


def node_lines(arrangement: Arrangement) -> Iterator[str]:
    """Yield the names of the nodes in their new order."""
    order = [*arrangement.nodes, *arrangement.spares]
    for rank, old in enumerate(order[:_MOST_NODES]):
        spare = "  (spare)" if rank >= len(arrangement.nodes) else ""
        yield f"{rank:>6}  {arrangement.present.node(old).name}{spare}"
    if len(order) > _MOST_NODES:
        yield f"and {len(order) - _MOST_NODES:,} more; write them to a file with -o"


def replan_lines(replanned: Replanned) -> Iterator[str]:
    """Yield the changes of a repair, the summary first.

    ``8 of 256 ranks move: actor 24-31, node-3 -> node-33 (spare, same nvlink domain); 248 stay; no group crosses a
    domain``.
    """
    arrangement = replanned.arrangement
    yield _summary(replanned)
    yield from replanned.reasons
    yield from _shifts(replanned)
    yield from _losses(replanned)
    yield from _gains(replanned)
    if arrangement.as_block is not None:
        ranks = counted(arrangement.as_block, "rank")
        yield f"moving a whole group to one domain would tear fewer groups, but move {ranks} (`--whole-group`)"
    if replanned.before.requests and not replanned.plan.requests:
        yield requests_lost(replanned.plan.dialect)
    if not arrangement.optimal:
        yield _proof(arrangement)


def _summary(replanned: Replanned) -> str:
    """Return how many ranks move, to which nodes, how many stay, and which groups cross more domains."""
    total = sum(map(len, replanned.plan.values())) - len(replanned.gains)
    moved = sum(move.replaced for move in replanned.moves)
    moves = f"{moved:,} of {counted(total, 'rank')} {'moves' if moved == 1 else 'move'}"
    if replanned.successors:
        nodes = list(islice(_taken_over(replanned), _MOST_MOVES))
        more = len(replanned.successors) - len(nodes)
        if more:
            nodes.append(f"and {counted(more, 'more node')}")
        moves += f": {'; '.join(nodes)}"
    parts = [moves, f"{total - len(replanned.moves):,} stay", _crossings(replanned.arrangement)]
    return "; ".join(part for part in parts if part)


def _proof(arrangement: Arrangement) -> str:
    return "no arrangement is better" if arrangement.optimal else "not proved: a better arrangement may exist"


def _taken_over(replanned: Replanned) -> Iterator[str]:
    """Yield the processes that each node takes over: a spare, or one that others of the plan leave."""
    ranks: dict[int, dict[str, list[int]]] = {node: {} for node in replanned.successors}
    for move in replanned.moves:
        if move.replaced and move.after is not None:
            ranks[move.after.cluster_node_rank].setdefault(move.component, []).append(move.rank)
    abandoned = {before.name for before, _ in replanned.successors.values()}
    for node, (before, after) in replanned.successors.items():
        who = ", ".join(f"{component} {RankSet(numbers)}" for component, numbers in ranks[node].items())
        where = _distance(before, after, replanned.arrangement.levels)
        kind = "of the plan" if after.name in abandoned else "spare"
        yield f"{who}, {before.name} -> {after.name} ({kind}{where})"


class _Shift(NamedTuple):
    """Ranks of a component on one node, and the new local index of each accelerator that they no longer use."""

    ranks: set[int]
    new_indices: dict[int, int]


def _shifts(replanned: Replanned) -> Iterator[str]:
    """Yield the processes that use other accelerators of their node."""
    shifts: dict[tuple[int, str], _Shift] = {}
    for move in replanned.moves:
        if move.replaced or move.before is None or move.after is None:
            continue
        for (_, old), (node, new) in zip(move.before.devices, move.after.devices, strict=True):
            if old != new:
                shift = shifts.setdefault((node, move.component), _Shift(set(), {}))
                shift.ranks.add(move.rank)
                shift.new_indices[old] = new
    for (node, component), shift in sorted(shifts.items(), key=lambda item: item[0][0]):
        accelerators = ", ".join(f"{old} -> {new}" for old, new in sorted(shift.new_indices.items()))
        noun = "rank" if len(shift.ranks) == 1 else "ranks"
        yield f"{component} {noun} {RankSet(shift.ranks)}: other accelerators of node {node}: {accelerators}"


def _losses(replanned: Replanned) -> Iterator[str]:
    """Yield the components that shrank."""
    for name in dict.fromkeys(move.component for move in replanned.losses):
        before = replanned.before[name]
        kept = RankSet(range(len(before))) - RankSet(move.rank for move in replanned.losses if move.component == name)
        groups = num_data_groups(before)
        text = f"{name} shrinks from {counted(groups, 'data group')} to {groups * len(kept) // len(before)}"
        text += f": {len(kept)} of {len(before)} ranks"
        renumbered = RankSet(rank for new, rank in enumerate(kept) if new != rank)
        yield f"{text}; ranks {renumbered} are renumbered" if renumbered else text


def _gains(replanned: Replanned) -> Iterator[str]:
    """Yield the components that grew, and where."""
    for name in dict.fromkeys(move.component for move in replanned.gains):
        rows = [move.after for move in replanned.gains if move.component == name and move.after is not None]
        after = replanned.plan[name]
        ranks = RankSet(row.rank for row in rows)
        groups = num_data_groups(after)
        nodes = _devices_by_node(rows)
        names = [replanned.plan.inventory.node(node).name for node in islice(nodes, _MOST_MOVES)]
        more = [f"{len(nodes) - len(names):,} more"] if len(nodes) > len(names) else []
        old = groups * (len(after) - len(ranks)) // len(after)
        text = f"{name} grows from {counted(old, 'data group')} to {groups}"
        yield f"{text}: ranks {ranks} on {', '.join([*names, *more])}"


def _distance(before: NodeSpec, after: NodeSpec, levels: Sequence[str]) -> str:
    """Name the innermost domain that two nodes share."""
    num_shared = 0
    for level in levels:
        if before.labels.get(level) is None or before.labels[level] != after.labels.get(level):
            break
        num_shared += 1
    other = f", other {levels[num_shared]} domain" if num_shared < len(levels) else ""
    same = f", same {levels[num_shared - 1]} domain" if num_shared else ""
    return other + same


def _crossings(arrangement: Arrangement) -> str:
    """Count the groups that cross more domains than before."""
    if not arrangement.levels:
        return ""
    if not any(map(any, arrangement.after)):
        return "no group crosses a domain"
    more = []
    outer = [0] * len(KINDS)
    for level, before, after in zip(arrangement.levels, arrangement.before, arrangement.after, strict=True):
        changes = [new - old for old, new in zip(before, after, strict=True)]
        # A group that crosses a domain crosses the inner ones too.
        for kind, change, change_outside in zip(KINDS, changes, outer, strict=True):
            count = change - change_outside
            if count > 0:
                verb = "crosses" if count == 1 else "cross"
                more.append(f"{counted(count, f'more {kind} group')} {verb} {level} domains")
        outer = [max(pair) for pair in zip(changes, outer, strict=True)]
    return ", ".join(more) or "no more groups cross a domain than before"
