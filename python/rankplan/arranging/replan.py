"""Repair a plan after a failure with as few moves as possible."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from rankplan._core import Placement, RankSet
from rankplan.arranging import faults, rules
from rankplan.arranging.delta import fault_of_shared, resize
from rankplan.arranging.exclusion import Exclusion, restored
from rankplan.arranging.faults import ADD_SPARES, NAMELESS_HELP, RESTORE_HELP
from rankplan.arranging.group_nodes import GroupNodes
from rankplan.arranging.hierarchy import crossings_at
from rankplan.arranging.reasons import reasons
from rankplan.arranging.repair import Repair
from rankplan.arranging.replanned import Replanned, moved_to, nodes_of, ranks_at, unmarked
from rankplan.arranging.requests import requests_for, with_requests
from rankplan.arranging.rules import Network
from rankplan.arranging.shrinking import Shrinking
from rankplan.arranging.task import Arrangement, Task
from rankplan.arranging.trainer_order import NO_ORDER, Answer, NotInOrder, TrainerOrder, Unsorted, is_in_order
from rankplan.arranging.units import num_data_groups
from rankplan.errors import Diagnostic, PlacementError
from rankplan.nodes.clusters import SupportsInventory, inventory_of
from rankplan.nodes.entries import hardware_names, one_or_several
from rankplan.nodes.inventory import Inventory
from rankplan.plans.component import Component, used_nodes
from rankplan.plans.diff import Move, coordinates_of, same_nodes
from rankplan.plans.node_order import node_names
from rankplan.plans.plan import Plan, check_plan
from rankplan.plans.pools import reserves
from rankplan.plans.rules import Balance, Cap, Keep, Prefer, Segments
from rankplan.plans.spares import known_nodes, with_spares
from rankplan.read.facts import with_stated
from rankplan.words import as_int, must_be


def replan(
    plan: Plan,
    inventory: Inventory | SupportsInventory | None = None,
    *,
    without: str | Iterable[str] = (),
    restore: str | Iterable[str] = (),
    shrink: str | Iterable[str] | Mapping[str, int | None] = (),
    grow: Mapping[str, int] | None = None,
    renumber: bool = False,
    whole_group: bool = False,
    fixed: bool = False,
    beside: Plan | Iterable[Plan] = (),
    keep: Keep | None = None,
    segment: Segments | None = None,
    prefer: Prefer | None = None,
    balance: Balance | None = None,
    cap: Cap | None = None,
) -> Replanned:
    """Repair a plan after a failure, on the nodes of an inventory, or a cluster, that has spares.

    Without an inventory, the nodes are those of the plan and the spares of its job.

    ``without`` names hardware that is gone: nodes (hostname, else address, else ``node-3``), accelerators
    (``node-5/2``, or their ids) or domains (``nvlink=b``). Nodes of the plan that the inventory lacks are gone too.
    The new plan excludes what ``without`` names, and what the plan excluded, on any inventory from then on; ``restore``
    names what it shall exclude no more. Whether hardware is healthy, the inventory says.

    Node ranks keep their nodes if these are left; each lost one gets a spare with the same hardware, in its domain
    if possible. Of a node with a broken accelerator, the processes use others that are idle; else the components
    that use it get another node; else all do. Process ranks do not change. A node rank without processes needs no node:
    it may stand for one that is gone.

    If the spares do not suffice, the components in ``shrink`` lose whole data groups: the last ones, so that the
    other ranks keep their numbers, or with ``renumber`` those on the lost nodes, else the last ones.

    With a number, ``shrink={"rollout": 1}``, a component loses that many data groups after the repair: the last ones,
    or with ``renumber`` those whose nodes free the most domains. Then ``grow={"rollout": 2}`` adds data groups, on
    whole nodes and whole segments. No process that stays moves: new node ranks come after all others, new processes
    after the last rank of the component. ``keep``, ``segment`` and ``cap`` hold for old and new nodes together. A node
    without processes becomes a spare. 0 changes nothing. The new plan has the requests of its trainer for the new size.

    ``fixed``: no survivor moves; where a rule would make one move, nothing is repaired. ``beside`` are plans of other
    jobs, whose nodes are no spares.

    ``keep``, ``segment``, ``prefer``, ``balance`` and ``cap`` replace the rules of their names, also in the new plan;
    see `arrange`. Processes on healthy nodes may then move.

    ``whole_group``: the smallest group that would be torn apart moves to another domain as a whole, if that tears fewer
    groups, though more processes move.

    Raises `PlacementError`: ``no-spare``, ``plan-mismatch`` if no node of the plan is left in the inventory,
    ``unknown-component``, ``invalid-value`` for numbers of data groups, for a size in which it is unknown what the
    trainer asks Ray for, and if ``beside`` has the plan itself, ``order-not-kept``, and the faults of `arrange`.
    """
    check_plan(plan)
    if not plan:
        raise PlacementError([faults.no_components()])
    others = rules.plans_beside(beside)
    if any(other == plan for other in others):
        raise PlacementError([faults.beside_itself()])
    stated = {"keep": keep, "segment": segment, "prefer": prefer, "balance": balance, "cap": cap}
    replaced = with_stated(plan.rules, {name: value for name, value in stated.items() if value is not None})
    nodes = known_nodes(plan) if inventory is None else inventory_of(inventory)
    inventory = rules.beside(nodes, others)
    known = same_nodes(plan.inventory, inventory)
    names, fewer, more = _sizes(plan, shrink, grow or {})
    if all(known[rank] is None for rank in used_nodes(plan.values())):
        raise PlacementError([faults.another_cluster()])
    gone = {plan.inventory.node(rank).name for rank, node in enumerate(known) if node is None}
    _ = inventory.domains  # found once: what is lost changes no labels
    lost = list(hardware_names(without))
    inventory.without([name for name in lost if not isinstance(name, str) or name not in gone])  # checks the names
    base = plan if replaced is plan.rules else plan.placed(plan.inventory, plan.values(), replaced)
    returned = list(one_or_several("restore", restore, RESTORE_HELP))
    if returned:
        planned, inventory = restored(plan.inventory, inventory, returned)
        base = base.placed(planned, [moved_to(one, planned) for one in base.values()])
    failure = _Failure(base, inventory.excluding(lost), known, whole_group=whole_group, fixed=fixed)
    if fewer or more:
        repairs = failure.broken or replaced is not plan.rules
        found = failure.repaired(names, renumber=renumber) if repairs else failure.unchanged()
        reserved = failure.reserved
        found = resize(found, failure.inventory, fewer, more, renumber=renumber, reserved=reserved)
    else:
        found = failure.repaired(names, renumber=renumber)
    used = {node for node in found.arrangement.nodes if node is not None}
    return replace(found, before=plan, plan=with_spares(found.plan, inventory, used))


def _sizes(
    plan: Plan, shrink: str | Iterable[str] | Mapping[str, int | None], grow: Mapping[str, int]
) -> tuple[list[str], dict[str, int], dict[str, int]]:
    """Return the components that may shrink if spares run short, and the data groups that others lose and get.

    Raises `PlacementError` with every unknown component and every wrong number.
    """
    if not isinstance(grow, Mapping):
        raise PlacementError([must_be(("grow",), grow, "a mapping", faults.sizes_help("grow"))])
    stated: Iterable[tuple[str, int | None]]
    if isinstance(shrink, Mapping):
        stated = shrink.items()
    else:
        stated = [(name, None) for name in one_or_several("shrink", shrink, faults.sizes_help("shrink"))]
    wrong: list[Diagnostic] = []
    numbers: list[dict[str, int]] = [{}, {}]
    for found, what, sizes in zip(numbers, ("shrink", "grow"), (stated, grow.items()), strict=True):
        for name, size in sizes:
            if name in plan and (size is None or size) and (fault := fault_of_shared(plan, name, what)) is not None:
                wrong.append(fault)
            elif name not in plan:
                wrong.append(faults.unknown_to_resize(name, what, plan))
            elif size is not None or what == "grow":
                count = as_int(size)
                if count is None or count < 0:
                    wrong.append(faults.wrong_number(name, size))
                elif count:
                    found[name] = count
    if wrong:
        raise PlacementError(wrong)
    return [name for name, size in dict(stated).items() if size is None], numbers[0], numbers[1]


class _Failure:
    """A plan whose nodes are partly broken or gone; ``known`` has their ranks in the inventory, ``None`` if gone."""

    def __init__(
        self, plan: Plan, inventory: Inventory, known: Sequence[int | None], *, whole_group: bool, fixed: bool
    ) -> None:
        self._plan, self._whole_group, self._fixed = plan, whole_group, fixed
        self.inventory, self._known = _with_gone(plan.inventory, inventory, known)
        self._excluded = Exclusion.of(plan.inventory, self.inventory, self._known)
        marks = self._excluded.marks
        self._usable = self.inventory.num_nodes - sum(accelerators is None for accelerators in marks.values())
        self.broken = {rank: marks[node] for rank in used_nodes(plan.values()) if (node := self._known[rank]) in marks}
        # Whether accelerators are healthy is known for the nodes that the plan gets, not for its node ranks.
        self._planned = unmarked(plan.inventory)
        parts = {name: moved_to(one, self._planned) for name, one in plan.items()}
        self._order = TrainerOrder.of(plan)
        self._repairs = list(Repair.several(parts, self._planned, self.broken, plan.rules.pools))

    @property
    def reserved(self) -> dict[int, int]:
        """The nodes of reserves that can be told from others, by node rank."""
        named = (rank for ranks, _ in reserves(self._plan.rules.pools) for rank in ranks)
        nodes = {rank: self._known[rank] for rank in named}
        return {rank: node for rank, node in nodes.items() if self.inventory.names.lasting(node) is not None}

    def unchanged(self) -> Replanned:
        """Return the plan unchanged, without checking the rules of its topology."""
        levels = Network.of(self.inventory, self._plan).levels
        before = crossings_at(self._plan, self.inventory, levels, self._known)
        nodes = tuple(self._known)
        arrangement = Arrangement(self.inventory, nodes, (), levels, before, before, optimal=True)
        return Replanned(self._plan, self._plan, (), (), (), {}, arrangement)

    def repaired(self, shrink: Sequence[str], *, renumber: bool) -> Replanned:
        """Return the plan on other nodes; the components in ``shrink`` may lose data groups.

        Every repair is tried without losses before any is with them. Raises the faults of the one that needs the fewest
        nodes.
        """
        ways = [(list[str](), False)]
        ways += [(list(shrink), first) for first in ((True, False) if renumber else (False,))] if shrink else []
        for names, lost_first in ways:
            for repair in self._repairs:
                try:
                    return self._replanned(repair, names, renumber=renumber, lost_first=lost_first)
                except PlacementError as error:
                    refused = error
        raise refused

    def _replanned(self, repair: Repair, shrink: Sequence[str], *, renumber: bool, lost_first: bool) -> Replanned:
        origins = [repair.added.get(rank, rank) for rank in range(len(self._known))]
        origins += [repair.added[rank] for rank in sorted(repair.added) if rank >= len(self._known)]
        places: list[int | None] = [
            None if rank in repair.lost or rank in repair.added else self._known[rank] for rank in range(len(origins))
        ]
        lost = {rank for rank in used_nodes(self._plan.values()) if places[rank] is None}
        self._check_hardware(repair.parts, lost)
        shrinking = Shrinking(
            repair.parts,
            shrink,
            lost,
            self._usable,
            pools=self._plan.rules.pools,
            renumber=renumber,
            lost_first=lost_first,
        )
        order = NO_ORDER if repair.shifted or repair.added else self._order
        answer = self._arranged(shrinking, order, places, [self._known[origin] for origin in origins])
        arrangement = answer.arrangement
        facts = self._plan.inventory.facts
        nodes = nodes_of(self._plan, self.inventory, self._known, arrangement.nodes, facts)
        components = [moved_to(one, nodes) for one in shrinking.parts.values()]
        after = self._plan.placed(nodes, components)
        if shrinking.parts != shrinking.whole:
            requests = requests_for(self._plan, after)
            if requests is not None and is_in_order(nodes, requests):
                after = with_requests(after, requests, self._plan)
        changed = {rank for rank, node in enumerate(arrangement.nodes) if node != places[rank]}
        moves: list[Move] = []
        for name in after:
            moves += self._moves(repair, after[name], shrinking.kept(name), changed, arrangement.nodes)
        homes = {move.after.cluster_node_rank for move in moves if move.after is not None and move.replaced}
        specs = self.inventory.node
        return Replanned(
            self._plan,
            after,
            tuple(moves),
            tuple(self._losses(shrinking)),
            (),
            {rank: (specs(self._known[origins[rank]]), specs(arrangement.nodes[rank])) for rank in sorted(homes)},
            arrangement,
            tuple(reasons(answer, self._plan.dialect)),
        )

    def _check_hardware(self, parts: Mapping[str, Component], lost: set[int]) -> None:
        """Raise `PlacementError` (``no-spare``) if processes use configured hardware, such as robots, of lost nodes."""
        types = {group.hardware.type for group in self._planned.node_groups if group.hardware is not None}
        for name, part in parts.items() if types else ():
            for run in part.rows.runs():
                nodes = lost.intersection(range(run.node, run.node + run.nodes))
                if nodes and (kind := run.pattern.resource_type) in types:
                    raise PlacementError([faults.hardware_lost(name, kind, RankSet(nodes))])

    def _arranged(
        self, shrinking: Shrinking, order: TrainerOrder, places: Sequence[int | None], were: Sequence[int]
    ) -> Answer:
        """Find a node for every node rank, and remove data groups until the nodes suffice."""
        network = Network.of(self.inventory, self._plan)
        while True:
            parts = shrinking.parts
            planned = next(iter(parts.values())).inventory
            task = Task(
                self.inventory,
                planned,
                parts,
                network,
                self._excluded,
                old=places,
                were=were,
                pinned=places if self._fixed else (),
                whole_group=self._whole_group,
                groups=GroupNodes.of(self._plan, self._plan.inventory, self.inventory, self._known),
            )
            if len(task.needed) <= self._usable or not shrinking.possible():
                try:
                    return (order if shrinking.parts == shrinking.whole else NO_ORDER).solved(task)
                except NotInOrder as error:
                    raise PlacementError([self._order_fault(error.unsorted)]) from None
                except PlacementError as error:
                    if error.code != "too-few-nodes":
                        raise
                    if not shrinking.possible():
                        raise PlacementError([_no_spare(one, shrinking) for one in error.diagnostics]) from None
            shrinking.step()

    def _order_fault(self, unsorted: Unsorted) -> Diagnostic:
        names = node_names(self.inventory, unsorted.nodes)
        return faults.not_in_order(self._plan.dialect, unsorted.order, unsorted.ranks, names, is_fixed=self._fixed)

    def _moves(
        self, repair: Repair, after: Component, kept: Sequence[int], changed: set[int], nodes: Sequence[int]
    ) -> Iterator[Move]:
        """Yield the moves of a component.

        ``kept`` has the old rank of each rank, ``changed`` the node ranks that may have another node, and ``nodes`` the
        node of each node rank. A lost node rank may get its own node again, if what is broken there is needed no more.
        """
        before = self._plan[after.name]
        shifted = repair.shifted.get(after.name, set())
        ranks = RankSet(new for new, old in enumerate(kept if shifted else ()) if old in shifted)
        for rank in ranks_at(after, changed) | ranks:
            old, new = before[kept[rank]], after[rank]
            replaced = _machines(old, self._known) != _machines(new, nodes)
            coordinates = coordinates_of(before, old), coordinates_of(after, new)
            move = Move(after.name, rank, old, new, *coordinates, replaced)
            if not move.in_place or move.was != move.now:
                yield move

    def _losses(self, shrinking: Shrinking) -> Iterator[Move]:
        for name, before in self._plan.items():
            for rank in RankSet(range(len(before))) - RankSet(shrinking.kept(name)):
                yield Move(name, rank, before[rank], None, coordinates_of(before, before[rank]))


def _machines(row: Placement, nodes: Sequence[int]) -> tuple[int, list[int]]:
    """Return the nodes of a process: its own, and those of its devices; ``nodes`` has the node of each node rank."""
    return nodes[row.cluster_node_rank], [nodes[node] for node, _ in row.devices]


def _with_gone(planned: Inventory, inventory: Inventory, known: Sequence[int | None]) -> tuple[Inventory, list[int]]:
    """Return an inventory with the nodes of a plan that it lacks, as broken ones, and the rank of each node there."""
    gone = [rank for rank, node in enumerate(known) if node is None]
    ranks = dict(zip(gone, range(inventory.num_nodes, inventory.num_nodes + len(gone)), strict=True))
    found = [ranks[rank] if node is None else node for rank, node in enumerate(known)]
    if not gone:
        return inventory, found
    entries = [entry.at(RankSet(nodes)) for nodes, entry in inventory.stretches()]
    for rank, new in ranks.items():
        entries.append(planned.node(rank).changed(healthy=False).at(RankSet([new])))
    return Inventory(entries, inventory.facts, inventory.levels or None), found


def _no_spare(fault: Diagnostic, shrinking: Shrinking) -> Diagnostic:
    if fault.help == NAMELESS_HELP:
        return replace(fault, code="no-spare")
    help = ADD_SPARES
    groups = {name: num_data_groups(one) for name, one in shrinking.parts.items()}
    if max(groups.values()) > 1:
        help += f", or shrink a component that has data groups (`--shrink {max(groups, key=groups.__getitem__)}`)"
    if shrinking.stated:
        help = shrinking.obstacle or f"shrink more components than {', '.join(shrinking.stated)}, or add spare nodes"
    return replace(fault, code="no-spare", help=help)
