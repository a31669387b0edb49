"""A plan after a failure: which node takes each role, with as few moves as possible."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rankplan._core import RankSet
from rankplan.arranging.physical import Rules, same_nodes
from rankplan.arranging.repair import Repair, Shift
from rankplan.arranging.shrinking import Loss, Shrinking
from rankplan.arranging.task import Solution, Task
from rankplan.errors import Diagnostic, PlacementError
from rankplan.nodes.entries import labelled
from rankplan.nodes.exclusion import one_or_several
from rankplan.nodes.inventory import Inventory
from rankplan.nodes.node import NodeSpec
from rankplan.plans.component import Component
from rankplan.words import did_you_mean


@dataclass(frozen=True, slots=True)
class Replacement:
    """Processes that run on another node now.

    ``rank`` is the node rank, ``ranks`` its process ranks by component, ``before`` and ``after`` are the two nodes.
    """

    rank: int
    ranks: dict[str, RankSet]
    before: NodeSpec
    after: NodeSpec


@dataclass(frozen=True, slots=True)
class Replanned:
    """The components of a plan on the nodes that are left, and what changed.

    ``solution`` has the nodes and the groups that cross domains before and after. ``moves`` are processes on other
    nodes, ``shifts`` those on other accelerators of their node, ``losses`` the components that shrank.
    """

    inventory: Inventory
    components: list[Component]
    rules: Rules
    solution: Solution
    moves: list[Replacement]
    shifts: list[Shift]
    losses: list[Loss] = field(default_factory=list)


def replanned(
    components: Sequence[Component],
    inventory: Inventory,
    without: Iterable[str] = (),
    shrink: Sequence[str] = (),
    renumber: bool = False,
) -> Replanned:
    """Return components of one plan on the nodes of an inventory that are not excluded; see ``Plan.replanned``."""
    if not components:
        help = "plan a config that has components"
        raise PlacementError([Diagnostic("plan-mismatch", "the plan has no components", help)])
    planned = components[0].inventory
    old = same_nodes(planned, inventory)
    gone = {planned.node(rank).name for rank, node in enumerate(old) if node is None}
    inventory = inventory.without(name for name in one_or_several(without) if name not in gone)
    shrink = list(one_or_several(shrink))
    parts = {component.name: component for component in components}
    for name in shrink:
        if name not in parts:
            message = f"unknown component `{name}` to shrink"
            raise PlacementError(
                [Diagnostic("unknown-component", message, did_you_mean(name, parts, "the components are"))]
            )
    used = RankSet().union(*(component.used_nodes() for component in components))
    if all(old[rank] is None for rank in used):
        help = "pass the inventory of the cluster that the plan was made for"
        raise PlacementError([Diagnostic("plan-mismatch", "no node of the plan is in the inventory", help)])
    excluded: dict[int, RankSet | None] = {}
    for nodes, accelerators in inventory.excluded:
        excluded |= dict.fromkeys(nodes, accelerators)
    repair = Repair.of(
        parts, planned, {rank: excluded.get(node) for rank, node in _known(old, used) if node in excluded}
    )
    before = [*old, *(old[rank] for rank in repair.added.values())]
    places: list[int | None] = [*old, *([None] * len(repair.added))]
    for rank in repair.lost:
        places[rank] = None
    rules = Rules.of(inventory, planned)

    def task(parts: Mapping[str, Component]) -> Task:
        extended = next(iter(parts.values())).inventory
        return Task(inventory, extended, parts, rules, places, frozenset(repair.staying), before)

    usable = inventory.num_nodes - sum(accelerators is None for accelerators in excluded.values())
    lost = {rank for rank in used if places[rank] is None or excluded.get(places[rank] or 0, RankSet()) is None}
    shrinking = Shrinking(repair.parts, shrink, renumber, lost, usable)
    solution = None
    while solution is None:
        here = task(shrinking.parts)
        try:
            if len(here.needed) <= usable or not shrinking.possible():
                solution = here.solve()
        except PlacementError as error:
            if error.code != "too-few-nodes":
                raise
            if not shrinking.possible():
                raise PlacementError([_no_spare(one, shrink, shrinking) for one in error.diagnostics]) from None
        if solution is None:
            shrinking.step()
    return _result(inventory, planned, shrinking, repair, rules, solution, places, old)


def _result(
    inventory: Inventory,
    planned: Inventory,
    shrinking: Shrinking,
    repair: Repair,
    rules: Rules,
    solution: Solution,
    places: Sequence[int | None],
    old: Sequence[int | None],
) -> Replanned:
    section = next(iter(shrinking.parts.values())).inventory.section
    nodes = inventory.reordered(solution.nodes)
    if section is not None:
        topology = section.topology
        if topology.levels is not None:
            # the nodes with the labels of a level may all be gone
            levels = labelled(topology.levels, [record for _, record in nodes.stretches()])
            section = section.model_copy(update={"topology": topology.model_copy(update={"levels": levels})})
        nodes = nodes.with_config(section)
    components = [replace(one, inventory=nodes, rows=one.rows.on(nodes.core)) for one in shrinking.parts.values()]
    moved = {rank for rank, node in enumerate(solution.nodes) if node != places[rank]}
    moves = []
    for rank, ranks in sorted(_ranks_on(shrinking.parts, moved).items()):
        node, origin = solution.nodes[rank], repair.added.get(rank, rank)
        known = old[origin]
        had = planned.node(origin) if known is None else inventory.node(known)
        moves.append(Replacement(origin, ranks, had, inventory.node(node)))
    return Replanned(nodes, components, rules, solution, moves, repair.shifts, shrinking.losses)


def _ranks_on(parts: Mapping[str, Component], nodes: set[int]) -> dict[int, dict[str, RankSet]]:
    """Return the process ranks that run on each of these nodes, by node and component."""
    found: dict[int, dict[str, RankSet]] = {}
    for name, component in parts.items():
        here: dict[int, list[int]] = {}
        for run in component.rows.runs() if nodes else ():
            for node in nodes.intersection(range(run.node, run.node + run.nodes)):
                start = run.first_rank + (node - run.node) * run.pattern.processes
                here.setdefault(node, []).extend(range(start, start + run.pattern.processes))
        for node, ranks in here.items():
            # A process on several nodes has a run on each of them.
            if home := RankSet(rank for rank in ranks if component.rows[rank].cluster_node_rank == node):
                found.setdefault(node, {})[name] = home
    return found


def _known(old: Sequence[int | None], used: Iterable[int]) -> Iterable[tuple[int, int]]:
    return ((rank, node) for rank in used if (node := old[rank]) is not None)


def _no_spare(fault: Diagnostic, shrink: Sequence[str], shrinking: Shrinking) -> Diagnostic:
    help = "add spare nodes to the inventory, or shrink a component that has data groups (`--shrink rollout`)"
    if shrink:
        help = shrinking.obstacle or f"shrink more components than {', '.join(shrink)}, or add spare nodes"
    return replace(fault, code="no-spare", help=help)
