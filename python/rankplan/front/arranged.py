"""A job on the arrangement of its nodes that its rules ask for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic, Protocol, TypeVar

from rankplan.arranging.of_job import arrangement_of
from rankplan.arranging.task import Arrangement, reject_nameless
from rankplan.errors import PlacementError
from rankplan.frozen import frozen
from rankplan.jobs.reader import JobFile
from rankplan.nodes.inventory import Inventory
from rankplan.nodes.ordered import reordered
from rankplan.plans.fitting import moved
from rankplan.plans.plan import Plan
from rankplan.plans.rules import NO_RULES
from rankplan.read.read_config import ReadConfig
from rankplan.read.sources import Planned

_MOST_ROUNDS = 4
"""How often nodes are arranged for a plan that the arrangement has changed."""

_Job = TypeVar("_Job", bound="PlacedJob")


class PlacedJob(Protocol):
    """What is arranged: see `rankplan.front.job.Job`."""

    @property
    def inventory(self) -> Inventory:
        """The nodes that the job may use."""

    @property
    def labelled(self) -> bool:
        """Whether their labels are known."""

    @property
    def config(self) -> ReadConfig:
        """The trainer's config."""

    @property
    def stated(self) -> JobFile | None:
        """What a job file states."""

    @property
    def options(self) -> Mapping[str, Any]:
        """Rules that replace those of their names."""

    def placed(self, *, isolate: bool | None = None, pinned: bool = False) -> Planned:
        """Return the plan on the nodes in their order, whose rules are not checked."""

    def reordered(self: _Job, order: Sequence[int]) -> _Job:
        """Return the job on its nodes in another order, given by their ranks."""


@frozen
class ArrangedJob(Generic[_Job]):
    """A job on its nodes in another order, Ray's ids of these nodes, and its plan on them.

    ``order`` has their ranks before. ``arrangement`` is ``None`` for a job that places nothing.
    """

    job: _Job
    node_ids: Sequence[str]
    planned: Planned
    order: Sequence[int]
    arrangement: Arrangement | None = None


def chooses_nodes(job: PlacedJob) -> bool:
    """Whether the rules of a job choose among its nodes, which may get other ranks.

    Rules of a job file do, unless it states the order of the nodes, or the trainer's own config names nodes by their
    ranks. Without levels of the network, only reserves do.
    """
    rules = NO_RULES if job.stated is None else job.stated.rules
    if not job.labelled or (job.stated is not None and job.stated.is_given) or _counts_nodes(job.config):
        return False
    reserved = any(pool.node_ranks for pool in rules.pools)
    return reserved or (bool(rules or job.options) and bool(job.inventory.levels))


def _counts_nodes(config: ReadConfig) -> bool:
    """Whether a config itself names nodes by their ranks, as RLinf's ``cluster`` section may."""
    if config.cluster is None:
        return False
    facts, pools = config.cluster.facts, config.cluster.rules.pools
    return bool(facts.node_groups or facts.exclude) or any(pool.node_ranks for pool in pools)


def arranged(job: _Job, node_ids: Sequence[str], *, isolate: bool | None, pinned: bool) -> ArrangedJob[_Job]:
    """Return a job on the arrangement of its nodes, and its plan there.

    The prediction of what the trainer does decides which nodes come first, so that a plan to pin uses the same ones.
    Where that breaks the rules, nodes are arranged once more, for the plan to pin. So are nodes on which the trainer
    cannot start by itself, such as those of ROLL with an excluded one among them. Raises `PlacementError` if no
    arrangement keeps the rules.
    """
    try:
        predicted = job.placed(isolate=isolate)
    except PlacementError:
        if not pinned:
            raise
        return _settled(job, job.placed(isolate=isolate, pinned=True), node_ids, isolate=isolate, pinned=True)
    found = _settled(job, predicted, node_ids, isolate=isolate, pinned=False)
    if not pinned:
        return found
    planned = found.job.placed(isolate=isolate, pinned=True)
    if _holds(found.job, planned):
        return replace(found, planned=planned)
    return _settled(found.job, planned, found.node_ids, isolate=isolate, pinned=True)


def _settled(
    job: _Job, planned: Planned, node_ids: Sequence[str], *, isolate: bool | None, pinned: bool
) -> ArrangedJob[_Job]:
    """Return a job, which is ``planned`` on its nodes, on an arrangement on which it is planned as it was before.

    On nodes of which some accelerators are excluded, the trainer takes others than before they were arranged: then the
    nodes are arranged for that plan, too.
    """
    every: list[int] = list(range(job.inventory.num_nodes))
    arrangement: Arrangement | None = None
    for _ in range(_MOST_ROUNDS):
        if not planned.plan:
            break
        found = arrangement_of(planned.plan, job.inventory, node_ids)
        arrangement = found if arrangement is None else arrangement.followed_by(found)
        order = found.order
        if order == sorted(order) or not _has_names(job, planned, order):
            break
        job = job.reordered(order)
        every = [every[node] for node in order]
        node_ids = [node_ids[node] for node in order] if node_ids else []
        planned = job.placed(isolate=isolate, pinned=pinned)
        if _holds(job, planned):
            break
    return ArrangedJob(job, node_ids, planned, every, arrangement)


def _has_names(job: PlacedJob, planned: Planned, order: Sequence[int]) -> bool:
    """Whether nodes can be told from others in a new order.

    Raises `PlacementError` for nodes without names, unless the rules hold in the order of the inventory.
    """
    try:
        reject_nameless(job.inventory, order)
    except PlacementError:
        if _holds(job, planned):
            return False
        raise
    return True


def _holds(job: PlacedJob, planned: Planned) -> bool:
    return not planned.plan.rule_faults(labelled=job.labelled, cluster=job.inventory)


def on_arrangement(plan: Plan, inventory: Inventory) -> Plan:
    """Return a plan in the same places of its nodes as its rules arrange them; ``inventory`` has the same nodes.

    Raises `PlacementError` if no arrangement keeps the rules.
    """
    order = arrangement_of(plan, inventory).order
    reject_nameless(inventory, order)
    nodes = reordered(plan.inventory, order)
    rules = plan.rules.renumbered({rank: index for index, rank in enumerate(order)})
    return plan.placed(nodes, [moved(one, nodes) for one in plan.values()], rules)
