"""The slots and instances of a component in one of two plans, with places that mean the same in both."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import field, replace
from enum import Enum
from fractions import Fraction
from functools import cached_property
from itertools import islice
from typing import NamedTuple

from rankplan._core import ACCELERATOR, WHOLE_NODE, Placement, RankSet, SlotSets
from rankplan.arranging.units import slots_together
from rankplan.errors import Diagnostic, PlacementError
from rankplan.frozen import frozen
from rankplan.hardware.cards import may_be_same
from rankplan.moving.faults import other_accelerators, other_hardware, placed_on_dead
from rankplan.moving.holdings import WITHOUT_DATA, Holding, Keeper, Key
from rankplan.nodes.entries import Marks, add_mark
from rankplan.nodes.inventory import Inventory
from rankplan.nodes.node import NodeSpec
from rankplan.plans.component import Component
from rankplan.plans.diff import same_nodes
from rankplan.plans.plan import Plan

Node = int
"""A node of either plan: its rank in the plan after, or -1 - its rank in the plan before, which alone has it."""


class Place(NamedTuple):
    """A device: a node, what it is a piece of, which one, and which of several slots of a component on it.

    ``local`` is the local index of an accelerator. A process without accelerators has the local ranks of its hardware.
    """

    node: Node
    kind: str
    local: tuple[int, ...]
    turn: int


class Slot(NamedTuple):
    """A slot of a component: its process, its place, its coordinates, and its environment.

    The environment is what a running process cannot change: its node group, with its variables and interpreter, and the
    devices that it sees.
    """

    number: int
    rank: int
    place: Place
    coordinates: tuple[tuple[str, int], ...]
    environment: tuple[object, ...]


class Kind(Enum):
    """What an instance is: an engine or another server, a trainer as a whole, or a process that neither serves."""

    TRAINER = "trainer"
    ENGINE = "engine"
    OTHER = "other"


@frozen(slots=False)
class Side:
    """A component in one of the plans.

    ``sets`` has the slots of data groups that go together, ``instances`` those of each instance, and ``dead`` the
    numbers of the slots whose hardware is dead. ``nodes`` maps the node ranks of its plan to nodes.

    A large component has a million slots, of which few change. So slots are read node by node, when they are needed.
    """

    component: Component
    keeper: Keeper
    kind: Kind
    sets: SlotSets
    instances: SlotSets
    nodes: list[Node]
    dead: frozenset[int] = frozenset()
    _environments: dict[tuple[str, int | None], tuple[object, ...]] = field(default_factory=dict)
    _on_node: dict[int, dict[int, Slot]] = field(default_factory=dict)
    _keys: dict[Key, Key] = field(default_factory=dict)
    _weight_keys: dict[Key, Key] = field(default_factory=dict)
    _holdings: dict[Key, Holding] = field(default_factory=dict)
    _weights: dict[Key, Holding] = field(default_factory=dict)
    _bytes: dict[Key, Fraction] = field(default_factory=dict)

    @classmethod
    def of(cls, component: Component, nodes: list[Node]) -> Side:
        """Return a component on these nodes."""
        kind, sets = _kind(component), slots_together(component)
        instances = component.layout.by_process(len(component)) if kind is Kind.TRAINER else sets
        return cls(component, Keeper.of(component), kind, sets, instances, nodes)

    def with_dead(self, dead: Marks) -> Side:
        """Return the component where some hardware is dead."""
        if not dead:
            return self
        layout, lost = self.component.layout, set[int]()
        for rank in self._ranks_on(dead):
            if _is_dead(self.component[rank], self.nodes, dead):
                lost.update(layout.slots_of(rank))
        return replace(self, dead=frozenset(lost))

    def _ranks_on(self, marked: Marks) -> set[int]:
        """Return the processes that run on some nodes or use their devices."""
        ranks = set[int]()
        homes = [rank for node, rank in self._node_ranks.items() if node in marked]
        for run in self.component.rows.runs():
            each = run.pattern.processes
            for home in homes:
                if run.node <= home < run.node + run.nodes:
                    first = run.first_rank + (home - run.node) * each
                    ranks.update(range(first, first + each))
        return ranks

    @cached_property
    def _node_ranks(self) -> dict[Node, int]:
        """The node rank in the plan of each node."""
        return {node: rank for rank, node in enumerate(self.nodes)}

    @property
    def count(self) -> int:
        """The number of slots."""
        return self.component.slots

    @cached_property
    def slots(self) -> list[Slot]:
        """All slots. In a large component, `slot` and `slots_on` read only what is needed."""
        return list(self._read(range(self.count)))

    def slot(self, number: int) -> Slot:
        """Return a slot."""
        rank, _ = self.component.layout.place(number)
        return self._slots_on(rank)[number]

    def slots_but(self, unchanged: RankSet) -> Iterator[Slot]:
        """Yield all slots but these, by their numbers."""
        every = RankSet(f"0-{self.count - 1}")
        yield from map(self.slot, every - unchanged)

    def slots_on(self, node: Node) -> list[Slot]:
        """Return the slots on a node, by their numbers."""
        rank = self._node_ranks.get(node)
        return [] if rank is None else list(self._slots_on(rank).values())

    def numbers_on(self, node: Node) -> list[int]:
        """Return the numbers of the slots on a node, ascending."""
        rank = self._node_ranks.get(node)
        return [] if rank is None or rank >= len(self._by_node) else self._by_node[rank]

    def at(self, place: Place) -> Slot | None:
        """Return the slot at a place."""
        return next((slot for slot in self.slots_on(place.node) if slot.place == place), None)

    def _slots_on(self, rank: int) -> dict[int, Slot]:
        """Return the slots on a node of the plan, by their numbers."""
        if rank not in self._on_node:
            numbers = self._by_node[rank] if rank < len(self._by_node) else ()
            self._on_node[rank] = {slot.number: slot for slot in self._read(numbers)}
        return self._on_node[rank]

    @cached_property
    def _by_node(self) -> SlotSets:
        """The slots of each node, by node rank in the plan."""
        return self.component.layout.by_node()

    def _read(self, numbers: Iterable[int]) -> Iterator[Slot]:
        """Yield slots: all of some nodes, in ascending order, so that those of one device are counted."""
        component, layout, turns = self.component, self.component.layout, dict[tuple[Node, str, tuple[int, ...]], int]()
        row: Placement | None = None
        environment: tuple[object, ...] = ()
        for number in numbers:
            rank = layout.process_of(number)
            if row is None or row.rank != rank:
                row = component[rank]
                environment = *self.stated_environment(row.node_group_label, row.cluster_node_rank), *_seen(row)
            node, index = layout.place(number)
            indices = tuple(row.local_hardware_ranks) if index is None else (index,)
            device = self.nodes[node], row.resource_type, indices
            turn = turns.get(device, 0)
            turns[device] = turn + 1
            coordinates = tuple(sorted(layout.coordinates(number).items()))
            yield Slot(number, rank, Place(*device, turn), coordinates, environment)

    def stated_environment(self, label: str, node_rank: int) -> tuple[object, ...]:
        """Return what a node group states for processes on a node: its name, variables and interpreter."""
        inventory = self.component.inventory
        key = label, None if inventory.group(label) is None else node_rank
        if key not in self._environments:
            variables, interpreter = inventory.environment(node_rank, label)
            self._environments[key] = label, tuple(sorted(variables.items())), interpreter
        return self._environments[key]

    def has_one_owner(self, number: int) -> bool:
        """Whether the device of a slot can have one owner only."""
        return self.has_owned_devices and has_one_owner(self.slot(number))

    @cached_property
    def has_owned_devices(self) -> bool:
        """Whether some processes have configured hardware."""
        types = {run.pattern.resource_type for run in self.component.rows.runs()}
        return not types <= {ACCELERATOR, WHOLE_NODE}

    @cached_property
    def shares(self) -> Shares:
        """What slots hold."""
        return Shares(self, self._alike(by_data=self.keeper.depends_on_data), self.holding)

    @cached_property
    def weight_shares(self) -> Shares:
        """What slots hold as weights for other components."""
        return Shares(self, self._alike(by_data=bool(self.keeper.width_shards)), self.weights)

    def alike(self) -> Iterator[tuple[Slot, int]]:
        """Yield a slot of each set of slots that hold as many bytes, and their number."""
        sets = self._alike(by_data=self.keeper.depends_on_data and not self.keeper.is_even)
        for index in range(len(sets)):
            yield self.slot(sets[index][0]), sets.size(index)

    def _alike(self, *, by_data: bool) -> SlotSets:
        """Return the slots with equal coordinates: all of them, or without those of data ranks."""
        kinds = self.component.layout.kinds
        return self.component.layout.by_coordinates([kind for kind in kinds if by_data or kind in WITHOUT_DATA])

    def key(self, slot: Slot) -> Key:
        """Return the coordinates of a slot that decide what it holds."""
        known = self._keys.get(slot.coordinates)
        if known is None:
            known = self._keys[slot.coordinates] = self.keeper.decides(slot.coordinates)
        return known

    def holding(self, slot: Slot) -> Holding:
        """Return what a slot holds; slots with equal keys hold the same."""
        key = self.key(slot)
        if key not in self._holdings:
            self._holdings[key] = self.keeper.holding(dict(slot.coordinates))
        return self._holdings[key]

    def weights(self, slot: Slot) -> Holding:
        """Return what a slot holds as weights for other components; slots with equal weights have the same object."""
        key = self.keeper.decides_weights(slot.coordinates)
        if key not in self._weights:
            self._weights[key] = self.keeper.weights(dict(slot.coordinates))
        return self._weights[key]

    def weight_key(self, slot: Slot) -> Key:
        """Return the coordinates of a slot that decide how many bytes it holds."""
        known = self._weight_keys.get(slot.coordinates)
        if known is None:
            known = self._weight_keys[slot.coordinates] = self.keeper.weighs(slot.coordinates)
        return known

    def bytes(self, slot: Slot) -> Fraction:
        """Return the bytes of all that a slot holds."""
        key = self.weight_key(slot)
        if key not in self._bytes:
            boxes = self.holding(slot).items()
            self._bytes[key] = sum((self.keeper.bytes(piece, box) for piece, box in boxes), Fraction(0))
        return self._bytes[key]


class Shares:
    """What the slots of a component hold: one object for all slots of a set, which hold the same."""

    def __init__(self, side: Side, sets: SlotSets, held_by: Callable[[Slot], Holding]) -> None:
        self.sets = sets
        self._side, self._held_by = side, held_by
        self._of_set: dict[int, Holding] = {}

    def of(self, number: int) -> Holding:
        """Return what a slot holds."""
        index = self.sets.of(number)
        share = self._of_set.get(index)
        if share is None:
            share = self._of_set[index] = self._held_by(self._side.slot(number))
        return share

    def examples(self, is_chosen: Callable[[int], bool]) -> Iterator[int]:
        """Yield a chosen slot of each set that has one."""
        for index in range(len(self.sets)):
            yield from islice(filter(is_chosen, self.sets[index]), 1)


def side_after(before: Side | None, component: Component, nodes: list[Node]) -> Side:
    """Return a component of the plan after: the side of the plan before, if nothing of it differs."""
    if before is None or before.nodes != nodes or before.component != component:
        return Side.of(component, nodes)
    return before if before.component.inventory == component.inventory else Side.of(component, nodes)


def has_one_owner(slot: Slot) -> bool:
    """Whether the device of a slot can have one owner only: a robot, or any other configured hardware."""
    return slot.place.kind not in (ACCELERATOR, WHOLE_NODE)


def _kind(component: Component) -> Kind:
    memory = component.memory
    if memory is not None and memory.kind == "training":
        return Kind.TRAINER
    if memory is not None and memory.kind == "engine":
        return Kind.ENGINE
    return Kind.OTHER


def _seen(row: Placement) -> tuple[object, ...]:
    """Return the devices that a process sees."""
    return row.visibility, tuple(row.visible_accelerators), row.accelerator_type, row.resource_type


def _is_dead(row: Placement, nodes: list[Node], dead: Marks) -> bool:
    """Whether a process, or an accelerator of it, is on hardware that is dead."""
    if dead.get(nodes[row.cluster_node_rank], RankSet()) is None:
        return True
    for node, index in row.devices:
        local = dead.get(nodes[node], RankSet())
        if local is None or (row.resource_type == ACCELERATOR and index in local):
            return True
    return False


def common_nodes(before: Plan, after: Plan) -> tuple[list[Node], list[Node]]:
    """Return the nodes of both plans, by node rank: nodes with the same name are the same one.

    Raises `PlacementError` (``plan-mismatch``) for nodes that have other accelerators, or another model of them, in the
    plan after.
    """
    new_nodes = list(range(after.inventory.num_nodes))
    if before.inventory.core == after.inventory.core:
        return new_nodes, new_nodes
    nodes, faults = [], []
    for rank, match in enumerate(same_nodes(before.inventory, after.inventory)):
        nodes.append(-1 - rank if match is None else match)
        if match is not None:
            old, new = before.inventory.node(rank), after.inventory.node(match)
            if (old.accelerator_type, old.num_accelerators) != (new.accelerator_type, new.num_accelerators):
                faults.append(other_hardware(old, new))
                continue
            models = _model_of(old), _model_of(new)
            if models[0] is not None and models[1] is not None and not may_be_same(models[0], models[1]):
                faults.append(other_accelerators(new.name, models[0], models[1]))
    if faults:
        raise PlacementError(faults)
    return nodes, new_nodes


def _model_of(node: NodeSpec) -> str | None:
    """Return the model of the accelerators of a node, ``None`` if no record states it."""
    models = (device.model for device in node.devices if device.model is not None)
    return node.accelerator_model or next(models, None)


def dead_hardware(before: Plan, after: Plan, nodes: list[Node], without: Collection[str]) -> Marks:
    """Return the hardware that is dead, by node; ``None`` for a whole node.

    Dead is what ``without`` names, and what either inventory marks as out of use or the plan after excludes. ``nodes``
    are those of the plan before. Raises `PlacementError` for unknown names.
    """
    dead: Marks = {}
    old, new = before.inventory, after.inventory
    unknown: list[Diagnostic] = []
    for name in without:
        try:
            old, new = _without(old, new, name)
        except PlacementError as error:
            unknown += error.diagnostics
    if unknown:
        raise PlacementError(unknown)
    for name in () if new.facts is None else new.facts.exclude:
        with suppress(PlacementError):
            old = old.without([name])
    for rank, local in old.marks.items():
        add_mark(dead, nodes[rank], local)
    for node, local in new.marks.items():
        add_mark(dead, node, local)
    return dead


def deserted(before: Mapping[str, Side], after: Mapping[str, Side], unchanged: Mapping[str, RankSet]) -> Marks:
    """Return the nodes that only the plan before has, and that processes have left for other devices: they are dead.

    A node of which all processes end is alive: without them, `replan` needs it no more, and its plan has only the nodes
    that it needs. ``unchanged`` has the slots of each component that stay.
    """
    left: Marks = {}
    for name, side in before.items():
        freed = [node for node in side.nodes if node < 0]
        homes = {slot.coordinates: node for node in freed for slot in side.slots_on(node)}
        if not homes or name not in after:
            continue
        for slot in after[name].slots_but(unchanged[name]):
            if slot.coordinates in homes and side.at(slot.place) is None:
                left[homes[slot.coordinates]] = None
    return left


def _without(old: Inventory, new: Inventory, name: str) -> tuple[Inventory, Inventory]:
    """Return both inventories without the hardware of a name, which one of them may lack.

    Raises `PlacementError` if both lack it.
    """
    try:
        old = old.without([name])
    except PlacementError as error:
        with suppress(PlacementError):
            return old, new.without([name])
        raise error
    with suppress(PlacementError):
        new = new.without([name])
    return old, new


def check_alive(sides: Iterable[Side]) -> None:
    """Raise `PlacementError` (``excluded-resource``) if the plan after uses hardware that is dead."""
    faults = []
    for side in sides:
        if side.dead:
            rank = side.component.layout.process_of(min(side.dead))
            home = side.component.inventory.node(side.component[rank].cluster_node_rank)
            faults.append(placed_on_dead(side.component.name, rank, home.name))
    if faults:
        raise PlacementError(faults)
