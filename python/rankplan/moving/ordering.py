"""A safe order of the steps, and what each step waits for, so that every order that this allows is safe.

Instances are divided into groups that share no accelerator, no transfer from an instance that leaves, and no component
whose serving instances have to be counted; each group is ordered alone.

In a group, what leaves stops and is freed as soon as that is allowed: that only makes room. What is searched is the
order in which instances load and in which they get their caches, by depth first, with the states that lead nowhere
remembered. This is exact for up to `_MOST_INSTANCES` instances; larger groups get a bounded number of tries.

The order then becomes steps and edges: see ``steps``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import NamedTuple, TypeAlias

from rankplan.moving.cards import NOTHING, Accelerator, Amount, Sizes, total_of
from rankplan.moving.instances import Arriving, Instance, Leaving, Work
from rankplan.moving.steps import Action, Ordered, StepMaker, add_room, only_something

_MOST_INSTANCES = 12
"""Instances of a group of which all orders are tried."""

_MOST_TRIES = 20_000
"""States that the search of a larger group visits."""


Member: TypeAlias = tuple[str, Instance]
"""An instance that is ordered with others, and whether it leaves (``before``) or arrives (``after``)."""


class Block(NamedTuple):
    """What makes a group impossible: an accelerator, the bytes needed there, those that it has, and who needs them."""

    accelerator: Accelerator
    needed: float
    size: float
    holders: list[str]


def groups_of(work: Work) -> list[list[Member]]:
    """Return the instances that must be ordered together: leaving ones as ``("before", instance)``."""
    parent: dict[object, object] = {}

    def root(item: object) -> object:
        while parent.setdefault(item, item) != item:
            parent[item] = parent[parent[item]]
            item = parent[item]
        return item

    def join(item: object, other: object) -> None:
        parent[root(item)] = root(other)

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
        for accelerator in {at for instance in everyone for at in _places(instance)}:
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
        state = _State(self._present)
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
                    for accelerator, amount in only_something(amounts).items():
                        coming[accelerator].append(amount)
        for accelerator, new in coming.items():
            present = [*self._work.fixed.get(accelerator, ()), *new]
            size = self._sizes.of(accelerator)
            if len(present) > 1 and (size is None or total_of(present).high > size.usable):
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
            total = total_of([*present, amount])
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
            return replace(state, stopped=state.stopped | {instance})
        if do == "sleep":
            leaving = self._work.leaving[instance]
            present = _exchanged(state.present, leaving.takes, leaving.asleep)
            return replace(state, slept=state.slept | {instance}, present=present)
        if do == "free":
            leaving = self._work.leaving[instance]
            amounts = leaving.asleep if instance in state.slept else leaving.takes
            return replace(state, freed=state.freed | {instance}, present=_exchanged(state.present, amounts, {}))
        arriving = self._work.arriving[instance]
        if do == "load":
            present = _exchanged(state.present, {}, arriving.loads)
            return replace(state, loaded=state.loaded | {instance}, present=present)
        if arriving.rests:
            present = _exchanged(state.present, arriving.loads, arriving.asleep)
        else:
            present = _exchanged(state.present, {}, only_something(arriving.caches))
        return replace(state, finished=state.finished | {instance}, present=present)

    def steps(self, actions: Sequence[Action]) -> Ordered:
        """Return the steps of these actions, with the edges that make every order safe."""
        maker = StepMaker(self._work, self._sleeping)
        maker.start(self._present, self._leaving)
        for action in actions:
            maker.add(action)
        add_room(maker.ordered, self._sizes, strict=self._strict)
        return maker.ordered


@dataclass(frozen=True, slots=True)
class _State:
    """What has happened, and what is on each accelerator."""

    present: Mapping[Accelerator, list[Amount]]
    stopped: frozenset[Instance] = frozenset()
    slept: frozenset[Instance] = frozenset()
    freed: frozenset[Instance] = frozenset()
    loaded: frozenset[Instance] = frozenset()
    finished: frozenset[Instance] = frozenset()

    @property
    def key(self) -> tuple[frozenset[Instance], ...]:
        """What tells states apart: what is present follows from it."""
        return self.stopped, self.slept, self.freed, self.loaded, self.finished


def _places(instance: Leaving | Arriving) -> Iterable[Accelerator]:
    return instance.takes if isinstance(instance, Leaving) else instance.loads


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


def sleeping_choices(work: Work, members: Iterable[Member]) -> Iterator[tuple[tuple[Instance, ...], bool]]:
    """Yield sets of instances that may sleep, those with the fewest bytes first, and whether all sets are yielded."""
    able = [work.leaving[instance] for side, instance in members if side == "before"]
    able = [leaving for leaving in able if leaving.can_sleep and not leaving.is_lost]
    if len(able) > _MOST_INSTANCES:
        yield tuple(leaving.instance for leaving in able), False
        return
    sets = [chosen for size in range(1, len(able) + 1) for chosen in combinations(able, size)]
    for chosen in sorted(sets, key=lambda chosen: sum(leaving.held for leaving in chosen)):
        yield tuple(leaving.instance for leaving in chosen), True
