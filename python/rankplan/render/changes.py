"""The changes from one plan to another as a table and as JSON: consecutive ranks that move together are one line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from rich.table import Table

from rankplan._core import ACCELERATOR, WHOLE_NODE, Placement, RankSet
from rankplan.plans.component import Coordinates
from rankplan.plans.diff import Change, Fields, Move, PlanDiff
from rankplan.plans.plan import Plan
from rankplan.render.tables import ids, table
from rankplan.words import by_nodes, counted, nodes_text

MOST_LINES = 64
"""How many lines of one kind, or blocks of one component, a table shows; it counts the others."""

_WIDEST = 80
_APART = {"own": ", each rank its own", "own-first": ", each rank its own first"}


@dataclass(frozen=True, slots=True)
class Side:
    """The places of a block in one plan: the first row, local indices by node, visible devices, coordinates.

    ``names`` are those of nodes that are another machine in the other plan.
    """

    first: Placement
    nodes: dict[int, RankSet]
    sees: tuple[str, ...]
    coordinates: dict[str, RankSet]
    names: dict[int, str]

    @classmethod
    def of(cls, plan: Plan, replaced: frozenset[int], rows: Sequence[Placement], slots: Sequence[Coordinates]) -> Side:
        """Return the side of a block with these rows and the coordinates of all its slots."""
        nodes: dict[int, list[int]] = {}
        for row in rows:
            nodes.setdefault(row.cluster_node_rank, [])
            for node, index in row.devices:
                nodes.setdefault(node, []).append(index)
        return cls(
            rows[0],
            {node: RankSet(indices) for node, indices in nodes.items()},
            tuple(dict.fromkeys(device for row in rows for device in row.visible_accelerators)),
            {kind: RankSet({slot[kind] for slot in slots}) for kind in (slots[0] if slots else ())},
            {node: plan.inventory.node(node).name for node in replaced.intersection(nodes)},
        )

    def where(self) -> str:
        """Return the places as text, or their number if the text is long."""
        resource = self.first.resource_type
        if resource == WHOLE_NODE:
            text = nodes_text(RankSet(self.nodes))
            text = text if len(text) <= _WIDEST else counted(len(self.nodes), "node")
        else:
            text = by_nodes(self.nodes, _WIDEST)
        if self.names:
            names = ", ".join(islice(self.names.values(), 4)) + (", ..." if len(self.names) > 4 else "")
            text = f"{text} ({names})"
        return text if resource in (ACCELERATOR, WHOLE_NODE) else f"{resource}: {text}"

    def sight(self) -> str:
        """Return the visible devices as text."""
        row = self.first
        apart = _APART.get(row.visibility, "") if row.resource_type == ACCELERATOR else ""
        return f"sees {ids(row.accelerator_type, self.sees)}{apart}"

    def numbers(self) -> str:
        """Return the coordinates as text."""
        return ", ".join(f"{kind} {found}" for kind, found in self.coordinates.items()) or "no groups"

    def plain(self) -> dict[str, Any]:
        """Return the side as plain values."""
        row = self.first
        plain = {
            "resource": row.resource_type,
            "node_group": row.node_group_label,
            "accelerator_type": row.accelerator_type,
            "visibility": row.visibility,
            "nodes": {str(node): str(indices) for node, indices in self.nodes.items()},
            "sees": list(self.sees),
            "coordinates": {kind: str(numbers) for kind, numbers in self.coordinates.items()},
        }
        return plain | ({"names": {str(node): name for node, name in self.names.items()}} if self.names else {})


@dataclass(frozen=True, slots=True)
class Block:
    """Consecutive ranks of a component that move together, or stay ``in_place`` with other coordinates.

    ``before`` is ``None`` for new ranks, ``after`` for removed ones. On either side the places ascend with the ranks,
    so the places of the block determine the place of each rank.
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
        (old, *there), (new, *here) = ((side.first, side.nodes, side.names) for side in (before, after))
        if old.resource_type != new.resource_type or there != here:
            return before.where(), after.where()
        if self.in_place:
            return before.numbers(), after.numbers()
        if old.node_group_label != new.node_group_label:
            return f"node group {old.node_group_label}", f"node group {new.node_group_label}"
        return before.sight(), after.sight()

    def plain(self) -> dict[str, Any]:
        """Return the block as plain values."""
        sides = {"before": self.before and self.before.plain(), "after": self.after and self.after.plain()}
        return {"component": self.component, "ranks": str(self.ranks), **sides}


def blocks(found: PlanDiff) -> Iterator[Block]:
    """Yield the processes that change, in blocks."""
    held: list[Move] = []
    last: tuple[Any, ...] = ()
    for index, move in enumerate(found.moves()):
        (old_kind, old), (new_kind, new) = _kind_and_place(move.before), _kind_and_place(move.after)
        # In a block, ranks are consecutive, and either all processes stay in their places or all move.
        kind = move.component, move.rank - index, old == new, move.in_place, move.replaced, old_kind, new_kind
        if held and (kind != last[0] or old < last[1] or new < last[2]):
            yield _block(found, held)
            held = []
        held.append(move)
        last = kind, old, new
    if held:
        yield _block(found, held)


def _block(found: PlanDiff, moves: Sequence[Move]) -> Block:
    first, replaced = moves[0], found.replaced
    before = [move.before for move in moves if move.before is not None]
    after = [move.after for move in moves if move.after is not None]
    return Block(
        first.component,
        RankSet(range(first.rank, moves[-1].rank + 1)),
        Side.of(found.before, replaced, before, [slot for move in moves for slot in move.was]) if before else None,
        Side.of(found.after, replaced, after, [slot for move in moves for slot in move.now]) if after else None,
        first.in_place,
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
    sizes = {name: {"before": old, "after": new} for name, (old, new) in found.world_sizes.items()}
    nodes, groups = ([change._asdict() for change in part] for part in (found.nodes, found.node_groups))
    content = {"nodes": nodes, "node_groups": groups, "world_sizes": sizes}
    return json.dumps({**content, "processes": [block.plain() for block in blocks(found)]}, indent=2)


def diff_table(found: PlanDiff) -> Table:
    """Return a table with one line per difference."""
    result = table("", "before", "after")
    _add(result, found.nodes)
    _add(result, found.node_groups)
    for name, sizes in found.world_sizes.items():
        result.add_row(name, *("-" if size is None else counted(size, "process", "processes") for size in sizes))
    shown: dict[str, int] = {}
    for block in blocks(found):
        shown[block.component] = shown.get(block.component, 0) + 1
        if shown[block.component] <= MOST_LINES:
            result.add_row(f"{block.component} {block.ranks}", *block.cells())
    for name, count in shown.items():
        _rest(result, count, f"{name}: ")
    return result


def _add(result: Table, changes: Sequence[Change]) -> None:
    for change in changes[:MOST_LINES]:
        result.add_row(change.what, _fields(change.before), _fields(change.after))
    _rest(result, len(changes))


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
    number = isinstance(value, int) and not isinstance(value, bool)
    return str(value) if number else json.dumps(value, ensure_ascii=False)
