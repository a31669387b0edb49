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
    places = found.arrangement.nodes
    kept: dict[str, Sequence[int]] = {name: range(len(component)) for name, component in before.items()}
    parts = dict(before)
    more: dict[str, int] = {}
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
            more[name] = step.times(name, count) * step.nodes * step.resources
        except PlacementError as error:
            wrong += error.diagnostics
    wrong += size_faults(before.rules.pools, parts, more)
    if wrong:
        raise PlacementError(wrong)
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
    nodes = nodes_of(before, inventory, places, arrangement.nodes, sized.facts)
    after = before.placed(nodes, [moved_to(one, nodes) for one in sized.task.parts.values()], sized.rules)
    return _joined(found, with_requests(after, requests, before), kept, arrangement)


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
        return [] if isinstance(self.task.answer, Refusal) else self.task.answer[1].cost

    @property
    def new(self) -> RankSet:
        """The node ranks that components get."""
        return RankSet().union(*(RankSet(ranks) for ranks in self.added.values()))

    def node_of(self, rank: int) -> int | None:
        """Return the node that was found for a node rank, by its rank in the inventory."""
        if isinstance(self.task.answer, Refusal):
            return None
        node = self.task.answer[1].nodes[rank]
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
        freed, left = used_nodes(plan.values()) - used, len(places)
        groups = () if plan.inventory.facts is None else plan.inventory.facts.node_groups
        needed = {group.node_ranks[0] for group in groups}
        needed.update(node for group in groups if group.hardware is not None for node, _ in group.hardware.counts())
        if not has_all_nodes(plan, inventory):
            # A last node rank without processes is none any more.
            while left - 1 in freed and left - 1 not in needed:
                left -= 1
        self._places = _returned(places, used, reserved)[:left]
        protects = {rank: names for ranks, names in reserves(plan.rules.pools) for rank in ranks}
        self._reserved = [(node, protects[rank]) for rank, node in reserved.items() if rank in protects]
        self._pinned = [place if rank in used else None for rank, place in enumerate(self._places)]
        self._facts = plan.inventory.facts and resized_facts(plan.inventory.facts, left)
        self._rules = plan.rules.with_pools_on(RankSet(range(left)))

    def sized(self, grow: Mapping[str, int]) -> _Sized | Refusal | None:
        """Return nodes for so many more data groups, or why there are none; ``None`` if there are too few nodes.

        Node ranks without processes keep their nodes as long as the spares suffice, so that the plan is the same again
        once it has shrunk. Where they do not, such node ranks get processes. The solver chooses among the spares and
        the nodes of all these ranks, for the first of them. Then the first of them, or else those whose nodes it
        chose, get the processes in place, unless that costs more.
        """
        spared = self._sized(grow, {name: [] for name in grow}, held=True)
        if isinstance(spared, _Sized):
            return spared
        first = self._first_unused(grow)
        free = self._sized(grow, first, held=False)
        if first is None or not isinstance(free, _Sized):
            return free
        home = {self._places[rank]: rank for rank, node in enumerate(self._pinned) if node is None}
        chosen = {
            name: sorted(home[node] for rank in ranks if (node := free.node_of(rank)) in home)
            for name, ranks in free.added.items()
        }
        for reused in (first, chosen):
            in_place = self._sized(grow, reused, held=True)
            if isinstance(in_place, _Sized) and in_place.cost <= free.cost:
                return in_place
        return free

    def check_kept(self) -> None:
        """Raise `PlacementError` if the nodes that stay break a rule, whatever grows."""
        kept = self._asked({}, {}, held=True)
        if kept is not None:
            kept.task.solve()

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

    def _sized(
        self, grow: Mapping[str, int], reused: Mapping[str, Sequence[int]] | None, *, held: bool
    ) -> _Sized | Refusal | None:
        """Return nodes for so many more data groups, or why there are none; ``None`` if there are too few nodes."""
        asked = None if reused is None else self._asked(grow, reused, held=held)
        if asked is None:
            return None
        try:
            return asked.task.answer if isinstance(asked.task.answer, Refusal) else asked
        except PlacementError as error:
            if error.code != "too-few-nodes":
                raise
            return None

    def _asked(self, grow: Mapping[str, int], reused: Mapping[str, Sequence[int]], *, held: bool) -> _Sized | None:
        """Return the task of so many more data groups on these node ranks without processes, and on new ones.

        With ``held``, these ranks, and all others without processes, keep their nodes. ``None``: the inventory has too
        few nodes for new ranks.
        """
        order, facts = list(self._places), self._facts
        rules, added, taken = dict[str, Rule](), dict[str, list[int]](), RankSet()
        for name, count in grow.items():
            part = self._parts[name]
            step, node = Step.of(part), part.rows[len(part) - 1].cluster_node_rank
            more = step.times(name, count) * step.nodes
            if not more:
                continue
            if more < len(reused[name]) or len(order) + more - len(reused[name]) > self._inventory.num_nodes:
                return None
            new = range(len(order), len(order) + more - len(reused[name]))
            order += [self._places[node]] * len(new)
            facts = facts and resized_facts(facts, len(order), part.node_groups[0], new, like=node)
            taken |= RankSet(reused[name])
            added[name] = [*reused[name], *new]
            rules[name] = self._rule(name, self._resources(part, self._planned(order, facts), added[name]), step)
        planned = self._planned(order, facts)
        parts = {}
        for name, part in self._parts.items():
            rule = rules.get(name)
            groups = num_data_groups(part) + grow.get(name, 0)
            parts[name] = moved_to(part, planned) if rule is None else resized(part, planned, rule, groups)
        none = [None] * (len(order) - len(self._places))
        pinned, were = [*self._pinned, *none], [*self._places, *none]
        for rank in taken if held else ():
            pinned[rank] = self._places[rank]
        task = Task(
            self._inventory,
            planned,
            parts,
            self._network,
            self._excluded,
            were=were,
            pinned=pinned,
            before=self._crossings,
            held=held,
            reserved=self._reserved,
            groups=GroupNodes.of(self._plan, self._plan.inventory, self._inventory, self._places),
        )
        rules_left = self._rules.with_pools_on(RankSet(range(len(order))) - taken)
        return _Sized(task, facts, rules_left, added)

    def _planned(self, order: Sequence[int], facts: ClusterFacts | None) -> Inventory:
        """Return nodes like those of the plan, and of its new node ranks, as if all their hardware could be used."""
        found = self._inventory.reordered(order)
        if facts is not None:
            facts = with_named_levels(facts, self._rules, found)
            found = found.with_facts(replace(facts, exclude=()), planned=True)
        return unmarked(found)

    def _unused(self, part: Component, like: int, count: int, taken: RankSet) -> list[int]:
        """Return ``count`` node ranks without processes that a component can use, or all if there are fewer.

        Growth uses them where the inventory has too few nodes for new node ranks: those whose nodes can be used first,
        then those after the last node of the component, so that its rule stays a rank map.
        """
        label = part.node_groups[0]
        group = self._plan.inventory.group(label)
        if label not in (CLUSTER, NODE) and (group is None or self._plan.dialect is None):
            return []
        strange = RankSet().union(*(ranks for ranks, names in reserves(self._rules.pools) if part.name not in names))
        wanted = self._inventory.node(self._places[like])
        if group is not None:
            strange |= RankSet(range(len(self._pinned))) - group.node_ranks
        free = (rank for rank, node in enumerate(self._pinned) if node is None and rank not in taken | strange)
        nodes = ((rank, self._inventory.node(self._places[rank])) for rank in free)
        alike = [
            rank
            for rank, node in nodes
            if (node.accelerator_type, node.num_accelerators) == (wanted.accelerator_type, wanted.num_accelerators)
        ]
        marks, last = self._excluded.marks, max(part.used_nodes())

        def preference(rank: int) -> tuple[bool, bool, int]:
            return self._places[rank] in marks, rank < last, rank

        return sorted(alike, key=preference)[:count]

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
        later = [one for one, part in self._plan.items() if label in part.node_groups[:-1]]
        if label not in (CLUSTER, NODE) and (others or later):
            raise PlacementError([faults.several_node_groups((later or [name])[0], label)])
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
