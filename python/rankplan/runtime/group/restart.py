"""Restarting the ranks of a running group that are dead or whose place has changed; the others are left alone."""

from __future__ import annotations

import logging
import pickle
from dataclasses import replace
from typing import Any

import ray

from rankplan._core import Placement, RankSet
from rankplan.environment import MASTER_VARIABLES, restart_environment
from rankplan.plans.component import Component
from rankplan.runtime.group.crew import Crew, LiveRank
from rankplan.runtime.group.interpreters import check_interpreters
from rankplan.runtime.group.launch import started
from rankplan.runtime.group.ranks import rank_specs
from rankplan.runtime.group.watch import dead_ranks
from rankplan.runtime.nodes.nodes import Nodes
from rankplan.runtime.rank.report import RankReport
from rankplan.runtime.ray import session
from rankplan.runtime.ray.answers import ranks_text

_logger = logging.getLogger("rankplan")


def restart(crew: Crew, component: Component | None, timeout: float) -> list[RankReport]:
    """Start the ranks that are dead or elsewhere in this component, verify them, and return their reports.

    All or nothing; see ``WorkerGroup.restart``.
    """
    with crew.restarting, session.used():
        crew.connection.check_alive()
        crew.check_open()
        nodes, component = _fitted(crew, component)
        return _restart(crew, nodes, component, timeout)


def _fitted(crew: Crew, component: Component | None) -> tuple[Nodes, Component]:
    """Return the component on the nodes of the cluster, in the order of its plan."""
    terms = crew.terms
    if component is None:
        component = terms.component
    elif not isinstance(component, Component):
        raise TypeError(f"component is of type {type(component).__name__}; pass a component of a plan: plan[name]")
    elif component.name != terms.planned:
        raise ValueError(f"this group runs {terms.planned}, not {component.name}; pass plan[{terms.planned!r}]")
    nodes, (component,) = terms.nodes().fitted(component.inventory, [replace(component, name=terms.planned)])
    component = replace(component, name=crew.component)
    if terms.visibility is not None:
        component = component.with_settings(visibility=terms.visibility)
    return nodes, component


def _restart(crew: Crew, nodes: Nodes, component: Component, timeout: float) -> list[RankReport]:
    terms, old = crew.terms, list(crew.ranks)
    dead = {rank.placement.rank for rank in dead_ranks(old)}
    kept: dict[int, LiveRank] = {}
    for rank, row in zip(old, component, strict=False):
        if row.rank not in dead and _place(rank.placement, crew.nodes) == _place(row, nodes):
            kept[row.rank] = replace(rank, placement=row)
    moved = RankSet(row.rank for row in component if row.rank not in kept)
    if not moved:
        crew.settle([kept[row.rank] for row in component], nodes, crew.master, crew.restarts)
        terms.component = component
        return []
    specs = rank_specs(nodes, component, terms.prove, moved)
    check_interpreters(specs)
    rows, restarts = [spec.placement for spec in specs], crew.restarts + 1
    addition = crew.reservation.extend(nodes, crew.component, rows) if crew.reservation else None
    try:
        crew.announce(list(component), nodes)
        newcomers, master, reports = started(crew, nodes, specs, component[0], timeout, restarts)
        up = dict(zip(moved, newcomers, strict=True))
        crew.settle([kept.get(row.rank) or up[row.rank] for row in component], nodes, master, restarts)
    except BaseException:
        if crew.restarts < restarts:
            crew.dismiss()
            if addition is not None:
                addition.release()
        raise
    terms.component = component
    _logger.info("%s: restarted %s", crew.component, ranks_text(moved))
    return reports


def _place(row: Placement, nodes: Nodes) -> tuple[Any, ...]:
    """Return the machines, devices and settings that a process is bound to."""
    devices = [(nodes.ids[node], index) for node, index in row.devices]
    seen = row.visible_accelerators, row.accelerator_type, row.visibility
    return nodes.ids[row.cluster_node_rank], devices, seen, row.local_hardware_ranks, row.node_group_label


def renewals(crew: Crew) -> tuple[list[LiveRank], list[ray.ObjectRef[RankReport]]]:
    """Send every rank the changes of restarts; return the ranks with their new specs, and their answers."""
    rendezvous = restart_environment(crew.restarts)
    if crew.master is not None:
        rendezvous |= zip(MASTER_VARIABLES, map(str, crew.master), strict=True)
    nodes = ray.put(pickle.dumps(crew.nodes))
    ranks: list[LiveRank] = []
    answers: list[ray.ObjectRef[RankReport]] = []
    for rank in list(crew.ranks):
        coordinates = crew.terms.component.coordinates(rank.placement.rank)
        spec = replace(rank.spec, placement=rank.placement, coordinates=coordinates)
        answers.append(rank.actor.renew.remote(spec, rendezvous, nodes))
        ranks.append(replace(rank, spec=spec))
    return ranks, answers
