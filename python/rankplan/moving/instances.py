"""The instances that leave and those that arrive, what each waits for, and what each takes of its accelerators."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from rankplan.moving.cards import Accelerator, Amount, Amounts, Size, Sizes, accelerator_of
from rankplan.moving.changes import KEEPING, RENAME, STAY, Changes
from rankplan.moving.senders import Delivery
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
    can_sleep: bool
    held: int
    is_lost: bool = False
    ends: str = DRAIN
    receivers: set[Instance] = field(default_factory=set)
    takes: dict[Accelerator, Amount] = field(default_factory=dict)
    asleep: dict[Accelerator, Amount] = field(default_factory=dict)

    @property
    def numbers(self) -> list[int]:
        """The numbers of the slots that are freed."""
        return [slot.number for slot in self.slots]


@dataclass(slots=True)
class Arriving:
    """An instance of the plan after that loads something, or has new names.

    ``slots`` are those that load, ``renamed`` those with a new name. ``senders`` are the leaving instances that it
    reads, ``waits_for`` those that must give it hardware that can have one owner only. ``replaces`` are instances on
    its devices, which must have stopped before it runs. ``loads`` and ``caches`` are what it takes, ``asleep`` what is
    left when it sleeps.
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

    def has_wishes(self, instances: Iterable[Instance]) -> bool:
        """Whether one of these instances should route, but need not."""
        return any(name in self.serving and name not in self.required for name, _ in instances)

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
    deliveries: Iterable[Delivery],
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
    _connect(work, components, deliveries)
    for leaving in work.leaving.values():
        if leaving.serves and leaving.instance.component in aborting:
            leaving.ends = ABORT
    return work


def _add_component(work: Work, name: str, component: Component, sizes: Sizes) -> None:
    """Add the instances of a component of which something changes."""
    before, after, changes = component.before, component.after, component.changes
    owners: dict[Place, int] = {}
    if before is not None and component.old_amounts is not None:
        going: dict[int, list[Slot]] = defaultdict(list)
        for slot in before.slots_but(changes.unchanged):
            owners[slot.place] = before.instances.of(slot.number)
            if slot.number not in changes.kept and slot.number not in before.dead:
                going[owners[slot.place]].append(slot)
        lost = {before.instances.of(number) for number in before.dead}
        for number, slots in sorted(going.items()):
            leaving = _leaving(Instance(name, number), slots, before, component.old_amounts, sizes)
            leaving.is_lost = number in lost
            work.leaving[leaving.instance] = leaving
    if after is None or component.new_amounts is None:
        return
    for arriving in _arriving(name, after, changes, rests=component.new_amounts.rests):
        _add_loads(arriving, component.new_amounts, sizes)
        _wait_for_old_owners(work, arriving, owners)
        work.arriving[arriving.instance] = arriving


def _leaving(instance: Instance, going: list[Slot], before: Side, amounts: Amounts, sizes: Sizes) -> Leaving:
    """Return an instance of the plan before of which these slots end."""
    leaving = Leaving(
        instance,
        going,
        serves=before.kind is not Kind.TRAINER,
        can_sleep=amounts.sleeps and not amounts.rests,
        held=sum(amounts.held(slot) for slot in going),
    )
    for slot in going:
        size = _size(sizes, slot)
        _take(leaving.takes, slot, amounts.resting(slot, size))
        _take(leaving.asleep, slot, amounts.asleep(slot, size))
    return leaving


def _add_fixed(
    work: Work, after: Side, changes: Changes, amounts: Amounts, sizes: Sizes, changing: Collection[Accelerator]
) -> None:
    """Add what the slots that keep all that they hold have of the accelerators on which something changes."""
    for node in sorted({node for node, _ in changing}):
        for slot in after.slots_on(node):
            accelerator = accelerator_of(slot.place)
            if accelerator in changing and accelerator is not None and changes.kind_of(slot.number) in KEEPING:
                work.fixed[accelerator].append(amounts.resting(slot, sizes.of(accelerator)))


def _arriving(name: str, after: Side, changes: Changes, *, rests: bool) -> Iterator[Arriving]:
    """Yield the instances of the plan after that load something, are renamed, or form a new world."""
    is_trainer = after.kind is Kind.TRAINER
    is_world = is_trainer and (changes.stay < after.count or bool(changes.gone))
    loading: dict[int, list[Slot]] = defaultdict(list)
    renamed: dict[int, list[Slot]] = defaultdict(list)
    for number, change in changes.looked_at.items():
        if change.after is not None and change.kind != STAY:
            slots = renamed if change.kind == RENAME else loading
            slots[after.instances.of(number)].append(change.after)
    for number in sorted({*loading, *renamed, *([0] if is_world else [])}):
        regroups = is_world or (number in renamed and after.instances.size(number) > 1)
        yield Arriving(
            Instance(name, number),
            after.kind,
            loading.get(number, []),
            renamed.get(number, []),
            serves=not is_trainer,
            regroups=regroups,
            rests=rests,
        )


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
    lost = {before.instances.of(number) for number in before.dead}
    alive = len(before.instances) - len(lost)
    leaving = (instance for instance in work.leaving if instance.component == name and instance.number not in lost)
    staying = alive - sum(1 for _ in leaving)
    work.routing[name] = staying
    least = min(serving, alive, len(after.instances))
    is_required = bool(staying) or serving > 1
    if least > staying and (is_required or alive + len(after.instances) <= _MOST_WATCHED):
        work.serving[name] = least
        if is_required:
            work.required.add(name)


def _connect(work: Work, components: Mapping[str, Component], deliveries: Iterable[Delivery]) -> None:
    """Note which instances that arrive read slots, and which of those that leave they read."""
    receivers = {
        (name, slot.number): arriving for (name, _), arriving in work.arriving.items() for slot in arriving.slots
    }
    ending = {(name, slot.number) for (name, _), leaving in work.leaving.items() for slot in leaving.slots}
    leaving_components = {instance.component for instance in work.leaving}
    for delivery in deliveries:
        receiver = receivers.get((delivery.component, delivery.slot))
        if receiver is None:
            continue
        receiver.receives |= any(part.source is not None for part in delivery.parts)
        for part, number in zip(delivery.parts, delivery.senders, strict=True):
            sending = components[part.source].before if part.source in leaving_components else None
            if part.source is None or number is None or sending is None:
                continue
            leaving = work.leaving.get(Instance(part.source, sending.instances.of(number)))
            if leaving is not None:
                receiver.senders.add(leaving.instance)
                if (part.source, number) in ending:
                    leaving.receivers.add(receiver.instance)
