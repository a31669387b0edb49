"""A simulation of the steps of a transition: whether the nine invariants hold in every order that its edges allow.

It works from the steps, the moves and the two plans alone, not from how the steps were found. A state is the set of
steps that are done. In each state all steps are running that could: memory counts from the start of a step that takes
it until the end of the step that gives it back. All states are visited if there are few, otherwise those of random
orders.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from rankplan.frozen import frozen
from rankplan.moving.cards import NOTHING, Accelerator, Amount, Amounts, Sizes, accelerator_of
from rankplan.moving.changes import KEEPING
from rankplan.moving.holdings import RESIDENT
from rankplan.moving.instances import Component, Instance
from rankplan.moving.senders import HOST
from rankplan.moving.sides import Kind, Place, Slot, has_one_owner
from rankplan.moving.transition import Transition

MOST_STATES = 4_096
"""States that are visited before random orders take over."""

_LEAVES = ("stop-routing", "drain", "abort", "sleep", "free")
_ARRIVES = ("load", "regroup", "sync", "cache", "verify", "route")
_STAYS = ("rename", "regroup", "sync", "cache", "verify", "route")
"""The steps of an instance, in their order; none must be there. Some of its slots may load while others are renamed."""

_ORDERS = 24
"""Random orders of a transition with more states."""

INVARIANTS = (
    "no accelerator and no host above its size",
    "a sender is there while it is read, awake or on its host",
    "no state is freed of which the plan after still needs a part",
    "an instance loads, runs and ends whole",
    "no two instances of a component run on one device, and a trainer has one world",
    "nothing is routed to an instance that is not verified, or drains",
    "a robot, a port and any configured device have one owner",
    "enough instances serve",
    "at the end all of the plan after is up, and nothing else",
)
"""What holds in every order, by number from 1."""


class Breach(NamedTuple):
    """An invariant that does not hold, by its number, and where."""

    invariant: int
    text: str

    def __str__(self) -> str:
        return f"({self.invariant}) {INVARIANTS[self.invariant - 1]}: {self.text}"


@frozen
class Verified:
    """The breaches, at most one of each kind and place, the states that were visited, and whether these are all."""

    breaches: tuple[Breach, ...]
    states: int
    every_order: bool


def verify(transition: Transition, *, seed: int = 0, states: int = MOST_STATES) -> Verified:
    """Return what breaks the invariants of a transition: in every order if they have few states, or in random ones."""
    return _Simulation(transition).run(random.Random(seed), states)


class _Read(NamedTuple):
    """An instance that reads another one, with the step that reads, and those that free it or let it sleep."""

    text: str
    sync: int
    frees: int | None
    sleeps: int | None
    from_host: bool


class _Old(NamedTuple):
    """A slot that runs until a step is done."""

    component: str
    place: Place
    drains: int


class _New(NamedTuple):
    """A slot that is loaded by a step and runs from the start of another one; ``owner``: who must be freed first."""

    component: str
    place: Place
    text: str
    loads: int | None
    verifies: int | None
    owner: int | None
    is_world: bool


class _Hold(NamedTuple):
    """Memory of an accelerator that a slot has from the start of one step, ``taken``, to the end of another, ``given``.

    ``None`` without the step: it has the memory from the beginning, or to the end.
    """

    place: Accelerator
    amount: Amount
    taken: int | None
    given: int | None


class _Simulation:
    def __init__(self, transition: Transition) -> None:
        self._transition = transition
        self._steps = list(transition.steps)
        self._index = {step.id: number for number, step in enumerate(self._steps)}
        self._needs = [sum(1 << self._index[need] for need in step.needs) for step in self._steps]
        self._of: dict[tuple[str, str, Instance], int] = {}
        for number, step in enumerate(self._steps):
            self._of[step.do, step.side, Instance(step.component, step.instance)] = number
        self._parts = transition.parts
        self._sizes = Sizes(transition.before.inventory, transition.after.inventory)
        self._breaches: dict[Breach, None] = {}
        holds = list(self._memory())
        changing = {hold.place for hold in holds if hold.taken is not None}
        self._holds = [hold for hold in holds if hold.place in changing]
        self._reads = list(dict.fromkeys(self._transfers()))
        self._old_runs, self._new_runs = list(self._old()), list(self._new())
        self._served = list(self._serving())
        self._sequences = list(self._precedences())

    def run(self, rng: random.Random, most: int) -> Verified:
        """Visit states, and return what was found."""
        self._check_whole()
        visited = {0}
        open_states = [0]
        full = (1 << len(self._steps)) - 1
        while open_states and len(visited) <= most:
            done = open_states.pop()
            ready = self._ready(done)
            self._check(done, ready)
            for number in ready:
                after = done | 1 << number
                if after not in visited:
                    visited.add(after)
                    open_states.append(after)
        every = len(visited) <= most
        if not every:
            for _ in range(_ORDERS):
                done = 0
                while ready := self._ready(done):
                    self._check(done, ready)
                    done |= 1 << rng.choice(ready)
                self._check(done, ready)
        if full not in visited and every:
            self._add(9, "some step can never start")
        self._check_end()
        return Verified(tuple(self._breaches), len(visited), every)

    def _add(self, invariant: int, text: str) -> None:
        self._breaches.setdefault(Breach(invariant, text))

    def _ready(self, done: int) -> list[int]:
        """Return the steps that could run when these are done."""
        return [number for number, needs in enumerate(self._needs) if not done >> number & 1 and needs & done == needs]

    def _step(self, do: str, instance: Instance, side: str) -> int | None:
        return self._of.get((do, side, instance))

    def _has(self, steps: int, number: int | None) -> bool:
        return number is not None and bool(steps >> number & 1)

    # ------------------------------------------------------------------------------------------------------- memory

    def _memory(self) -> Iterator[_Hold]:
        """Yield what slots have of accelerators.

        A slot that sleeps is asleep from the end of that step on, and awake from the start of the one that wakes it.
        """
        only_sleeps = self._only_sleeps()
        for name, component in self._parts.items():
            if only_sleeps:
                yield from self._asleep_and_awake(name, component)
            else:
                yield from self._old_slots(name, component)
                yield from self._new_slots(name, component)

    def _only_sleeps(self) -> bool:
        """Return whether slots only fall asleep or wake up, and none starts or ends."""
        kinds = {step.do for step in self._steps}
        return "wake" in kinds or kinds == {"sleep"}

    def _old_slots(self, name: str, component: Component) -> Iterator[_Hold]:
        """Yield what the slots of the plan before have that do not stay."""
        side, amounts = component.before, component.old_amounts
        if side is None or amounts is None:
            return
        for slot in side.slots:
            if slot.number not in side.dead and slot.number not in component.changes.kept_before:
                yield from self._old_slot(slot, amounts, Instance(name, side.instances.of(slot.number)))

    def _new_slots(self, name: str, component: Component) -> Iterator[_Hold]:
        """Yield what the slots of the plan after have, those that stay among them."""
        side, amounts = component.after, component.new_amounts
        if side is None or amounts is None:
            return
        for change in component.changes.of_after:
            if change.after is None:
                continue
            if change.kind in KEEPING:
                yield from self._always(change.after, amounts)
            else:
                yield from self._new_slot(change.after, amounts, Instance(name, side.instances.of(change.after.number)))

    def _asleep_and_awake(self, name: str, component: Component) -> Iterator[_Hold]:
        side, amounts = component.after, component.new_amounts
        if side is None or amounts is None:
            return
        at_first = {(hold.accelerator, hold.amount) for hold in self._transition.holds if hold.taken_by is None}
        for slot in side.slots:
            place = accelerator_of(slot.place)
            if place is None:
                continue
            size, instance = self._sizes.of(place), Instance(name, side.instances.of(slot.number))
            awake = amounts.loaded(slot, size).plus(amounts.cache(slot, size))
            asleep = amounts.asleep(slot, size)
            sleeps, wakes = self._step("sleep", instance, "before"), self._step("wake", instance, "after")
            if sleeps is not None:
                yield _Hold(place, awake, None, sleeps)
                yield _Hold(place, asleep, sleeps, None)
            elif wakes is not None:
                yield _Hold(place, asleep, None, wakes)
                yield _Hold(place, awake, wakes, None)
            else:
                yield _Hold(place, awake if (place, awake) in at_first else asleep, None, None)

    def _always(self, slot: Slot, amounts: Amounts) -> Iterator[_Hold]:
        place = accelerator_of(slot.place)
        if place is not None:
            yield _Hold(place, amounts.resting(slot, self._sizes.of(place)), None, None)

    def _old_slot(self, slot: Slot, amounts: Amounts, instance: Instance) -> Iterator[_Hold]:
        place = accelerator_of(slot.place)
        if place is None:
            return
        size = self._sizes.of(place)
        sleeps, frees = self._step("sleep", instance, "before"), self._step("free", instance, "before")
        if sleeps is None:
            yield _Hold(place, amounts.resting(slot, size), None, frees)
        else:
            yield _Hold(place, amounts.resting(slot, size), None, sleeps)
            yield _Hold(place, amounts.asleep(slot, size), sleeps, frees)

    def _new_slot(self, slot: Slot, amounts: Amounts, instance: Instance) -> Iterator[_Hold]:
        place = accelerator_of(slot.place)
        if place is None:
            return
        size = self._sizes.of(place)
        loads, caches = self._step("load", instance, "after"), self._step("cache", instance, "after")
        sleeps = self._step("sleep", instance, "after")
        if loads is None:
            self._add(9, f"{instance.component}/{instance.number} loads nothing")
            return
        yield _Hold(place, amounts.loaded(slot, size), loads, sleeps)
        if sleeps is not None:
            yield _Hold(place, amounts.asleep(slot, size), sleeps, None)
        elif amounts.cache(slot, size) != NOTHING:
            yield _Hold(place, amounts.cache(slot, size), loads if caches is None else caches, None)

    def _check_memory(self, done: int, started: int) -> None:
        """Check that what is on each accelerator fits: by upper bounds if the answer says so, else by lower ones."""
        present: dict[Accelerator, list[Amount]] = defaultdict(list)
        new: set[Accelerator] = set()
        for hold in self._holds:
            if self._is_held(hold, done, started):
                present[hold.place].append(hold.amount)
                if hold.taken is not None:
                    new.add(hold.place)
        for place in new:  # what runs already fits, whatever its bounds are
            if len(present[place]) > 1:
                self._check_sum(place, present[place])

    def _is_held(self, hold: _Hold, done: int, started: int) -> bool:
        """Return whether memory is taken when these steps are done, and these have started."""
        if hold.given is not None and done >> hold.given & 1:
            return False
        if hold.taken is None:
            return True
        # What falls asleep is awake until the end of its step.
        begun = done if self._steps[hold.taken].do == "sleep" else started
        return bool(begun >> hold.taken & 1)

    def _check_sum(self, place: Accelerator, amounts: Sequence[Amount]) -> None:
        size = self._sizes.of(place)
        low = sum(amount.low for amount in amounts)
        high = sum(amount.high for amount in amounts)
        node, index = place
        where = f"accelerator {index} of {self._transition.node_name(node)}"
        if size is not None and low > size.most:
            self._add(1, where)
        if self._transition.answer == "fits" and (size is None or high > size.usable):
            self._add(1, f"{where} may be exceeded")

    # ------------------------------------------------------------------------------------------------------ senders

    def _transfers(self) -> Iterator[_Read]:
        """Yield who reads whom, once for each pair of instances and level."""
        for move in self._transition.moves:
            after, sender = self._parts[move.component].after, move.sender
            if sender is None or after is None:
                continue
            part = self._parts[sender.component]
            if part.before is None:
                continue
            receiver = Instance(move.component, after.instances.of(move.slot))
            instance = Instance(sender.component, part.before.instances.of(sender.slot))
            text = f"{sender.component}/{instance.number} sends to {receiver.component}/{receiver.number}"
            if sender.slot in part.before.dead:
                self._add(2, f"{text}, but is lost")
            sync = self._step("sync", receiver, "after")
            if sync is None:
                self._add(2, f"{text}, which has no sync")
                continue
            goes = sender.slot not in part.changes.kept_before
            frees = self._step("free", instance, "before") if goes else None
            yield _Read(text, sync, frees, self._step("sleep", instance, "before"), move.level == HOST)

    def _check_senders(self, done: int, started: int) -> None:
        for read in self._reads:
            if self._has(done, read.sync):
                continue
            if self._has(started, read.frees):
                self._add(3, f"{read.text} after it is freed")
            if not self._has(started, read.sync):
                continue
            asleep = self._has(done, read.sleeps)
            if self._has(started, read.sleeps) and not asleep:
                self._add(2, f"{read.text} while it falls asleep")
            if read.sleeps is not None and asleep != read.from_host:
                self._add(2, f"{read.text} from where it does not have them")

    # ---------------------------------------------------------------------------------------------------- instances

    def _check_whole(self) -> None:
        """Check that the steps of an instance cover all of its slots that need them."""
        for name, component in self._parts.items():
            before, after = component.before, component.after
            if before is not None:
                for number, slots in enumerate(before.instances):
                    going = {at for at in slots if at not in component.changes.kept_before | before.dead}
                    self._check_slots("free", Instance(name, number), "before", going)
            if after is not None:
                for number, slots in enumerate(after.instances):
                    kinds = component.changes.of_after
                    loading = {at for at in slots if kinds[at].kind not in KEEPING}
                    self._check_slots("load", Instance(name, number), "after", loading)

    def _check_slots(self, do: str, instance: Instance, side: str, slots: Collection[int]) -> None:
        number = self._step(do, instance, side)
        covered = set() if number is None else set(self._steps[number].slots)
        if covered != set(slots):
            self._add(4, f"{do} of {instance.component}/{instance.number} has not all of its slots")

    def _old(self) -> Iterator[_Old]:
        """Yield the slots that run before, until their instance has drained."""
        for name, component in self._parts.items():
            before = component.before
            for slot in [] if before is None or component.after is None else before.slots:
                if before is None or slot.number in before.dead | component.changes.kept_before:
                    continue
                instance = Instance(name, before.instances.of(slot.number))
                ends = [self._step(do, instance, "before") for do in ("drain", "abort")]
                drains = next((number for number in ends if number is not None), None)
                if drains is not None and self._step("free", instance, "before") is not None:
                    yield _Old(name, slot.place, drains)

    def _new(self) -> Iterator[_New]:
        """Yield the slots that run after, from the start of their check on, and who has to give them their device."""
        for name, component in self._parts.items():
            before, after = component.before, component.after
            for change in component.changes.of_after:
                slot, old = change.after, change.before
                if before is None or after is None or slot is None or change.kind in KEEPING:
                    continue
                instance, owner = Instance(name, after.instances.of(slot.number)), None
                if old is not None and old.place == slot.place and has_one_owner(slot):
                    owner = self._step("free", Instance(name, before.instances.of(old.number)), "before")
                yield _New(
                    name,
                    slot.place,
                    f"{name}/{instance.number}",
                    self._step("load", instance, "after"),
                    self._step("verify", instance, "after"),
                    owner,
                    after.kind is Kind.TRAINER,
                )

    def _check_running(self, done: int, started: int) -> None:
        """Check that nothing of a component runs twice on a device, that each device has one owner, and one world."""
        running = {(old.component, old.place) for old in self._old_runs if not self._has(done, old.drains)}
        worlds = {name for name, _ in running}
        for new in self._new_runs:
            if self._has(started, new.verifies):
                is_second_world = new.is_world and new.component in worlds
                if is_second_world or (new.component, new.place) in running:
                    self._add(5, new.text)
            if new.owner is not None and self._has(started, new.loads) and not self._has(done, new.owner):
                self._add(7, new.text)

    def _precedences(self) -> Iterator[tuple[int, int, int, str]]:
        """Yield each step with one that must be done before it, and the invariant that this is."""
        for step in self._steps:
            instance = Instance(step.component, step.instance)
            for sequence, side in ((_LEAVES, "before"), (_ARRIVES, "after"), (_STAYS, "after")):
                if step.side != side or step.do not in sequence:
                    continue
                for do in sequence[: sequence.index(step.do)]:
                    earlier = self._step(do, instance, side)
                    if earlier is not None:
                        invariant = 6 if step.do in ("route", "drain", "abort") else 4
                        yield self._index[step.id], earlier, invariant, f"{step.id} before {do}"
            if step.do == "route" and self._step("verify", instance, "after") is None:
                self._add(6, f"{step.id} without verify")

    def _check_sequences(self, done: int, started: int) -> None:
        """Check that the steps of an instance follow each other: it is whole before it goes on."""
        for number, earlier, invariant, text in self._sequences:
            if started >> number & 1 and not done >> earlier & 1:
                self._add(invariant, text)

    def _serving(self) -> Iterator[tuple[str, int, list[int | None], list[int]]]:
        """Yield each component with the least instances that serve, when old ones stop, and when new ones route."""
        for name, component in self._parts.items():
            before, after = component.before, component.after
            if before is None or after is None or before.kind is Kind.TRAINER:
                continue
            alive = [number for number, slots in enumerate(before.instances) if before.dead.isdisjoint(slots)]
            stops = [self._step("stop-routing", Instance(name, number), "before") for number in alive]
            least = min(self._transition.serving, len(alive), len(after.instances))
            if None in stops or self._transition.serving > 1:
                routes = [
                    self._step("route", Instance(name, number), "after") for number in range(len(after.instances))
                ]
                yield name, least, stops, [route for route in routes if route is not None]

    def _check_serving(self, done: int, started: int) -> None:
        for name, least, stops, routes in self._served:
            routing = sum(1 for stop in stops if stop is None or not started >> stop & 1)
            routing += sum(1 for route in routes if done >> route & 1)
            if routing < least:
                self._add(8, f"{routing} of {name}")

    def _check(self, done: int, ready: Collection[int]) -> None:
        """Check a state, with all steps running that are ready."""
        started = done
        for number in ready:
            started |= 1 << number
        self._check_memory(done, started)
        self._check_senders(done, started)
        self._check_running(done, started)
        self._check_sequences(done, started)
        self._check_serving(done, started)

    # ---------------------------------------------------------------------------------------------------------- end

    def _check_end(self) -> None:
        """Check that each slot of the plan after has all that it holds, exactly once."""
        got: dict[tuple[str, int], float] = defaultdict(float)
        for move in self._transition.moves:
            got[move.component, move.slot] += float(move.part or 0) if move.bytes is None else move.bytes
        for name, component in self._parts.items():
            after = component.after
            if after is None or (name in self._transition.rollback):
                continue
            for change in component.changes.of_after:
                if change.after is not None:
                    self._check_bytes(name, component, change.after, got.get((name, change.after.number), 0.0))

    def _check_bytes(self, name: str, component: Component, slot: Slot, got: float) -> None:
        """Check the bytes of a slot against a count of its own: of each piece, what it holds and did not have."""
        before, after, change = component.before, component.after, component.changes.of_after[slot.number]
        if after is None:
            return
        held = {}
        if before is not None and change.before is not None and change.kind in ("reshape", *KEEPING):
            held = before.holding(change.before)
        needed = 0.0
        for piece, box in after.holding(slot).items():
            whole = float(after.keeper.bytes(piece, box))
            common = held[piece] & box if piece in held else None
            needed += whole - (0.0 if common is None else float(after.keeper.bytes(piece, common)))
        slack = 1e-6 * needed + 64
        if after.keeper.known or any(piece.state == RESIDENT for piece in after.holding(slot)):
            if abs(needed - got) > slack:
                self._add(9, f"{name} slot {slot.number} gets {got:.0f} of {needed:.0f} bytes")
        elif abs(needed - got) > 1e-9:
            self._add(9, f"{name} slot {slot.number} gets {got:g} of {needed:g} parts")
