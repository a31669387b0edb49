"""Transitions from one plan to another: slots, moves, steps in a safe order, peaks and seconds."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from fractions import Fraction
from itertools import chain, combinations
from typing import Any, Literal, NamedTuple, TypeAlias

from rankplan._core import RankSet
from rankplan.errors import Diagnostic, PlacementError
from rankplan.frozen import frozen
from rankplan.moving import faults
from rankplan.moving.boxes import Bytes
from rankplan.moving.cards import Amounts, Sizes, accelerator_of, resting
from rankplan.moving.changes import STAY, Changes, SlotChange, changes_of, unchanged_slots
from rankplan.moving.costs import NO_COSTS, MoveCosts, read_costs
from rankplan.moving.instances import Component, Instance, Work, work_of
from rankplan.moving.lent import sleep_and_wake
from rankplan.moving.moves import Move, Moves
from rankplan.moving.names import Naming, named
from rankplan.moving.ordering import Group, Member, groups_of, sleeping_choices
from rankplan.moving.peaks import Peak, Seconds, longest_path, peaks_of
from rankplan.moving.senders import HOST, STORAGE, Delivery, Distances, Sender, Sending
from rankplan.moving.sides import Node, Side, check_alive, common_nodes, dead_hardware, deserted, side_after
from rankplan.moving.steps import Hold, Ordered, Step
from rankplan.moving.times import step_seconds
from rankplan.plans.component import Component as PlanComponent
from rankplan.plans.memory_settings import MemorySettings
from rankplan.plans.plan import Plan, check_plan
from rankplan.words import as_int

FREE, AS_PLANNED = "free", "as planned"

_MOST_AVOIDED = 12
"""If more instances than these block each other, no other senders are tried."""

Answer: TypeAlias = Literal["fits", "unknown"]


@frozen
class SlotMove:
    """A slot that changes.

    ``slot`` is its number in the plan after, and ``None`` for a slot that ends. ``was`` is the slot of the plan before
    that it continues. ``to`` is the node and the local index of its accelerator, ``None`` for a slot that ends.
    ``bytes`` are the bytes that it gets, ``of`` all bytes that it holds. Unknown ones are ``None``.
    """

    component: str
    slot: int | None
    kind: str
    was: int | None
    to: tuple[str, int | None] | None
    bytes: int | None
    of: int | None


class PlannedStep(NamedTuple):
    """A step of an instance, the steps that it needs, and its seconds."""

    id: str
    do: str
    component: str
    side: str
    instance: int
    slots: list[int]
    needs: list[str]
    seconds: Seconds


@frozen(slots=False)
class Transition:
    """How one plan becomes another.

    ``after`` is the plan with the numbers of data groups that move the least; ``names`` has, by component, the number
    that each set of the given plan got. ``stay`` counts the slots that stay, ``sizes`` all slots before and after.
    ``slots`` are those that change, ``moves`` the bytes that they get. ``steps`` are in a safe order. Every order in
    which each step follows those that it ``needs`` is safe, too. ``answer`` is ``fits`` if the upper bounds of memory
    fit on every accelerator in any of these orders, and ``unknown`` otherwise. ``rollback`` names the trainers that
    load their last checkpoint. ``optimal``: no other names move fewer bytes, and no other order lets fewer bytes sleep.
    ``missing`` are the costs without which ``seconds`` are unknown. ``parts`` are the components in both plans,
    ``holds`` the memory that steps take and give back. ``costs`` and ``asleep`` are as given.
    """

    before: Plan
    after: Plan
    names: Mapping[str, tuple[int, ...]]
    sizes: Mapping[str, tuple[int, int]]
    stay: Mapping[str, int]
    slots: tuple[SlotMove, ...]
    moves: Sequence[Move]
    steps: tuple[PlannedStep, ...]
    peaks: tuple[Peak, ...]
    seconds: Seconds
    missing: tuple[str, ...]
    answer: Answer
    optimal: bool
    rollback: tuple[str, ...]
    kept: int | None
    offload: int
    serving: int
    unknown: tuple[tuple[str, int], ...] = ()
    parts: Mapping[str, Component] = field(default_factory=dict, repr=False)
    holds: tuple[Hold, ...] = field(default=(), repr=False)
    costs: MoveCosts = field(default=NO_COSTS, repr=False)
    asleep: tuple[tuple[str, ...], tuple[str, ...]] | None = None

    @property
    def total(self) -> int | None:
        """All bytes that move; ``None`` if those of a component are unknown."""
        sizes = [move.bytes for move in self.moves]
        return None if None in sizes else sum(size for size in sizes if size is not None)

    @property
    def by_level(self) -> dict[str, int]:
        """The bytes that move, by the level that they cross."""
        levels: dict[str, int] = {}
        for move in self.moves:
            levels[move.level] = levels.get(move.level, 0) + (move.bytes or 0)
        return levels

    def __bool__(self) -> bool:
        """Whether anything is to be done."""
        return bool(self.steps)

    def node_name(self, node: Node) -> str:
        """Return the name of a node of either plan."""
        return _node_name(self.before, self.after, node)

    def to_dict(self) -> dict[str, Any]:
        """Return the transition as plain values; ``rankplan schema --transition`` describes them."""
        return {
            "version": 1,
            "components": {name: {"slots": list(sizes), "stay": self.stay[name]} for name, sizes in self.sizes.items()},
            "names": {name: list(numbers) for name, numbers in self.names.items()},
            "slots": [
                {
                    "component": slot.component,
                    "slot": slot.slot,
                    "kind": slot.kind,
                    "was": slot.was,
                    "to": None if slot.to is None else list(slot.to),
                    "bytes": slot.bytes,
                    "of": slot.of,
                }
                for slot in self.slots
            ],
            "moves": [_plain_move(move) for move in self.moves],
            "bytes": {"total": self.total, "kept": self.kept, "offload": self.offload, "by_level": self.by_level},
            "steps": [
                {
                    "id": step.id,
                    "do": step.do,
                    "component": step.component,
                    "side": step.side,
                    "instance": step.instance,
                    "slots": step.slots,
                    "needs": step.needs,
                    "seconds": list(step.seconds),
                }
                for step in self.steps
            ],
            "peak": [
                {
                    "node": self.node_name(peak.accelerator[0]),
                    "accelerator": peak.accelerator[1],
                    "bytes": _whole(peak.most),
                    "least": _whole(peak.least),
                }
                for peak in self.peaks
            ],
            "seconds": list(self.seconds),
            "missing": list(self.missing),
            "answer": self.answer,
            "optimal": self.optimal,
            "rollback": list(self.rollback),
        }


def _plain_move(move: Move) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "to": [move.component, "after", move.slot],
        "from": STORAGE if move.sender is None else [move.sender.component, "before", move.sender.slot],
        "state": move.state,
        "bytes": move.bytes,
        "level": move.level,
    }
    if move.part is not None:
        plain["part"] = move.part
    if move.converts:
        plain["converts"] = True
    return plain


def _node_name(before: Plan, after: Plan, node: Node) -> str:
    return before.inventory.node(-1 - node).name if node < 0 else after.inventory.node(node).name


def _whole(size: float) -> int | None:
    return None if size == float("inf") else int(size)


def transition(
    before: Plan,
    after: Plan,
    *,
    without: Collection[str] | str = (),
    costs: MoveCosts | Mapping[str, Any] | str | os.PathLike[str] | None = None,
    names: str = FREE,
    asleep: tuple[Sequence[str], Sequence[str]] | None = None,
    serving: int = 1,
) -> Transition:
    """Return how a running job gets from one plan to another: what moves, whether it fits, and a safe order of steps.

    ``without`` names hardware that is dead, as in `replan`. ``costs`` is a mapping, or the path of a file, with the
    bandwidth of an accelerator and the seconds of steps. Interchangeable data groups may get other numbers, so that
    fewer bytes move; ``names="as planned"`` forbids that. At least ``serving`` instances of each component keep
    serving, if that many exist. ``asleep`` is for a plan that does not change: the instances that sleep before, and
    those that sleep after, such as ``(["rollout/2-3"], ["actor"])``.

    Raises `PlacementError`: ``other-job`` for plans of different jobs, ``plan-mismatch`` for nodes that have other
    accelerators, ``excluded-resource`` for a plan on dead hardware, ``unknown-component`` and ``unknown-level`` for
    costs, and ``transition-stuck`` if no order is safe. Raises ``OSError`` if the file of costs cannot be read.
    """
    check_plan(before, "before")
    check_plan(after, "after")
    least = _least_serving(serving)
    if names not in (FREE, AS_PLANNED):
        raise PlacementError([faults.bad_names(names)])
    _check_same_job(before, after)
    distances = Distances.of(after.inventory)
    stated = read_costs(costs, dict.fromkeys([*before, *after]), (*distances.names, HOST, STORAGE))
    if asleep is not None:
        if without:
            raise PlacementError([faults.dead_and_asleep()])
        return _lending(before, after, asleep, stated)
    nodes, new_nodes = common_nodes(before, after)
    dead = dead_hardware(before, after, nodes, [without] if isinstance(without, str) else without)
    old = {name: Side.of(component, nodes) for name, component in before.items()}
    new = {name: side_after(old.get(name), component, new_nodes) for name, component in after.items()}
    check_alive(side.with_dead(dead) for side in new.values())
    # Most slots stay; what follows looks only at the others.
    unchanged = {name: unchanged_slots(old.get(name), new.get(name)) for name in dict.fromkeys([*before, *after])}
    freed = [node for node in nodes if node < 0]  # only the plan before has them
    if freed:
        dead |= deserted(old, new, unchanged)
        distances = distances.with_freed(before.inventory, after.inventory, freed)
    old = {name: side.with_dead(dead) for name, side in old.items()}
    namings: dict[str, Naming] = {}
    if names == FREE:
        renumbered, after, namings = _named(old, new, unchanged, after, new_nodes)
        new |= renumbered
        unchanged |= {name: unchanged_slots(old[name], side) for name, side in renumbered.items()}
    changes = {name: changes_of(old.get(name), new.get(name), slots) for name, slots in unchanged.items()}
    return _Solving(before, after, changes, namings, stated, distances, least).transition()


def _least_serving(serving: int) -> int:
    """Return a number of instances. Raises `PlacementError` for what is none."""
    least = as_int(serving)
    if least is None or least < 0:
        raise PlacementError([faults.bad_serving(serving)])
    return least


def _check_same_job(before: Plan, after: Plan) -> None:
    """Raise `PlacementError` (``other-job``) for plans that are not of one job."""
    differences: list[Diagnostic] = []
    common = [name for name in before if name in after]
    if before.dialect is not None and after.dialect is not None and before.dialect != after.dialect:
        differences.append(faults.other_dialect(before.dialect, after.dialect))
    elif (before or after) and not common:
        differences.append(faults.nothing_in_common(list(before), list(after)))
    for name in common:
        difference = _other_memory(name, before[name].memory, after[name].memory)
        if difference is not None:
            differences.append(difference)
    if differences:
        raise PlacementError(differences)


def _other_memory(name: str, old: MemorySettings | None, new: MemorySettings | None) -> Diagnostic | None:
    """Return the fault of a component that does something else in the plan after, or with another model."""
    if old is None and new is None:
        return None
    if old is None or new is None:
        return faults.other_use(name, _use(old), _use(new))
    if (old.kind, old.training, old.engine) != (new.kind, new.training, new.engine):
        return faults.other_use(name, _use(old), _use(new))
    if (old.model, old.params) != (new.model, new.params):
        return faults.other_model(name, _model_name(old), _model_name(new))
    return None


def _use(memory: MemorySettings | None) -> str:
    if memory is None:
        return "of unknown memory"
    framework = memory.training or memory.engine
    return f"{memory.kind}: {framework}" if framework else memory.kind


def _model_name(memory: MemorySettings) -> str:
    if memory.model is not None:
        return str(memory.model.name)
    return "an unknown model" if memory.params is None else f"{memory.params:g} parameters"


def _named(
    old: Mapping[str, Side], new: Mapping[str, Side], unchanged: Mapping[str, RankSet], after: Plan, nodes: list[Node]
) -> tuple[dict[str, Side], Plan, dict[str, Naming]]:
    """Return the components whose data groups get other numbers, the plan after with them, and all numbers."""
    namings: dict[str, Naming] = {}
    renumbered: dict[str, PlanComponent] = {}
    for name, side in new.items():
        if name not in old or _same_rows(old[name], side):
            continue
        component, namings[name] = named(old[name], side, unchanged[name])
        if component is not side.component:
            renumbered[name] = component
    if renumbered:
        after = after.placed(after.inventory, [renumbered.get(name, component) for name, component in after.items()])
    return {name: Side.of(after[name], nodes) for name in renumbered}, after, namings


def _same_rows(old: Side, new: Side) -> bool:
    """Whether a component is the same in both plans."""
    return old.nodes == new.nodes and old.component == new.component


@frozen(slots=False)
class _Attempt:
    """The result of a try in which some instances send nothing.

    It has the deliveries to the slots, the work, the groups, and the order of each group, ``None`` if none was found.
    ``blocked`` are the groups that have no order, but might have one with other senders.
    """

    sending: Sending
    deliveries: list[Delivery]
    work: Work
    groups: list[list[Member]]
    orders: list[Ordered | None]
    blocked: list[int]


class _Compromise(NamedTuple):
    """An order of a group that gives something up.

    ``sleeping`` are the instances that sleep in it. ``is_optimal``: no other choice lets fewer bytes sleep. ``fits``:
    the upper bounds of memory fit.
    """

    order: Ordered
    sleeping: tuple[Instance, ...] = ()
    is_optimal: bool = True
    fits: bool = True


class _Solving:
    """One transition, worked out."""

    def __init__(
        self,
        before: Plan,
        after: Plan,
        changes: Mapping[str, Changes],
        namings: Mapping[str, Naming],
        costs: MoveCosts,
        distances: Distances,
        serving: int,
    ) -> None:
        self._before = before
        self._after = after
        self._changes = changes
        self._namings = namings
        self._costs = costs
        self._distances = distances
        self._serving = serving
        self._sizes = Sizes(before.inventory, after.inventory)
        rests_before, rests_after = resting(before), resting(after)
        self._components: dict[str, Component] = {}
        for name, change in changes.items():
            self._components[name] = Component(
                change.before,
                change.after,
                change,
                None if change.before is None else Amounts(change.before, rests=name in rests_before),
                None if change.after is None else Amounts(change.after, rests=name in rests_after),
            )

    def _attempt(self, avoided: Collection[Instance]) -> _Attempt:
        """Return what follows if these instances send nothing, with orders by upper bounds."""
        changes = {name: self._changes[name] for name in [*self._after, *self._before]}
        sending = Sending(changes, self._costs.syncs, self._distances, {*avoided, *self._silent()})
        deliveries = sending.deliveries()
        work = work_of(self._components, deliveries, self._sizes, self._serving, self._costs.aborting)
        groups = groups_of(work)
        orders: list[Ordered | None] = []
        blocked = []
        for index, members in enumerate(groups):
            order = self._by_upper_bounds(work, members)
            orders.append(order)
            if order is None and Group(work, members, self._sizes, strict=True).end_fits():
                blocked.append(index)
        return _Attempt(sending, deliveries, work, groups, orders, blocked)

    def _by_upper_bounds(self, work: Work, members: Sequence[Member]) -> Ordered | None:
        """Return the steps of a group in an order that upper bounds allow, ``None`` if no order was found.

        The search for an order that also fulfils the wishes takes long if there is none. So the search without wishes
        comes first: if it finds no order, the other search cannot find one.
        """
        if work.has_wishes(instance for _, instance in members):
            group = Group(work.without_wishes(), members, self._sizes, strict=True)
            if group.order() is None and not group.gave_up:
                return None
        group = Group(work, members, self._sizes, strict=True)
        actions = group.order()
        return None if actions is None else group.steps(actions)

    def _silent(self) -> Iterator[Instance]:
        """Yield the instances that sleep without a copy of their memory, and so cannot send."""
        for name, component in self._components.items():
            before, amounts = component.before, component.old_amounts
            if before is not None and amounts is not None and amounts.forgets:
                yield from (Instance(name, number) for number in range(len(before.instances)))

    def _with_other_senders(self, first: _Attempt) -> _Attempt:
        """Return an attempt in which more groups have an order, because other slots of the component send."""
        best = first
        blocked = [
            instance
            for index in first.blocked
            for side, instance in first.groups[index]
            if side == "before" and first.work.leaving[instance].receivers
        ]
        from_storage = _stored(first.deliveries)
        for size in (1, 2) if len(blocked) <= _MOST_AVOIDED else ():
            for avoided in combinations(blocked, size):
                other = self._attempt(avoided)
                if len(other.blocked) < len(best.blocked) and _stored(other.deliveries) == from_storage:
                    best = other
                    if not best.blocked:
                        return best
        return best

    def transition(self) -> Transition:
        """Return the transition. Raises `PlacementError` (``transition-stuck``)."""
        attempt = self._attempt(())
        if attempt.blocked:
            attempt = self._with_other_senders(attempt)
        steps: list[Step] = []
        holds: list[Hold] = []
        answer: Answer = "fits"
        optimal = all(naming.optimal for naming in self._namings.values())
        slept: set[Instance] = set()
        unknown: list[tuple[str, int]] = []
        for members, order in zip(attempt.groups, attempt.orders, strict=True):
            if order is None:
                compromise = self._compromise(attempt.work, members)
                order = compromise.order
                slept |= set(compromise.sleeping)
                optimal = optimal and compromise.is_optimal
                if not compromise.fits:
                    answer = "unknown"
                    unknown += _uncertain(order, self._sizes, self._before, self._after)
            steps += order.steps
            holds += order.holds
        deliveries = self._through_hosts(attempt.deliveries, slept)
        seconds, missing = step_seconds(steps, deliveries, self._components, self._costs)
        received = {(delivery.component, delivery.slot): delivery.bytes for delivery in deliveries}
        return Transition(
            before=self._before,
            after=self._after,
            names={name: tuple(naming.numbers) for name, naming in self._namings.items()},
            sizes={name: _sizes(component) for name, component in self._components.items()},
            stay={name: component.changes.stay for name, component in self._components.items()},
            slots=tuple(self._slots(received)),
            moves=Moves(deliveries, self._components),
            steps=_planned(steps, seconds),
            peaks=tuple(peaks_of(steps, holds)),
            seconds=longest_path(steps, seconds),
            missing=tuple(missing),
            answer=answer,
            optimal=optimal,
            rollback=tuple(attempt.sending.rollback),
            kept=self._kept(received),
            offload=sum(attempt.work.leaving[instance].held for instance in slept),
            serving=self._serving,
            unknown=tuple(unknown),
            parts=self._components,
            holds=tuple(holds),
            costs=self._costs,
        )

    def _compromise(self, work: Work, members: Sequence[Member]) -> _Compromise:
        """Return an order for a group that cannot keep all wishes and the upper bounds.

        These are given up in turn, until an order is found: first the wish that instances keep serving, then that all
        stay awake, then the upper bounds (the lower ones count instead), then both of these. Raises `PlacementError`
        (``transition-stuck``).
        """
        if work.has_wishes(instance for _, instance in members):
            work = work.without_wishes()
            group = Group(work, members, self._sizes, strict=True)
            actions = group.order()
            if actions is not None:
                return _Compromise(group.steps(actions))
        awake = None
        for strict in (True, False):
            choices = [((), True), *sleeping_choices(work, members)]
            for sleeping, exact in choices[1:] if strict else choices:
                if not self._hosts_hold(work, sleeping):
                    continue
                group = Group(work, members, self._sizes, strict=strict, sleeping=sleeping)
                actions = group.order()
                if actions is not None:
                    return _Compromise(group.steps(actions), sleeping, exact, fits=strict)
                if not strict and not sleeping:
                    awake = group
        raise PlacementError([self._why_stuck(work, members, awake)])

    def _why_stuck(self, work: Work, members: Sequence[Member], awake: Group | None) -> Diagnostic:
        """Return the fault of a group without an order; ``awake`` is the group as searched while nobody sleeps."""
        components = {instance.component for _, instance in members}
        if awake is not None and awake.gave_up:
            return faults.no_order_found(sorted(components))
        if awake is not None and awake.block is not None:
            node, index = awake.block.accelerator
            where = f"accelerator {index} of {_node_name(self._before, self._after, node)}"
            return faults.stuck(where, int(awake.block.needed), int(awake.block.size), awake.block.holders)
        for name, least in sorted(work.serving.items()):
            if name in components:
                return faults.not_serving(name, least)
        waiting = [f"{instance.component}/{instance.number} {side}" for side, instance in members]
        return faults.waiting_for_each_other(waiting)

    def _hosts_hold(self, work: Work, sleeping: Collection[Instance]) -> bool:
        """Whether the hosts have memory for the instances that sleep; unknown memory counts as enough."""
        on_host = defaultdict[Node, float](float)
        for instance in sleeping:
            leaving = work.leaving[instance]
            amounts = self._components[instance.component].old_amounts
            for slot in leaving.slots:
                on_host[slot.place.node] += 0 if amounts is None else amounts.held(slot)
        return all(size <= (self._sizes.host(node) or float("inf")) for node, size in on_host.items())

    def _through_hosts(self, deliveries: list[Delivery], slept: Collection[Instance]) -> list[Delivery]:
        """Return the deliveries to the slots; senders that sleep send from the memory of their hosts."""
        resting = {name for name, part in self._components.items() if part.old_amounts and part.old_amounts.rests}
        if not resting and not slept:
            return deliveries
        changed = []
        for delivery in deliveries:
            levels = []
            for _, sender, level in delivery.transfers():
                sleeps = sender is not None and (sender.component in resting or self._instance_of(sender) in slept)
                levels.append(HOST if sleeps else level)
            changed.append(delivery._replace(levels=tuple(levels)))
        return changed

    def _instance_of(self, sender: Sender) -> Instance | None:
        """Return the instance of a slot of the plan before."""
        side = self._components[sender.component].before
        return None if side is None else Instance(sender.component, side.instances.of(sender.slot))

    def _slots(self, received: Mapping[tuple[str, int], Bytes]) -> Iterable[SlotMove]:
        """Yield the slots that change."""
        for name, component in self._components.items():
            for change in (*component.changes.looked_at.values(), *component.changes.gone):
                if change.kind != STAY:
                    yield self._slot(name, component, change, received)

    def _slot(
        self, name: str, component: Component, change: SlotChange, received: Mapping[tuple[str, int], Bytes]
    ) -> SlotMove:
        was = None if change.before is None else change.before.number
        if change.after is None or component.after is None or component.new_amounts is None:
            return SlotMove(name, None, change.kind, was, None, None, None)
        accelerator = accelerator_of(change.after.place)
        to = (
            self._after.inventory.node(change.after.place.node).name,
            None if accelerator is None else accelerator[1],
        )
        number = change.after.number
        if not component.after.keeper.known:
            return SlotMove(name, number, change.kind, was, to, None, None)
        size = round(received.get((name, number), 0))
        return SlotMove(name, number, change.kind, was, to, size, component.new_amounts.held(change.after))

    def _kept(self, received: Mapping[tuple[str, int], Bytes]) -> int | None:
        """Return the bytes of the plan after that are already on their devices."""
        kept = Fraction(0)
        for component in self._components.values():
            side = component.after
            if side is None:
                continue
            if not side.keeper.known:
                return None
            kept += sum(side.bytes(slot) * count for slot, count in side.alike())
        return round(kept - sum(received.values()))


def _uncertain(order: Ordered, sizes: Sizes, before: Plan, after: Plan) -> list[tuple[str, int]]:
    """Return the accelerators on which the upper bounds may not fit, by node and local index."""
    places = []
    for peak in peaks_of(order.steps, order.holds):
        size = sizes.of(peak.accelerator)
        if size is None or peak.most > size.usable:
            places.append((_node_name(before, after, peak.accelerator[0]), peak.accelerator[1]))
    return places


def _planned(steps: Iterable[Step], seconds: Mapping[str, Seconds]) -> tuple[PlannedStep, ...]:
    """Return the steps with their seconds."""
    return tuple(
        PlannedStep(
            step.id,
            step.do,
            step.instance.component,
            step.side,
            step.instance.number,
            step.slots,
            sorted(step.needs),
            seconds[step.id],
        )
        for step in steps
    )


def _sizes(component: Component) -> tuple[int, int]:
    """Return the number of slots before and after."""
    before = 0 if component.before is None else component.before.count
    after = 0 if component.after is None else component.after.count
    return before, after


def _stored(deliveries: Iterable[Delivery]) -> Bytes:
    """Return the bytes that come from storage."""
    parts = chain.from_iterable(delivery.parts for delivery in deliveries)
    return sum(part.bytes for part in parts if part.source is None)


def _lending(before: Plan, after: Plan, asleep: tuple[Sequence[str], Sequence[str]], costs: MoveCosts) -> Transition:
    """Return the steps with which instances of a plan fall asleep and wake."""
    if isinstance(asleep, str) or len(asleep) != 2:
        raise PlacementError([faults.bad_asleep(asleep)])
    if before != after:
        raise PlacementError([faults.other_places()])
    nodes = list(range(after.inventory.num_nodes))
    sides = {name: Side.of(component, nodes) for name, component in after.items()}
    sizes = Sizes(before.inventory, after.inventory)
    parts = {
        name: Component(side, side, _no_changes(side), Amounts(side, rests=False), Amounts(side, rests=False))
        for name, side in sides.items()
    }
    order, fits, offload = sleep_and_wake(parts, asleep, sizes, after.inventory)
    seconds, missing = step_seconds(order.steps, (), parts, costs)
    return Transition(
        before=before,
        after=after,
        names={},
        sizes={name: (side.count, side.count) for name, side in sides.items()},
        stay={name: side.count for name, side in sides.items()},
        slots=(),
        moves=(),
        steps=_planned(order.steps, seconds),
        peaks=tuple(peaks_of(order.steps, order.holds)),
        seconds=longest_path(order.steps, seconds),
        missing=tuple(missing),
        answer="fits" if fits else "unknown",
        optimal=True,
        rollback=(),
        kept=None,
        offload=offload,
        serving=0,
        unknown=() if fits else tuple(_uncertain(order, sizes, before, after)),
        parts=parts,
        holds=tuple(order.holds),
        costs=costs,
        asleep=(_names(asleep[0]), _names(asleep[1])),
    )


def _no_changes(side: Side) -> Changes:
    return changes_of(side, side, unchanged_slots(side, side))


def _names(instances: Sequence[str]) -> tuple[str, ...]:
    return (instances,) if isinstance(instances, str) else tuple(instances)
