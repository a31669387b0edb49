"""A plan on the nodes of a cluster, and the pins that bind the requests of its trainer to them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec

import ray
from rankplan_hook.names import WRAPPED
from rankplan_hook.patterns import readable
from rankplan_hook.pins import Pins, Planned, bundles

from rankplan._core import RankSet
from rankplan.accelerators import VENDORS
from rankplan.errors import PlacementError
from rankplan.front.job import excluding
from rankplan.front.pinning import Planner, check_requests, listed_nodes, on_cluster
from rankplan.frozen import frozen
from rankplan.plans.plan import Plan
from rankplan.plans.spares import with_spares
from rankplan.runtime.live.faults import held_accelerators, no_hook, several_versions, unchecked_nodes
from rankplan.runtime.live.runs import Owner, owner_key
from rankplan.runtime.nodes.nodes import Nodes, live_nodes, pinned
from rankplan.runtime.ray import timeouts
from rankplan.runtime.ray.answers import Fault, outcomes
from rankplan.runtime.ray.head import Head
from rankplan.runtime.ray.tables import Tables
from rankplan.runtime.usage.held import Held


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
            on = listed_nodes([self.name(node) for node in dict.fromkeys(one.nodes)]) or "optional, on any node"
            lines.append(f"request {number}: {one.component or 'the cluster'}, {what}{named}: {on}")
        return lines


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
        tell(f"the plan needs {listed_nodes(unsure)}, but {reason}: ranks may get others than planned")
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
    """Return a saved plan on the nodes of a cluster, which keeps the names of the hardware that it does not use.

    Raises `PlacementError` (``plan-mismatch``) if the nodes are others than planned, or others hold what it needs.
    """
    there = nodes.of_plan(saved.inventory)
    found = saved.fitted(excluding(there.inventory, without))
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
    return with_spares(saved.fitted(excluding(marked, without)), there.inventory)


def _free(plan: Plan) -> tuple[int, ...]:
    """Return the number of accelerators that a plan leaves free on each node, also of nodes that it has set aside."""
    idle = plan.idle()
    found = [len(idle.get(rank, ())) for rank in range(plan.inventory.num_nodes)]
    for rank in plan.inventory.taken:
        record = plan.inventory.node(rank)
        found[rank] = record.num_accelerators - len(record.unhealthy) if record.healthy else 0
    return tuple(found)


def check_nodes() -> None:
    """Check every node of the connected cluster with a task.

    Raises `PlacementError` (``hook-missing``) with every node that lacks the hook, and ``ClusterError`` for nodes with
    another version of Ray, or on which the task failed.
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
    silent = []
    for entry, answer in zip(entries, answers, strict=True):
        name = f"{entry['NodeManagerAddress']} ({entry['NodeManagerHostname']})"
        if isinstance(answer, Fault):
            silent.append(f"the task on {name} {answer.reason}")
            continue
        if answer is None:
            silent.append(f"{name} did not run the task within {timeouts.ENVIRONMENT:g} s")
            continue
        has_hook, version = answer
        if version != ray.__version__:
            others.append(f"{name} has {version}")
        if not has_hook:
            hookless.append(no_hook(name))
    if others:
        raise several_versions(ray.__version__, others)
    if hookless:
        raise PlacementError(hookless)
    if silent:
        raise unchecked_nodes(silent)
