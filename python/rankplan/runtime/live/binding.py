"""A plan on the nodes of a cluster, and the pins that bind the requests of its trainer to them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import TypeAlias

import ray
from rankplan_hook.names import WRAPPED
from rankplan_hook.patterns import readable
from rankplan_hook.pins import Pins, Planned, bundles

from rankplan._core import RankSet
from rankplan.accelerators import VENDORS
from rankplan.dialects import DIALECTS, OWN
from rankplan.errors import ClusterError, PlacementError, refusal
from rankplan.frozen import frozen
from rankplan.plans.exchange import sorted_for_trainer
from rankplan.plans.plan import Plan
from rankplan.plans.reserving import reservation_faults, reservation_warnings
from rankplan.read.sources import Planned as Placed
from rankplan.read.sources import Sources
from rankplan.runtime.live.faults import held_accelerators, no_hook, no_requests, unknown_dialect
from rankplan.runtime.live.held import Held
from rankplan.runtime.live.look import look
from rankplan.runtime.live.runs import Owner, owner_key
from rankplan.runtime.nodes.nodes import Nodes, live_nodes, pinned
from rankplan.runtime.ray import timeouts
from rankplan.runtime.ray.answers import outcomes
from rankplan.runtime.ray.head import Head
from rankplan.runtime.ray.tables import Tables
from rankplan.words import listed, unknown

_MOST = 8
"""Nodes named in a message."""

Planner: TypeAlias = Callable[[Nodes, Held], Placed]
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


@frozen
class Binding:
    """A plan, the nodes that it has on a cluster, and the pins that a run writes into the head's store.

    ``moved`` are the names of the nodes before and now, by node rank, of those that were exchanged.
    """

    run: str
    plan: Plan
    nodes: Nodes
    pins: Pins
    moved: Mapping[int, tuple[str, str]]

    def publish(self, head: Head, job: str | None = None) -> None:
        """Write the pins where the processes of the command look for them; ``job`` is that of this process, if any."""
        self.own(head, job)
        head.put(f"{self.run}/plan", self.pins.encoded())

    def own(self, head: Head, job: str | None = None) -> None:
        """Write that this process lives, and that the run belongs to it."""
        head.put(owner_key(self.run), Owner.here(job).written())

    def withdraw(self, head: Head) -> None:
        """Remove all keys of the run."""
        head.remove(f"{self.run}/")

    def name(self, node: int) -> str:
        """Return a node of the plan as messages show it: ``node 2 (10.0.0.10)``."""
        return f"node {node} ({self.nodes.address(node)})"

    def lines(self) -> list[str]:
        """Return what the run wraps, and where each request of the plan is bound to."""
        wrapped = [f"{module}.{name}" for module, names in WRAPPED.items() for name in names]
        lines = [f"run {self.run} wraps {', '.join(wrapped)}"]
        for number, one in enumerate(self.pins.requests):
            what = f"{bundles(one.sizes)}{' without a group' if one.strategy is None else ''}"
            named = f" named like `{readable(one.name)}`" if one.name else ""
            on = _first([self.name(node) for node in dict.fromkeys(one.nodes)]) or "optional, on any node"
            lines.append(f"request {number}: {one.component or 'the cluster'}, {what}{named}: {on}")
        return lines


def on_cluster(
    planned: Planner, nodes: Nodes, tables: Tables, tell: Callable[[str], None], saved: Plan | None = None
) -> OnCluster:
    """Plan on what other jobs leave free, in the order in which the trainer sorts the nodes.

    The nodes of a ``saved`` plan may change places for that.

    ``tell`` gets notes about what was left out, and why. Raises `PlacementError`: also ``order-not-kept``, if the
    trainer sorts the nodes of a pool in another order.
    """
    # others have joined since, or are outside of the plan by their label
    ids = set(nodes.ids)
    own = replace(tables, nodes=tuple(entry for entry in tables.nodes if entry.node_id in ids))
    if held := Held.of(look(own, planned=nodes.inventory)):
        texts = [f"{nodes.address(rank)}: {held.text(rank)}" for rank in held.nodes()]
        tell(f"other jobs hold accelerators, which the plan leaves out: {_first(texts)}")
    plan, sources = planned(nodes, held)
    uncertain = [nodes.ids[rank] for rank in held.hidden]
    nodes = nodes.of_plan(plan.inventory)
    found = sorted_for_trainer(plan, plan.inventory if saved is None else saved.inventory, nodes.ids)
    plan, moved = found.plan, {}
    if found.exchange is not None:
        nodes, moved = nodes.reordered(found.exchange.order), found.exchange.moved()
        tell(f"the nodes of {len(moved)} ranks are exchanged, as {plan.dialect} sorts them:")
        for line in moved_lines(moved):
            tell(f"  {line}")
    for change in found.changes:
        tell(f"{change.message}; the plan now has that order")
    lacking = reservation_faults(plan, bound=True)
    if lacking:
        raise refusal(lacking)
    for warning in reservation_warnings(plan):
        tell(warning.message)
    return OnCluster(plan, sources, nodes, uncertain, moved)


def moved_lines(moved: Mapping[int, tuple[str, str]]) -> list[str]:
    """Return the nodes that were exchanged as lines: ``node rank 0: 10.0.0.9 -> 10.0.0.10``."""
    return [f"node rank {rank}: {before} -> {now}" for rank, (before, now) in moved.items()]


def bound(
    planned: Planner,
    nodes: Nodes,
    tables: Tables,
    tell: Callable[[str], None],
    *,
    lenient: bool,
    saved: Plan | None = None,
) -> Binding:
    """Return the plan of `on_cluster` with the node ids that its requests are bound to; raises as that does."""
    found = on_cluster(planned, nodes, tables, tell, saved)
    plan, nodes = found.plan, found.nodes
    check_requests(plan)
    used = {node for request in plan.requests for node in request.nodes}
    if unsure := [nodes.address(rank) for rank, id in enumerate(nodes.ids) if rank in used and id in found.uncertain]:
        reason = "Ray does not tell which accelerators tasks, or groups without actors, hold there"
        tell(f"the plan needs {_first(unsure)}, but {reason}: ranks may get others than planned")
    known = [
        Planned(
            *(one.component, one.name, one.accelerators, one.nodes, one.strategy, one.optional),
            cpus=one.cpus if any(cpus is not None for cpus in one.cpus) else (),
        )
        for one in plan.requests
    ]
    resources = tuple(sorted({row.resource for row in VENDORS}))
    cpus: list[float | None] = []
    for ranks, record in plan.inventory.stretches():
        cpus += [record.cpus] * len(ranks)
    pins = Pins(tuple(known), nodes.ids, _free(plan), resources, lenient, tuple(cpus))
    return Binding(uuid.uuid4().hex[:16], plan, nodes, pins, found.moved)


def fit(saved: Plan, nodes: Nodes, held: Held, without: Sequence[str] = ()) -> Plan:
    """Return a saved plan on the nodes of a cluster.

    Raises `PlacementError` (``plan-mismatch``) if the nodes are others than planned, or others hold what it needs.
    """
    there = nodes.of_plan(saved.inventory)
    found = saved.fitted(there.inventory.without(without) if without else there.inventory)
    places = {id: rank for rank, id in enumerate(nodes.ids)}
    used: dict[int, RankSet] = {}
    for component in found.values():
        for rank, local in component.inventory.core.by_node(component.rows.accelerators()).items():
            place = places[there.ids[rank]]
            used[place] = used.get(place, RankSet()) | local
    left = held.left(nodes.inventory, used)
    conflicts = []
    for rank in held.nodes():
        if used.get(rank, RankSet()) & left.node(rank).unhealthy:
            conflicts.append(held_accelerators(nodes.address(rank), used[rank], held.text(rank)))
    if conflicts:
        raise PlacementError(conflicts)
    marked = replace(nodes, inventory=left).of_plan(saved.inventory).inventory
    return saved.fitted(marked.without(without) if without else marked)


def _free(plan: Plan) -> tuple[int, ...]:
    """Return the number of accelerators that a plan leaves free on each node, also of nodes that it has set aside."""
    idle = plan.idle()
    found = [len(idle.get(rank, ())) for rank in range(plan.inventory.num_nodes)]
    for rank in plan.inventory.taken:
        record = plan.inventory.node(rank)
        found[rank] = record.num_accelerators - len(record.unhealthy) if record.healthy else 0
    return tuple(found)


def _first(texts: Sequence[str]) -> str:
    """Return the texts of the first nodes, and how many more there are."""
    return listed(texts, _MOST, by="; ", noun="node")


def check_requests(plan: Plan) -> None:
    """Raise `PlacementError` for a plan of an unknown trainer, or one that does not know what it asks Ray for."""
    if plan.dialect is not None and plan.dialect not in DIALECTS:
        raise PlacementError([unknown_dialect(plan.dialect, ", ".join(DIALECTS))])
    names = dict.fromkeys(one.component for one in plan.requests if not one.optional and one.component)
    if missing := [name for name in names if name not in plan]:
        raise PlacementError(unknown("component", name, plan, code="plan-mismatch") for name in missing)
    if not any(not one.optional for one in plan.requests):
        raise PlacementError([no_requests(DIALECTS[OWN].no_groups)])


def check_nodes() -> None:
    """Check every node of the connected cluster with a task.

    Raises `PlacementError` (``hook-missing``) with every node that lacks the hook, and ``ClusterError`` for nodes with
    another version of Ray.
    """

    def hook_and_version() -> tuple[bool, str]:  # inside another, sent by value: the node need not have rankplan
        return find_spec("rankplan_hook") is not None, ray.__version__

    task = ray.remote(num_cpus=0)(hook_and_version)
    entries = list(live_nodes().values())
    answers = outcomes(
        [task.options(scheduling_strategy=pinned(entry["NodeID"])).remote() for entry in entries],
        timeouts.ENVIRONMENT,
    )
    hookless = []
    others = []
    for entry, answer in zip(entries, answers, strict=True):
        name = f"{entry['NodeManagerAddress']} ({entry['NodeManagerHostname']})"
        has_hook, version = answer if isinstance(answer, tuple) else (None, ray.__version__)
        if version != ray.__version__:
            others.append(f"{name} has {version}")
        if not has_hook:
            hookless.append(no_hook(name, answered=has_hook is not None))
    if others:
        raise ClusterError(
            f"the nodes have several versions of Ray: this program has {ray.__version__}, {_first(others)}; "
            "install one version on all nodes, and start Ray again"
        )
    if hookless:
        raise PlacementError(hookless)
