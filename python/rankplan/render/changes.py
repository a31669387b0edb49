"""The changes from one plan to another: nodes, node groups, world sizes, and blocks of processes that move."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any, TypeAlias

from rich.table import Table

from rankplan._core import ACCELERATOR, WHOLE_NODE, Placement, RankSet
from rankplan.nodes.inventory import Inventory, NodeSpec
from rankplan.plans.component import Coordinates
from rankplan.plans.plan import Plan
from rankplan.render.tables import ids, table
from rankplan.words import by_nodes, counted, nodes_text

MOST_LINES = 64
"""How many lines of one kind, or blocks of one component, a table shows; it counts the others."""

_NODE_FIELDS = [name for name in NodeSpec.model_fields if name != "ranks"]
_WIDEST = 80
_Fields: TypeAlias = dict[str, Any]
_OWN = ("ip", "hostname")
"""Fields that differ on every node: if many nodes get new values, that is one change."""


_APART = {"own": ", each rank its own", "own-first": ", each rank its own first"}


@dataclass(slots=True)
class Side:
    """The places of a block on one side: local indices by node, visible devices, node group."""

    resource: str
    node_group: str
    accelerator_type: str
    visibility: str
    nodes: dict[int, list[int]] = field(default_factory=dict)
    sees: dict[str, None] = field(default_factory=dict)
    coordinates: dict[str, set[int]] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    """Of nodes that are another machine on the other side."""

    def add(self, row: Placement, coordinates: Coordinates | list[Coordinates] | None) -> None:
        """Add the next process."""
        for slot in [coordinates] if isinstance(coordinates, dict) else coordinates or ():
            for kind, number in slot.items():
                self.coordinates.setdefault(kind, set()).add(number)
        self.nodes.setdefault(row.cluster_node_rank, [])
        for node, index in row.devices:
            self.nodes.setdefault(node, []).append(index)
        self.sees |= dict.fromkeys(row.visible_accelerators)

    def where(self) -> str:
        """Return the places as text, or their number if the text is long."""
        if self.resource == WHOLE_NODE:
            text = nodes_text(RankSet(self.nodes))
            return self._named(text if len(text) <= _WIDEST else counted(len(self.nodes), "node"))
        text = self._named(by_nodes({node: RankSet(indices) for node, indices in self.nodes.items()}, _WIDEST))
        return text if self.resource == ACCELERATOR else f"{self.resource}: {text}"

    def _named(self, text: str) -> str:
        names = ", ".join(islice(self.names.values(), 4)) + (", ..." if len(self.names) > 4 else "")
        return f"{text} ({names})" if names else text

    def sight(self) -> str:
        """Return what the processes see as text."""
        apart = _APART.get(self.visibility, "") if self.resource == ACCELERATOR else ""
        return f"sees {ids(self.accelerator_type, tuple(self.sees))}{apart}"

    def numbers(self) -> str:
        """Return the coordinates as text."""
        return ", ".join(f"{kind} {RankSet(found)}" for kind, found in self.coordinates.items()) or "no groups"

    @property
    def place(self) -> tuple[Any, ...]:
        """What tells whether processes are elsewhere on the other side."""
        return self.resource, self.nodes, self.names

    def plain(self) -> dict[str, Any]:
        """Return the side as plain values."""
        nodes = {str(node): str(RankSet(indices)) for node, indices in self.nodes.items()}
        coordinates = {kind: str(RankSet(numbers)) for kind, numbers in self.coordinates.items()}
        names = {"names": {str(node): name for node, name in self.names.items()}} if self.names else {}
        plain = {key: value for key, value in asdict(self).items() if key != "names"}
        return {**plain, "nodes": nodes, "sees": list(self.sees), "coordinates": coordinates, **names}


@dataclass(slots=True)
class Block:
    """Consecutive ranks of a component that move together, or stay ``in_place`` with other coordinates.

    ``before`` is None for new ranks, ``after`` for removed ones. On either side the places ascend with the ranks, so
    the places of the block determine the place of each rank.
    """

    component: str
    first: int
    last: int
    before: Side | None
    after: Side | None
    in_place: bool = False

    @property
    def ranks(self) -> RankSet:
        """The ranks."""
        return RankSet(f"{self.first}-{self.last}")

    def cells(self) -> tuple[str, str]:
        """Return the difference as text, before and after."""
        before, after = self.before, self.after
        if before is None or after is None or before.place != after.place:
            return before.where() if before else "-", after.where() if after else "-"
        if self.in_place:
            return before.numbers(), after.numbers()
        if before.node_group != after.node_group:
            return f"node group {before.node_group}", f"node group {after.node_group}"
        return before.sight(), after.sight()


@dataclass(frozen=True, slots=True)
class Change:
    """Nodes, or a node group, with the fields that differ; ``None`` on the side where they do not exist."""

    what: str
    before: _Fields | None
    after: _Fields | None


@dataclass(frozen=True, slots=True)
class Changes:
    """All changes from one plan to another; false if there are none.

    A world size is ``None`` on the side where the component does not exist.
    """

    nodes: list[Change] = field(default_factory=list)
    node_groups: list[Change] = field(default_factory=list)
    world_sizes: dict[str, tuple[int | None, int | None]] = field(default_factory=dict)
    blocks: list[Block] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.nodes or self.node_groups or self.world_sizes or self.blocks)

    def plain(self) -> dict[str, Any]:
        """Return the changes as plain values."""
        sizes = {name: {"before": old, "after": new} for name, (old, new) in self.world_sizes.items()}
        blocks = [
            {
                "component": block.component,
                "ranks": str(block.ranks),
                "before": block.before and block.before.plain(),
                "after": block.after and block.after.plain(),
            }
            for block in self.blocks
        ]
        nodes, groups = ([asdict(change) for change in part] for part in (self.nodes, self.node_groups))
        return {"nodes": nodes, "node_groups": groups, "world_sizes": sizes, "processes": blocks}


def changes(before: Plan, after: Plan) -> Changes:
    """Return the changes. The cost is linear in processes and nodes."""
    sizes = {name: (_size(before, name), _size(after, name)) for name in dict.fromkeys([*before, *after])}
    return Changes(
        _nodes(before.inventory, after.inventory),
        _groups(before.inventory, after.inventory),
        {name: (old, new) for name, (old, new) in sizes.items() if old != new},
        _blocks(before, after),
    )


def changes_table(found: Changes) -> Table:
    """Return a table with one line per difference."""
    result = table("", "before", "after")
    for part in (found.nodes, found.node_groups):
        for change in part[:MOST_LINES]:
            result.add_row(change.what, _fields(change.before), _fields(change.after))
        _rest(result, len(part))
    for name, sizes in found.world_sizes.items():
        result.add_row(name, *("-" if size is None else counted(size, "process", "processes") for size in sizes))
    shown: dict[str, int] = {}
    for block in found.blocks:
        shown[block.component] = shown.get(block.component, 0) + 1
        if shown[block.component] <= MOST_LINES:
            result.add_row(f"{block.component} {block.ranks}", *block.cells())
    for name, count in shown.items():
        _rest(result, count, f"{name}: ")
    return result


def _rest(result: Table, count: int, name: str = "") -> None:
    if count > MOST_LINES:
        result.add_row(f"{name}and {count - MOST_LINES} more lines", "", "")


def _fields(content: _Fields | None) -> str:
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


def _size(plan: Plan, component: str) -> int | None:
    return len(plan[component]) if component in plan else None


def _nodes(before: Inventory, after: Inventory) -> list[Change]:
    if before.to_dict() == after.to_dict():
        return []  # quick for a large cluster
    alike: dict[str, list[tuple[int, _Fields, _Fields]]] = {}
    for rank, old, new in _differing(_specs(before), _specs(after)):
        key = [{name: name in _OWN or value for name, value in side.items()} for side in (old, new)]
        alike.setdefault(json.dumps(key), []).append((rank, old, new))
    found = []
    for differences in alike.values():
        ranks, olds, news = zip(*differences, strict=True)
        found.append(Change(nodes_text(RankSet(ranks)), _joined(olds), _joined(news)))
    return found


def _specs(inventory: Inventory) -> dict[int, _Fields]:
    specs: dict[int, _Fields] = {}
    for nodes, node in inventory.stretches():
        spec = {name: getattr(node, name) for name in _NODE_FIELDS}
        if spec["accelerator_ids"] == tuple(map(str, range(spec["accelerators"]))):
            spec["accelerator_ids"] = None  # implied by the number of accelerators
        spec |= {"healthy": None if node.healthy else False, "unhealthy": str(node.unhealthy) or None}
        specs |= dict.fromkeys(nodes, spec)
    return specs


def _joined(sides: tuple[_Fields, ...]) -> _Fields | None:
    """Return one side of the same change of several nodes, with the values of all nodes for fields of `_OWN`."""
    own = {name: [side[name] for side in sides] for name in _OWN if name in sides[0] and len(sides) > 1}
    return {**sides[0], **own} or None


def _differing(before: Mapping[Any, _Fields], after: Mapping[Any, _Fields]) -> Iterator[tuple[Any, _Fields, _Fields]]:
    """Yield what differs with the fields that do; if one side is missing, with the fields that are set."""
    for key in dict.fromkeys([*before, *after]):
        old, new = before.get(key, {}), after.get(key, {})
        if old and new:
            names = [name for name in old if old[name] != new[name]]
        else:
            names = [
                name
                for name, value in (old or new).items()
                if value not in (None, {}, [], ()) and (name, value) != ("healthy", True)
            ]
        if names:
            yield key, {name: old[name] for name in names if old}, {name: new[name] for name in names if new}


def _groups(before: Inventory, after: Inventory) -> list[Change]:
    found = _differing(_described(before), _described(after))
    return [Change(f"node group {label}", old or None, new or None) for label, old, new in found]


def _described(inventory: Inventory) -> dict[str, _Fields]:
    groups = inventory.section.node_groups if inventory.section else []
    return {group.label: group.model_dump(mode="json", exclude={"label"}) for group in groups}


def _blocks(before: Plan, after: Plan) -> list[Block]:
    blocks: list[Block] = []
    last: tuple[Any, ...] = ()
    replaced = before.replaced(after)
    inventories = before.inventory, after.inventory
    for index, move in enumerate(before.changes(after)):
        (old_kind, old), (new_kind, new) = _kind_and_place(move.before), _kind_and_place(move.after)
        # In a block, ranks are consecutive, and either all processes stay in their places or all move.
        kind = move.component, move.rank - index, old == new, move.in_place, move.replaced, old_kind, new_kind
        if not last or kind != last[0] or old < last[1] or new < last[2]:
            sides = _side(move.before), _side(move.after)
            blocks.append(Block(move.component, move.rank, move.rank, *sides, move.in_place))
        last = kind, old, new
        block = blocks[-1]
        block.last = move.rank
        sides_of_move = ((block.before, move.before, move.was), (block.after, move.after, move.now))
        for (side, row, numbers), inventory in zip(sides_of_move, inventories, strict=True):
            if side is not None and row is not None:
                side.add(row, numbers)
                side.names |= {node: inventory.node(node).name for node in replaced.intersection(side.nodes)}
    return blocks


def _kind_and_place(row: Placement | None) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return the kind of a row, and its place in the cluster; both are empty without a row."""
    if row is None:
        return (), ()
    devices = row.devices
    kind = row.resource_type, row.node_group_label, row.accelerator_type, row.visibility, len(devices)
    return kind, (row.cluster_node_rank, devices)


def _side(row: Placement | None) -> Side | None:
    if row is None:
        return None
    return Side(row.resource_type, row.node_group_label, row.accelerator_type, row.visibility)
