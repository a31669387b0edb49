"""Repair a plan after a failure with as few moves as possible."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from rankplan._core import RankSet
from rankplan.arranging.arrange import Arrangement, Task
from rankplan.arranging.repair import Repair, Shrinking
from rankplan.arranging.rules import Rules
from rankplan.errors import Diagnostic, PlacementError
from rankplan.nodes.clusters import SupportsInventory, inventory_of
from rankplan.nodes.entries import labelled, one_or_several
from rankplan.nodes.inventory import Inventory
from rankplan.nodes.node import NodeSpec
from rankplan.plans.component import Component
from rankplan.plans.diff import Move, coordinates_of, same_nodes
from rankplan.plans.plan import Plan
from rankplan.words import did_you_mean


@dataclass(frozen=True, slots=True)
class Replanned:
    """A plan before and after a failure, and the changes.

    ``moves`` are processes on another node (``replaced``), or on other accelerators of their node. ``losses`` are
    processes of data groups that are removed. ``successors`` has the node before and the node now, by node rank of
    ``plan``, for the nodes of the processes that move. ``arrangement`` has the groups that cross domains before and
    after.
    """

    before: Plan
    plan: Plan
    moves: tuple[Move, ...]
    losses: tuple[Move, ...]
    successors: dict[int, tuple[NodeSpec, NodeSpec]]
    arrangement: Arrangement


def replan(
    plan: Plan,
    inventory: Inventory | SupportsInventory,
    *,
    without: str | Iterable[str] = (),
    shrink: str | Iterable[str] = (),
    renumber: bool = False,
) -> Replanned:
    """Repair a plan after a failure, on the nodes of an inventory, or a cluster, that has spares.

    ``without`` names hardware that is gone: nodes (hostname, else address, else ``node-3``), accelerators
    (``node-5/2``, or their ids) or domains (``nvlink=b``). Nodes of the plan that the inventory lacks are gone too.
    Node ranks keep their nodes if these are left; each lost one gets a spare with the same hardware, in its domain
    if possible. Of a node with a broken accelerator, the processes use others that are idle; else the components
    that use it get another node; else all do. Process ranks do not change.

    If the spares do not suffice, the components in ``shrink`` lose whole data groups: the last ones, so that the
    other ranks keep their numbers, or with ``renumber`` those on the lost nodes.

    Raises `PlacementError`: ``no-spare``, ``plan-mismatch`` if no node of the plan is left in the inventory,
    ``unknown-component``, and the faults of `arrange`.
    """
    if not plan:
        help = "plan a config that has components"
        raise PlacementError([Diagnostic("plan-mismatch", "the plan has no components", help)])
    inventory = inventory_of(inventory)
    known = same_nodes(plan.inventory, inventory)
    gone = {plan.inventory.node(rank).name for rank, node in enumerate(known) if node is None}
    inventory = inventory.without(name for name in one_or_several(without) if name not in gone)
    names = list(one_or_several(shrink))
    for name in names:
        if name not in plan:
            help = did_you_mean(name, plan, "the components are")
            raise PlacementError([Diagnostic("unknown-component", f"unknown component `{name}` to shrink", help)])
    if all(known[rank] is None for rank in _used(plan)):
        help = "pass the inventory of the cluster that the plan was made for"
        raise PlacementError([Diagnostic("plan-mismatch", "no node of the plan is in the inventory", help)])
    return _Failure(plan, inventory, known).repaired(names, renumber=renumber)


class _Failure:
    """A plan whose nodes are partly broken or gone; ``known`` has their ranks in the inventory, ``None`` if gone."""

    def __init__(self, plan: Plan, inventory: Inventory, known: Sequence[int | None]) -> None:
        self._plan, self._inventory, self._known = plan, inventory, known
        excluded = {node: accelerators for nodes, accelerators in inventory.excluded for node in nodes}
        self._usable = inventory.num_nodes - sum(accelerators is None for accelerators in excluded.values())
        broken = {
            rank: excluded[node] for rank in _used(plan) if (node := known[rank]) is not None and node in excluded
        }
        self._repair = Repair.of(plan, plan.inventory, broken)
        self._origins = [*range(len(known)), *self._repair.added.values()]
        """The node rank in the plan of each node rank: components may get a node rank of their own."""
        kept = [None if rank in self._repair.lost else node for rank, node in enumerate(known)]
        self._places = [*kept, *([None] * len(self._repair.added))]
        """The node that each node rank may keep."""

    def repaired(self, shrink: Sequence[str], *, renumber: bool) -> Replanned:
        """Return the plan on other nodes; the components in ``shrink`` may lose data groups."""
        lost = {rank for rank in _used(self._plan) if self._places[rank] is None}
        shrinking = Shrinking(self._repair.parts, shrink, lost, self._usable, renumber=renumber)
        arrangement = self._arranged(shrinking)
        nodes = self._nodes(shrinking, arrangement)
        components = [replace(one, inventory=nodes, rows=one.rows.on(nodes.core)) for one in shrinking.parts.values()]
        after = Plan(nodes, components, self._plan.mode)
        changed = {rank for rank, node in enumerate(arrangement.nodes) if node != self._places[rank]}
        moves = tuple(move for name in after for move in self._moves(after[name], shrinking.kept(name), changed))
        homes = {move.after.cluster_node_rank for move in moves if move.after is not None and move.replaced}
        return Replanned(
            self._plan,
            after,
            moves,
            tuple(self._losses(shrinking)),
            {rank: (self._node_before(rank), self._inventory.node(arrangement.nodes[rank])) for rank in sorted(homes)},
            arrangement,
        )

    def _arranged(self, shrinking: Shrinking) -> Arrangement:
        """Find a node for every node rank, and remove data groups until the nodes suffice."""
        rules = Rules.of(self._inventory, self._plan.inventory)
        were = [self._known[origin] for origin in self._origins]
        staying = frozenset(self._repair.staying)
        while True:
            planned = next(iter(shrinking.parts.values())).inventory
            task = Task(self._inventory, planned, shrinking.parts, rules, self._places, staying, were)
            if len(task.needed) <= self._usable or not shrinking.possible():
                try:
                    return task.solve()
                except PlacementError as error:
                    if error.code != "too-few-nodes":
                        raise
                    if not shrinking.possible():
                        raise PlacementError([_no_spare(one, shrinking) for one in error.diagnostics]) from None
            shrinking.step()

    def _nodes(self, shrinking: Shrinking, arrangement: Arrangement) -> Inventory:
        """Return the nodes of the new plan with the node groups of the old one."""
        section = next(iter(shrinking.parts.values())).inventory.section
        nodes = self._inventory.reordered(arrangement.nodes)
        if section is None:
            return nodes
        topology = section.topology
        if topology.levels is not None:
            # the nodes with the labels of a level may all be gone
            levels = labelled(topology.levels, [record for _, record in nodes.stretches()])
            section = section.model_copy(update={"topology": topology.model_copy(update={"levels": levels})})
        return nodes.with_config(section)

    def _moves(self, after: Component, kept: Sequence[int], changed: set[int]) -> Iterator[Move]:
        """Yield the moves of a component; ``kept`` has the old rank of each rank."""
        before = self._plan[after.name]
        elsewhere = _at_home(after, changed)
        shifted = self._repair.shifted.get(after.name, set())
        for rank in elsewhere | RankSet(new for new, old in enumerate(kept if shifted else ()) if old in shifted):
            old, new = before[kept[rank]], after[rank]
            coordinates = coordinates_of(before, old), coordinates_of(after, new)
            yield Move(after.name, rank, old, new, *coordinates, rank in elsewhere)

    def _losses(self, shrinking: Shrinking) -> Iterator[Move]:
        for name, before in self._plan.items():
            for rank in RankSet(range(len(before))) - RankSet(shrinking.kept(name)):
                yield Move(name, rank, before[rank], None, coordinates_of(before, before[rank]))

    def _node_before(self, rank: int) -> NodeSpec:
        origin = self._origins[rank]
        known = self._known[origin]
        return self._plan.inventory.node(origin) if known is None else self._inventory.node(known)


def _used(plan: Plan) -> RankSet:
    """Return the node ranks with processes."""
    return RankSet().union(*(component.used_nodes() for component in plan.values()))


def _at_home(component: Component, nodes: set[int]) -> RankSet:
    """Return the ranks that run on these nodes."""
    found: list[int] = []
    for run in component.rows.runs() if nodes else ():
        for node in nodes.intersection(range(run.node, run.node + run.nodes)):
            start = run.first_rank + (node - run.node) * run.pattern.processes
            # A process on several nodes has a run on each of them.
            here = range(start, start + run.pattern.processes)
            found.extend(rank for rank in here if component.rows[rank].cluster_node_rank == node)
    return RankSet(found)


def _no_spare(fault: Diagnostic, shrinking: Shrinking) -> Diagnostic:
    help = "add spare nodes to the inventory, or shrink a component that has data groups (`--shrink rollout`)"
    if shrinking.stated:
        help = shrinking.obstacle or f"shrink more components than {', '.join(shrinking.stated)}, or add spare nodes"
    return replace(fault, code="no-spare", help=help)
