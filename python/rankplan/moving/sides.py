"""The slots and instances of a component in one of two plans, with places that mean the same in both."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from enum import Enum
from fractions import Fraction
from typing import NamedTuple

from rankplan._core import ACCELERATOR, WHOLE_NODE, Placement, RankSet
from rankplan.arranging.units import sets_together
from rankplan.errors import Diagnostic, PlacementError
from rankplan.frozen import frozen
from rankplan.moving.faults import other_hardware, placed_on_dead
from rankplan.moving.holdings import Holding, Keeper, Key
from rankplan.nodes.entries import Marks, add_mark
from rankplan.nodes.inventory import Inventory
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

    ``instances`` has the numbers of the slots of each instance, ``instance_of`` the instance of each slot, and
    ``dead`` the slots whose hardware is dead. ``nodes`` maps the node ranks of its plan to nodes.
    """

    component: Component
    keeper: Keeper
    kind: Kind
    slots: list[Slot]
    instances: list[list[int]]
    instance_of: list[int]
    nodes: list[Node]
    dead: frozenset[int]
    _keys: dict[Key, Key]
    _weight_keys: dict[Key, Key]
    _holdings: dict[Key, Holding]
    _weights: dict[Key, Holding]
    _bytes: dict[Key, Fraction]

    @classmethod
    def of(cls, component: Component, nodes: list[Node]) -> Side:
        """Return a component on these nodes."""
        slots = list(_slots(component, nodes))
        kind = _kind(component)
        if kind is Kind.TRAINER:
            numbers = [0] * len(slots)
        else:
            sets = sets_together(component)
            numbers = [sets[slot.rank] for slot in slots]
        instances: list[list[int]] = [[] for _ in range(max(numbers, default=-1) + 1)]
        for slot, number in zip(slots, numbers, strict=True):
            instances[number].append(slot.number)
        return cls(
            component, Keeper.of(component), kind, slots, instances, numbers, nodes, frozenset(), {}, {}, {}, {}, {}
        )

    def with_dead(self, dead: Marks) -> Side:
        """Return the component where some hardware is dead."""
        if not dead:
            return self
        lost = (slot.number for slot in self.slots if _is_dead(self.component, slot, self.nodes, dead))
        return replace(self, dead=frozenset(lost))

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


def _slots(component: Component, nodes: list[Node]) -> Iterator[Slot]:
    """Yield the slots of a component."""
    layout, turns = component.layout, dict[tuple[Node, str, tuple[int, ...]], int]()
    stated: dict[tuple[str, int | None], tuple[object, ...]] = {}
    for row in component:
        label = row.node_group_label
        group = label, None if component.inventory.group(label) is None else row.cluster_node_rank
        if group not in stated:
            stated[group] = _stated_environment(component, row)
        environment = *stated[group], *_seen(row)
        for number in layout.slots_of(row.rank):
            node, index = layout.place(number)
            indices = tuple(row.local_hardware_ranks) if index is None else (index,)
            device = nodes[node], row.resource_type, indices
            turn = turns.get(device, 0)
            turns[device] = turn + 1
            coordinates = tuple(sorted(layout.coordinates(number).items()))
            yield Slot(number, row.rank, Place(*device, turn), coordinates, environment)


def _stated_environment(component: Component, row: Placement) -> tuple[object, ...]:
    """Return what the node group of a process states: its name, variables and interpreter."""
    variables, interpreter = component.inventory.environment(row.cluster_node_rank, row.node_group_label)
    return row.node_group_label, tuple(sorted(variables.items())), interpreter


def _seen(row: Placement) -> tuple[object, ...]:
    """Return the devices that a process sees."""
    return row.visibility, tuple(row.visible_accelerators), row.accelerator_type, row.resource_type


def _is_dead(component: Component, slot: Slot, nodes: list[Node], dead: Marks) -> bool:
    """Whether the process of a slot, or an accelerator of it, is on hardware that is dead."""
    row = component[slot.rank]
    if dead.get(nodes[row.cluster_node_rank], RankSet()) is None:
        return True
    for node, index in row.devices:
        local = dead.get(nodes[node], RankSet())
        if local is None or (row.resource_type == ACCELERATOR and index in local):
            return True
    return False


def common_nodes(before: Plan, after: Plan) -> tuple[list[Node], list[Node]]:
    """Return the nodes of both plans, by node rank: nodes with the same name are the same one.

    Raises `PlacementError` (``plan-mismatch``) for nodes that have other accelerators in the plan after.
    """
    matches = same_nodes(before.inventory, after.inventory)
    nodes, faults = [], []
    for rank, match in enumerate(matches):
        nodes.append(-1 - rank if match is None else match)
        if match is not None:
            old, new = before.inventory.node(rank), after.inventory.node(match)
            if (old.accelerator_type, old.num_accelerators) != (new.accelerator_type, new.num_accelerators):
                faults.append(other_hardware(old, new))
    if faults:
        raise PlacementError(faults)
    return nodes, list(range(after.inventory.num_nodes))


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


def deserted(before: Mapping[str, Side], after: Mapping[str, Side]) -> Marks:
    """Return the nodes that only the plan before has, and that processes have left for other devices: they are dead.

    A node of which all processes end is alive: without them, `replan` needs it no more, and its plan has only the nodes
    that it needs.
    """
    left: Marks = {}
    for name, side in before.items():
        homes = {slot.coordinates: slot.place.node for slot in side.slots if slot.place.node < 0}
        if not homes or name not in after:
            continue
        places = {slot.place for slot in side.slots}
        for slot in after[name].slots:
            if slot.coordinates in homes and slot.place not in places:
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
            rank = side.slots[min(side.dead)].rank
            home = side.component.inventory.node(side.component[rank].cluster_node_rank)
            faults.append(placed_on_dead(side.component.name, rank, home.name))
    if faults:
        raise PlacementError(faults)
