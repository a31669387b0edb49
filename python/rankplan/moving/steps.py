"""The steps of a group of instances in a safe order, what each waits for, and what they hold of accelerators.

Each step that takes memory of an accelerator waits for as many of the steps that gave some back earlier in the order as
are needed for all to fit that may be there together: those that came earlier and are not known to be gone. Of any set
of holders that are there together, the one that comes last in the order has counted all of the others, so no order of
the graph exceeds the accelerator.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from rankplan.moving.cards import NOTHING, Accelerator, Amount, Sizes, total_of
from rankplan.moving.instances import Instance, Leaving, Work

Action: TypeAlias = tuple[str, Instance]
"""What an instance does: one that leaves ``stop``, ``sleep`` or ``free``, one that arrives ``load`` or ``finish``."""


@dataclass(slots=True)
class Step:
    """A step of an instance: what it does, with which slots, and the steps that it waits for, by their ids."""

    id: str
    do: str
    instance: Instance
    side: str
    slots: list[int]
    needs: set[str] = field(default_factory=set)


class Hold(NamedTuple):
    """What is on an accelerator from the start of a step (``None``: from the beginning) to the end of another."""

    accelerator: Accelerator
    amount: Amount
    taken_by: str | None
    given_by: str | None


@dataclass(slots=True)
class Ordered:
    """The steps of a group, in an order that is safe, and what they hold of each accelerator."""

    steps: list[Step]
    holds: list[Hold]


class StepMaker:
    """Makes the steps of actions, one after the other; ``ordered`` has those made so far."""

    def __init__(self, work: Work, sleeping: Collection[Instance]) -> None:
        self._work, self._sleeping = work, sleeping
        self._ids: dict[str, Step] = {}
        self._stopped: list[Instance] = []
        self._routing: list[Instance] = []
        self.ordered = Ordered([], [])

    def start(self, accelerators: Iterable[Accelerator], leaving: Iterable[Leaving]) -> None:
        """Hold what is on these accelerators at first: what stays, and what these instances have."""
        holds = self.ordered.holds
        for accelerator in accelerators:
            holds += [Hold(accelerator, amount, None, None) for amount in self._work.fixed.get(accelerator, ())]
        for instance in leaving:
            freed = _id("free", instance.instance)
            if instance.instance not in self._sleeping:
                holds += [Hold(at, amount, None, freed) for at, amount in instance.takes.items()]
                continue
            slept = _id("sleep", instance.instance)
            holds += [Hold(at, amount, None, slept) for at, amount in instance.takes.items()]
            holds += [Hold(at, amount, slept, freed) for at, amount in instance.asleep.items()]

    def add(self, action: Action) -> None:
        """Add the steps of an action."""
        do, instance = action
        make = {
            "stop": self._stop,
            "sleep": self._sleep,
            "free": self._free,
            "load": self._load,
            "finish": self._finish,
        }
        make[do](instance)

    def _add(self, do: str, instance: Instance, side: str, slots: list[int], needs: Iterable[str]) -> str:
        """Add a step, and return its id."""
        step = Step(_id(do, instance), do, instance, side, slots, set(needs))
        if do == "sleep" and side == "after":
            step.id = _asleep_after(instance)
        self.ordered.steps.append(step)
        self._ids[step.id] = step
        return step.id

    # ------------------------------------------------------------------------------------------------------ leaving

    def _stop(self, instance: Instance) -> None:
        leaving = self._work.leaving[instance]
        if leaving.is_lost:
            return
        needs = set[str]()
        if leaving.serves:
            needs.add(self._add("stop-routing", instance, "before", leaving.numbers, self._needed_to_serve(instance)))
            self._stopped.append(instance)
        self._add(leaving.ends, instance, "before", leaving.numbers, needs)

    def _sleep(self, instance: Instance) -> None:
        leaving = self._work.leaving[instance]
        self._add("sleep", instance, "before", leaving.numbers, {_id(leaving.ends, instance)})

    def _free(self, instance: Instance) -> None:
        leaving = self._work.leaving[instance]
        needs = {_id("sync", receiver) for receiver in leaving.receivers}
        if instance in self._sleeping:
            needs.add(_id("sleep", instance))
        elif not leaving.is_lost:
            needs.add(_id(leaving.ends, instance))
        self._add("free", instance, "before", leaving.numbers, needs)

    def _needed_to_serve(self, instance: Instance) -> set[str]:
        """Return the steps after which an instance may stop routing: those of enough others that route by then."""
        name = instance.component
        least = self._work.serving.get(name)
        if least is None:
            return set()
        stopped = [other for other in self._stopped if other.component == name]
        old = sum(1 for other, leaving in self._work.leaving.items() if other.component == name and not leaving.is_lost)
        left = self._work.routing.get(name, 0) + old - len(stopped) - 1
        started = [other for other in self._routing if other.component == name]
        needs = {_id("route", other) for other in started[: max(0, least - left)]}
        # Each stop counts those before it: they must not come later.
        return needs | {_id("stop-routing", other) for other in stopped[-1:]}

    # ----------------------------------------------------------------------------------------------------- arriving

    def _load(self, instance: Instance) -> None:
        """Add the steps from loading to the sync of weights."""
        arriving = self._work.arriving[instance]
        numbers = [slot.number for slot in arriving.slots]
        renamed = [slot.number for slot in arriving.renamed]
        last = set[str]()
        if arriving.slots:
            load = self._add("load", instance, "after", numbers, {_id("free", other) for other in arriving.waits_for})
            last.add(load)
            given = _asleep_after(instance) if arriving.rests else None
            self.ordered.holds += [Hold(at, amount, load, given) for at, amount in arriving.loads.items()]
        if arriving.renamed:
            last.add(self._add("rename", instance, "after", renamed, ()))
        if arriving.regroups or arriving.receives:
            last = {self._add("regroup", instance, "after", sorted({*numbers, *renamed}), last)}
        if arriving.receives:
            asleep = {_id("sleep", sender) for sender in arriving.senders if sender in self._sleeping}
            self._add("sync", instance, "after", numbers, last | asleep)

    def _finish(self, instance: Instance) -> None:
        """Add the steps from the cache to the routing, or to the sleep of a component that rests."""
        arriving = self._work.arriving[instance]
        if not arriving.slots and not arriving.regroups:
            return
        numbers = [slot.number for slot in arriving.slots]
        serves = bool(arriving.slots) and arriving.serves
        earlier = (_id(do, instance) for do in ("sync", "regroup", "load", "rename"))
        last = next(step for step in earlier if step in self._ids)
        caches = only_something(arriving.caches)
        if serves and caches and not arriving.rests:
            last = self._add("cache", instance, "after", numbers, {last})
            self.ordered.holds += [Hold(at, amount, last, None) for at, amount in caches.items()]
        ended = {_id(self._work.leaving[old].ends, old) for old in arriving.replaces}
        last = self._add("verify", instance, "after", numbers, {last, *ended})
        if arriving.rests and arriving.slots:
            last = self._add("sleep", instance, "after", numbers, {last})
            self.ordered.holds += [Hold(at, amount, last, None) for at, amount in arriving.asleep.items()]
        if serves:
            self._add("route", instance, "after", numbers, {last})
            self._routing.append(instance)


def only_something(amounts: Mapping[Accelerator, Amount]) -> dict[Accelerator, Amount]:
    """Return the amounts that are something."""
    return {at: amount for at, amount in amounts.items() if amount != NOTHING}


def _id(do: str, instance: Instance) -> str:
    return f"{do} {instance.component}/{instance.number}"


def _asleep_after(instance: Instance) -> str:
    """Return the id of the step with which an instance that has arrived falls asleep; a leaving one may sleep, too."""
    return f"{_id('sleep', instance)} after"


def add_room(ordered: Ordered, sizes: Sizes, *, strict: bool) -> None:
    """Let steps that take memory wait for steps that give it back, as far as that is needed; see above."""
    position = {step.id: index for index, step in enumerate(ordered.steps)}
    by_taking: dict[str, list[Hold]] = defaultdict(list)
    on: dict[Accelerator, list[Hold]] = defaultdict(list)
    for hold in ordered.holds:
        on[hold.accelerator].append(hold)
        if hold.taken_by is not None:
            by_taking[hold.taken_by].append(hold)
    ancestors: list[int] = []
    for step in ordered.steps:
        for hold in by_taking.get(step.id, ()):
            size = sizes.of(hold.accelerator)
            limit = None
            if size is not None:
                limit = size.usable if strict else size.most
            others = [other for other in on[hold.accelerator] if other is not hold]
            _wait_for_room(step, hold.amount, others, position, ancestors, limit=limit, strict=strict)
        ancestors.append(_ancestors(step, position, ancestors))


def _wait_for_room(
    step: Step,
    amount: Amount,
    others: Sequence[Hold],
    position: Mapping[str, int],
    ancestors: Sequence[int],
    *,
    limit: float | None,
    strict: bool,
) -> None:
    """Let a step that takes an amount wait for the earliest steps that give back others, until it has room.

    Without a ``limit``, the size of the accelerator is unknown: if ``strict``, the step waits for all of them.
    """

    def present() -> list[Hold]:
        before = _ancestors(step, position, ancestors)
        return [other for other in others if _may_meet(other, step, position, before)]

    def has_room(left: Sequence[Hold]) -> bool:
        if not left:
            return True
        if limit is None:
            return not strict
        total = total_of([amount, *(other.amount for other in left)])
        return (total.high if strict else total.low) <= limit

    left = present()
    for other in sorted(left, key=lambda hold: position[hold.given_by] if hold.given_by else len(position)):
        if has_room(left):
            return
        if other in left and other.given_by is not None and position[other.given_by] < position[step.id]:
            step.needs.add(other.given_by)
            left = present()


def _ancestors(step: Step, position: Mapping[str, int], ancestors: Sequence[int]) -> int:
    """Return the steps that come before a step in every order, as bits by their positions."""
    earlier = 0
    for need in step.needs:
        index = position[need]
        earlier |= ancestors[index] | 1 << index
    return earlier


def _may_meet(other: Hold, step: Step, position: Mapping[str, int], before: int) -> bool:
    """Whether another hold, taken earlier in the order, may still be there when a step takes its own."""
    if other.taken_by is not None and position[other.taken_by] > position[step.id]:
        return False
    if other.given_by is None:
        return True
    return not before >> position[other.given_by] & 1
