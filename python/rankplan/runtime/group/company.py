"""The group of a component during a transition: which ranks its instances have, and what the steps do with them."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import ray

from rankplan._core import RankSet
from rankplan.environment import MASTER_VARIABLES, restart_environment
from rankplan.errors import LaunchError
from rankplan.frozen import frozen
from rankplan.moving.changes import KEEPING
from rankplan.moving.instances import Component as MovingComponent
from rankplan.moving.sides import Side
from rankplan.moving.transition import PlannedStep
from rankplan.plans.component import Component
from rankplan.runtime.group import faults
from rankplan.runtime.group.crew import Crew, Home, LiveRank, dead_ranks, spec_at
from rankplan.runtime.group.group import Call, RankSelection
from rankplan.runtime.group.launch import new_master, started, verified
from rankplan.runtime.group.ranks import check_interpreters, rank_specs
from rankplan.runtime.group.restart import as_launched, finish, fitted, is_at
from rankplan.runtime.rank.ports import PORTS
from rankplan.runtime.ray import timeouts
from rankplan.runtime.ray.answers import outcomes
from rankplan.runtime.ray.asking import answers_within
from rankplan.runtime.ray.signals import Uninterrupted
from rankplan.runtime.reserve.reserve import Place, Wanted

if TYPE_CHECKING:
    from ray.actor import ActorHandle


class InstanceRanks(RankSelection):
    """The ranks of an instance in a transition, also those that get no calls of their group yet, or none any more."""

    def __init__(self, crew: Crew, ranks: Sequence[LiveRank]) -> None:
        super().__init__(crew)
        self._chosen = ranks

    def _some(self, all_ranks: Sequence[LiveRank]) -> Sequence[LiveRank]:
        return self._chosen if self._crew.is_running else []


@frozen
class Members:
    """The ranks of each instance of a component.

    ``going`` are those that an instance of the plan before loses, ``loading`` those that one of the plan after starts,
    ``all_new`` all that it has. ``kept`` maps ranks of the plan after to the ranks of the plan before that they were.
    ``lost`` are ranks of the plan before on dead hardware.
    """

    going: dict[int, RankSet]
    loading: dict[int, RankSet]
    all_new: dict[int, RankSet]
    kept: dict[int, int]
    lost: RankSet

    @classmethod
    def of(cls, part: MovingComponent) -> Members:
        """Return the members of a component. Raises ``ValueError`` if a process would change in part."""
        changes = part.changes
        going: dict[int, RankSet] = {}
        lost = RankSet()
        if part.before is not None:
            side = part.before
            lost = RankSet(side.slots[at].rank for at in side.dead)
            going = _by_instance(side, set(range(len(side.slots))) - changes.kept_before - side.dead)
        loading: dict[int, RankSet] = {}
        all_new: dict[int, RankSet] = {}
        kept: dict[int, int] = {}
        if part.after is not None:
            starting = set()
            for change in changes.of_after:
                if change.after is None:
                    continue
                if change.kind not in KEEPING:
                    starting.add(change.after.number)
                elif change.before is not None:
                    kept[change.after.rank] = change.before.rank
            loading = _by_instance(part.after, starting)
            all_new = _by_instance(part.after, range(len(part.after.slots)))
        return cls(going, loading, all_new, kept, lost)


def _by_instance(side: Side, slots: Iterable[int]) -> dict[int, RankSet]:
    """Return the ranks with these slots, by instance. Raises ``ValueError`` for a rank that has others, too."""
    chosen = set(slots)
    ranks = {side.slots[at].rank for at in chosen}
    for slot in side.slots:
        if slot.rank in ranks and slot.number not in chosen:
            raise ValueError(faults.changed_in_part(side.component.name, slot.rank))
    by_instance: dict[int, set[int]] = {}
    for at in chosen:
        by_instance.setdefault(side.instances.of(at), set()).add(side.slots[at].rank)
    return {instance: RankSet(numbers) for instance, numbers in by_instance.items()}


def _union(sets: Iterable[RankSet]) -> RankSet:
    return RankSet().union(*sets)


class Company:
    """A group in a transition.

    ``before`` is what it runs, ``after`` what it shall run (``None``: it ends). ``old`` and ``new`` are the actors of
    the ranks of both plans.
    """

    def __init__(self, crew: Crew, part: MovingComponent, steps: Sequence[PlannedStep], timeout: float | None) -> None:
        self.crew = crew
        self.part = part
        self.timeout = timeout
        self.members = Members.of(part)
        self.restarts = crew.restarts + 1
        self.before = _home_before(crew, part)
        self.after: Home | None = None
        if part.after is not None:
            nodes, component = fitted(crew, part.after.component)
            self.after = Home(component, nodes)
        self._steps = steps
        self.old: dict[int, ActorHandle[Any]] = {}
        self.new: dict[int, ActorHandle[Any]] = {}
        self._renamed: dict[int, list[LiveRank]] = {}
        self._added: set[Place] = set()
        self._at_first = {rank.actor for rank in self._everyone()}

    # ------------------------------------------------------------------------------------------------------- beginning

    def begin(self) -> None:
        """Check that the group runs what the transition starts from, and announce what it shall run.

        Raises ``ValueError`` if it runs something else, and the errors of a launch for interpreters that do not start.
        """
        self._match()
        crew = self.crew
        loading = self.members.loading
        to_load = _union(ranks for number, ranks in loading.items() if self._has("load", "after", number))
        if self.after is not None and to_load:
            specs = rank_specs(self.after.nodes, self.after.component, crew.terms.prove, to_load)
            check_interpreters(specs)
        if self.after is not None and self._steps:
            crew.announce(list(self.after.component), self.after.nodes)
        # Ranks on lost hardware, and those of instances whose first step is that they are freed, get no calls any more.
        uncalled = [rank.actor for rank in self.lost()]
        for number, ranks in self.members.going.items():
            is_retired_later = self._has("stop-routing", "before", number) or self._has("drain", "before", number)
            if self._has("free", "before", number) and not is_retired_later:
                uncalled += [self.old[rank] for rank in ranks]
        crew.retire(self.live(uncalled))

    def _has(self, do: str, side: str, instance: int) -> bool:
        return any((step.do, step.side, step.instance) == (do, side, instance) for step in self._steps)

    def _match(self) -> None:
        """Find the actor of each rank that should run. Raises ``ValueError`` if one does not.

        A transition may go on from where another has stopped. So what it has no step for has happened already: a rank
        that leaves without `free` is gone, one that arrives without `load` runs, and one that stays may have its row of
        the plan after.
        """
        members, crew = self.members, self.crew
        to_free = _union(ranks for number, ranks in members.going.items() if self._has("free", "before", number))
        loaded = _union(ranks for number, ranks in members.loading.items() if not self._has("load", "after", number))
        old = RankSet(members.kept.values()) | members.lost | to_free
        for rank in self._everyone():
            self._assign(rank, old, loaded)
        self._check_living()
        missing = (old - members.lost) - RankSet(self.old)
        missing |= loaded - RankSet(self.new)
        if missing:
            raise ValueError(faults.not_running(crew.component, missing))

    def _assign(self, rank: LiveRank, old: RankSet, loaded: RankSet) -> None:
        """Take a running rank for one of the plan before or after. Raises ``ValueError`` if it is neither.

        ``old`` are the ranks of the plan before that should run, ``loaded`` the new ones of the plan after.
        """
        kept = self.members.kept
        if rank.number in old and self._is(rank, self.before) and rank.number not in self.old:
            self.old[rank.number] = rank.actor
        elif rank.number in kept and self.runs_after(rank):
            self.old[kept[rank.number]] = rank.actor
        elif rank.number in loaded and self.runs_after(rank):
            self.new[rank.number] = rank.actor
        else:
            raise ValueError(faults.not_before(self.crew.component, rank.number))

    def _check_living(self) -> None:
        """Raise ``ValueError`` if a rank has ended that is not on lost hardware."""
        lost = self.members.lost
        for rank in dead_ranks(list(self.crew.ranks)):
            if rank.number not in lost or self.old.get(rank.number) != rank.actor:
                raise ValueError(faults.dead_before(self.crew.component, rank.number))

    def _is(self, rank: LiveRank, home: Home) -> bool:
        """Whether a rank has the place and the groups of its row in a plan."""
        if rank.number >= len(home.component):
            return False
        return is_at(self.crew.home_of(rank), rank, home, home.component[rank.number])

    def runs_after(self, rank: LiveRank) -> bool:
        """Whether a rank has its row of the plan after."""
        return self.after is not None and self._is(rank, self.after)

    def _everyone(self) -> list[LiveRank]:
        return [*self.crew.ranks, *self.crew.leaving, *self.crew.newcomers]

    def live(self, actors: Iterable[ActorHandle[Any]]) -> list[LiveRank]:
        """Return the ranks of these actors."""
        chosen = set(actors)
        return [rank for rank in self._everyone() if rank.actor in chosen]

    def ranks_of(self, step: PlannedStep) -> list[LiveRank]:
        """Return the ranks that a step concerns and that run: those that change, or all of their instance."""
        members, number = self.members, step.instance
        if step.do in ("sleep", "wake") and number not in members.going and number not in members.loading:
            return self.live(self._actor_after(rank) for rank in members.all_new[number])
        if step.side == "before":
            return self.live(self.old[rank] for rank in members.going[number])
        return self.live(self._actor_after(rank) for rank in members.all_new[number] if self._runs(rank))

    def holding(self, slots: Iterable[int]) -> list[LiveRank]:
        """Return the ranks with these slots of the plan before."""
        side = self.part.before
        if side is None:
            return []
        ranks = {side.slots[slot].rank for slot in slots}
        return self.live(self.old[rank] for rank in ranks if rank in self.old)

    def _runs(self, rank: int) -> bool:
        return rank in self.new or rank in self.members.kept

    def _actor_after(self, rank: int) -> ActorHandle[Any]:
        return self.new[rank] if rank in self.new else self.old[self.members.kept[rank]]

    # ------------------------------------------------------------------------------------------------------- steps

    def stop_routing(self, ranks: Sequence[LiveRank]) -> None:
        """Send no more calls of the group to these ranks."""
        self.crew.retire(ranks)

    def drain(self, ranks: Sequence[LiveRank]) -> None:
        """Wait until these ranks have finished their calls. Raises ``LaunchError`` if they do not."""
        self.crew.retire(ranks)
        with answers_within(self.timeout):
            finish(self.crew, ranks, self._seconds(timeouts.FINISH), faults.TRANSITION_STOPS)

    def let_finish(self, ranks: Sequence[LiveRank]) -> None:
        """Give ranks that leave without `drain`, as hardware of their instance is out of use, time for their calls.

        Calls may wait for a dead rank forever, so nobody waits if there is one.
        """
        if not ranks or dead_ranks(self._everyone()):
            return
        with suppress(LaunchError):
            self.drain(ranks)

    def lost(self) -> list[LiveRank]:
        """Return the ranks on hardware that is out of use, some of which may still live."""
        return self.live(self.old[rank] for rank in self.members.lost if rank in self.old)

    def free(self, ranks: Sequence[LiveRank]) -> None:
        """End these ranks, and return what only they use of a reservation."""
        with Uninterrupted():
            self.crew.retire(ranks)
            places = self.crew.places_of(ranks)
            self.crew.remove(ranks)
            if self.crew.reservation is not None:
                self.crew.reservation.vacate(places)

    def load(self, instances: Iterable[int]) -> None:
        """Start and verify the ranks of these instances, all or none. Raises ``LaunchError``."""
        with answers_within(self.timeout):
            self._load(instances)

    def _load(self, instances: Iterable[int]) -> None:
        crew, home = self.crew, self._home_after()
        numbers = RankSet()
        for instance in instances:
            numbers |= self.members.loading[instance]
        specs = rank_specs(home.nodes, home.component, crew.terms.prove, numbers)
        with PORTS.searching() as search:
            if crew.reservation is not None:
                wanted = Wanted.of(home.component, [spec.placement for spec in specs])
                self._added |= crew.reservation.extend(home.nodes, crew.component, wanted)
            up, _, _ = started(crew, home.nodes, specs, home.component[0], search, self.timeout, self.restarts)
            with Uninterrupted():
                crew.arrive([replace(rank, home=home) for rank in up], search)
                self.new |= {rank.number: rank.actor for rank in up}

    def rename(self, instance: int) -> None:
        """Give the ranks of an instance that stay their rows of the plan after, and a place where all of it meets.

        Raises ``WorkerError`` if one has died, ``TimeoutError`` if one does not answer.
        """
        crew, home, members = self.crew, self._home_after(), self.members
        numbers = [rank for rank in members.all_new[instance] if rank in members.kept]
        before = {rank.actor: rank for rank in self.live(self._actor_after(number) for number in numbers)}
        if not before:
            return
        newcomers = [self.new[rank] for rank in members.all_new[instance] if rank in self.new]
        with PORTS.searching() as search:
            if newcomers:
                master = self.live(newcomers)[0].masters[-1]
            else:
                with answers_within(self.timeout):
                    master = new_master(crew, home.nodes, home.component[0], search)
            ranks = []
            for number in numbers:
                rank = replace(before[self._actor_after(number)], placement=home.component[number], home=home)
                earlier = [rank_master for rank_master in rank.masters if rank_master != master]
                ranks.append(replace(rank, spec=spec_at(rank, home.component), masters=(*earlier, master)))
            with Uninterrupted():
                self._renamed.setdefault(instance, list(before.values()))
                crew.admit(ranks, search)
        rendezvous = restart_environment(self.restarts)
        rendezvous |= zip(MASTER_VARIABLES, (master.address, str(master.port)), strict=True)
        self._send_rows(ranks, rendezvous).wait(self._seconds(timeouts.FINISH))

    def _send_rows(self, ranks: Sequence[LiveRank], rendezvous: dict[str, str]) -> Call:
        """Send ranks their rows, and where they meet."""
        nodes = ray.put(pickle.dumps(self.crew.home_of(ranks[0]).nodes))
        answers = [rank.actor.renew.remote(rank.spec, rendezvous, nodes) for rank in ranks]
        return Call(self.crew.component, "rename", ranks, answers)

    def verify(self, ranks: Sequence[LiveRank]) -> None:
        """Compare these ranks with the plan again. Raises ``LaunchError`` if one differs, and like a call."""
        chosen = InstanceRanks(self.crew, ranks)
        with answers_within(self.timeout):
            verified(self.crew.component, *chosen._asked("look", "verify", self._seconds(timeouts.FINISH)))

    def admit(self, instance: int) -> None:
        """Let the new ranks of an instance get the calls of the group."""
        newcomers = self.live(self.new[rank] for rank in self.members.all_new[instance] if rank in self.new)
        self.crew.admit(newcomers)

    def _home_after(self) -> Home:
        if self.after is None:
            raise LookupError("a component that ends has no steps after")
        return self.after

    def _seconds(self, default: float) -> float:
        return default if self.timeout is None else self.timeout

    # ------------------------------------------------------------------------------------------------------- end

    def settle(self) -> None:
        """Let the group run the plan after, and nothing else."""
        crew = self.crew
        if self.after is None:
            crew.end()
            return
        by_actor = {rank.actor: rank for rank in self._everyone()}
        component = self.after.component
        ranks = [replace(by_actor[self._actor_after(row.rank)], placement=row) for row in component]
        changes = bool(self.members.going or self.members.loading or self._renamed)
        master = next((rank.masters[-1] for rank in ranks if rank.actor in self.new.values()), crew.master)
        crew.settle(ranks, component, self.after.nodes, master, self.restarts if changes else crew.restarts)
        renamed = {rank.actor for ranks in self._renamed.values() for rank in ranks}
        crew.renewed(self.live(renamed))

    def abandon(self, kept: Iterable[tuple[str, int]]) -> None:
        """Leave a group that stops on the way: instances that are not ``kept`` (side, number) are as they were.

        What arrives ends, what leaves gets calls again, and new names are taken back.
        """
        crew = self.crew
        kept_before: set[int] = set()
        kept_after: set[int] = set()
        for side, number in kept:
            (kept_before if side == "before" else kept_after).add(number)
        for number in self.members.all_new:
            if number in self._renamed and number not in kept_after:
                self._take_back(self._renamed[number])
        with Uninterrupted():
            crew.dismiss(self._uncalled(kept_before, kept_after))
            present = {rank.actor for rank in self._everyone()}
            if present != self._at_first or not kept_after.isdisjoint(self._renamed):
                crew.restarts = self.restarts
            self.new = {rank: actor for rank, actor in self.new.items() if actor in present}
            self.old = {rank: actor for rank, actor in self.old.items() if actor in present}
            if crew.reservation is not None:
                crew.reservation.vacate(self._added)

    def _uncalled(self, kept_before: set[int], kept_after: set[int]) -> set[ActorHandle[Any]]:
        """Return the actors that stay without calls: of these instances, those that leave and those that are new."""
        members = self.members
        leaving = _union(members.going[number] for number in members.going.keys() & kept_before)
        arrived = _union(members.all_new[number] for number in members.all_new.keys() & kept_after)
        uncalled = {self.old[rank] for rank in leaving if rank in self.old}
        return uncalled | {self.new[rank] for rank in arrived if rank in self.new}

    def _take_back(self, ranks: Sequence[LiveRank]) -> None:
        """Give ranks the rows that they had."""
        rendezvous = restart_environment(self.crew.restarts)
        for rank in ranks:
            for master in rank.masters[-1:]:
                rendezvous |= zip(MASTER_VARIABLES, (master.address, str(master.port)), strict=True)
        self.crew.admit(ranks)
        nodes = ray.put(pickle.dumps(self.crew.home_of(ranks[0]).nodes))
        outcomes([rank.actor.renew.remote(rank.spec, rendezvous, nodes) for rank in ranks], timeouts.ANSWER)


def _home_before(crew: Crew, part: MovingComponent) -> Home:
    """Return what the group runs by the plan before, on the nodes of the cluster as they are named there."""
    if part.before is None:
        raise LookupError("a component without ranks before has no group")
    component: Component = part.before.component
    return Home(as_launched(crew, component), crew.terms.nodes().of_plan(component.inventory))
