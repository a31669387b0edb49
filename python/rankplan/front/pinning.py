"""The plan to bind on a running cluster now: on what other jobs leave free, in the order in which the trainer sorts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from rankplan.arranging.of_job import exchange_for_rules
from rankplan.dialects import DIALECTS, OWN
from rankplan.errors import PlacementError, refusal
from rankplan.front import faults
from rankplan.front.command import announce_without_ray, reject_without_ray
from rankplan.front.job import Job, excluding
from rankplan.frozen import frozen
from rankplan.jobs.nodes import nodes_of, usable
from rankplan.nodes.inventory import Inventory
from rankplan.nodes.inventory_file import is_size
from rankplan.nodes.running import RunningCluster
from rankplan.plans.exchange import sorted_for_trainer
from rankplan.plans.plan import Plan
from rankplan.plans.reserving import reservation_faults, reservation_warnings
from rankplan.read.sources import Planned, Sources
from rankplan.runtime.cluster import Cluster
from rankplan.runtime.nodes.nodes import Nodes
from rankplan.runtime.ray.connection import head_of, joined
from rankplan.runtime.ray.tables import Tables
from rankplan.runtime.usage.held import Held
from rankplan.runtime.usage.look import look
from rankplan.words import listed, unknown

_MOST = 8
"""Nodes named in a message."""

Planner: TypeAlias = Callable[[Nodes, Held], Planned]
"""Returns the plan on the nodes of a cluster, on what others do not hold."""


@frozen
class OnCluster:
    """A plan, where its config states it, and the nodes that it has on a cluster in the order of the plan.

    ``uncertain`` are the ids of nodes of which Ray does not tell which accelerators others hold. ``moved`` are the
    names of the nodes before and now, by node rank, of those that were exchanged.
    """

    plan: Plan
    sources: Sources
    nodes: Nodes
    uncertain: Collection[str]
    moved: Mapping[int, tuple[str, str]]


def planned_now(
    planned: Planner, cluster: RunningCluster | str, tell: Callable[[str], None], *, by_text: bool
) -> Planned:
    """Return what a planner answers on a cluster, or on the one at an address.

    See `on_cluster`, and `rankplan.front.to_pin.JobToPin.planned`.
    """
    with _looked_at(cluster) as (nodes, tables):
        order = nodes.inventory.core.other_order("text") if by_text else None
        found = on_cluster(planned, nodes if order is None else nodes.reordered(order), tables, tell)
    check_requests(found.plan)
    return Planned(found.plan, found.sources)


class _Looked(NamedTuple):
    """The nodes of a cluster, and the tables of its head."""

    nodes: Nodes
    tables: Tables


@contextmanager
def _looked_at(cluster: RunningCluster | str) -> Iterator[_Looked]:
    if not isinstance(cluster, str):
        yield _Looked(cluster.nodes, head_of(cluster.address).tables())
        return
    head = head_of(cluster)
    tables = head.tables()  # before this process is a job of the cluster
    with joined(head), Cluster() as connected:
        yield _Looked(connected.nodes, tables)


def planner_of(job: Job, without: Sequence[str], *, isolate: bool | None, fitting: bool = True) -> Planner:
    """Return the function from the nodes of a cluster to the plan of a config; its faults are raised now.

    Unless it must be ``fitting``, the plan may need more memory than there is.
    """
    reject_without_ray(job)
    if job.dialect.no_groups:
        raise PlacementError([faults.no_groups(job.name, job.dialect.no_groups)])
    job.reader.fork().finish()
    announce_without_ray(job)

    stated = job.stated
    allowed = None if stated is None or stated.nodes is None or is_size(stated.nodes) else nodes_of(stated)

    def plan(nodes: Nodes, held: Held) -> Planned:
        there = replace(job, labelled=True, assumed=False)
        if stated is not None and allowed is not None:
            there = replace(there, stated=stated.on_cluster(allowed, nodes.inventory))

        def on(inventory: Inventory) -> Planned:
            attempt = replace(there, config=job.config.fork()).on(inventory)
            planned = attempt.kept(isolate=isolate, pinned=True, node_ids=nodes.ids)
            return attempt.fitting(planned) if fitting else planned

        left = held.left(usable(nodes.inventory, allowed, stated))
        found = held.planned(excluding(left, without), on)
        there.announce_unknown()
        there.announce_torn(found)
        return found

    return plan


def on_cluster(
    planned: Planner, nodes: Nodes, tables: Tables, tell: Callable[[str], None], saved: Plan | None = None
) -> OnCluster:
    """Plan on what other jobs leave free, in the order in which the trainer sorts the nodes.

    The nodes of a ``saved`` plan may change places for that, and for its rules.

    ``tell`` gets notes about what was left out, and why. Raises `PlacementError`: also ``order-not-kept``, if the
    trainer sorts the nodes of a pool in another order.
    """
    # others have joined since, or are outside of the plan by their label
    ids = set(nodes.ids)
    own = replace(tables, nodes=tuple(entry for entry in tables.nodes if entry.node_id in ids))
    if held := Held.of(look(own, planned=nodes.inventory)):
        texts = [f"{nodes.address(rank)}: {held.text(rank)}" for rank in held.nodes()]
        tell(f"other jobs hold accelerators, which the plan leaves out: {listed_nodes(texts)}")
    plan, sources = planned(nodes, held)
    uncertain = [nodes.ids[rank] for rank in held.hidden]
    placed = _in_place(plan, nodes.of_plan(plan.inventory), saved, tell)
    plan = placed.plan
    lacking = reservation_faults(plan, bound=True)
    if lacking:
        raise refusal(lacking)
    for warning in reservation_warnings(plan):
        tell(warning.message)
    return OnCluster(plan, sources, placed.nodes, uncertain, placed.moved)


@frozen
class _InPlace:
    """A plan after nodes were exchanged, the nodes in its order, and what `OnCluster` tells about them."""

    plan: Plan
    nodes: Nodes
    moved: Mapping[int, tuple[str, str]]


def _in_place(plan: Plan, nodes: Nodes, saved: Plan | None, tell: Callable[[str], None]) -> _InPlace:
    """Exchange nodes of a plan for its trainer's order, and those of a ``saved`` plan first for its rules."""
    reasons = []
    for_rules = None if saved is None else exchange_for_rules(plan, saved.inventory, nodes.ids)
    if for_rules is not None:
        plan, nodes = for_rules.plan, nodes.reordered(for_rules.order)
        reasons.append("so that the rules hold")
    found = sorted_for_trainer(plan, plan.inventory if saved is None else saved.inventory, nodes.ids)
    exchange = for_rules
    if found.exchange is not None:
        nodes, exchange = nodes.reordered(found.exchange.order), found.exchange.after(for_rules)
        reasons.append(f"as {plan.dialect} sorts them")
    moved = {} if exchange is None else exchange.moved()
    if moved:
        tell(f"the nodes of {len(moved)} ranks are exchanged, {' and '.join(reasons)}:")
        for line in moved_lines(moved):
            tell(f"  {line}")
    for change in found.changes:
        tell(f"{change.message}; the plan now has that order")
    return _InPlace(found.plan, nodes, moved)


def moved_lines(moved: Mapping[int, tuple[str, str]]) -> list[str]:
    """Return the nodes that were exchanged as lines: ``node rank 0: 10.0.0.9 -> 10.0.0.10``."""
    return [f"node rank {rank}: {before} -> {now}" for rank, (before, now) in moved.items()]


def check_requests(plan: Plan) -> None:
    """Raise `PlacementError` for a plan of an unknown trainer, or one that does not know what it asks Ray for."""
    if plan.dialect is not None and plan.dialect not in DIALECTS:
        raise PlacementError([faults.unknown_dialect(plan.dialect, ", ".join(DIALECTS))])
    required = [request for request in plan.requests if not request.optional]
    names = dict.fromkeys(request.component for request in required if request.component)
    missing = [name for name in names if name not in plan]
    if missing:
        raise PlacementError(unknown("component", name, plan, code="plan-mismatch") for name in missing)
    if not required:
        raise PlacementError([faults.no_requests(DIALECTS[OWN].no_groups)])


def listed_nodes(texts: Sequence[str]) -> str:
    """Return the texts of the first nodes, and how many more there are."""
    return listed(texts, _MOST, by="; ", noun="node")
