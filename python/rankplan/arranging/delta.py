"""Shrink and grow components of a plan by a number of data groups, while everything else stays where it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import lcm

from rankplan._core import CLUSTER, NODE, RankSet, Requests, Taken
from rankplan.arranging import faults
from rankplan.arranging.exclusion import Exclusion
from rankplan.arranging.group_nodes import GroupNodes
from rankplan.arranging.refusal import Refusal
from rankplan.arranging.replanned import (
    Replanned,
    moved_to,
    new_homes,
    nodes_of,
    resized_facts,
    unmarked,
)
from rankplan.arranging.requests import has_all_nodes, requests_for, with_requests
from rankplan.arranging.rules import Network
from rankplan.arranging.shrinking import removed
from rankplan.arranging.task import Arrangement, Task, equipment
from rankplan.arranging.trainer_order import NotInOrder, TrainerOrder, Unsorted
from rankplan.arranging.units import Step, grown_rule, num_data_groups, reject_without_groups, resized
from rankplan.errors import Diagnostic, PlacementError
from rankplan.frozen import frozen
from rankplan.nodes.facts import ClusterFacts
from rankplan.nodes.group_ranks import accelerators_of, counted_within
from rankplan.nodes.inventory import Inventory
from rankplan.plans.component import Component, Rule, used_nodes
from rankplan.plans.diff import Move, coordinates_of
from rankplan.plans.node_order import node_names
from rankplan.plans.plan import Plan
from rankplan.plans.pools import reserves, size_faults
from rankplan.plans.rules import Rules, with_named_levels
from rankplan.words import counted


def resize(
    found: Replanned,
    inventory: Inventory,
    shrink: Mapping[str, int],
    grow: Mapping[str, int],
    *,
    renumber: bool,
    reserved: Mapping[int, int],
) -> Replanned:
    """Remove data groups of a plan that was repaired if necessary, then add some, on nodes of the same inventory.

    ``reserved`` are the nodes of the reserves before the repair, by node rank.

    No process that stays moves. New node ranks come after all others, new processes after the last rank of their
    component. Raises `PlacementError`: ``invalid-value``, ``no-spare``, ``group-spans``, ``segment-incomplete``.
    """
    before = found.plan
    kept, parts = _changed_sizes(before, shrink, grow, renumber=renumber)
    sizing = _Sizing(found, parts, inventory, reserved)
    sized = sizing.sized(grow)
    if not isinstance(sized, _Sized):
        sizing.check_kept()
        raise PlacementError([sizing.fault(grow)])
    requests = _requests(before, sized, [*shrink, *grow])
    order = TrainerOrder.of(before, requests, sized.new)
    try:
        arrangement = order.solved(sized.task).arrangement
    except NotInOrder as error:
        raise PlacementError([_order_fault(before, inventory, sized, error.unsorted)]) from None
    nodes = nodes_of(before, inventory, found.arrangement.nodes, arrangement.nodes, sized.facts)
    after = before.placed(nodes, [moved_to(part, nodes) for part in sized.task.parts.values()], sized.rules)
    return _joined(found, with_requests(after, requests, before), kept, arrangement)


def _changed_sizes(
    before: Plan, shrink: Mapping[str, int], grow: Mapping[str, int], *, renumber: bool
) -> tuple[dict[str, Sequence[int]], dict[str, Component]]:
    """Return the old ranks of the processes that stay, and the components without those that go.

    Raises `PlacementError` with every size that cannot be.
    """
    kept: dict[str, Sequence[int]] = {name: range(len(component)) for name, component in before.items()}
    parts = dict(before)
    more_resources: dict[str, int] = {}
    wrong: list[Diagnostic] = []
    for name, count in shrink.items():
        try:
            kept[name], parts[name] = removed(before, name, count, renumber=renumber)
        except PlacementError as error:
            wrong += error.diagnostics
    for name, count in grow.items():
        try:
            reject_without_groups(parts[name])
            step = Step.of(parts[name])
            more_resources[name] = step.times(name, count) * step.nodes * step.resources
        except PlacementError as error:
            wrong += error.diagnostics
    wrong += size_faults(before.rules.pools, parts, more_resources)
    if wrong:
        raise PlacementError(wrong)
    return kept, parts


def _requests(before: Plan, sized: _Sized, changed: Iterable[str]) -> Requests:
    """Return what the trainer asks Ray for in the new sizes; raises `PlacementError` if its dialect cannot tell."""
    if not before.requests:
        return before.requests
    parts = sized.task.parts
    requests = requests_for(before, before.placed(sized.task.planned, parts.values(), sized.rules))
    if requests is None:
        raise PlacementError([faults.requests_unknown(before.dialect, name) for name in dict.fromkeys(changed)])
    return requests


def _order_fault(before: Plan, inventory: Inventory, sized: _Sized, unsorted: Unsorted) -> Diagnostic:
    names = node_names(inventory, unsorted.nodes)
    stay = [rank for rank in unsorted.ranks if rank not in sized.new]
    last = before.inventory.node(stay[-1]).name
    return faults.not_grown_in_order(before.dialect, unsorted.order, unsorted.ranks, names, last)


def fault_of_shared(plan: Plan, name: str, change: str) -> Diagnostic | None:
    """Return the fault of a component whose trainer places it with others, so that it cannot ``grow`` or ``shrink``.

    ``None`` for one that has its own accelerators, or whose trainer gives each component accelerators of its own.
    """
    devices = plan[name].rows.accelerators()
    others = [other for other, part in plan.items() if other != name and part.rows.accelerators() & devices]
    if plan.dialect is None or not faults.pool_keys(plan.dialect) or not others:
        return None
    return faults.outside_of_pool(plan.dialect, name, others, change)


@frozen
class _Sized:
    """The task to find nodes for components of another size, and facts and rules with their node ranks.

    ``added`` has the node ranks that each component gets.
    """

    task: Task
    facts: ClusterFacts | None
    rules: Rules
    added: Mapping[str, Sequence[int]]

    @property
    def cost(self) -> list[int]:
        """The cost of the arrangement, if there is one."""
        return [] if isinstance(self.task.answer, Refusal) else self.task.answer.best.cost

    @property
    def new(self) -> RankSet:
        """The node ranks that components get."""
        return RankSet().union(*(RankSet(ranks) for ranks in self.added.values()))

    def node_of(self, rank: int) -> int | None:
        """Return the node that was found for a node rank, by its rank in the inventory."""
        if isinstance(self.task.answer, Refusal):
            return None
        node = self.task.answer.best.nodes[rank]
        return None if node is None else self.task.usable[node]


class _Sizing:
    """Components of a plan that lost data groups, and may get others on the nodes of an inventory."""

    def __init__(
        self, found: Replanned, parts: Mapping[str, Component], inventory: Inventory, reserved: Mapping[int, int]
    ) -> None:
        plan, places = found.plan, found.arrangement.nodes
        self._plan, self._inventory, self._parts = plan, inventory, parts
        self._crossings = found.arrangement.before
        self._network = Network.of(inventory, plan)
        self._excluded = Exclusion.of(plan.inventory, inventory, places)
        used = used_nodes(parts.values())
        num_ranks = len(places)
        if not has_all_nodes(plan, inventory):
            num_ranks = _without_freed_ends(num_ranks, used_nodes(plan.values()) - used, _stated_ranks(plan.inventory))
        self._places = _returned(places, used, reserved)[:num_ranks]
        protects = {rank: names for ranks, names in reserves(plan.rules.pools) for rank in ranks}
        self._reserved = [(node, protects[rank]) for rank, node in reserved.items() if rank in protects]
        self._pinned = [place if rank in used else None for rank, place in enumerate(self._places)]
        self._facts = plan.inventory.facts and resized_facts(plan.inventory.facts, num_ranks)
        self._rules = plan.rules.with_pools_on(RankSet(range(num_ranks)))

    def sized(self, grow: Mapping[str, int]) -> _Sized | Refusal | None:
        """Return nodes for so many more data groups, or why there are none; ``None`` if there are too few nodes.

        Node ranks without processes keep their nodes as long as the spares suffice, so that the plan is the same again
        once it has shrunk. Where they do not, such node ranks get processes. The solver chooses among the spares and
        the nodes of all these ranks, for the first of them. Then the first of them, or else those whose nodes it
        chose, get the processes in place, unless that costs more.
        """
        on_spares = self._solved(grow, {name: [] for name in grow}, held=True)
        if isinstance(on_spares, _Sized):
            return on_spares
        first_unused = self._first_unused(grow)
        if first_unused is None:
            return None
        free = self._solved(grow, first_unused, held=False)
        if not isinstance(free, _Sized):
            return free
        for reused in (first_unused, self._chosen(free)):
            in_place = self._solved(grow, reused, held=True)
            if isinstance(in_place, _Sized) and in_place.cost <= free.cost:
                return in_place
        return free

    def _chosen(self, sized: _Sized) -> dict[str, list[int]]:
        """Return the node ranks without processes whose nodes new node ranks got, by component."""
        rank_of_node = {self._places[rank]: rank for rank, node in enumerate(self._pinned) if node is None}
        chosen = {}
        for name, ranks in sized.added.items():
            nodes = [sized.node_of(rank) for rank in ranks]
            chosen[name] = sorted(rank_of_node[node] for node in nodes if node in rank_of_node)
        return chosen

    def check_kept(self) -> None:
        """Raise `PlacementError` if the nodes that stay break a rule, whatever grows."""
        unchanged = self._resized({}, {}, held=True)
        if unchanged is not None:
            unchanged.task.solve()

    def _first_unused(self, grow: Mapping[str, int]) -> dict[str, list[int]] | None:
        """Return node ranks without processes for the nodes that the inventory lacks; ``None`` if they are too few."""
        reused: dict[str, list[int]] = {}
        taken, count = RankSet(), len(self._places)
        for name, groups in grow.items():
            part = self._parts[name]
            step, node = Step.of(part), part.rows[len(part) - 1].cluster_node_rank
            more = step.times(name, groups) * step.nodes
            lacking = max(0, count + more - self._inventory.num_nodes)
            reused[name] = self._unused(part, node, lacking, taken)
            if len(reused[name]) < lacking:
                return None
            taken |= RankSet(reused[name])
            count += more - lacking
        return reused

    def _solved(
        self, grow: Mapping[str, int], reused: Mapping[str, Sequence[int]], *, held: bool
    ) -> _Sized | Refusal | None:
        """Return nodes for so many more data groups, or why there are none; ``None`` if there are too few nodes."""
        sized = self._resized(grow, reused, held=held)
        if sized is None:
            return None
        try:
            return sized.task.answer if isinstance(sized.task.answer, Refusal) else sized
        except PlacementError as error:
            if error.code != "too-few-nodes":
                raise
            return None

    def _resized(self, grow: Mapping[str, int], reused: Mapping[str, Sequence[int]], *, held: bool) -> _Sized | None:
        """Return the task of so many more data groups on these node ranks without processes, and on new ones.

        With ``held``, these ranks, and all others without processes, keep their nodes. ``None``: the inventory has too
        few nodes for new ranks.
        """
        order = list(self._places)
        facts = self._facts
        rules: dict[str, Rule] = {}
        added: dict[str, list[int]] = {}
        refilled = RankSet()
        for name, count in grow.items():
            part = self._parts[name]
            step = Step.of(part)
            like = part.rows[len(part) - 1].cluster_node_rank
            num_nodes = step.times(name, count) * step.nodes
            if not num_nodes:
                continue
            num_new = num_nodes - len(reused[name])
            if num_new < 0 or len(order) + num_new > self._inventory.num_nodes:
                return None
            new = range(len(order), len(order) + num_new)
            order += [self._places[like]] * num_new
            facts = facts and resized_facts(facts, len(order), part.node_groups[0], new, like=like)
            refilled |= RankSet(reused[name])
            added[name] = [*reused[name], *new]
            rules[name] = self._rule(name, self._resources(part, self._planned(order, facts), added[name]), step)
        task = self._task(order, self._planned(order, facts), grow, rules, refilled, held=held)
        rules_left = self._rules.with_pools_on(RankSet(range(len(order))) - refilled)
        return _Sized(task, facts, rules_left, added)

    def _task(
        self,
        order: Sequence[int],
        planned: Inventory,
        grow: Mapping[str, int],
        rules: Mapping[str, Rule],
        refilled: RankSet,
        *,
        held: bool,
    ) -> Task:
        """Return the task to find nodes for the components with these rules, on the planned nodes."""
        parts = {}
        for name, part in self._parts.items():
            groups = num_data_groups(part) + grow.get(name, 0)
            parts[name] = resized(part, planned, rules[name], groups) if name in rules else moved_to(part, planned)
        of_new_ranks = [None] * (len(order) - len(self._places))
        pinned = [*self._pinned, *of_new_ranks]
        if held:
            for rank in refilled:
                pinned[rank] = self._places[rank]
        return Task(
            self._inventory,
            planned,
            parts,
            self._network,
            self._excluded,
            were=[*self._places, *of_new_ranks],
            pinned=pinned,
            before=self._crossings,
            held=held,
            reserved=self._reserved,
            groups=GroupNodes.of(self._plan, self._plan.inventory, self._inventory, self._places),
        )

    def _planned(self, order: Sequence[int], facts: ClusterFacts | None) -> Inventory:
        """Return nodes like those of the plan, and of its new node ranks, as if all their hardware could be used."""
        nodes = self._inventory.reordered(order)
        if facts is not None:
            facts = with_named_levels(facts, self._rules, nodes)
            nodes = nodes.with_facts(replace(facts, exclude=()), planned=True)
        return unmarked(nodes)

    def _unused(self, part: Component, like: int, count: int, taken: RankSet) -> list[int]:
        """Return ``count`` node ranks without processes that a component can use, or all if there are fewer.

        Growth uses them where the inventory has too few nodes for new node ranks: those whose nodes can be used first,
        then those after the last node of the component, so that its rule stays a rank map.
        """
        label = part.node_groups[0]
        group = self._plan.inventory.group(label)
        if label not in (CLUSTER, NODE) and (group is None or self._plan.dialect is None):
            return []
        barred = RankSet().union(*(ranks for ranks, names in reserves(self._rules.pools) if part.name not in names))
        barred |= taken
        if group is not None:
            barred |= RankSet(range(len(self._pinned))) - group.node_ranks
        equipment_like_it = self._equipment(like)
        alike = []
        for rank, node in enumerate(self._pinned):
            is_free = node is None and rank not in barred
            if is_free and self._equipment(rank) == equipment_like_it:
                alike.append(rank)
        marks, last = self._excluded.marks, max(part.used_nodes())

        def preference(rank: int) -> tuple[bool, bool, int]:
            return self._places[rank] in marks, rank < last, rank

        return sorted(alike, key=preference)[:count]

    def _equipment(self, rank: int) -> tuple[str, int]:
        """Return the type and the number of the accelerators of a node rank."""
        node = self._inventory.node(self._places[rank])
        return node.accelerator_type, node.num_accelerators

    def _resources(self, part: Component, planned: Inventory, ranks: Sequence[int]) -> list[int]:
        """Return the resources of node ranks; in a node group of RLinf, these are the last ones."""
        pool = planned.pool(part.node_groups, by_node=part.by_node)
        group = planned.group(part.node_groups[0])
        if group is not None and self._plan.dialect is not None:
            own = accelerators_of(planned, RankSet(ranks))
            within = counted_within(Taken(own.ranges), accelerators_of(planned, group.node_ranks))
            return [rank for first, last in within.ranges for rank in range(first, last + 1)]
        if part.node_groups[0] not in (CLUSTER, NODE):
            each = 1 if pool.by_node else planned.node(ranks[0]).num_accelerators
            return list(range(len(pool) - each * len(ranks), len(pool)))
        if pool.by_node:
            return list(ranks)
        core = planned.core
        return [core.resource(rank, index) for rank in ranks for index in range(core.num_accelerators(rank))]

    def _rule(self, name: str, resources: Sequence[int], step: Step) -> Rule:
        """Return the rule of a component on more resources, which must be the last ones of its node groups."""
        part = self._parts[name]
        label, *others = part.node_groups
        continuing = [other for other, part in self._plan.items() if label in part.node_groups[:-1]]
        if label not in (CLUSTER, NODE) and (others or continuing):
            raise PlacementError([faults.several_node_groups((continuing or [name])[0], label)])
        rule = grown_rule(part, resources, step)
        if rule is None:
            raise PlacementError([faults.no_larger_rule(name, len(resources))])
        return rule

    def fault(self, grow: Mapping[str, int]) -> Diagnostic:
        """Return why the first component that cannot grow cannot, and by how much it can."""
        done: dict[str, int] = {}
        for name, count in grow.items():
            sized = self.sized(done | {name: count})
            if not isinstance(sized, _Sized):
                break
            done[name] = count
        part = self._parts[name]
        step, unit = Step.of(part), self._network.whole_segments(name)
        nodes = lcm(step.nodes, unit)
        groups = nodes // step.nodes * step.groups
        least, most = 0, count // groups - 1
        while least < most:
            middle = (least + most + 1) // 2
            if self._possible(done | {name: middle * groups}):
                least = middle
            else:
                most = middle - 1
        more = counted(count // step.groups * step.nodes, "more node")
        possible = f"{least * nodes or 'none'} can be added"
        help = f"grow by {least * groups}" if least else "shrink another component"
        if isinstance(sized, Refusal):
            return sized.of_growth(name, more, possible, help)
        spec = self._inventory.node(self._places[part.rows[len(part) - 1].cluster_node_rank])
        hardware = equipment(spec.accelerator_type, spec.num_accelerators, spec.accelerator_model)
        message = f"{name}: no {more} with {hardware}; {possible}"
        return Diagnostic("no-spare", message, f"{faults.ADD_SPARES}, or {help}")

    def _possible(self, grow: Mapping[str, int]) -> bool:
        try:
            return isinstance(self.sized(grow), _Sized)
        except PlacementError:
            return False


def _without_freed_ends(num_ranks: int, freed: RankSet, stated: set[int]) -> int:
    """Return the number of node ranks without the last ones that lost their processes, unless the facts need them."""
    while num_ranks - 1 in freed and num_ranks - 1 not in stated:
        num_ranks -= 1
    return num_ranks


def _stated_ranks(inventory: Inventory) -> set[int]:
    """Return node ranks that facts cannot do without: one of each node group, and those with configured hardware."""
    groups = () if inventory.facts is None else inventory.facts.node_groups
    stated = {group.node_ranks[0] for group in groups}
    for group in groups:
        if group.hardware is not None:
            stated.update(node for node, _ in group.hardware.counts())
    return stated


def _returned(places: Sequence[int], used: RankSet, reserved: Mapping[int, int]) -> list[int]:
    """Return the node of each node rank, with those of reserves that a repair had taken back in their own ranks.

    Where such a node has no processes any more, its rank gets the node that stood for the reserve.
    """
    returned = list(places)
    ranks = {node: rank for rank, node in enumerate(places)}
    for rank, node in reserved.items():
        holder = ranks.get(node)
        if holder is not None and holder not in used and holder != rank and rank < len(returned):
            returned[rank], returned[holder] = node, returned[rank]
            ranks[node], ranks[returned[holder]] = rank, holder
    return returned


def _joined(found: Replanned, after: Plan, kept: Mapping[str, Sequence[int]], arrangement: Arrangement) -> Replanned:
    """Return a repair and the change of size after it as one; ``kept`` has the rank of each rank before that change."""
    moves: list[Move] = []
    losses = list(found.losses)
    gains: list[Move] = []
    for name, ranks in kept.items():
        part = after[name]
        moves += _moves_of_kept(found, part, ranks)
        losses += _losses_after(found, name, ranks)
        for row in part.rows[len(ranks) :]:
            gains.append(Move(name, row.rank, None, row, [], coordinates_of(part, row)))
    homes = new_homes(moves)
    return Replanned(
        found.before,
        after,
        tuple(moves),
        tuple(losses),
        tuple(gains),
        {rank: nodes for rank, nodes in found.successors.items() if rank in homes},
        replace(
            arrangement,
            optimal=found.arrangement.optimal and arrangement.optimal,
            moved=found.arrangement.moved,
            as_block=found.arrangement.as_block,
        ),
        found.reasons,
    )


def _moves_of_kept(found: Replanned, part: Component, kept: Sequence[int]) -> Iterator[Move]:
    """Yield the moves of a repair whose processes stay, with their ranks in the component of another size."""
    moves = {move.rank: move for move in found.moves if move.component == part.name}
    if not moves:
        return
    for new, rank in enumerate(kept):
        if rank in moves:
            yield replace(moves[rank], rank=new, after=part[new], now=coordinates_of(part, part[new]))


def _losses_after(found: Replanned, name: str, kept: Sequence[int]) -> Iterator[Move]:
    """Yield the processes that a component loses after a repair, as they were before it."""
    before = found.before[name]
    lost = RankSet(move.rank for move in found.losses if move.component == name)
    ranks_before = RankSet(range(len(before))) - lost
    for rank in RankSet(range(len(found.plan[name]))) - RankSet(kept):
        row = before[ranks_before[rank]]
        yield Move(name, row.rank, row, None, coordinates_of(before, row))
