"""A transition that stops on the way: what is undone, what runs then, and the ways on and back."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from rankplan._core import RankSet
from rankplan.arranging.repair import lists_of, placed, rule_of
from rankplan.errors import PlacementError, RankplanError
from rankplan.frozen import frozen
from rankplan.moving.instances import Instance
from rankplan.moving.lent import instances_of
from rankplan.moving.transition import AS_PLANNED, PlannedStep, Transition
from rankplan.moving.transition import transition as transition_of
from rankplan.plans.component import Component
from rankplan.plans.plan import Plan
from rankplan.runtime.group import faults
from rankplan.runtime.group.company import Company
from rankplan.runtime.group.crew import LiveRank, dead_ranks
from rankplan.runtime.ray.asking import HeadSilent
from rankplan.words import counted, ranges_text


class _Key(NamedTuple):
    """An instance of a component on a side of the transition: of the plan before, or of the plan after."""

    component: str
    side: str
    number: int


RUNNING, STOPPED, ASLEEP, LOADED = "running", "stopped", "asleep", "loaded"


@frozen
class Running:
    """An instance that runs after a transition has stopped on the way.

    ``plan`` is ``before`` or ``after``, and ``instance`` its number there. ``ranks`` are those that live, of ``size``.
    ``state`` is ``running``; ``stopped`` if it gets no calls any more, ``asleep``, or ``loaded`` if it gets none yet.
    """

    component: str
    instance: int
    plan: str
    ranks: RankSet
    size: int
    state: str

    def __str__(self) -> str:
        text = f"{self.component}/{self.instance} as {self.plan}"
        if len(self.ranks) < self.size:
            text += f" with {counted(len(self.ranks), 'rank')} of {self.size}"
        return text if self.state == RUNNING else f"{text} ({self.state})"


class TransitionError(RankplanError, RuntimeError):
    """A transition stopped on the way; ``__cause__`` is why.

    ``at`` are the ids of the steps that failed, ``done`` those of the steps that are done, and ``running`` what runs
    now. ``plan`` is the plan that describes it, ``None`` if none does. ``rest`` is the transition from here to the plan
    after, ``back`` the one to the plan before (``None``: there is no safe way back); `apply` carries them out.
    """

    def __init__(
        self,
        message: str,
        at: Sequence[str],
        done: Sequence[str],
        running: Sequence[Running],
        plan: Plan | None,
        rest: Transition,
        back: Transition | None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.at = tuple(at)
        self.done = tuple(done)
        self.running = tuple(running)
        self.plan = plan
        self.rest = rest
        self.back = back


class Unfinished:
    """What is left of a transition that stops after these steps."""

    def __init__(self, transition: Transition, companies: Mapping[str, Company], begun: Iterable[str]) -> None:
        self._transition = transition
        self._companies = companies
        by_instance: dict[_Key, list[PlannedStep]] = defaultdict(list)
        for step in transition.steps:
            by_instance[_Key(step.component, step.side, step.instance)].append(step)
        self._steps = dict(by_instance)
        self._begun = set(begun)
        self._undone = self._undoable()
        undone_ids = {step.id for key in self._undone for step in self._steps[key]}
        self._done = self._begun - undone_ids

    def _undoable(self) -> set[_Key]:
        """Return the instances that become what they were: those on the way on which nothing that is done depends.

        Candidates are the instances on the way that have not gone to sleep: only the trainer can wake those. A
        candidate is dropped if a begun step of an instance outside the candidates needs one of its steps. Each drop
        may cost others, so this is repeated until none is dropped.
        """
        undoable = set()
        for key, steps in self._steps.items():
            has_slept = any(step.do in ("sleep", "wake") and step.id in self._begun for step in steps)
            is_complete = self._begun.issuperset(step.id for step in steps)
            if not has_slept and not is_complete:
                undoable.add(key)
        while True:
            needed = self._needed_without(undoable)
            staying = {key for key in undoable if any(step.id in needed for step in self._steps[key])}
            if not staying:
                return undoable
            undoable -= staying

    def _needed_without(self, undoable: Collection[_Key]) -> set[str]:
        """Return the steps that begun steps of other instances than these need."""
        needed: set[str] = set()
        for key, steps in self._steps.items():
            if key in undoable:
                continue
            for step in steps:
                if step.id in self._begun:
                    needed.update(step.needs)
        return needed

    def abandon(self, companies: Iterable[Company]) -> None:
        """Undo what can be undone."""
        for company in companies:
            name = company.crew.terms.planned
            staying = []
            for key, steps in self._steps.items():
                has_begun = any(step.id in self._begun for step in steps)
                if key.component == name and key not in self._undone and has_begun:
                    staying.append((key.side, key.number))
            company.abandon(staying)

    def error(self, at: Sequence[str], cause: BaseException) -> TransitionError:
        """Return what has happened."""
        running = list(self._running())
        plan = self._plan(running)
        rest = self._rest()
        back = self._back()
        reason = str(cause).partition("\n")[0] or type(cause).__name__
        ways = "apply(error.rest, groups) goes on"
        if not self._done:
            ways = "nothing has changed; " + ways
        elif back is not None:
            ways += ", apply(error.back, groups) goes back"
        steps = self._transition.steps
        message = faults.stopped(at, reason, len(self._done), len(steps), _merged(running), ways)
        done = [step.id for step in steps if step.id in self._done]
        return TransitionError(message, at, done, running, plan, rest, back)

    # ------------------------------------------------------------------------------------------------------- what runs

    def _running(self) -> Iterator[Running]:
        """Yield what runs."""
        for name, company in self._companies.items():
            dead = _dead(company)
            leaving = {rank.actor for rank in company.crew.leaving}
            arriving = {rank.actor for rank in company.crew.newcomers}
            by_actor = {rank.actor: rank for rank in company.live([*company.old.values(), *company.new.values()])}
            for side, number, ranks in _instances(company):
                actors = company.old if side == "before" else company.new
                present = [by_actor[actors[rank]] for rank in ranks if actors.get(rank) in by_actor]
                alive = RankSet(rank.number for rank in present if rank.actor not in dead)
                if not alive:
                    continue
                state = RUNNING
                if self._is_asleep(name, side, number):
                    state = ASLEEP
                elif any(rank.actor in leaving for rank in present):
                    state = STOPPED
                elif any(rank.actor in arriving for rank in present):
                    state = LOADED
                yield Running(name, number, side, alive, len(ranks), state)

    def _is_asleep(self, name: str, side: str, number: int) -> bool:
        """Whether the instance was put to sleep in this transition, or has slept since before it."""
        steps = self._steps.get(_Key(name, side, number), ())
        if any(step.do == "sleep" and step.id in self._done for step in steps):
            return True
        if self._transition.asleep is None:
            return False
        slept_before = instances_of(self._transition.parts, self._transition.asleep[0])
        has_changed = any(step.id in self._done for step in self._steps.get(_Key(name, "after", number), ()))
        return Instance(name, number) in slept_before and not has_changed

    # ------------------------------------------------------------------------------------------------------- a plan

    def _plan(self, running: Sequence[Running]) -> Plan | None:
        """Return the plan that describes what runs, if one does."""
        before, after = self._transition.before, self._transition.after
        if any(instance.state in (STOPPED, LOADED) for instance in running):
            return None
        if any(_dead(company) for company in self._companies.values()):
            return None
        if not self._done or before == after:
            return before
        if self._done.issuperset(step.id for step in self._transition.steps):
            return after
        names = _node_names(before)
        if names != _node_names(after)[: len(names)]:
            return None
        components = []
        for name, component in after.items():
            company = self._companies.get(name)
            mixed = component if company is None else _mixed(company, before[name], component)
            if mixed is None:
                return None
            components.append(mixed)
        return after.placed(after.inventory, components)

    # ------------------------------------------------------------------------------------------------------- ways

    def _rest(self) -> Transition:
        """Return the steps that are left."""
        return _with_steps(self._transition, [step for step in self._transition.steps if step.id not in self._done])

    def _back(self) -> Transition | None:
        """Return the way back, without what has not begun; ``None`` if a safe one is not known.

        It is the transition from the plan after to the plan before. What still runs of the plan before need not be
        loaded, and what does not run of the plan after need not leave. These steps count as done. In a state of the
        transition back, what a done step needs is done as well: so such steps come first, as long as they only make
        room. Otherwise, and if a sender does not run, there is no way back that is known to be safe.
        """
        back = self._turned()
        if back is None:
            return None
        done = {step.id for step in back.steps if self._is_so(step)}
        left = [step for step in back.steps if step.id not in done]
        first_ids = _ancestors(back.steps, done) - done
        if any(step.side == "after" for step in left if step.id in first_ids):
            return None
        if not self._can_send(back, left):
            return None
        steps = []
        for step in left:
            if step.side == "after" and step.do in ("load", "wake"):
                step = step._replace(needs=[*step.needs, *sorted(first_ids - set(step.needs))])
            steps.append(step)
        return _with_steps(back, _in_order(steps))

    def _turned(self) -> Transition | None:
        """Return the transition from the plan after to the plan before, if there is one."""
        forward = self._transition
        asleep = None
        if forward.asleep is not None:
            asleep = (forward.asleep[1], forward.asleep[0])
        try:
            return transition_of(
                forward.after,
                _on_nodes_of(forward.before, forward.after),
                costs=forward.costs,
                names=AS_PLANNED,
                asleep=asleep,
                serving=forward.serving,
            )
        except PlacementError:
            return None

    def _can_send(self, back: Transition, left: Sequence[PlannedStep]) -> bool:
        """Whether everything runs that sends something in the steps that are left of the way back."""
        receiving = {(step.component, at) for step in left if step.do == "sync" for at in step.slots}
        for move in back.moves:
            if move.sender is None or (move.component, move.slot) not in receiving:
                continue
            company = self._companies.get(move.sender.component)
            if company is not None and not _has_slot(company, move.sender.slot):
                return False
        return True

    def _is_so(self, step: PlannedStep) -> bool:
        """Whether the way back need not do this step: what it is about has not begun, on the way here."""
        side = "after" if step.side == "before" else "before"
        forward = self._steps.get(_Key(step.component, side, step.instance), ())
        ids = {forward_step.do: forward_step.id for forward_step in forward}
        only_slept = ("wake" in ids or "sleep" in ids) and "free" not in ids
        if step.do in ("sleep", "wake") and only_slept:
            return self._done.isdisjoint(ids.values())
        undoes = "load" if step.side == "before" else "free"
        return undoes in ids and ids[undoes] not in self._done


def _instances(company: Company) -> Iterator[tuple[str, int, set[int]]]:
    """Yield the instances of a component, those of the plan before and those that start: side, number and ranks."""
    before = company.part.before
    if before is not None:
        for number, slots in enumerate(before.instances):
            yield "before", number, {before.slots[at].rank for at in slots}
    if company.part.after is not None:
        for number, ranks in company.members.loading.items():
            yield "after", number, set(ranks)


def _with_steps(transition: Transition, steps: Sequence[PlannedStep]) -> Transition:
    """Return a transition with these steps, which need each other only."""
    ids = {step.id for step in steps}
    left = [step._replace(needs=[need for need in step.needs if need in ids]) for step in steps]
    return replace(transition, steps=tuple(left))


def _in_order(steps: Sequence[PlannedStep]) -> list[PlannedStep]:
    """Return the steps so that each comes after those that it needs."""
    ids = {step.id for step in steps}
    left = list(steps)
    ordered: list[PlannedStep] = []
    ordered_ids: set[str] = set()
    while left:
        ready = next((step for step in left if ordered_ids.issuperset(ids.intersection(step.needs))), left[0])
        left.remove(ready)
        ordered.append(ready)
        ordered_ids.add(ready.id)
    return ordered


def _ancestors(steps: Sequence[PlannedStep], of: Iterable[str]) -> set[str]:
    """Return the steps that come before these ones in every order."""
    needs = {step.id: step.needs for step in steps}
    ancestors: set[str] = set()
    to_visit = list(of)
    while to_visit:
        for need in needs[to_visit.pop()]:
            if need not in ancestors:
                ancestors.add(need)
                to_visit.append(need)
    return ancestors


def _dead(company: Company) -> set[object]:
    """Return the actors that are dead, as far as the head says so."""
    crew = company.crew
    with suppress(HeadSilent):
        return {rank.actor for rank in dead_ranks([*crew.ranks, *crew.leaving, *crew.newcomers])}
    return set()


def _has_slot(company: Company, slot: int) -> bool:
    """Whether a slot of the plan after runs."""
    side = company.part.after
    if side is None:
        return False
    rank = side.slots[slot].rank
    actor = company.new.get(rank) or company.old.get(company.members.kept.get(rank, -1))
    return actor is not None and bool(company.live([actor]))


def _on_nodes_of(plan: Plan, other: Plan) -> Plan:
    """Return a plan on the nodes of another one that has more, which are not out of use then, if its places stay."""
    names = _node_names(plan)
    if names != _node_names(other)[: len(names)]:
        return plan
    with suppress(PlacementError):
        components = [placed(component, other.inventory, component.rule) for component in plan.values()]
        moved = plan.placed(other.inventory, components)
        if all(_rows(moved[name]) == _rows(component) for name, component in plan.items()):
            return moved
    return plan


def _rows(component: Component) -> list[tuple[object, ...]]:
    return [(row.cluster_node_rank, row.devices, row.local_hardware_ranks) for row in component]


def _node_names(plan: Plan) -> list[str]:
    return [plan.inventory.node(rank).name for rank in range(plan.inventory.num_nodes)]


def _mixed(company: Company, before: Component, after: Component) -> Component | None:
    """Return the component whose ranks run, some as in each plan; ``None`` if no component has them."""
    ranks: list[LiveRank] = sorted(company.crew.ranks, key=lambda rank: rank.number)
    if [rank.number for rank in ranks] != list(range(len(ranks))) or not ranks:
        return None
    old_lists, new_lists = lists_of(before), lists_of(after)
    lists = [(new_lists if company.runs_after(rank) else old_lists)[rank.number] for rank in ranks]
    rule = rule_of(lists, after.rule)
    if rule is None:
        return None
    with suppress(PlacementError):
        mixed = placed(after, after.inventory, rule)
        old_rows, new_rows = _rows(before), _rows(after)
        rows = [(new_rows if company.runs_after(rank) else old_rows)[rank.number] for rank in ranks]
        if rows == _rows(mixed):
            return mixed
    return None


def _merged(running: Sequence[Running]) -> list[str]:
    """Return what runs in words, instances that are alike together."""
    alike: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    texts = []
    for instance in running:
        if len(instance.ranks) == instance.size:
            alike[instance.component, instance.plan, instance.state].append(instance.instance)
        else:
            texts.append(str(instance))
    for (component, plan, state), numbers in alike.items():
        note = "" if state == RUNNING else f" ({state})"
        texts.append(f"{component}/{ranges_text(RankSet(numbers))} as {plan}{note}")
    return sorted(texts)
