"""The changes from one plan to another: rules, nodes (matched by name), node groups, world sizes, moved processes."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from itertools import chain, zip_longest
from typing import Any, NamedTuple, TypeAlias

from rankplan._core import Placement, RankSet
from rankplan.errors import KeyPath
from rankplan.frozen import frozen
from rankplan.nodes.inventory import Inventory, NodeSpec
from rankplan.plans.component import Component, Coordinates
from rankplan.plans.plan import Plan, check_plan
from rankplan.plans.rules import Rules
from rankplan.words import nodes_text, path_text

Fields: TypeAlias = dict[str, Any]
_OWN = ("hostname", "ip")
"""Fields with another value on each node: new values of several nodes are one change."""


@frozen
class Move:
    """A process that one plan lacks, or whose place, visible devices, node group or coordinates differ.

    ``before`` is ``None`` if only the plan after has it, ``after`` is ``None`` if only the plan before has it. ``was``
    and ``now`` are the coordinates of its slots, empty if the component states no parallel sizes. ``replaced``: one of
    its nodes is another machine in the plan after.
    """

    component: str
    rank: int
    before: Placement | None
    after: Placement | None
    was: list[Coordinates] = field(default_factory=list)
    now: list[Coordinates] = field(default_factory=list)
    replaced: bool = False

    @property
    def in_place(self) -> bool:
        """Whether only the coordinates change."""
        if self.before is None or self.after is None or self.replaced:
            return False
        return _place(self.before) == _place(self.after)


class RuleChange(NamedTuple):
    """A rule, by its path (``keep.actor.tp``), with its values; ``None`` in the plan that does not state it."""

    rule: str
    before: Any
    after: Any


class Change(NamedTuple):
    """Nodes, or a node group, with the fields that differ; ``None`` on the side where they do not exist."""

    what: str
    before: Fields | None
    after: Fields | None


@frozen(slots=False, repr=False)
class PlanDiff:
    """The changes from one plan to another; false if there are none."""

    before: Plan
    after: Plan

    @cached_property
    def rules(self) -> list[RuleChange]:
        """The rules that differ."""
        before, after = _rules(self.before.rules), _rules(self.after.rules)
        paths = dict.fromkeys([*before, *after])
        changes = [RuleChange(path, before.get(path), after.get(path)) for path in paths]
        return [change for change in changes if change.before != change.after]

    def moves(self) -> Iterator[Move]:
        """Yield every process that changes, component by component, in rank order."""
        for name in dict.fromkeys([*self.before, *self.after]):
            before, after = self.before.get(name), self.after.get(name)
            if _same_rows(before, after) and not self.replaced:
                continue
            for rank, (old, new) in enumerate(zip_longest(before or (), after or ())):
                was, now = coordinates_of(before, old), coordinates_of(after, new)
                move = Move(name, rank, old, new, was, now, old is not None and _on(old, self.replaced))
                if not move.in_place or was != now:
                    yield move

    @cached_property
    def _moves(self) -> tuple[Move, ...]:
        return tuple(self.moves())

    @property
    def moved(self) -> tuple[Move, ...]:
        """The processes that run elsewhere, see other devices or have another node group."""
        return tuple(move for move in self._moves if None not in (move.before, move.after) and not move.in_place)

    @property
    def appeared(self) -> tuple[Move, ...]:
        """The processes that only the plan after has."""
        return tuple(move for move in self._moves if move.before is None)

    @property
    def went(self) -> tuple[Move, ...]:
        """The processes that only the plan before has."""
        return tuple(move for move in self._moves if move.after is None)

    @property
    def renumbered(self) -> tuple[Move, ...]:
        """The processes that keep their place, but have other coordinates in the parallel groups."""
        return tuple(move for move in self._moves if move.in_place)

    @cached_property
    def world_sizes(self) -> dict[str, tuple[int | None, int | None]]:
        """The components with another number of processes, ``None`` where the component does not exist."""
        sizes: dict[str, tuple[int | None, int | None]] = {}
        for name in dict.fromkeys([*self.before, *self.after]):
            old = len(self.before[name]) if name in self.before else None
            new = len(self.after[name]) if name in self.after else None
            if old != new:
                sizes[name] = old, new
        return sizes

    @cached_property
    def starts(self) -> dict[str, tuple[str, str]]:
        """The components that another command starts, or that are in the processes of another one, in words."""
        starts = {}
        for name in self.before:
            old, new = _start(self.before, name), _start(self.after, name)
            if old is not None and new is not None and old != new:
                starts[name] = old, new
        return starts

    @cached_property
    def nodes(self) -> list[Change]:
        """The nodes that differ; nodes with the same change are together."""
        before, after = self.before.inventory, self.after.inventory
        if before.to_dict() == after.to_dict() and before.marks == after.marks:
            return []  # quick for a large cluster
        alike: dict[str, list[tuple[int, Fields, Fields]]] = {}
        for rank, old, new in _differing(_specs(before), _specs(after)):
            key = json.dumps([_without_names(old), _without_names(new)])
            alike.setdefault(key, []).append((rank, old, new))
        changes = []
        for differences in alike.values():
            ranks, olds, news = zip(*differences, strict=True)
            changes.append(Change(nodes_text(RankSet(ranks)), _joined(olds), _joined(news)))
        return changes

    @cached_property
    def node_groups(self) -> list[Change]:
        """The node groups that differ."""
        changes = _differing(_described(self.before.inventory), _described(self.after.inventory))
        return [Change(f"node group {label}", old or None, new or None) for label, old, new in changes]

    @cached_property
    def replaced(self) -> frozenset[int]:
        """The node ranks that are another machine in the plan after, by hostname or else address."""
        matches = same_nodes(self.before.inventory, self.after.inventory)
        named = _named(self.before.inventory) & _named(self.after.inventory)
        return frozenset(rank for rank in named if matches[rank] != rank)

    def __bool__(self) -> bool:
        return bool(self.rules or self.nodes or self.node_groups or self.world_sizes) or any(True for _ in self.moves())

    def __repr__(self) -> str:
        counts = ", ".join(f"{len(getattr(self, name))} {name}" for name in ("moved", "appeared", "went", "renumbered"))
        return f"<PlanDiff: {counts}>"


def diff(before: Plan, after: Plan) -> PlanDiff:
    """Return the changes from one plan to another. The work is linear in processes and nodes."""
    check_plan(before, "before")
    check_plan(after, "after")
    return PlanDiff(before, after)


def _start(plan: Plan, component: str) -> str | None:
    """Return what starts a component without Ray: its own command, or the command of another component."""
    for command in () if plan.job is None else plan.job.commands:
        name = " ".join(command.words[:2])
        if component in command.components:
            return name
        if component in command.inside:
            return f"in the processes of {command.components[0]} ({name})"
    return None


def _same_rows(before: Component | None, after: Component | None) -> bool:
    """Whether both components exist, and have the same rows and parallel sizes."""
    if before is None or after is None:
        return False
    return (before.rows, before.parallel) == (after.rows, after.parallel)


def _named(inventory: Inventory) -> RankSet:
    """Return the nodes that have a hostname or an address."""
    stretches = [nodes for nodes, record in inventory.stretches() if record.hostname or record.ip]
    return RankSet(chain.from_iterable(stretches))


def _without_names(fields: Fields) -> Fields:
    """Return fields in which those that each node has for itself only say that they differ."""
    return {name: name in _OWN or value for name, value in fields.items()}


def _on(row: Placement, nodes: frozenset[int]) -> bool:
    return bool(nodes) and (row.cluster_node_rank in nodes or any(node in nodes for node, _ in row.devices))


def _place(row: Placement) -> tuple[Any, ...]:
    seen = row.visible_accelerators, row.accelerator_type
    return row.cluster_node_rank, row.devices, *seen, row.node_group_label


def coordinates_of(component: Component | None, row: Placement | None) -> list[Coordinates]:
    """Return the coordinates of the slots of a process; none if its component states no parallel sizes."""
    if component is None or row is None or not component.parallel.stated:
        return []
    return [component.layout.coordinates(slot) for slot in component.layout.slots_of(row.rank)]


def _rules(rules: Rules) -> dict[str, Any]:
    """Return the values of rules by their paths; those of a pool are one value, by its name."""
    values = dict(_leaves(rules.topology(), ()))
    for pool in rules.pools:
        values[path_text(("pools", pool.name))] = {key: value for key, value in pool.plain().items() if key != "name"}
    return values


def _leaves(value: Any, path: KeyPath) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _leaves(inner, (*path, key))
    elif value is not None:
        yield path_text(path), value


def _specs(inventory: Inventory) -> dict[int, Fields]:
    specs: dict[int, Fields] = {}
    for nodes, node in inventory.stretches():
        spec: Fields = node.fields()
        if spec["accelerator_ids"] == list(map(str, range(spec["accelerators"]))):
            spec["accelerator_ids"] = None  # implied by the number of accelerators
        spec |= {"healthy": None, "unhealthy": None, "devices": spec["devices"] if any(spec["devices"]) else []}
        specs |= dict.fromkeys(nodes, spec)
    for rank, local in inventory.marks.items():
        specs[rank] = specs[rank] | ({"healthy": False} if local is None else {"unhealthy": str(local)})
    return specs


def _joined(sides: tuple[Fields, ...]) -> Fields | None:
    """Return one side of the same change of several nodes, with the values of all nodes for fields of `_OWN`."""
    own = {name: [side[name] for side in sides] for name in _OWN if name in sides[0] and len(sides) > 1}
    return {**sides[0], **own} or None


def _differing(before: Mapping[Any, Fields], after: Mapping[Any, Fields]) -> Iterator[tuple[Any, Fields, Fields]]:
    """Yield each key with the fields that differ; if one side lacks the key, with all that the other one sets."""
    for key in dict.fromkeys([*before, *after]):
        old, new = before.get(key, {}), after.get(key, {})
        if old and new:
            names = [name for name in old if old[name] != new[name]]
        else:
            names = [name for name, value in (old or new).items() if value not in (None, {}, [], ())]
        if names:
            yield key, {name: old[name] for name in names if old}, {name: new[name] for name in names if new}


def _described(inventory: Inventory) -> dict[str, Fields]:
    groups = () if inventory.facts is None else inventory.facts.node_groups
    return {group.label: {key: value for key, value in group.plain().items() if key != "label"} for group in groups}


def same_nodes(planned: Inventory, inventory: Inventory) -> list[int | None]:
    """Return, by node rank of ``planned``, the rank of the same node in ``inventory``, ``None`` if it lacks the node.

    A node is found by its hostname, else by its address. A name that several nodes of one inventory share counts only
    if a node has no other; such nodes are matched in the order of their ranks. A node without hostname and address is
    the one of the same rank, unless that is found by its name. No node is found twice.
    """
    places: dict[str, tuple[dict[str, int], set[str]]] = {}
    for kind in _OWN:
        first, shared = inventory.names.first(kind)
        places[kind] = first, shared | planned.names.first(kind)[1]
    hosts, shared_hosts = places["hostname"]
    matches: list[int | None] = []
    for nodes, record in planned.stretches():
        if (host := record.hostname) in hosts and host not in shared_hosts:  # most nodes of a large cluster
            matches += [hosts[host]] * len(nodes)
        elif record.hostname or record.ip:
            matches += [_by_name(record, places)] * len(nodes)
        else:
            matches += (rank if rank < inventory.num_nodes else None for rank in nodes)
    matched = [match for match in matches if match is not None]
    return matches if len(set(matched)) == len(matched) else _each_once(matches, planned, inventory)


def _by_name(record: NodeSpec, places: Mapping[str, tuple[Mapping[str, int], set[str]]]) -> int | None:
    """Return the first node with the hostname of a record, else with its address; shared names count last."""
    names = {kind: name for kind in _OWN if (name := getattr(record, kind))}
    telling = {kind: name for kind, name in names.items() if name not in places[kind][1]} or names
    ranks = (places[kind][0].get(name) for kind, name in telling.items())
    return next((rank for rank in ranks if rank is not None), None)


def _each_once(matches: Sequence[int | None], planned: Inventory, inventory: Inventory) -> list[int | None]:
    """Return matches with each node at most once.

    Nodes with the same hostname and address come first, then those whose match is free, by hostname before by address,
    then those with a free node of the same hostname or address, in the order of their ranks. Those without names come
    last.
    """
    places = _Places(inventory)
    final: list[int | None] = [None] * len(matches)
    matched = {rank: match for rank, match in enumerate(matches) if match is not None}
    records = {rank: planned.node(rank) for rank in matched}
    named = [rank for rank, record in records.items() if record.hostname or record.ip]
    for rank in named:
        final[rank] = places.take(records[rank], _OWN)
    for rank in sorted(named, key=lambda rank: records[rank].hostname != inventory.node(matched[rank]).hostname):
        if final[rank] is None:
            final[rank] = places.take_match(matched[rank])
    for kind in _OWN:
        for rank in named:
            if final[rank] is None and getattr(records[rank], kind):
                final[rank] = places.take(records[rank], (kind,))
    for rank in matched.keys() - set(named):
        final[rank] = places.take_match(matched[rank])
    return final


class _Places:
    """The nodes of an inventory that no node of a plan has yet, by their names."""

    def __init__(self, inventory: Inventory) -> None:
        self._free = set(range(inventory.num_nodes))
        self._by_names: dict[tuple[tuple[str, str | None], ...], deque[int]] = {}
        for place in range(inventory.num_nodes):
            for kinds in (_OWN, *((kind,) for kind in _OWN)):
                self._by_names.setdefault(_names(inventory.node(place), kinds), deque()).append(place)

    def take(self, record: NodeSpec, kinds: Sequence[str]) -> int | None:
        """Return the first free node with the same names of these kinds, and take it."""
        candidates = self._by_names.get(_names(record, kinds), deque())
        while candidates and candidates[0] not in self._free:
            candidates.popleft()
        return self.take_match(candidates[0]) if candidates else None

    def take_match(self, place: int) -> int | None:
        """Return a node if it is free, and take it."""
        if place not in self._free:
            return None
        self._free.discard(place)
        return place


def _names(record: NodeSpec, kinds: Sequence[str]) -> tuple[tuple[str, str | None], ...]:
    return tuple((kind, getattr(record, kind)) for kind in kinds)


def present_nodes(planned: Inventory, cluster: Inventory) -> list[int | None]:
    """Return, by node rank of a plan, the rank of its node in a live cluster, ``None`` if the cluster lacks it.

    Nodes are found as in `same_nodes`, unless the plan names no node and all its nodes have accelerators. Then its
    nodes are those of the cluster that have accelerators, in their order: a head node often lacks accelerators.
    """
    records = [record for _, record in planned.stretches()]
    if any(record.hostname or record.ip or not record.num_accelerators for record in records):
        return same_nodes(planned, cluster)
    order = sorted(range(cluster.num_nodes), key=lambda node: not cluster.core.num_accelerators(node))
    return [order[rank] if rank < len(order) else None for rank in range(planned.num_nodes)]
