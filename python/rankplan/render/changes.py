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
            text = text if len(text) <= _WIDEST else counted(len(self.nodes), "node")
        else:
            text = by_nodes(self.nodes, _WIDEST)
        if self.names:
            names = ", ".join(map(_value, islice(self.names.values(), 4))) + (", ..." if len(self.names) > 4 else "")
            text = f"{text} ({names})"
        return text if self.resource in (ACCELERATOR, WHOLE_NODE) else f"{self.resource}: {text}"

    def sight(self) -> str:
        """Return the visible devices as text."""
        apart = _APART.get(self.visibility, "") if self.resource == ACCELERATOR else ""
        return f"sees {ids(self.accelerator_type, self.sees)}{apart}"

    def numbers(self) -> str:
        """Return the coordinates as text."""
        return ", ".join(f"{kind} {found}" for kind, found in self.coordinates.items()) or "no groups"


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


def blocks(found: PlanDiff) -> Iterator[Block]:
    """Yield the processes that change, in blocks."""
    old_names = {node: found.before.inventory.node(node).name for node in found.replaced}
    new_names = {node: found.after.inventory.node(node).name for node in found.replaced}
    moves: list[Move] = []
    last: _Step | None = None
    for index, move in enumerate(found.moves()):
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
    nodes: dict[int, list[int]] = {}
    for row in rows:
        nodes.setdefault(row.cluster_node_rank, [])
        for node, index in row.devices:
            nodes.setdefault(node, []).append(index)
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


def _kind_and_place(row: Placement | None) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return the kind of a row, and its place in the cluster; both are empty without a row."""
    if row is None:
        return (), ()
    devices = row.devices
    kind = row.resource_type, row.node_group_label, row.accelerator_type, row.visibility, len(devices)
    return kind, (row.cluster_node_rank, devices)


def diff_json(found: PlanDiff) -> str:
    """Return the changes as JSON."""
    content = {
        "rules": [change._asdict() for change in found.rules],
        "nodes": [change._asdict() for change in found.nodes],
        "node_groups": [change._asdict() for change in found.node_groups],
        "world_sizes": {name: {"before": old, "after": new} for name, (old, new) in found.world_sizes.items()},
        "processes": [
            {"component": one.component, "ranks": one.ranks, "before": one.before, "after": one.after}
            for one in blocks(found)
        ],
    }
    if found.starts:
        content["starts"] = {name: {"before": old, "after": new} for name, (old, new) in found.starts.items()}
    return json.dumps(content, indent=2, default=_plain)


def _plain(value: RankSet | Side) -> Any:
    if isinstance(value, RankSet):
        return str(value)
    parts = {part.name: getattr(value, part.name) for part in fields(value)}
    return {name: part for name, part in parts.items() if part or name != "names"}


def diff_table(found: PlanDiff) -> Table:
    """Return a table with one line per difference."""
    result = table("", "before", "after")
    for rule, old, new in found.rules[:MOST_LINES]:
        result.add_row(f"rule {rule}", _value(old), _value(new))
    _rest(result, len(found.rules), "rules: ")
    for changes in (found.nodes, found.node_groups):
        for change in changes[:MOST_LINES]:
            result.add_row(change.what, _fields(change.before), _fields(change.after))
        _rest(result, len(changes))
    for name, sizes in found.world_sizes.items():
        result.add_row(name, *("-" if size is None else counted(size, "process", "processes") for size in sizes))
    for name, starts in found.starts.items():
        result.add_row(f"{name}, started by", *starts)
    shown = Counter[str]()
    for block in blocks(found):
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


def crossings_table(found: Arrangement) -> Table | None:
    """Return a table of the groups that cross a domain before and after; ``None`` if no group ever does."""
    result = table("groups that cross", "before", "after")
    for level, before, after in zip(found.levels, found.before, found.after, strict=True):
        for kind, old, new in zip(KINDS, before, after, strict=True):
            if old or new:
                result.add_row(f"{level}: {kind}", f"{old:,}", f"{new:,}")
    return result if result.rows else None


def arrangement_line(found: Arrangement) -> str:
    """Return the number of nodes and of spares, and whether a better arrangement can exist."""
    spare = f"; {counted(len(found.spares), 'spare')}" if found.spares else ""
    return f"{counted(len(found.nodes), 'node')}{spare}; {_proof(found)}"


def node_lines(found: Arrangement) -> Iterator[str]:
    """Yield the names of the nodes in their new order."""
    order = [*found.nodes, *found.spares]
    for rank, old in enumerate(order[:_MOST_NODES]):
        spare = "  (spare)" if rank >= len(found.nodes) else ""
        yield f"{rank:>6}  {found.present.node(old).name}{spare}"
    if len(order) > _MOST_NODES:
        yield f"and {len(order) - _MOST_NODES:,} more; write them to a file with -o"


def replan_lines(found: Replanned) -> Iterator[str]:
    """Yield the changes of a repair, the summary first.

    ``8 of 256 ranks move: actor 24-31, node-3 -> node-33 (spare, same nvlink domain); 248 stay; no group crosses a
    domain``.
    """
    arrangement, total = found.arrangement, sum(map(len, found.plan.values())) - len(found.gains)
    moved = sum(move.replaced for move in found.moves)
    parts = [f"{moved:,} of {counted(total, 'rank')} {'moves' if moved == 1 else 'move'}"]
    if found.successors:
        shown = list(islice(_taken_over(found), _MOST_MOVES))
        more = len(found.successors) - len(shown)
        parts[0] += ": " + "; ".join(shown + ([f"and {counted(more, 'more node')}"] if more else []))
    parts += [f"{total - len(found.moves):,} stay", _crossings(arrangement)]
    yield "; ".join(part for part in parts if part)
    yield from found.reasons
    yield from _shifts(found)
    yield from _losses(found)
    yield from _gains(found)
    if arrangement.as_block is not None:
        ranks = counted(arrangement.as_block, "rank")
        yield f"moving a whole group to one domain would tear fewer groups, but move {ranks} (`--whole-group`)"
    if found.before.requests and not found.plan.requests:
        yield requests_lost(found.plan.dialect)
    if not arrangement.optimal:
        yield _proof(arrangement)


def _proof(found: Arrangement) -> str:
    return "no arrangement is better" if found.optimal else "not proved: a better arrangement may exist"


def _taken_over(found: Replanned) -> Iterator[str]:
    """Yield the processes that each node takes over: a spare, or one that others of the plan leave."""
    ranks: dict[int, dict[str, list[int]]] = {node: {} for node in found.successors}
    for move in found.moves:
        if move.replaced and move.after is not None:
            ranks[move.after.cluster_node_rank].setdefault(move.component, []).append(move.rank)
    left = {before.name for before, _ in found.successors.values()}
    for node, (before, after) in found.successors.items():
        who = ", ".join(f"{component} {RankSet(here)}" for component, here in ranks[node].items())
        where = _distance(before, after, found.arrangement.levels)
        kind = "of the plan" if after.name in left else "spare"
        yield f"{who}, {before.name} -> {after.name} ({kind}{where})"


def _shifts(found: Replanned) -> Iterator[str]:
    """Yield the processes that use other accelerators of their node."""
    shifts: dict[tuple[int, str], tuple[set[int], dict[int, int]]] = {}
    for move in found.moves:
        if not move.replaced and move.before is not None and move.after is not None:
            for (_, old), (node, new) in zip(move.before.devices, move.after.devices, strict=True):
                if old != new:
                    ranks, local = shifts.setdefault((node, move.component), (set(), {}))
                    ranks.add(move.rank)
                    local[old] = new
    for (node, component), (ranks, local) in sorted(shifts.items(), key=lambda shift: shift[0][0]):
        accelerators = ", ".join(f"{old} -> {new}" for old, new in sorted(local.items()))
        noun = "rank" if len(ranks) == 1 else "ranks"
        yield f"{component} {noun} {RankSet(ranks)}: other accelerators of node {node}: {accelerators}"


def _losses(found: Replanned) -> Iterator[str]:
    """Yield the components that shrank."""
    for name in dict.fromkeys(move.component for move in found.losses):
        before = found.before[name]
        kept = RankSet(range(len(before))) - RankSet(move.rank for move in found.losses if move.component == name)
        groups = num_data_groups(before)
        text = f"{name} shrinks from {counted(groups, 'data group')} to {groups * len(kept) // len(before)}"
        text += f": {len(kept)} of {len(before)} ranks"
        renumbered = RankSet(rank for new, rank in enumerate(kept) if new != rank)
        yield f"{text}; ranks {renumbered} are renumbered" if renumbered else text


def _gains(found: Replanned) -> Iterator[str]:
    """Yield the components that grew, and where."""
    for name in dict.fromkeys(move.component for move in found.gains):
        rows = [move.after for move in found.gains if move.component == name and move.after is not None]
        after, ranks = found.plan[name], RankSet(row.rank for row in rows)
        groups = num_data_groups(after)
        nodes = dict.fromkeys(node for row in rows for node in (row.cluster_node_rank, *(at for at, _ in row.devices)))
        names = [found.plan.inventory.node(node).name for node in islice(nodes, _MOST_MOVES)]
        more = [f"{len(nodes) - len(names):,} more"] if len(nodes) > len(names) else []
        old = groups * (len(after) - len(ranks)) // len(after)
        text = f"{name} grows from {counted(old, 'data group')} to {groups}"
        yield f"{text}: ranks {ranks} on {', '.join([*names, *more])}"


def _distance(before: NodeSpec, after: NodeSpec, levels: Sequence[str]) -> str:
    """Name the innermost domain that two nodes share."""
    shared = [
        before.labels.get(level) is not None and before.labels[level] == after.labels.get(level) for level in levels
    ]
    same = [*shared, False].index(False)
    other = f", other {levels[same]} domain" if same < len(levels) else ""
    return other + (f", same {levels[same - 1]} domain" if same else "")


def _crossings(found: Arrangement) -> str:
    """Count the groups that cross more domains than before."""
    if not found.levels:
        return ""
    if not any(map(any, found.after)):
        return "no group crosses a domain"
    more, outer = [], [0] * len(KINDS)
    for level, before, after in zip(found.levels, found.before, found.after, strict=True):
        changes = [new - old for old, new in zip(before, after, strict=True)]
        # A group that crosses a domain crosses the inner ones too.
        for kind, change, known in zip(KINDS, changes, outer, strict=True):
            if change > known:
                verb = "crosses" if change - known == 1 else "cross"
                more.append(f"{counted(change - known, f'more {kind} group')} {verb} {level} domains")
        outer = [max(pair) for pair in zip(changes, outer, strict=True)]
    return ", ".join(more) or "no more groups cross a domain than before"
