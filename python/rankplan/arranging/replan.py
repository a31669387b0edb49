"""Repair a plan after a failure with as few moves as possible."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from rankplan._core import Placement, RankSet
from rankplan.arranging import faults, rules
from rankplan.arranging.delta import fault_of_shared, resize
from rankplan.arranging.exclusion import Exclusion, restored
from rankplan.arranging.faults import ADD_SPARES, NAMELESS_HELP, RESTORE_HELP
from rankplan.arranging.group_nodes import GroupNodes
from rankplan.arranging.hierarchy import crossings_at
from rankplan.arranging.reasons import reasons
from rankplan.arranging.repair import Repair
from rankplan.arranging.replanned import Replanned, moved_to, new_homes, nodes_of, ranks_at, unmarked
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
from rankplan.nodes.node import NodeSpec
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
    other_jobs = _other_jobs(plan, beside)
    options = {"keep": keep, "segment": segment, "prefer": prefer, "balance": balance, "cap": cap}
    new_rules = with_stated(plan.rules, {name: value for name, value in options.items() if value is not None})
    has_new_rules = new_rules is not plan.rules
    nodes = known_nodes(plan) if inventory is None else inventory_of(inventory)
    inventory = rules.beside(nodes, other_jobs)
    places = same_nodes(plan.inventory, inventory)
    sizes = _Sizes.of(plan, shrink, grow or {})
    if all(places[rank] is None for rank in used_nodes(plan.values())):
        raise PlacementError([faults.another_cluster()])
    _ = inventory.domains  # cached for the inventories below, which have the same labels
    lost = list(hardware_names(without))
    _check_lost(lost, plan, inventory, places)
    base = plan.placed(plan.inventory, plan.values(), new_rules) if has_new_rules else plan
    base, inventory = _with_restored(base, inventory, restore)
    failure = _Failure(base, inventory.excluding(lost), places, whole_group=whole_group, fixed=fixed)
    resizes = bool(sizes.fewer or sizes.more)
    if resizes and not failure.broken and not has_new_rules:
        result = failure.unchanged()
    else:
        result = failure.repaired(sizes.may_shrink, renumber=renumber)
    if resizes:
        reserved = failure.reserved
        result = resize(result, failure.inventory, sizes.fewer, sizes.more, renumber=renumber, reserved=reserved)
    used = {node for node in result.arrangement.nodes if node is not None}
    return replace(result, before=plan, plan=with_spares(result.plan, inventory, used))


def _other_jobs(plan: Plan, beside: Plan | Iterable[Plan]) -> Sequence[Plan]:
    """Return the plans of other jobs. Raises `PlacementError` if one is the plan itself."""
    jobs = rules.plans_beside(beside)
    if any(job == plan for job in jobs):
        raise PlacementError([faults.beside_itself()])
    return jobs


def _with_restored(plan: Plan, inventory: Inventory, restore: str | Iterable[str]) -> tuple[Plan, Inventory]:
    """Return a plan, and the nodes it is repaired on, that no longer exclude these names."""
    names = list(one_or_several("restore", restore, RESTORE_HELP))
    if not names:
        return plan, inventory
    planned, inventory = restored(plan.inventory, inventory, names)
    return plan.placed(planned, [moved_to(component, planned) for component in plan.values()]), inventory


def _check_lost(lost: Sequence[str], plan: Plan, inventory: Inventory, places: Sequence[int | None]) -> None:
    """Raise `PlacementError` with every unknown name of lost hardware.

    A node of the plan that the inventory lacks may be named, too.
    """
    absent = {plan.inventory.node(rank).name for rank, node in enumerate(places) if node is None}
    inventory.without([name for name in lost if not (isinstance(name, str) and name in absent)])


class _Sizes(NamedTuple):
    """The changes of size that a call of `replan` states.

    ``may_shrink`` are the components that lose data groups if the spares do not suffice. ``fewer`` and ``more`` are the
    data groups that others lose and get, whatever the spares.
    """

    may_shrink: list[str]
    fewer: dict[str, int]
    more: dict[str, int]

    @classmethod
    def of(cls, plan: Plan, shrink: str | Iterable[str] | Mapping[str, int | None], grow: Mapping[str, int]) -> _Sizes:
        """Return the changes. Raises `PlacementError` with every unknown component and every wrong number."""
        if not isinstance(grow, Mapping):
            raise PlacementError([must_be(("grow",), grow, "a mapping", faults.sizes_help("grow"))])
        shrinks: list[tuple[str, int | None]]
        if isinstance(shrink, Mapping):
            shrinks = list(shrink.items())
        else:
            shrinks = [(name, None) for name in one_or_several("shrink", shrink, faults.sizes_help("shrink"))]
        fewer: dict[str, int] = {}
        more: dict[str, int] = {}
        wrong: list[Diagnostic] = []
        for change, numbers, counts in (("shrink", shrinks, fewer), ("grow", grow.items(), more)):
            for name, number in numbers:
                try:
                    count = _num_changed(plan, name, change, number)
                except PlacementError as error:
                    wrong += error.diagnostics
                    continue
                if count:
                    counts[name] = count
        if wrong:
            raise PlacementError(wrong)
        may_shrink = [name for name, number in dict(shrinks).items() if number is None]
        return cls(may_shrink, fewer, more)


def _num_changed(plan: Plan, name: str, change: str, number: int | None) -> int:
    """Return how many data groups a component shall ``shrink`` or ``grow`` by; 0 if it shrinks only if necessary.

    Raises `PlacementError`.
    """
    if name not in plan:
        raise PlacementError([faults.unknown_to_resize(name, change, plan)])
    if number is None or number:  # 0 changes nothing
        fault = fault_of_shared(plan, name, change)
        if fault is not None:
            raise PlacementError([fault])
    if number is None and change == "shrink":
        return 0
    count = as_int(number)
    if count is None or count < 0:
        raise PlacementError([faults.wrong_number(name, number)])
    return count


class _Failure:
    """A plan whose nodes are partly broken or gone.

    ``places`` has, by node rank of the plan, the rank in the inventory of its node, ``None`` if it is gone.
    """

    def __init__(
        self, plan: Plan, inventory: Inventory, places: Sequence[int | None], *, whole_group: bool, fixed: bool
    ) -> None:
        self._plan = plan
        self._whole_group = whole_group
        self._fixed = fixed
        self.inventory, self._places = _with_gone(plan.inventory, inventory, places)
        self._excluded = Exclusion.of(plan.inventory, self.inventory, self._places)
        marks = self._excluded.marks
        whole_nodes = sum(accelerators is None for accelerators in marks.values())
        self._num_usable = self.inventory.num_nodes - whole_nodes
        self.broken: dict[int, RankSet | None] = {}
        for rank in used_nodes(plan.values()):
            node = self._places[rank]
            if node in marks:
                self.broken[rank] = marks[node]
        # Whether accelerators are healthy is known for the nodes that the plan gets, not for its node ranks.
        self._planned = unmarked(plan.inventory)
        parts = {name: moved_to(component, self._planned) for name, component in plan.items()}
        self._order = TrainerOrder.of(plan)
        self._repairs = list(Repair.several(parts, self._planned, self.broken, plan.rules.pools))

    @property
    def reserved(self) -> dict[int, int]:
        """The nodes of reserves that can be told from others, by node rank."""
        nodes: dict[int, int] = {}
        for ranks, _ in reserves(self._plan.rules.pools):
            for rank in ranks:
                node = self._places[rank]
                if self.inventory.names.lasting(node) is not None:
                    nodes[rank] = node
        return nodes

    def unchanged(self) -> Replanned:
        """Return the plan unchanged, without checking the rules of its topology."""
        levels = Network.of(self.inventory, self._plan).levels
        crossings = crossings_at(self._plan, self.inventory, levels, self._places)
        nodes = tuple(self._places)
        arrangement = Arrangement(self.inventory, nodes, (), levels, crossings, crossings, optimal=True)
        return Replanned(self._plan, self._plan, (), (), (), {}, arrangement)

    def repaired(self, shrink: Sequence[str], *, renumber: bool) -> Replanned:
        """Return the plan on other nodes; the components in ``shrink`` may lose data groups.

        Every repair is tried without losses before any is with them. Raises the faults of the one that needs the fewest
        nodes.
        """
        ways: list[tuple[Sequence[str], bool]] = [((), False)]
        if shrink and renumber:
            ways.append((shrink, True))
        if shrink:
            ways.append((shrink, False))
        for names, lost_first in ways:
            for repair in self._repairs:
                try:
                    return self._replanned(repair, names, renumber=renumber, lost_first=lost_first)
                except PlacementError as error:
                    last_error = error
        raise last_error

    def _replanned(self, repair: Repair, shrink: Sequence[str], *, renumber: bool, lost_first: bool) -> Replanned:
        """Return the plan after one repair, in which components may lose data groups.

        With ``lost_first``, these are first the ones on lost nodes. Raises `PlacementError`.
        """
        before = self._nodes_before(repair)
        survivors = [None if rank in repair.lost or rank in repair.added else node for rank, node in enumerate(before)]
        lost = {rank for rank in used_nodes(self._plan.values()) if survivors[rank] is None}
        self._check_hardware(repair.parts, lost)
        shrinking = Shrinking(
            repair.parts,
            shrink,
            lost,
            self._num_usable,
            pools=self._plan.rules.pools,
            renumber=renumber,
            lost_first=lost_first,
        )
        order = NO_ORDER if repair.shifted or repair.added else self._order
        answer = self._arranged(shrinking, order, survivors, before)
        nodes = answer.arrangement.nodes
        after = self._plan_on(nodes, shrinking)
        changed = {rank for rank, node in enumerate(nodes) if node != survivors[rank]}
        moves: list[Move] = []
        for name in after:
            moves += self._moves(repair, after[name], shrinking.kept(name), changed, nodes)
        record = self.inventory.node
        successors = {rank: (record(before[rank]), record(nodes[rank])) for rank in sorted(new_homes(moves))}
        return Replanned(
            before=self._plan,
            plan=after,
            moves=tuple(moves),
            losses=tuple(self._losses(shrinking)),
            gains=(),
            successors=successors,
            arrangement=answer.arrangement,
            reasons=tuple(reasons(answer, self._plan.dialect)),
        )

    def _nodes_before(self, repair: Repair) -> list[int]:
        """Return, by node rank of a repair, the node on which its processes were."""
        nodes = list(self._places)
        for rank, left in sorted(repair.added.items()):
            if rank < len(nodes):
                nodes[rank] = self._places[left]
            else:
                nodes.append(self._places[left])
        return nodes

    def _plan_on(self, nodes: Sequence[int], shrinking: Shrinking) -> Plan:
        """Return the plan with these nodes, by node rank, and with what is left of its components.

        If any is smaller, the requests are those of the new size, as far as the trainer's order of nodes allows that.
        """
        inventory = nodes_of(self._plan, self.inventory, self._places, nodes, self._plan.inventory.facts)
        components = [moved_to(component, inventory) for component in shrinking.parts.values()]
        after = self._plan.placed(inventory, components)
        if shrinking.parts == shrinking.whole:
            return after
        requests = requests_for(self._plan, after)
        if requests is None or not is_in_order(inventory, requests):
            return after
        return with_requests(after, requests, self._plan)

    def _check_hardware(self, parts: Mapping[str, Component], lost: set[int]) -> None:
        """Raise `PlacementError` (``no-spare``) if processes use configured hardware, such as robots, of lost nodes."""
        types = {group.hardware.type for group in self._planned.node_groups if group.hardware is not None}
        if not types:
            return
        for name, part in parts.items():
            for run in part.rows.runs():
                hardware = run.pattern.resource_type
                nodes = lost.intersection(range(run.node, run.node + run.nodes))
                if nodes and hardware in types:
                    raise PlacementError([faults.hardware_lost(name, hardware, RankSet(nodes))])

    def _arranged(
        self, shrinking: Shrinking, order: TrainerOrder, survivors: Sequence[int | None], before: Sequence[int]
    ) -> Answer:
        """Find a node for every node rank, and remove data groups until the nodes suffice.

        By node rank, ``before`` has its node before, and ``survivors`` the one that it may keep.
        """
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
                old=survivors,
                were=before,
                pinned=survivors if self._fixed else (),
                whole_group=self._whole_group,
                groups=GroupNodes.of(self._plan, self._plan.inventory, self.inventory, self._places),
            )
            if len(task.needed) <= self._num_usable or not shrinking.possible():
                answer = self._solved(task, shrinking, order)
                if answer is not None:
                    return answer
            shrinking.step()

    def _solved(self, task: Task, shrinking: Shrinking, order: TrainerOrder) -> Answer | None:
        """Return the arrangement of a task; ``None`` if the nodes do not suffice, but components can still shrink."""
        if shrinking.parts != shrinking.whole:
            order = NO_ORDER
        try:
            return order.solved(task)
        except NotInOrder as error:
            raise PlacementError([self._order_fault(error.unsorted)]) from None
        except PlacementError as error:
            if error.code != "too-few-nodes":
                raise
            if shrinking.possible():
                return None
            raise PlacementError([_no_spare(fault, shrinking) for fault in error.diagnostics]) from None

    def _order_fault(self, unsorted: Unsorted) -> Diagnostic:
        names = node_names(self.inventory, unsorted.nodes)
        return faults.not_in_order(self._plan.dialect, unsorted.order, unsorted.ranks, names, is_fixed=self._fixed)

    def _moves(
        self, repair: Repair, after: Component, old_ranks: Sequence[int], changed: set[int], nodes: Sequence[int]
    ) -> Iterator[Move]:
        """Yield the moves of a component.

        ``old_ranks`` has the old rank of each rank, ``changed`` the node ranks that may have another node, and
        ``nodes`` the node of each node rank. A lost node rank may get its own node again, if what is broken there is
        needed no more.
        """
        before = self._plan[after.name]
        ranks = ranks_at(after, changed)
        shifted = repair.shifted.get(after.name)
        if shifted:
            ranks |= RankSet(new for new, old in enumerate(old_ranks) if old in shifted)
        for rank in ranks:
            old, new = before[old_ranks[rank]], after[rank]
            was, now = coordinates_of(before, old), coordinates_of(after, new)
            replaced = _machines(old, self._places) != _machines(new, nodes)
            move = Move(after.name, rank, old, new, was, now, replaced)
            if not move.in_place or was != now:
                yield move

    def _losses(self, shrinking: Shrinking) -> Iterator[Move]:
        for name, before in self._plan.items():
            for rank in RankSet(range(len(before))) - RankSet(shrinking.kept(name)):
                yield Move(name, rank, before[rank], None, coordinates_of(before, before[rank]))


def _machines(row: Placement, nodes: Sequence[int]) -> tuple[int, list[int]]:
    """Return the nodes of a process: its own, and those of its devices; ``nodes`` has the node of each node rank."""
    return nodes[row.cluster_node_rank], [nodes[node] for node, _ in row.devices]


def _with_gone(planned: Inventory, inventory: Inventory, places: Sequence[int | None]) -> tuple[Inventory, list[int]]:
    """Return an inventory with the nodes of a plan that it lacks, as broken ones, and the rank of each node there."""
    nodes: list[int] = []
    added: list[NodeSpec] = []
    for rank, node in enumerate(places):
        if node is None:
            node = inventory.num_nodes + len(added)
            added.append(planned.node(rank).changed(healthy=False).at(RankSet([node])))
        nodes.append(node)
    if not added:
        return inventory, nodes
    entries = [record.at(RankSet(ranks)) for ranks, record in inventory.stretches()]
    return Inventory([*entries, *added], inventory.facts, inventory.levels or None), nodes


def _no_spare(fault: Diagnostic, shrinking: Shrinking) -> Diagnostic:
    """Return the fault of too few nodes as one of too few spares, with what can be done about that."""
    if fault.help == NAMELESS_HELP:
        return replace(fault, code="no-spare")
    if shrinking.stated:
        more = f"shrink more components than {', '.join(shrinking.stated)}, or add spare nodes"
        return replace(fault, code="no-spare", help=shrinking.obstacle or more)
    groups = {name: num_data_groups(component) for name, component in shrinking.parts.items()}
    largest = max(groups, key=groups.__getitem__)
    help = ADD_SPARES
    if groups[largest] > 1:
        help += f", or shrink a component that has data groups (`--shrink {largest}`)"
    return replace(fault, code="no-spare", help=help)
