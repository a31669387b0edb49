"""The instances that leave and those that arrive, what each waits for, and what each takes of its accelerators."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from rankplan.moving.cards import Accelerator, Amount, Amounts, Size, Sizes, accelerator_of
from rankplan.moving.changes import KEEPING, RENAME, Changes
from rankplan.moving.senders import Transfer
from rankplan.moving.sides import Kind, Place, Side, Slot, has_one_owner

DRAIN, ABORT = "drain", "abort"

_MOST_WATCHED = 64
"""Instances of a component of which one is kept serving although nobody asks for it."""


class Instance(NamedTuple):
    """An instance of one of the plans, by its component and its number."""

    component: str
    number: int


@dataclass(slots=True)
class Leaving:
    """An instance of the plan before of which something ends.

    ``slots`` are those that are freed, ``receivers`` the instances that read them. ``is_lost``: one of its slots is on
    dead hardware. ``ends`` is the step with which it stops to work: ``drain``, or ``abort``. ``takes`` and ``asleep``
    are what the slots have of each accelerator, before and after they sleep.
    """

    instance: Instance
    slots: list[Slot]
    serves: bool
    is_lost: bool
    can_sleep: bool
    held: int
    ends: str = DRAIN
    receivers: set[Instance] = field(default_factory=set)
    takes: dict[Accelerator, Amount] = field(default_factory=dict)
    asleep: dict[Accelerator, Amount] = field(default_factory=dict)


@dataclass(slots=True)
class Arriving:
    """An instance of the plan after that loads something, or has new names.

    ``slots`` are those that load, ``renamed`` those with a new name. ``senders`` are the instances that it reads,
    ``waits_for`` those that must give it hardware that can have one owner only. ``replaces`` are instances on its
    devices, which must have stopped before it runs. ``loads`` and ``caches`` are what it takes, ``asleep`` what is left
    when it sleeps.
    """

    instance: Instance
    kind: Kind
    slots: list[Slot]
    renamed: list[Slot]
    serves: bool
    regroups: bool
    receives: bool = False
    rests: bool = False
    senders: set[Instance] = field(default_factory=set)
    waits_for: set[Instance] = field(default_factory=set)
    replaces: set[Instance] = field(default_factory=set)
    loads: dict[Accelerator, Amount] = field(default_factory=dict)
    caches: dict[Accelerator, Amount] = field(default_factory=dict)
    asleep: dict[Accelerator, Amount] = field(default_factory=dict)


@dataclass(slots=True)
class Work:
    """All that a transition changes.

    ``fixed`` is what slots that stay have of each accelerator on which something changes. ``serving`` are the least
    instances that route, by component, where that has to be watched; of those outside ``required``, one should route if
    that is possible. ``routing`` are those that route all the time.
    """

    leaving: dict[Instance, Leaving]
    arriving: dict[Instance, Arriving]
    fixed: dict[Accelerator, list[Amount]]
    serving: dict[str, int]
    routing: dict[str, int]
    required: set[str] = field(default_factory=set)

    def without_wishes(self) -> Work:
        """Return the work of which no instance must route that need not."""
        serving = {name: least for name, least in self.serving.items() if name in self.required}
        return replace(self, serving=serving)


class Component(NamedTuple):
    """A component in both plans, with what its slots take and the changes between the two."""

    before: Side | None
    after: Side | None
    changes: Changes
    old_amounts: Amounts | None
    new_amounts: Amounts | None


def work_of(
    components: Mapping[str, Component],
    transfers: Sequence[Transfer],
    sizes: Sizes,
    serving: int,
    aborting: Collection[str] = (),
) -> Work:
    """Return the instances that leave and arrive. Serving instances of ``aborting`` abort, all others drain."""
    work = Work({}, {}, defaultdict(list), {}, {})
    for name, component in components.items():
        _add_component(work, name, component, sizes)
        _count_serving(work, name, component, serving)
    changing = {accelerator for leaving in work.leaving.values() for accelerator in leaving.takes}
    changing |= {accelerator for arriving in work.arriving.values() for accelerator in arriving.loads}
    for component in components.values():
        if component.after is not None and component.new_amounts is not None:
            _add_fixed(work, component.after, component.changes, component.new_amounts, sizes, changing)
    for transfer in transfers:
        _connect(work, components, transfer)
    for leaving in work.leaving.values():
        if leaving.serves and leaving.instance.component in aborting:
            leaving.ends = ABORT
    return work


def _add_component(work: Work, name: str, component: Component, sizes: Sizes) -> None:
    """Add the instances of a component."""
    before, after = component.before, component.after
    if before is not None and component.old_amounts is not None:
        for number in range(len(before.instances)):
            _add_leaving(work, Instance(name, number), before, component.changes, component.old_amounts, sizes)
    if after is None or component.new_amounts is None:
        return
    owners = {} if before is None else {slot.place: before.instance_of[slot.number] for slot in before.slots}
    for number in range(len(after.instances)):
        arriving = _arriving(Instance(name, number), after, component.changes, rests=component.new_amounts.rests)
        if arriving is not None:
            _add_loads(arriving, component.new_amounts, sizes)
            _wait_for_old_owners(work, arriving, owners)
            work.arriving[arriving.instance] = arriving


def _add_leaving(
    work: Work, instance: Instance, before: Side, changes: Changes, amounts: Amounts, sizes: Sizes
) -> None:
    """Add an instance of the plan before, if something of it ends."""
    slots = before.instances[instance.number]
    going = [before.slots[at] for at in slots if at not in changes.kept_before and at not in before.dead]
    if not going:
        return
    leaving = Leaving(
        instance,
        going,
        serves=before.kind is not Kind.TRAINER,
        is_lost=not before.dead.isdisjoint(slots),
        can_sleep=amounts.sleeps and not amounts.rests,
        held=sum(amounts.held(slot) for slot in going),
    )
    for slot in going:
        size = _size(sizes, slot)
        _take(leaving.takes, slot, amounts.resting(slot, size))
        _take(leaving.asleep, slot, amounts.asleep(slot, size))
    work.leaving[instance] = leaving


def _add_fixed(
    work: Work, after: Side, changes: Changes, amounts: Amounts, sizes: Sizes, changing: Collection[Accelerator]
) -> None:
    """Add what the slots that keep all that they hold have of the accelerators on which something changes."""
    for slot in after.slots:
        accelerator = accelerator_of(slot.place)
        if accelerator in changing and accelerator is not None and changes.of_after[slot.number].kind in KEEPING:
            work.fixed[accelerator].append(amounts.resting(slot, sizes.of(accelerator)))


def _arriving(instance: Instance, after: Side, changes: Changes, *, rests: bool) -> Arriving | None:
    """Return an instance of the plan after; ``None`` if it neither loads, nor is renamed, nor forms a new world."""
    slots = after.instances[instance.number]
    loading = [after.slots[at] for at in slots if changes.of_after[at].kind not in KEEPING]
    renamed = [after.slots[at] for at in slots if changes.of_after[at].kind == RENAME]
    is_trainer = after.kind is Kind.TRAINER
    is_world = is_trainer and (changes.stay < len(changes.of_after) or bool(changes.gone))
    if not (loading or renamed or is_world):
        return None
    regroups = is_world or (bool(renamed) and len(slots) > 1)
    return Arriving(instance, after.kind, loading, renamed, serves=not is_trainer, regroups=regroups, rests=rests)


def _add_loads(arriving: Arriving, amounts: Amounts, sizes: Sizes) -> None:
    """Add what the slots that load take of their accelerators."""
    for slot in arriving.slots:
        size = _size(sizes, slot)
        _take(arriving.loads, slot, amounts.loaded(slot, size))
        _take(arriving.caches, slot, amounts.cache(slot, size))
        _take(arriving.asleep, slot, amounts.asleep(slot, size))


def _wait_for_old_owners(work: Work, arriving: Arriving, owners: Mapping[Place, int]) -> None:
    """Note which leaving instances of the component must have stopped or be freed; ``owners`` has them by place."""
    component = arriving.instance.component
    replaced = {Instance(component, owners[slot.place]) for slot in arriving.slots if slot.place in owners}
    exclusive = {slot.place for slot in arriving.slots if has_one_owner(slot)} & owners.keys()
    arriving.waits_for |= {Instance(component, owners[place]) for place in exclusive} & work.leaving.keys()
    if arriving.kind is Kind.TRAINER:
        replaced.add(Instance(component, 0))
    for old in replaced & work.leaving.keys():
        if not work.leaving[old].is_lost:
            arriving.replaces.add(old)


def _size(sizes: Sizes, slot: Slot) -> Size | None:
    accelerator = accelerator_of(slot.place)
    return None if accelerator is None else sizes.of(accelerator)


def _take(amounts: dict[Accelerator, Amount], slot: Slot, amount: Amount) -> None:
    accelerator = accelerator_of(slot.place)
    if accelerator is not None:
        known = amounts.get(accelerator)
        amounts[accelerator] = amount if known is None else known.plus(amount)


def _count_serving(work: Work, name: str, component: Component, serving: int) -> None:
    """Note how many instances of a component must route, unless those that stay are enough."""
    before, after = component.before, component.after
    if before is None or after is None or before.kind is Kind.TRAINER:
        return
    alive = [number for number, slots in enumerate(before.instances) if before.dead.isdisjoint(slots)]
    staying = sum(1 for number in alive if Instance(name, number) not in work.leaving)
    work.routing[name] = staying
    least = min(serving, len(alive), len(after.instances))
    is_required = bool(staying) or serving > 1
    if least > staying and (is_required or len(alive) + len(after.instances) <= _MOST_WATCHED):
        work.serving[name] = least
        if is_required:
            work.required.add(name)


def _connect(work: Work, components: Mapping[str, Component], transfer: Transfer) -> None:
    """Note who reads whom for a transfer."""
    after = components[transfer.component].after
    if after is None or transfer.sender is None:
        return
    receiver = Instance(transfer.component, after.instance_of[transfer.slot])
    sending = components[transfer.sender.component].before
    if sending is None or receiver not in work.arriving:
        return
    sender = Instance(transfer.sender.component, sending.instance_of[transfer.sender.slot])
    work.arriving[receiver].receives = True
    work.arriving[receiver].senders.add(sender)
    leaving = work.leaving.get(sender)
    if leaving is not None and any(slot.number == transfer.sender.slot for slot in leaving.slots):
        leaving.receivers.add(receiver)
