"""A safe order of the steps, and what each step waits for, so that every order that this allows is safe.

Instances are divided into groups that share no accelerator, no transfer from an instance that leaves, and no component
whose serving instances have to be counted; each group is ordered alone.

In a group, what leaves stops and is freed as soon as that is allowed: that only makes room. What is searched is the
order in which instances load and in which they get their caches, by depth first, with the states that lead nowhere
remembered. This is exact for up to `_MOST_INSTANCES` instances; larger groups get a bounded number of tries.

The order then becomes edges. Each step that takes memory of an accelerator waits for as many of the steps that gave
some back earlier in the order as are needed for all to fit that may be there together: those that came earlier and are
not known to be gone. Of any set of holders that are there together, the one that comes last in the order has counted
all of the others, so no order of the graph exceeds the accelerator.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import NamedTuple, TypeAlias

from rankplan.moving.cards import NOTHING, Accelerator, Amount, Sizes
from rankplan.moving.instances import Arriving, Instance, Leaving, Work

_MOST_INSTANCES = 12
"""Instances of a group of which all orders are tried."""

_MOST_TRIES = 20_000
"""States that the search of a larger group visits."""


@dataclass(slots=True)
class Step:
    """A step of an instance: what it does, with which slots, and the steps that it waits for, by their ids."""

    id: str
    do: str
    instance: Instance
    side: str
    slots: list[int]
    needs: set[str] = field(default_factory=set)


Member: TypeAlias = tuple[str, Instance]
"""An instance that is ordered with others, and whether it leaves (``before``) or arrives (``after``)."""

Action: TypeAlias = tuple[str, Instance]
"""What an instance does: one that leaves ``stop``, ``sleep`` or ``free``, one that arrives ``load`` or ``finish``."""


class Hold(NamedTuple):
    """What is on an accelerator from the start of a step (``None``: from the beginning) to the end of another."""

    accelerator: Accelerator
    amount: Amount
    taken_by: str | None
    given_by: str | None


class Block(NamedTuple):
    """What makes a group impossible: an accelerator, the bytes needed there, those that it has, and who needs them."""

    accelerator: Accelerator
    needed: float
    size: float
    holders: list[str]


@dataclass(slots=True)
class Ordered:
    """The steps of a group, in an order that is safe, and what they hold of each accelerator."""

    steps: list[Step]
    holds: list[Hold]


def groups_of(work: Work) -> list[list[Member]]:
    """Return the instances that must be ordered together: leaving ones as ``("before", instance)``."""
    parent: dict[object, object] = {}

    def root(item: object) -> object:
        while parent.setdefault(item, item) != item:
            parent[item] = parent[parent[item]]
            item = parent[item]
        return item

    def join(one: object, other: object) -> None:
        parent[root(one)] = root(other)

    members: list[Member] = []
    for leaving in work.leaving.values():
        item = ("before", leaving.instance)
        members.append(item)
        root(item)
        for accelerator in leaving.takes:
            join(item, accelerator)
        for receiver in leaving.receivers:
            join(item, ("after", receiver))
        if leaving.instance.component in work.serving:
            join(item, leaving.instance.component)
    for arriving in work.arriving.values():
        item = ("after", arriving.instance)
        members.append(item)
        root(item)
        for accelerator in arriving.loads:
            join(item, accelerator)
        for old in arriving.replaces | arriving.waits_for:
            join(item, ("before", old))
        if arriving.instance.component in work.serving:
            join(item, arriving.instance.component)
    by_root: dict[object, list[Member]] = defaultdict(list)
    for item in members:
        by_root[root(item)].append(item)
    return list(by_root.values())


class Group:
    """Instances that are ordered together. ``strict``: upper bounds must fit; otherwise lower bounds."""

    def __init__(
        self,
        work: Work,
        members: Iterable[Member],
        sizes: Sizes,
        *,
        strict: bool,
        sleeping: Collection[Instance] = (),
    ) -> None:
        self._work, self._sizes, self._strict, self._sleeping = work, sizes, strict, frozenset(sleeping)
        members = list(members)
        self._leaving = [work.leaving[instance] for side, instance in members if side == "before"]
        self._arriving = [work.arriving[instance] for side, instance in members if side == "after"]
        self._present: dict[Accelerator, list[Amount]] = defaultdict(list)
        everyone: list[Leaving | Arriving] = [*self._leaving, *self._arriving]
        for accelerator in {at for one in everyone for at in _places(one)}:
            self._present[accelerator] += work.fixed.get(accelerator, ())
        for leaving in self._leaving:
            for accelerator, amount in leaving.takes.items():
                self._present[accelerator].append(amount)
        self.block: Block | None = None
        self._tries = 0

    @property
    def is_small(self) -> bool:
        """Whether all orders are tried."""
        return len(self._leaving) + len(self._arriving) <= _MOST_INSTANCES

    @property
    def gave_up(self) -> bool:
        """Whether the search ended before it had tried all orders."""
        return self._tries > _MOST_TRIES and not self.is_small

    def order(self) -> list[Action] | None:
        """Return the actions of a safe order, ``None`` if there is none."""
        if self._strict and not self.end_fits():
            return None
        state = _State(
            frozenset(),
            frozenset(),
            frozenset(),
            frozenset(),
            frozenset(),
            {at: list(here) for at, here in self._present.items()},
        )
        seen: set[tuple[frozenset[Instance], ...]] = set()
        # Depth first without recursion: a large group has thousands of actions.
        path: list[tuple[list[Action], _State, Iterator[Action]]] = []
        actions, state = self._eager(state)
        path.append((actions, state, self._choices(state)))
        while path:
            _, state, choices = path[-1]
            if self._is_done(state):
                return [action for done, _, _ in path for action in done]
            choice = next(choices, None)
            if choice is None:
                path.pop()
                continue
            self._tries += 1
            if self.gave_up:
                return None
            after = self._applied(state, choice)
            actions, after = self._eager(after)
            if after.key in seen:
                continue
            seen.add(after.key)
            path.append(([choice, *actions], after, self._choices(after)))
        return None

    def end_fits(self) -> bool:
        """Whether upper bounds allow what is on each accelerator at the end.

        Whatever comes last to an accelerator has all of that beside it, in every order: no search is needed to see
        that none is safe. Instances that sleep at the end do not count.
        """
        coming: dict[Accelerator, list[Amount]] = defaultdict(list)
        for arriving in self._arriving:
            if not arriving.rests:
                for amounts in (arriving.loads, arriving.caches):
                    for accelerator, amount in _only(amounts).items():
                        coming[accelerator].append(amount)
        for accelerator, new in coming.items():
            present = [*self._work.fixed.get(accelerator, ()), *new]
            size = self._sizes.of(accelerator)
            if len(present) > 1 and (size is None or _total(present).high > size.usable):
                return False
        return True

    def _is_done(self, state: _State) -> bool:
        return len(state.finished) == len(self._arriving) and len(state.freed) == len(self._leaving)

    def _eager(self, state: _State) -> tuple[list[Action], _State]:
        """Return the actions that only make room and that nothing forbids, and the state after them."""
        actions: list[Action] = []
        changed = True
        while changed:
            changed = False
            for leaving in self._leaving:
                instance = leaving.instance
                if instance not in state.stopped and (leaving.is_lost or instance.component not in self._work.serving):
                    action = "stop", instance
                elif (
                    instance in self._sleeping
                    and instance in state.stopped
                    and instance not in state.slept
                    and instance not in state.freed
                ):
                    action = "sleep", instance
                elif instance not in state.freed and self._can_free(leaving, state):
                    action = "free", instance
                else:
                    continue
                state = self._applied(state, action)
                actions.append(action)
                changed = True
        return actions, state

    def _can_free(self, leaving: Leaving, state: _State) -> bool:
        return leaving.instance in state.stopped and leaving.receivers <= state.loaded

    def _choices(self, state: _State) -> Iterator[Action]:
        """Yield the actions that may come next: what finishes, then what loads, then stops that must be counted."""
        for arriving in self._arriving:
            is_loaded = arriving.instance in state.loaded and arriving.instance not in state.finished
            caches = {} if arriving.rests else arriving.caches
            if is_loaded and arriving.replaces <= state.stopped and self._fits(arriving.instance, caches, state):
                yield "finish", arriving.instance
        for arriving in self._arriving:
            may_load = arriving.instance not in state.loaded and arriving.waits_for <= state.freed
            is_readable = arriving.senders & self._sleeping <= state.slept  # a sender does not fall asleep meanwhile
            if may_load and is_readable and self._fits(arriving.instance, arriving.loads, state):
                yield "load", arriving.instance
        for leaving in self._leaving:
            name = leaving.instance.component
            if leaving.instance not in state.stopped and self._routing(name, state) > self._work.serving.get(name, 0):
                yield "stop", leaving.instance

    def _routing(self, name: str, state: _State) -> int:
        """Return how many instances of a component route."""
        old = sum(
            1
            for leaving in self._leaving
            if leaving.instance.component == name and not leaving.is_lost and leaving.instance not in state.stopped
        )
        new = sum(
            1
            for arriving in self._arriving
            if arriving.instance.component == name and arriving.slots and arriving.instance in state.finished
        )
        return self._work.routing.get(name, 0) + old + new

    def _fits(self, instance: Instance, amounts: Mapping[Accelerator, Amount], state: _State) -> bool:
        """Whether what an instance takes fits beside what is present.

        If it does not, note the accelerator, unless another one lacked fewer bytes.
        """
        for accelerator, amount in amounts.items():
            present = state.present.get(accelerator, [])
            if not present or amount == NOTHING:
                continue
            size = self._sizes.of(accelerator)
            total = _total([*present, amount])
            if self._strict:
                if size is None or total.high > size.usable:
                    return False
            elif size is not None and total.low > size.most:
                if self.block is None or total.low - size.most < self.block.needed - self.block.size:
                    holders = self._holders(accelerator, instance, state)
                    self.block = Block(accelerator, total.low, size.most, holders)
                return False
        return True

    def _holders(self, accelerator: Accelerator, coming: Instance, state: _State) -> list[str]:
        """Return in words what is on an accelerator when an instance comes."""
        texts = []
        for leaving in self._leaving:
            if accelerator in leaving.takes and leaving.instance not in state.freed:
                texts.append(f"{leaving.instance.component}/{leaving.instance.number} before")
        for arriving in self._arriving:
            if accelerator in arriving.loads and arriving.instance in state.loaded | {coming}:
                texts.append(f"{arriving.instance.component}/{arriving.instance.number} after")
        if self._work.fixed.get(accelerator):
            texts.append("what stays")
        return texts

    def _applied(self, state: _State, action: Action) -> _State:
        """Return the state after an action."""
        do, instance = action
        if do == "stop":
            return state.with_changes(stopped=state.stopped | {instance})
        if do == "sleep":
            leaving = self._work.leaving[instance]
            present = _exchanged(state.present, leaving.takes, leaving.asleep)
            return state.with_changes(slept=state.slept | {instance}, present=present)
        if do == "free":
            leaving = self._work.leaving[instance]
            amounts = leaving.asleep if instance in state.slept else leaving.takes
            return state.with_changes(freed=state.freed | {instance}, present=_exchanged(state.present, amounts, {}))
        arriving = self._work.arriving[instance]
        if do == "load":
            present = _exchanged(state.present, {}, arriving.loads)
            return state.with_changes(loaded=state.loaded | {instance}, present=present)
        if arriving.rests:
            present = _exchanged(state.present, arriving.loads, arriving.asleep)
        else:
            present = _exchanged(state.present, {}, _only(arriving.caches))
        return state.with_changes(finished=state.finished | {instance}, present=present)

    def steps(self, actions: Sequence[Action]) -> Ordered:
        """Return the steps of these actions, with the edges that make every order safe."""
        ordered = Ordered([], [])
        for accelerator in self._present:
            fixed = self._work.fixed.get(accelerator, ())
            ordered.holds += [Hold(accelerator, amount, None, None) for amount in fixed]
        for leaving in self._leaving:
            sleeps = leaving.instance in self._sleeping
            given = _id("sleep" if sleeps else "free", leaving.instance)
            ordered.holds += [Hold(at, amount, None, given) for at, amount in leaving.takes.items()]
            if sleeps:
                freed = _id("free", leaving.instance)
                ordered.holds += [Hold(at, amount, given, freed) for at, amount in leaving.asleep.items()]
        stops: list[Instance] = []
        routes: list[Instance] = []
        for do, instance in actions:
            if do in ("stop", "sleep", "free"):
                self._leave(ordered, do, instance)
                if do == "stop" and self._work.leaving[instance].serves:
                    self._keep_serving(ordered, instance, stops, routes)
                    stops.append(instance)
            elif do == "load":
                self._load(ordered, instance)
            else:
                self._finish(ordered, instance)
                if self._work.arriving[instance].serves and self._work.arriving[instance].slots:
                    routes.append(instance)
        add_room(ordered, self._sizes, strict=self._strict)
        return ordered

    def _leave(self, ordered: Ordered, do: str, instance: Instance) -> None:
        leaving = self._work.leaving[instance]
        slots = [slot.number for slot in leaving.slots]
        if do == "stop":
            if leaving.is_lost:
                return
            last = None
            for name in ["stop-routing", leaving.ends] if leaving.serves else [leaving.ends]:
                step = Step(_id(name, instance), name, instance, "before", slots, set() if last is None else {last})
                ordered.steps.append(step)
                last = step.id
        elif do == "sleep":
            ended = {_id(leaving.ends, instance)}
            ordered.steps.append(Step(_id("sleep", instance), "sleep", instance, "before", slots, ended))
        else:
            needs = {_id("sync", receiver) for receiver in leaving.receivers}
            if instance in self._sleeping:
                needs.add(_id("sleep", instance))
            elif not leaving.is_lost:
                needs.add(_id(leaving.ends, instance))
            ordered.steps.append(Step(_id("free", instance), "free", instance, "before", slots, needs))

    def _keep_serving(
        self, ordered: Ordered, instance: Instance, stops: Sequence[Instance], routes: Sequence[Instance]
    ) -> None:
        """Let an instance stop routing only after those that must route by then."""
        name = instance.component
        least = self._work.serving.get(name)
        if least is None or self._work.leaving[instance].is_lost:
            return
        stopped = [other for other in stops if other.component == name]
        old = sum(1 for other, leaving in self._work.leaving.items() if other.component == name and not leaving.is_lost)
        left = self._work.routing.get(name, 0) + old - len(stopped) - 1
        started = [other for other in routes if other.component == name]
        step = next(step for step in ordered.steps if step.id == _id("stop-routing", instance))
        step.needs |= {_id("route", other) for other in started[: max(0, least - left)]}
        # Each stop counts those before it: they must not come later.
        step.needs |= {_id("stop-routing", other) for other in stopped[-1:]}

    def _load(self, ordered: Ordered, instance: Instance) -> None:
        arriving = self._work.arriving[instance]
        numbers = [slot.number for slot in arriving.slots]
        last: set[str] = set()
        if arriving.slots:
            needs = {_id("free", other) for other in arriving.waits_for}
            ordered.steps.append(Step(_id("load", instance), "load", instance, "after", numbers, needs))
            last = {_id("load", instance)}
            given = _again("sleep", instance) if arriving.rests else None
            ordered.holds += [Hold(at, amount, _id("load", instance), given) for at, amount in arriving.loads.items()]
        if arriving.renamed:
            slots = [slot.number for slot in arriving.renamed]
            ordered.steps.append(Step(_id("rename", instance), "rename", instance, "after", slots))
            last.add(_id("rename", instance))
        every = sorted({*numbers, *(slot.number for slot in arriving.renamed)})
        if arriving.regroups or arriving.receives:
            ordered.steps.append(Step(_id("regroup", instance), "regroup", instance, "after", every, last))
            last = {_id("regroup", instance)}
        if arriving.receives:
            needs = last | {_id("sleep", sender) for sender in arriving.senders if sender in self._sleeping}
            ordered.steps.append(Step(_id("sync", instance), "sync", instance, "after", numbers, needs))

    def _finish(self, ordered: Ordered, instance: Instance) -> None:
        arriving = self._work.arriving[instance]
        if not arriving.slots and not arriving.regroups:
            return
        numbers = [slot.number for slot in arriving.slots]
        present = {step.id for step in ordered.steps}
        last = next(_id(do, instance) for do in ("sync", "regroup", "load", "rename") if _id(do, instance) in present)
        names = ["verify"]
        if arriving.slots and arriving.serves:
            names = ["verify", "route"]
            if any(amount != NOTHING for amount in arriving.caches.values()) and not arriving.rests:
                names = ["cache", *names]
        for name in names:
            step = Step(_id(name, instance), name, instance, "after", numbers, {last})
            if name == "verify":
                step.needs |= {_id(self._work.leaving[old].ends, old) for old in arriving.replaces}
            if name == "route" and arriving.rests:
                asleep = Step(_again("sleep", instance), "sleep", instance, "after", numbers, {last})
                ordered.steps.append(asleep)
                step.needs = {asleep.id}
            ordered.steps.append(step)
            last = step.id
        if arriving.rests and not arriving.serves and arriving.slots:
            ordered.steps.append(Step(_again("sleep", instance), "sleep", instance, "after", numbers, {last}))
        if "cache" in names:
            taken = _id("cache", instance)
            ordered.holds += [Hold(at, amount, taken, None) for at, amount in _only(arriving.caches).items()]
        if arriving.rests:
            taken = _again("sleep", instance)
            ordered.holds += [Hold(at, amount, taken, None) for at, amount in arriving.asleep.items()]


@dataclass(frozen=True, slots=True)
class _State:
    """What has happened, and what is on each accelerator."""

    stopped: frozenset[Instance]
    slept: frozenset[Instance]
    freed: frozenset[Instance]
    loaded: frozenset[Instance]
    finished: frozenset[Instance]
    present: Mapping[Accelerator, list[Amount]]

    @property
    def key(self) -> tuple[frozenset[Instance], ...]:
        return self.stopped, self.slept, self.freed, self.loaded, self.finished

    def with_changes(
        self,
        *,
        stopped: frozenset[Instance] | None = None,
        slept: frozenset[Instance] | None = None,
        freed: frozenset[Instance] | None = None,
        loaded: frozenset[Instance] | None = None,
        finished: frozenset[Instance] | None = None,
        present: Mapping[Accelerator, list[Amount]] | None = None,
    ) -> _State:
        """Return the state with other values."""
        return _State(
            self.stopped if stopped is None else stopped,
            self.slept if slept is None else slept,
            self.freed if freed is None else freed,
            self.loaded if loaded is None else loaded,
            self.finished if finished is None else finished,
            self.present if present is None else present,
        )


def _places(instance: Leaving | Arriving) -> Iterable[Accelerator]:
    return instance.takes if isinstance(instance, Leaving) else instance.loads


def _only(amounts: Mapping[Accelerator, Amount]) -> dict[Accelerator, Amount]:
    """Return the amounts that are something."""
    return {at: amount for at, amount in amounts.items() if amount != NOTHING}


def _exchanged(
    present: Mapping[Accelerator, list[Amount]], gone: Mapping[Accelerator, Amount], new: Mapping[Accelerator, Amount]
) -> dict[Accelerator, list[Amount]]:
    """Return what is on each accelerator after some of it went and other came."""
    changed = dict(present)
    for accelerator, amount in gone.items():
        left = list(changed[accelerator])
        left.remove(amount)
        changed[accelerator] = left
    for accelerator, amount in new.items():
        changed[accelerator] = [*changed.get(accelerator, ()), amount]
    return changed


def _total(amounts: Iterable[Amount]) -> Amount:
    total = NOTHING
    for amount in amounts:
        total = total.plus(amount)
    return total


def _id(do: str, instance: Instance) -> str:
    return f"{do} {instance.component}/{instance.number}"


def _again(do: str, instance: Instance) -> str:
    """Return the id of a step that an instance of each plan may have."""
    return f"{do} {instance.component}/{instance.number} after"


def add_room(ordered: Ordered, sizes: Sizes, *, strict: bool) -> None:
    """Let steps that take memory wait for steps that give it back, as far as that is needed; see the module."""
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
        total = _total([amount, *(other.amount for other in left)])
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
    found = 0
    for need in step.needs:
        index = position[need]
        found |= ancestors[index] | 1 << index
    return found


def _may_meet(other: Hold, step: Step, position: Mapping[str, int], before: int) -> bool:
    """Whether another hold, taken earlier in the order, may still be there when a step takes its own."""
    if other.taken_by is not None and position[other.taken_by] > position[step.id]:
        return False
    if other.given_by is None:
        return True
    return not before >> position[other.given_by] & 1


def sleeping_choices(work: Work, members: Iterable[Member]) -> Iterator[tuple[tuple[Instance, ...], bool]]:
    """Yield sets of instances that may sleep, those with the fewest bytes first, and whether all sets are yielded."""
    able = [work.leaving[instance] for side, instance in members if side == "before"]
    able = [leaving for leaving in able if leaving.can_sleep and not leaving.is_lost]
    if len(able) > _MOST_INSTANCES:
        yield tuple(leaving.instance for leaving in able), False
        return
    sets = [chosen for size in range(1, len(able) + 1) for chosen in combinations(able, size)]
    for chosen in sorted(sets, key=lambda leaving: sum(one.held for one in leaving)):
        yield tuple(leaving.instance for leaving in chosen), True
