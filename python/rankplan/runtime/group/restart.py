"""Restarting the ranks of a running group that are dead or whose place has changed; the others are left alone."""

from __future__ import annotations

import logging
import pickle
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import ray

from rankplan._core import Placement, RankSet
from rankplan.environment import MASTER_VARIABLES, planned_environment, restart_environment
from rankplan.plans.component import Component, Visibility
from rankplan.runtime.group.calls import ranks_text
from rankplan.runtime.group.crew import Crew, LiveRank
from rankplan.runtime.group.launch import Recipe, Start, started
from rankplan.runtime.group.seats import find_seats
from rankplan.runtime.group.watch import dead_ranks
from rankplan.runtime.nodes.nodes import Nodes
from rankplan.runtime.rank.host import Renewal
from rankplan.runtime.rank.report import RankReport, Sighting
from rankplan.runtime.rank.settings import rank_settings
from rankplan.runtime.ray import session

_logger = logging.getLogger("rankplan")


@dataclass(slots=True)
class Terms:
    """How a group was launched: what its ranks run, its component, what overrides the plan, and the cluster's nodes.

    ``planned`` is the name of the component in the plan.
    """

    nodes: Callable[[], Nodes]
    recipe: Recipe
    component: Component
    planned: str
    visibility: Visibility | None
    prove: str | None
    lock: threading.Lock = field(default_factory=threading.Lock)


def restart(crew: Crew, terms: Terms, component: Component | None, timeout: float) -> list[RankReport]:
    """Start the ranks that are dead or elsewhere in this component, verify them, and return their reports.

    All or nothing; see ``WorkerGroup.restart``.
    """
    with terms.lock, session.used():
        crew.connection.check_alive()
        crew.check_open()
        nodes, component = _fitted(crew, terms, component)
        return _restart(crew, terms, nodes, component, timeout)


def _fitted(crew: Crew, terms: Terms, component: Component | None) -> tuple[Nodes, Component]:
    """Return the component on the nodes of the cluster, in the order of its plan."""
    if component is None:
        component = terms.component
    elif not isinstance(component, Component):
        raise TypeError(f"component is of type {type(component).__name__}; pass a component of a plan: plan[name]")
    elif component.name != terms.planned:
        raise ValueError(f"this group runs {terms.planned}, not {component.name}; pass plan[{terms.planned!r}]")
    nodes, (component,) = terms.nodes().fitting(component.inventory, [replace(component, name=terms.planned)])
    component = replace(component, name=crew.component)
    if terms.visibility is not None:
        component = component.with_visibility(terms.visibility)
    return nodes, component


def _restart(crew: Crew, terms: Terms, nodes: Nodes, component: Component, timeout: float) -> list[RankReport]:
    old = list(crew.ranks)
    dead = {rank.expected.placement.rank for rank in dead_ranks(old)}
    kept: dict[int, LiveRank] = {}
    for rank, row in zip(old, component, strict=False):
        if row.rank not in dead and _place(rank.expected.placement, crew.nodes) == _place(row, nodes):
            kept[row.rank] = replace(rank, expected=replace(rank.expected, placement=row))
    moved = RankSet(row.rank for row in component if row.rank not in kept)
    if not moved:
        crew.settle([kept[row.rank] for row in component], nodes, crew.master, crew.restarts)
        terms.component = component
        return []
    settings = rank_settings(component, terms.prove, nodes.simulated)
    seats = find_seats(nodes, component, moved)
    rows = [seat.placement for seat in seats]
    start = Start(
        terms.recipe, nodes, seats, [settings[rank] for rank in moved], component[0], timeout, crew.restarts + 1
    )
    addition = crew.reservation.extend(nodes, crew.component, rows) if crew.reservation else None
    try:
        crew.announce(list(component), nodes)
        newcomers, master, reports = started(crew, start)
        up = dict(zip(moved, newcomers, strict=True))
        crew.settle([kept.get(row.rank) or up[row.rank] for row in component], nodes, master, start.restarts)
    except BaseException:
        if crew.restarts < start.restarts:
            crew.dismiss()
            if addition is not None:
                addition.release()
        raise
    terms.component = component
    _logger.info("%s: restarted %s", crew.component, ranks_text(moved))
    return reports


def _place(row: Placement, nodes: Nodes) -> tuple[Any, ...]:
    """Return what a process is bound to: machines, devices and settings."""
    devices = [(nodes.ids[node], index) for node, index in row.devices]
    seen = row.visible_accelerators, row.accelerator_type, row.visibility
    return nodes.ids[row.cluster_node_rank], devices, seen, row.local_hardware_ranks, row.node_group_label


def renewals(crew: Crew, terms: Terms) -> tuple[list[LiveRank], list[ray.ObjectRef[Sighting]]]:
    """Tell every rank what restarts have changed; return the ranks as they are expected to be, and their answers."""
    rendezvous = restart_environment(crew.restarts)
    if crew.master is not None:
        rendezvous |= zip(MASTER_VARIABLES, map(str, crew.master), strict=True)
    nodes = ray.put(pickle.dumps(crew.nodes))
    ranks: list[LiveRank] = []
    answers: list[ray.ObjectRef[Sighting]] = []
    for rank in list(crew.ranks):
        row = rank.expected.placement
        planned = planned_environment(row)
        renewal = Renewal(row, terms.component.coordinates(row.rank), planned | rendezvous)
        answers.append(rank.host.renew.remote(renewal, nodes))
        ranks.append(replace(rank, expected=replace(rank.expected, environment=planned)))
    return ranks, answers
