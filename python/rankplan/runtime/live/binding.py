"""A plan on the nodes of a cluster, and the pins that bind the requests of its trainer to them."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from math import ceil

import ray
from rankplan_hook.pins import Pins, Planned

from rankplan._core import RankSet
from rankplan.accelerators import VENDORS
from rankplan.errors import Diagnostic, PlacementError
from rankplan.plans.node_order import in_trainers_order
from rankplan.plans.plan import Plan
from rankplan.runtime.live.look import look
from rankplan.runtime.nodes.nodes import Nodes, live_nodes, pinned
from rankplan.runtime.ray import timeouts
from rankplan.runtime.ray.answers import outcomes
from rankplan.runtime.ray.head import Head
from rankplan.runtime.ray.tables import Tables

USE_RUN = "RLinf places its processes by node itself: use `rankplan run`"

_MOST = 8
"""Nodes named in a message."""


@dataclass(frozen=True, slots=True)
class Binding:
    """A plan, the nodes that it has on a cluster, and the pins that a run writes into the head's store.

    ``notes`` tell what was left out, and why.
    """

    run: str
    plan: Plan
    nodes: Nodes
    pins: Pins
    notes: tuple[str, ...]

    def publish(self, head: Head) -> None:
        """Write the pins where the processes of the command look for them."""
        head.put(f"{self.run}/plan", self.pins.encoded())

    def withdraw(self, head: Head) -> None:
        """Remove all keys of the run."""
        head.remove(f"{self.run}/")

    def name(self, node: int) -> str:
        """Return a node of the plan as messages show it: ``node 2 (10.0.0.10)``."""
        return f"node {node} ({self.nodes.address(node)})"


def bound(planned: Callable[[Nodes], Plan], nodes: Nodes, tables: Tables, *, lenient: bool) -> Binding:
    """Plan on what other jobs leave free, and return the plan with the node ids that its requests are bound to.

    Raises `PlacementError`: also ``order-not-kept``, if the trainer sorts the nodes of a pool in another order.
    """
    notes = []
    if held := held_by_others(nodes, tables):
        texts = [f"{nodes.address(rank)}: {taken}" for rank, taken in held.items()]
        more = f" and {len(texts) - _MOST} more nodes" if len(texts) > _MOST else ""
        notes.append(f"other jobs hold accelerators, which the plan leaves out: {'; '.join(texts[:_MOST])}{more}")
        records = [nodes.inventory.node(rank) for rank in range(nodes.inventory.num_nodes)]
        for rank, taken in held.items():
            records[rank] = records[rank].model_copy(update={"unhealthy": records[rank].unhealthy | taken})
        nodes = replace(nodes, inventory=nodes.inventory.updated(records))
    plan = planned(nodes)
    nodes = nodes.of_plan(plan.inventory)
    plan, changes = in_trainers_order(plan, nodes.ids)
    notes += [f"{change.message}; the plan now has that order" for change in changes]
    check_requests(plan)
    known = [
        Planned(one.component, one.name, one.accelerators, one.nodes, one.strategy, one.optional)
        for one in plan.requests
    ]
    idle = plan.idle()
    free = tuple(len(idle.get(rank, ())) for rank in range(len(nodes.ids)))
    resources = tuple(sorted({row.resource for row in VENDORS}))
    pins = Pins(tuple(known), nodes.ids, free, resources, lenient)
    return Binding(uuid.uuid4().hex[:16], plan, nodes, pins, tuple(notes))


def check_requests(plan: Plan) -> None:
    """Raise `PlacementError` for a plan that does not know what its trainer asks Ray for."""
    if not any(not one.optional for one in plan.requests):
        message = "the plan does not know what its trainer asks Ray for"
        help = f"plan the trainer's config again, and save it with this version; {USE_RUN}"
        raise PlacementError([Diagnostic("plan-mismatch", message, help)])


def held_by_others(nodes: Nodes, tables: Tables) -> dict[int, RankSet]:
    """Return the accelerators that are taken: local indices by node rank.

    Ray tells which ones actors hold. Of tasks, and of groups without actors, it only knows how many: the last ones
    count, because Ray hands out the first ones first.
    """
    live = look(tables, planned=nodes.inventory)
    found = live.held()
    for rank, amount in live.hidden().items():
        known = found.get(rank, RankSet())
        left = [index for index in range(nodes.inventory.node(rank).num_accelerators) if index not in known]
        found[rank] = known | RankSet(left[-ceil(amount) :])
    return found


def check_hook() -> None:
    """Raise `PlacementError` (``hook-missing``) with every node of the connected cluster that lacks the hook."""

    def missing() -> bool:  # a function inside another is sent by value: the node need not have rankplan

        return find_spec("rankplan_hook") is None

    task = ray.remote(num_cpus=0)(missing)
    entries = list(live_nodes().values())
    answers = outcomes(
        [task.options(scheduling_strategy=pinned(entry["NodeID"])).remote() for entry in entries],
        timeouts.ENVIRONMENT,
    )
    faults = []
    for entry, answer in zip(entries, answers, strict=True):
        if answer is not False:
            why = "lacks rankplan_hook" if answer is True else "did not run a task"
            message = f"node {entry['NodeManagerAddress']} ({entry['NodeManagerHostname']}) {why}"
            help = "install this version of rankplan there, for the Python that Ray runs in"
            faults.append(Diagnostic("hook-missing", message, help))
    if faults:
        raise PlacementError(faults)
