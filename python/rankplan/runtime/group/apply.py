"""Carrying out a transition with running groups: instances start and stop as a whole, in an order that is safe."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import NamedTuple

from rankplan.frozen import frozen
from rankplan.moving.moves import Move
from rankplan.moving.transition import PlannedStep, Transition
from rankplan.runtime.group import faults
from rankplan.runtime.group.company import Company, InstanceRanks
from rankplan.runtime.group.group import RankSelection, WorkerGroup
from rankplan.runtime.group.unfinished import Unfinished
from rankplan.runtime.ray.answers import as_timeout
from rankplan.runtime.ray.asking import answers_within
from rankplan.runtime.ray.connection import using_session
from rankplan.runtime.ray.signals import Uninterrupted
from rankplan.words import shown, wrong_type

STEPS = (
    *("stop-routing", "drain", "abort", "sleep", "free"),
    *("load", "rename", "regroup", "sync", "cache", "verify", "route", "wake"),
)
"""What a step can do."""

_ONLY_THE_TRAINER = ("sleep", "sync", "wake")
"""Steps that nothing but the trainer can do."""


@frozen
class ActiveStep:
    """A step of a transition while it is carried out: what the trainer's function for it gets.

    ``do``, ``component``, ``side`` and ``instance`` are those of the step. Methods of the worker can be called on
    ``ranks``, those of the instance that the step concerns, also before they get the calls of their group. ``moves`` is
    what the slots of these ranks get, and from where; ``senders`` are the ranks that have it, by component, some of
    which may be leaving.
    """

    id: str
    do: str
    component: str
    side: str
    instance: int
    ranks: RankSelection
    moves: tuple[Move, ...]
    senders: Mapping[str, RankSelection]


class StepTime(NamedTuple):
    """When a step began, in seconds since the beginning of the transition, and how many seconds it took."""

    id: str
    do: str
    component: str
    instance: int
    start: float
    seconds: float


Calls = Mapping[str, Callable[[ActiveStep], object]]


def apply(
    transition: Transition,
    groups: Mapping[str, WorkerGroup],
    *,
    calls: Calls | None = None,
    timeout: float | None = None,
) -> tuple[StepTime, ...]:
    """Carry out a transition: end the instances that leave, start those that arrive, in its order; return the times.

    ``groups`` are the running groups by component, as `launch` returns them; those of components that stay as they are
    may be left out. Afterwards, they run ``transition.after``.

    ``calls`` has functions of an `ActiveStep` for what only the trainer can do, by what the step does: ``sleep``,
    ``wake`` and ``sync`` are needed if there are such steps, and ``load`` if something comes from storage. A function
    for ``stop-routing``, ``drain``, ``abort`` or ``free`` runs before the step does its own part, any other after it,
    except that a new instance gets calls of its group only after its ``route``.

    Ranks that leave get no new calls, and finish those that they have received, except after ``abort``. Ranks that stay
    work on. Each step takes at most ``timeout`` seconds (default: that of a launch to load, else 300), without the time
    that functions take.

    On a failure, an instance that was arriving is ended, and one that was leaving serves again, unless a step that is
    done depends on it. Then `TransitionError` says which steps are done and what runs, and has the transitions
    from there to the plan after (``rest``) and to the plan before (``back``). After Ctrl-C, the ``KeyboardInterrupt``
    has it as its ``__cause__``.

    Raises ``ValueError`` if a group is missing or runs another plan than ``transition.before``, a rank is dead, a
    component is only in the plan after, or a function is missing; ``PlacementError`` (``plan-mismatch``) if the cluster
    does not fit the plan after; ``WorkerError`` for a group that was shut down, and ``TypeError`` for a wrong argument.
    """
    if not isinstance(transition, Transition):
        raise wrong_type("transition", transition, "what rankplan.transition returns")
    seconds = None if timeout is None else as_timeout(timeout)
    functions = _checked(calls)
    _check_groups(transition, groups)
    _check_calls(transition, functions)
    crews = {name: group._crew for name, group in groups.items()}
    with ExitStack() as locks:
        for crew in sorted(crews.values(), key=id):
            locks.enter_context(crew.restarting)
        if not crews:
            return ()
        locks.enter_context(using_session())
        with answers_within(seconds):
            for crew in crews.values():
                crew.connection.check_alive()
                crew.check_open()
        companies = {}
        for name, crew in crews.items():
            steps = [step for step in transition.steps if step.component == name]
            companies[name] = Company(crew, transition.parts[name], steps, seconds)
        return _Run(transition, companies, functions).go()


def _checked(calls: object) -> Calls:
    """Return the functions by step. Raises ``TypeError`` and ``ValueError``."""
    if calls is None:
        return {}
    if not isinstance(calls, Mapping):
        raise wrong_type("calls", calls, 'functions by step, such as {"sync": send_weights}')
    for name, function in calls.items():
        if name not in STEPS:
            raise ValueError(faults.wrong_call(shown(name), STEPS))
        if not callable(function):
            raise TypeError(faults.not_callable(str(name), shown(function)))
    return calls


def _check_groups(transition: Transition, groups: Mapping[str, WorkerGroup]) -> None:
    """Check that there is a running group for each component that changes."""
    if not isinstance(groups, Mapping):
        raise wrong_type("groups", groups, "running groups by component, such as what launch returns")
    first = None
    for name, group in groups.items():
        if not isinstance(group, WorkerGroup):
            raise wrong_type(f"groups[{name!r}]", group, "a running group")
        if name in transition.after and name not in transition.before:
            raise ValueError(faults.starts_anew(str(name)))
        if name not in transition.before:
            raise ValueError(faults.unknown_group(str(name), list(transition.before)))
        if group._crew.terms.planned != name:
            raise ValueError(faults.other_name(str(name), group._crew.terms.planned))
        group._running("apply")
        first = first or group
        if group._crew.connection is not first._crew.connection:
            raise ValueError(faults.other_clusters(first.component, group.component))
    for name in dict.fromkeys(step.component for step in transition.steps):
        if name not in transition.before:
            raise ValueError(faults.starts_anew(name))
        if name not in groups:
            raise ValueError(faults.no_group(name))


def _check_calls(transition: Transition, calls: Calls) -> None:
    """Check that the trainer does what only it can do."""
    lacking = [step for step in transition.steps if step.do in _ONLY_THE_TRAINER and step.do not in calls]
    if "load" not in calls:
        stored = {move.component for move in transition.moves if move.sender is None}
        lacking += [step for step in transition.steps if step.do == "load" and step.component in stored]
    if lacking:
        names = list(dict.fromkeys(step.do for step in lacking))
        raise ValueError(faults.lacks_calls([step.id for step in lacking], names))


class _Run:
    """A transition that is being carried out."""

    def __init__(self, transition: Transition, companies: Mapping[str, Company], calls: Calls) -> None:
        self._transition, self._companies, self._calls = transition, companies, calls
        self._done: set[str] = set()
        self._times: list[StepTime] = []
        self._now: list[PlannedStep] = []
        self._begun = time.monotonic()
        self._last: dict[tuple[str, int], str] = {}
        for step in transition.steps:
            if step.side == "after":
                self._last[step.component, step.instance] = step.id

    def go(self) -> tuple[StepTime, ...]:
        """Carry out all steps. Raises `TransitionError`."""
        begun: list[Company] = []
        try:
            for company in self._companies.values():
                begun.append(company)
                company.begin()
            while self._begin_next():
                self._carry_out(self._now)
            for company in self._companies.values():
                company.let_finish(company.lost())
            with Uninterrupted():
                for company in self._companies.values():
                    company.settle()
        except BaseException as error:
            with Uninterrupted():
                unfinished = Unfinished(self._transition, self._companies, self._done)
                unfinished.abandon(begun)
            if not self._times and isinstance(error, ValueError) and not self._now:
                raise  # refused at the beginning
            stopped = unfinished.error([step.id for step in self._now], error)
            if isinstance(error, Exception):
                raise stopped from error
            raise error from stopped
        return tuple(self._times)

    def _begin_next(self) -> bool:
        """Choose what comes next, if anything is left: loads of a component together, of what leaves the last first."""
        ready = [
            step for step in self._transition.steps if step.id not in self._done and self._done.issuperset(step.needs)
        ]
        self._now = []
        if not ready:
            return False
        alike = [step for step in ready if (step.do, step.component) == (ready[0].do, ready[0].component)]
        if ready[0].do == "load":
            self._now = alike
        elif ready[0].side == "before":
            self._now = [max(alike, key=lambda step: step.instance)]
        else:
            self._now = ready[:1]
        return True

    def _carry_out(self, steps: Sequence[PlannedStep]) -> None:
        """Carry out a step, or several loads."""
        started = time.monotonic()
        company = self._companies[steps[0].component]
        if steps[0].do == "load":
            company.load(step.instance for step in steps)
        for step in steps:
            self._carry_out_one(step, company, started)

    def _carry_out_one(self, step: PlannedStep, company: Company, started: float) -> None:
        """Do what a step does, and what the trainer does in it."""
        ranks = company.ranks_of(step)
        if step.do == "stop-routing":
            self._call(step, company)
            company.stop_routing(ranks)
        elif step.do == "abort":
            company.stop_routing(ranks)
            self._call(step, company)
        elif step.do == "drain":
            company.stop_routing(ranks)
            self._call(step, company)
            company.drain(ranks)
        elif step.do == "verify":
            company.verify(ranks)
            self._call(step, company)
        elif step.do in ("rename", "regroup"):
            company.rename(step.instance)
            self._call(step, company)
        elif step.do == "free":
            self._call(step, company)
            if not any(one.do in ("drain", "abort") and one.id in step.needs for one in self._transition.steps):
                company.let_finish(ranks)
        else:
            self._call(step, company)
        with Uninterrupted():
            if step.do == "free":
                company.free(ranks)
            if self._last.get((step.component, step.instance)) == step.id and step.do != "wake":
                company.admit(step.instance)
            self._done.add(step.id)
            now = time.monotonic()
            self._times.append(
                StepTime(
                    step.id, step.do, step.component, step.instance, started - self._begun, max(0.0, now - started)
                )
            )

    def _call(self, step: PlannedStep, company: Company) -> None:
        """Call the trainer's function for a step, if there is one."""
        function = self._calls.get(step.do)
        if function is None:
            return
        ranks = InstanceRanks(company.crew, company.ranks_of(step))
        moves = self._moves_of(step)
        sending: dict[str, set[int]] = {}
        for move in moves:
            if move.sender is not None:
                sending.setdefault(move.sender.component, set()).add(move.sender.slot)
        senders = {}
        for name, slots in sending.items():
            if name in self._companies:
                sender = self._companies[name]
                senders[name] = InstanceRanks(sender.crew, sender.holding(slots))
        function(ActiveStep(step.id, step.do, step.component, step.side, step.instance, ranks, moves, senders))

    def _moves_of(self, step: PlannedStep) -> tuple[Move, ...]:
        """Return what the slots of a step get."""
        if step.side == "before":
            return ()
        slots = set(step.slots)
        moves = self._transition.moves
        return tuple(move for move in moves if move.component == step.component and move.slot in slots)
