"""Changing a running group, all or nothing: dead ranks start again, ranks move, join and leave."""

from __future__ import annotations

import logging
import pickle
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import ray

from rankplan._core import Placement, RankSet
from rankplan.environment import MASTER_VARIABLES, restart_environment
from rankplan.errors import LaunchError
from rankplan.frozen import frozen
from rankplan.nodes.inventory import Inventory
from rankplan.parallel import Parallel
from rankplan.plans.component import Component
from rankplan.plans.diff import same_nodes
from rankplan.plans.plan import Plan
from rankplan.runtime.group import faults
from rankplan.runtime.group.crew import Answer, Crew, Home, LiveRank, dead_ranks
from rankplan.runtime.group.launch import new_master, started
from rankplan.runtime.group.ranks import check_interpreters, rank_specs
from rankplan.runtime.nodes.nodes import Nodes
from rankplan.runtime.rank.ports import PORTS
from rankplan.runtime.rank.spec import RankReport
from rankplan.runtime.ray import timeouts
from rankplan.runtime.ray.answers import Failed, Unanswered, collect, ranks_text, wait_for
from rankplan.runtime.ray.asking import answers_within
from rankplan.runtime.ray.connection import using_session
from rankplan.runtime.ray.signals import Uninterrupted
from rankplan.runtime.reserve.reserve import Place, Wanted
from rankplan.words import counted, ranges_text, wrong_type

if TYPE_CHECKING:
    from typing_extensions import Self

_logger = logging.getLogger("rankplan")


def restart(crew: Crew, plan: Plan | Component | None, timeout: float | None) -> list[RankReport]:
    """Start the ranks that are new, dead or elsewhere in this plan, and end the others; see ``WorkerGroup.restart``."""
    with crew.restarting, using_session(), answers_within(timeout):
        crew.connection.check_alive()
        crew.check_open()
        change = _Change.of(crew, _component(crew, plan))
        if not change.starting and not change.leaving:
            crew.settle(change.ranks([]), change.component, change.nodes, crew.master, crew.restarts)
            return []
        summary = _summary(len(crew.ranks), change.starting, change.leaving)
        reports = _carry_out(crew, change, timeout)
        _logger.info("%s: %s", crew.component, summary)
        return reports


@frozen
class _Change:
    """A component to run on these nodes, and what becomes of the ranks of a group.

    ``kept`` are those that stay as they are, by process rank, and ``leaving`` those that the component lacks. ``dead``
    ranks have no process any more, ``lost`` ones have hardware that is out of use.
    """

    component: Component
    nodes: Nodes
    dead: set[int]
    lost: set[int]
    kept: dict[int, LiveRank]
    starting: RankSet
    leaving: list[LiveRank]

    @classmethod
    def of(cls, crew: Crew, given: Component) -> Self:
        """Return what this component changes.

        Raises ``ValueError`` if another number of ranks changes those that stay.
        """
        old = list(crew.ranks)
        nodes, component = fitted(crew, given)
        dead = {rank.placement.rank for rank in dead_ranks(old)}
        lost = _lost_ranks(crew, given.inventory)
        if len(component) != len(old):
            _check_staying(crew, component, nodes, dead | lost)
        kept: dict[int, LiveRank] = {}
        for rank in old:
            stays = rank.number < len(component) and rank.number not in dead
            if stays and is_at(crew.home_of(rank), rank, Home(component, nodes), component[rank.number]):
                kept[rank.number] = replace(rank, placement=component[rank.number])
        starting = RankSet(row.rank for row in component if row.rank not in kept)
        leaving = [rank for rank in old if rank.number >= len(component)]
        return cls(component, nodes, dead, lost, kept, starting, leaving)

    def ranks(self, newcomers: Sequence[LiveRank]) -> list[LiveRank]:
        """Return all ranks of the component, those that were started among them."""
        up = dict(zip(self.starting, newcomers, strict=True))
        return [self.kept.get(row.rank) or up[row.rank] for row in self.component]


def _carry_out(crew: Crew, change: _Change, timeout: float | None) -> list[RankReport]:
    """Start ranks, end others, and let the crew have the new ones, or leave it as it was. Return their reports."""
    component, nodes = change.component, change.nodes
    specs = []
    if change.starting or not component.rows:
        specs = rank_specs(nodes, component, crew.terms.prove, change.starting)
    check_interpreters(specs)
    restarts = crew.restarts + 1
    added: set[Place] = set()
    try:
        crew.announce(list(component), nodes)
        if crew.reservation is not None and specs:
            wanted = Wanted.of(component, [spec.placement for spec in specs])
            added = crew.reservation.extend(nodes, crew.component, wanted)
        with PORTS.searching() as search:
            if specs:
                newcomers, master, reports = started(crew, nodes, specs, component[0], search, timeout, restarts)
            else:
                newcomers, master, reports = [], new_master(crew, nodes, component[0], search), []
            _let_leave(crew, change, timeout)
            with Uninterrupted():
                left = crew.places_of(rank for rank in change.leaving if rank.number not in change.dead | change.lost)
                crew.settle(change.ranks(newcomers), component, nodes, master, restarts, search)
                if crew.reservation is not None and left:
                    crew.reservation.vacate(left)
    except BaseException:
        if crew.restarts < restarts:  # it has not settled
            _undo(crew, added)
        raise
    return reports


def _let_leave(crew: Crew, change: _Change, timeout: float | None) -> None:
    """Send no more calls to ranks that leave, and let them finish. Calls in flight may wait for dead ranks forever."""
    if not change.leaving:
        return
    crew.retire(change.leaving)
    if not change.dead:
        finish(crew, change.leaving, timeouts.FINISH if timeout is None else timeout, faults.NOT_RESTARTED)


def _undo(crew: Crew, added: set[Place]) -> None:
    """End the ranks that were started, and return their places: another group may start there by now."""
    with Uninterrupted():
        crew.dismiss()
        if crew.reservation is not None:
            crew.reservation.vacate(added)


def _summary(before: int, starting: RankSet, leaving: Sequence[LiveRank]) -> str:
    again = RankSet(rank for rank in starting if rank < before)
    new = starting - again
    gone = RankSet(rank.placement.rank for rank in leaving)
    parts = {"restarted": again, "added": new, "removed": gone}
    return ", ".join(f"{what} {ranks_text(ranks)}" for what, ranks in parts.items() if ranks)


def _component(crew: Crew, plan: Plan | Component | None) -> Component:
    """Return the component that the group shall run."""
    terms, name = crew.terms, crew.terms.planned
    if plan is None:
        return terms.component
    if isinstance(plan, Plan):
        if name not in plan:
            raise ValueError(f"this group runs {name}, which the plan lacks; it has {', '.join(plan) or 'nothing'}")
        return plan[name]
    if not isinstance(plan, Component):
        raise wrong_type("plan", plan, "a plan, or a component of one: plan[name]")
    if plan.name != name:
        raise ValueError(f"this group runs {name}, not {plan.name}; pass plan[{name!r}]")
    return plan


def fitted(crew: Crew, component: Component) -> tuple[Nodes, Component]:
    """Return the component on the nodes of the cluster, in the order of its plan."""
    terms = crew.terms
    nodes, (component,) = terms.nodes().fitted(component.inventory, [replace(component, name=terms.planned)])
    return nodes, as_launched(crew, component)


def as_launched(crew: Crew, component: Component) -> Component:
    """Return the component with the name and the visibility that the group was launched with."""
    component = replace(component, name=crew.component)
    if crew.terms.visibility is not None:
        component = component.with_settings(visibility=crew.terms.visibility)
    return component


def _place_of(row: Placement, nodes: Nodes) -> tuple[Any, ...]:
    """Return the machines, devices and settings that a process is bound to."""
    devices = [(nodes.ids[node], index) for node, index in row.devices]
    seen = row.visible_accelerators, row.accelerator_type, row.visibility
    return nodes.ids[row.cluster_node_rank], devices, seen, row.local_hardware_ranks, row.node_group_label


def _check_staying(crew: Crew, component: Component, nodes: Nodes, lost: set[int]) -> None:
    """Raise ``ValueError`` if a plan with more or fewer ranks changes a rank that stays and is not lost."""
    change = _change_of_staying(crew, component, nodes, lost)
    if change is None:
        return
    name, there = crew.terms.planned, counted(len(component), "rank")
    raise ValueError(
        f"{crew.component}: the plan has {there}, the group {len(crew.ranks)}, and it {change}; a group grows or "
        f"shrinks by its last ranks, and the others stay as they are: plan with replan(plan, nodes, grow="
        f"{{{name!r}: N}}) or shrink={{{name!r}: N}}, or shut the group down and launch this plan"
    )


def _change_of_staying(crew: Crew, component: Component, nodes: Nodes, lost: set[int]) -> str | None:
    """Return in words the first change of a rank that stays and is not lost, ``None`` if there is none."""
    if _sizes(crew.terms.component) != _sizes(component):
        return "has other parallel sizes"
    for rank in crew.ranks:
        if rank.number in lost or rank.number >= len(component):
            continue
        old, row, home = rank.placement, component[rank.number], crew.home_of(rank)
        if _place_of(old, home.nodes) != _place_of(row, nodes):
            return f"moves rank {row.rank} from {_where(old, home.nodes)} to {_where(row, nodes)}"
        if _coordinates(home.component, row.rank) != _coordinates(component, row.rank):
            return f"gives rank {row.rank} other coordinates in its parallel groups"
    return None


def _lost_ranks(crew: Crew, planned: Inventory) -> set[int]:
    """Return the ranks whose nodes or accelerators the inventory of a plan lacks, or marks as out of use."""
    lost = set()
    by_order: dict[tuple[str, ...], list[int | None]] = {}
    for rank in crew.ranks:
        nodes = crew.home_of(rank).nodes
        if nodes.ids not in by_order:
            by_order[nodes.ids] = same_nodes(nodes.inventory, planned)
        names = by_order[nodes.ids]
        if any(_is_lost(planned, names[node], local) for node, local in _uses(rank.placement)):
            lost.add(rank.number)
    return lost


def _uses(row: Placement) -> Sequence[tuple[int, int | None]]:
    """Return the nodes that a process uses, with the local indices of its accelerators there."""
    return row.devices if row.num_accelerators else [(row.cluster_node_rank, None)]


def _is_lost(inventory: Inventory, node: int | None, local: int | None) -> bool:
    """Whether an inventory lacks a node, or marks it or this accelerator of it as out of use."""
    if node is None:
        return True
    if node not in inventory.marks:
        return False
    marked = inventory.marks[node]
    return marked is None or (local is not None and local in marked)


def _where(row: Placement, nodes: Nodes) -> str:
    """Return the node of a process, with its accelerators there, as a message names them."""
    home = nodes.address(row.cluster_node_rank)
    local = [local for node, local in _uses(row) if node == row.cluster_node_rank and local is not None]
    return f"{home} (accelerators {ranges_text(RankSet(local))})" if local else home


def _sizes(component: Component) -> tuple[Parallel, int]:
    """Return the sizes of a component that do not follow from its number of ranks."""
    return replace(component.parallel, dp=None), component.engines


def is_at(home: Home, rank: LiveRank, new_home: Home, row: Placement) -> bool:
    """Whether a rank already has the place of a row, in parallel groups of the same sizes."""
    before, after = home.component, new_home.component
    if _place_of(rank.placement, home.nodes) != _place_of(row, new_home.nodes) or _sizes(before) != _sizes(after):
        return False
    return _coordinates(before, rank.number) == _coordinates(after, row.rank)


def _coordinates(component: Component, rank: int) -> list[dict[str, int]]:
    """Return the coordinates of the slots of a process, without zeros: those of a group of one are left out."""
    return [{kind: at for kind, at in slot.items() if at} for slot in component.coordinates(rank)]


def finish(crew: Crew, leaving: Sequence[LiveRank], timeout: float, undone: faults.Undone) -> None:
    """Wait until these ranks, which get no more calls, have finished those that they have received.

    Raises ``LaunchError`` after ``timeout`` seconds, or if a rank of the group dies: calls may wait for it forever.
    ``undone`` says what is not done then.
    """
    name, which = crew.component, RankSet(rank.number for rank in leaving)
    deadline = time.monotonic() + timeout
    with crew.connection.progress() as report:

        def tell(done: int) -> None:
            crew.check_open()
            report(f"{name}: {done} of {len(leaving)} ranks that leave have finished their calls")
            gone = dead_ranks(list(crew.ranks))
            if gone and not crew.ended:
                text = faults.died_meanwhile(name, RankSet(rank.number for rank in gone), which, undone)
                raise LaunchError(text, name)

        try:
            collect([rank.actor.finish.remote() for rank in leaving], timeout, tell)
        except Failed as failed:
            crew.check_open()
            if crew.ended:  # by another thread
                return
            row, fault, also = failed.culprit([rank.placement for rank in leaving])
            text = faults.calls_failed(name, row, f"{fault.reason}{also}", undone)
            raise LaunchError(text, name, row.rank, row.cluster_node_rank) from fault.cause
        except Unanswered as unanswered:
            late = [leaving[index].placement for index in unanswered.pending]
            text = faults.calls_go_on(name, RankSet(row.rank for row in late), timeout, undone)
            raise LaunchError(text, name, late[0].rank, late[0].cluster_node_rank) from None
    # the last answers are on their way
    if answers := answers_of(leaving):
        left = max(timeouts.ANSWER, deadline - time.monotonic())
        wait_for(answers, left)


def answers_of(ranks: Sequence[LiveRank]) -> list[Answer]:
    """Return the answers of these ranks to all calls that the program still refers to."""
    return [answer for rank in ranks for answer in list(rank.calls.values())]


def renewals(crew: Crew) -> tuple[list[LiveRank], list[Answer]]:
    """Send every rank the changes of restarts; return the ranks with their new specs, and their answers."""

    def send(ranks: Sequence[LiveRank]) -> list[Answer]:
        rendezvous = restart_environment(crew.restarts)
        if crew.master is not None:
            rendezvous |= zip(MASTER_VARIABLES, (crew.master.address, str(crew.master.port)), strict=True)
        sent: dict[tuple[str, ...], Any] = {}
        answers: list[Answer] = []
        for rank in ranks:
            nodes = crew.home_of(rank).nodes
            if nodes.ids not in sent:
                sent[nodes.ids] = ray.put(pickle.dumps(nodes))
            answers.append(rank.actor.renew.remote(rank.spec, rendezvous, sent[nodes.ids]))
        return answers

    return crew.renew(send)
