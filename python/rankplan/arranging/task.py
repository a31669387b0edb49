"""A node for every node rank of a plan, so that few parallel groups cross a domain: the task, and its answer."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from itertools import chain, product
from typing import NamedTuple, TypeAlias

from rankplan._core import Arrangement as Found
from rankplan._core import Hierarchy, Problem, RankSet
from rankplan.arranging import faults
from rankplan.arranging.exclusion import Exclusion
from rankplan.arranging.group_nodes import GroupNodes
from rankplan.arranging.hierarchy import crossings, domains_at, hierarchy_of, layouts
from rankplan.arranging.refusal import Refusal
from rankplan.arranging.rules import Network
from rankplan.errors import Diagnostic, PlacementError
from rankplan.frozen import frozen
from rankplan.nodes.inventory import Inventory
from rankplan.nodes.topology import Domains, domains
from rankplan.plans.component import Component, local_accelerators, used_nodes
from rankplan.plans.diff import same_nodes
from rankplan.plans.pools import reserves, strangers
from rankplan.plans.topology import NodeRule, NodeRules, Sets, broken
from rankplan.words import counted

KINDS = ("tensor or context", "expert", "data", "pipeline")
"""The groups whose crossings are counted together, those whose crossings cost most first.

Together they are all kinds of groups: tensor groups include expert-tensor groups; data groups include their shard and
replica groups and expert-data groups.
"""

_Kind: TypeAlias = tuple[str, int, str | None]
"""Type, number and model of the accelerators of a node."""

_MOVES = slice(3)
"""The part of a cost that counts the broken rules and the processes that move."""
_NETWORK = slice(3, None)
"""The part of a cost that counts what crosses domains, and the domains in use."""


class Hardware(NamedTuple):
    """The hardware that each node rank needs and that each node has, as indexes of these kinds."""

    needs: list[int]
    present: list[int]
    kinds: list[_Kind]


class Solution(NamedTuple):
    """The task for the core, and the best arrangement that it has found."""

    problem: Problem
    best: Found


@frozen(slots=False)
class Arrangement:
    """A node for every node rank of a plan.

    ``nodes`` has, by node rank, a rank in the inventory before; the others are ``spares``, domain after domain.
    ``before`` and ``after``, shape (levels, 4), count the groups that cross a domain of each of the ``levels``, by
    `KINDS`: those of the components that state sizes, as ``rankplan check`` counts them. ``optimal``: it is proved that
    no arrangement costs less. ``moved`` is the number of processes on another node than before a failure; ``as_block``
    is the number that would have to move so that the smallest torn group is whole again, if that is possible.
    """

    present: Inventory
    nodes: tuple[int, ...]
    spares: tuple[int, ...]
    levels: tuple[str, ...]
    before: list[list[int]]
    after: list[list[int]]
    optimal: bool
    moved: int = 0
    as_block: int | None = None

    @property
    def order(self) -> list[int]:
        """The ranks in the inventory before of all nodes in their new order, the spares last."""
        return [*self.nodes, *self.spares]

    @cached_property
    def inventory(self) -> Inventory:
        """The nodes in their new order, the spares last, without node groups."""
        return self.present.reordered(self.order)

    def followed_by(self, other: Arrangement) -> Arrangement:
        """Return this arrangement and one of its nodes as a single one."""
        nodes, spares = (tuple(self.order[node] for node in ranks) for ranks in (other.nodes, other.spares))
        return replace(other, present=self.present, nodes=nodes, spares=spares, before=self.before)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the nodes in their new order to an inventory file, atomically.

        Raises `PlacementError` (``invalid-value``) for nodes without a hostname and an address that have a new rank:
        the file could not say which machines they are. Raises ``OSError`` if it cannot be written.
        """
        reject_nameless(self.present, self.order)
        self.inventory.save(path)


@frozen(slots=False)
class Task:
    """A plan and the nodes that it can use.

    ``excluded`` is the hardware of the inventory that it cannot use; nodes that are named by their rank keep it.
    ``old`` has, by node rank, the rank in the inventory of the node that it may keep, or ``None``; it is empty without
    an old plan. ``were`` has the node that each had, lost or not; ``pinned`` the node that it must keep, if it is not
    empty. ``whole_group``: see `replan`. ``before`` are the crossings before, if they are known. ``held``: node ranks
    without processes keep their nodes, which are no spares then. ``unfit`` are nodes, each with node ranks that must
    not be on it. ``reserved`` are nodes, each with the components that may use it: those of the reserves before a
    repair, which may have given their node ranks to other nodes. ``ordered`` has the node that the order of a trainer
    gives each node rank; it is empty, or ``None`` for a rank, if that decides nothing. ``groups`` are the machines of
    node groups that components must stay on.
    """

    inventory: Inventory
    planned: Inventory
    parts: Mapping[str, Component]
    network: Network
    excluded: Exclusion
    old: Sequence[int | None] = ()
    were: Sequence[int | None] = ()
    pinned: Sequence[int | None] = ()
    whole_group: bool = False
    before: list[list[int]] | None = None
    held: bool = False
    unfit: Sequence[tuple[int, RankSet]] = ()
    reserved: Sequence[tuple[int, set[str]]] = ()
    ordered: Sequence[int | None] = ()
    groups: GroupNodes = field(default_factory=GroupNodes)

    def solve(self) -> Arrangement:
        """Find a node for every node rank.

        Raises `PlacementError`: ``too-few-nodes``, ``segment-incomplete``, ``domain-too-small`` or ``group-spans``.
        """
        if isinstance(self.answer, Refusal):
            raise self.answer.error(self.network.rules)
        problem, found = self.answer
        found, block_moves = self._with_whole_group(problem, found)
        nodes = [None if node is None else self.usable[node] for node in found.nodes]
        self._fill(nodes)
        filled = [node for node in nodes if node is not None]
        return Arrangement(
            present=self.inventory,
            nodes=tuple(filled),
            spares=tuple(self._all_spares(filled)),
            levels=self.network.levels,
            before=self._before() if self.before is None else self.before,
            after=problem.crossings(found.nodes),
            optimal=found.optimal,
            moved=found.moved,
            as_block=block_moves,
        )

    def _with_whole_group(self, problem: Problem, found: Found) -> tuple[Found, int | None]:
        """Return the arrangement to use, and how many processes would move to make the smallest torn group whole.

        That number is ``None`` if they move anyway, or if it makes nothing better.
        """
        block = problem.moved_as_block(found) if self.old else None
        if block is None or block.cost[_NETWORK] >= found.cost[_NETWORK]:
            return found, None
        return (block, None) if self.whole_group else (found, block.moved)

    def _all_spares(self, filled: Sequence[int]) -> list[int]:
        """Return the nodes that no node rank has, domain after domain, and then those that cannot be used.

        A node that is excluded by its rank keeps that rank among all nodes, if there are no node ranks up to it.
        """
        taken = set(filled)
        spares = [self.usable[node] for node in self.hierarchy.order if self.usable[node] not in taken]
        listed = taken.union(spares)
        spares += (node for node in range(self.inventory.num_nodes) if node not in listed)
        for rank, node in sorted(self.excluded.named.items()):
            if node in spares and rank >= len(filled):
                spares.remove(node)
                spares.insert(rank - len(filled), node)
        return spares

    @property
    def _new(self) -> bool:
        """Whether no node rank had a node before."""
        return not self.old and not self.pinned

    @cached_property
    def needed(self) -> RankSet:
        """The node ranks with processes."""
        return used_nodes(self.parts.values())

    @cached_property
    def rules(self) -> NodeRules:
        """What must, and should, hold on these nodes.

        Raises `PlacementError` with every fault, also for what must stay within a node and is on several node ranks.
        """
        rules = NodeRules.of(self.network.rules, self.parts, self.network.levels, arranging=self._new)
        wrong = [self._located(path, fault) for path, fault in rules.faults]
        for rule in rules.kept:
            if rule.level is None and (crossing := broken(rule, self.parts, self.planned)):
                wrong.append(Diagnostic("group-spans", *crossing))
        if wrong:
            raise PlacementError(wrong)
        rules.kept = [rule for rule in rules.kept if rule.level is not None]
        rules.preferred = [rule for rule in rules.preferred if rule.level is not None]
        return rules

    def _located(self, path: tuple[str, ...], fault: Diagnostic) -> Diagnostic:
        """Return the fault of a rule at its place; one of an option says where an unknown component is named."""
        located = self.network.rules.located(path, fault)
        if located is fault and fault.code == "unknown-component":
            return replace(fault, message=f"{fault.message} in {path[0]}")
        return located

    @cached_property
    def answer(self) -> Solution | Refusal:
        """The arrangement in which the sets of each rule are divided into as few parts as possible.

        With an old plan, one that moves fewer processes is better. Raises `PlacementError` for wrong rules, and too few
        nodes.
        """
        divisions = product(*map(self._divisions, self.rules.kept))
        answer = self._divided(next(divisions))  # there is one: sets can stay whole
        for parts in divisions:
            if not (self.old or isinstance(answer, Refusal)):
                break
            answer = _better(answer, self._divided(parts))
        return answer

    def _divided(self, parts: Sequence[int]) -> Solution | Refusal:
        """Return the arrangement with the sets of each rule divided into so many parts."""
        problem = self._problem([rule.divided(count) for rule, count in zip(self.rules.kept, parts, strict=True)])
        try:
            found = problem.solve()
        except ValueError as error:
            raise PlacementError([self._shortage(*shortage) for shortage in error.args[0]]) from None
        if found.allowed:
            return Solution(problem, found)
        return Refusal(self, self.rules, problem, found, tuple(parts), found.impossible)

    def _divisions(self, rule: NodeRule) -> list[int]:
        """Return the numbers of parts that the sets of a rule may be divided into: those that a domain has room for."""
        largest = max(self.hierarchy.sizes(rule.level or 0), default=0)
        counts = rule.divisions()
        fitting = [count for count in counts if max(map(len, rule.divided(count)), default=0) <= largest]
        return fitting or counts[-1:]

    @cached_property
    def usable(self) -> list[int]:
        """The ranks in the inventory of the nodes that are not excluded, or kept as they are."""
        whole = RankSet(node for node, accelerators in self.excluded.marks.items() if accelerators is None)
        named = RankSet(node for rank, node in self.excluded.named.items() if self._new and rank not in self.needed)
        nodes = RankSet(range(self.inventory.num_nodes)) - whole - named - self._nameless_spares
        if self.held:
            idle = RankSet(range(self.planned.num_nodes)) - self.needed
            nodes -= RankSet(place for rank in idle if (place := self._places_before[rank]) is not None)
        return list(nodes)

    # In a repaired plan, only its rank says which machine a node without a hostname and an address is. So such a node
    # keeps its node rank, and the rank keeps its node. `arrange` repairs no plan, and numbers the nodes freely.

    @cached_property
    def _nameless_ranks(self) -> RankSet:
        """The node ranks with processes that can only be on the node of the same rank.

        A node rank that a repair adds has no name in the plan yet; its node has one.
        """
        if self._new:
            return RankSet()
        unnamed = nameless(self.planned) & nameless(self.inventory) & self.needed
        return RankSet(rank for rank in unnamed if self._places_before[rank] == rank)

    @cached_property
    def _nameless_spares(self) -> RankSet:
        """Nodes without names whose own rank has no processes: no other rank may be there."""
        return RankSet() if self._new else nameless(self.inventory) - self.needed

    @cached_property
    def _places_before(self) -> Sequence[int | None]:
        """By node rank, the rank in the inventory of the node that it had, lost or not."""
        return self.were or self._places

    def _check_nameless(self, unfit: Mapping[int, RankSet], position: Mapping[int, int]) -> None:
        """Raise `PlacementError` (``too-few-nodes``) if a node is lost that only its rank tells from others."""
        lost = RankSet(
            rank for rank in self._nameless_ranks if rank not in position or rank in unfit.get(position[rank], ())
        )
        if lost:
            raise PlacementError([faults.nameless_node_lost(lost)])

    @cached_property
    def hierarchy(self) -> Hierarchy:
        return hierarchy_of(self.domains, self.usable)

    @cached_property
    def domains(self) -> tuple[Domains, ...]:
        """The domains of the inventory at each level of the rules."""
        return domains_at(self.inventory, self.network.levels)

    @cached_property
    def _places(self) -> Sequence[int | None]:
        """By node rank, the rank in the inventory of its node before."""
        return self.old or self.were or same_nodes(self.planned, self.inventory)

    @cached_property
    def hardware(self) -> Hardware:
        """The hardware of each node rank and of each node."""
        by_model = any(record.accelerator_model is not None for _, record in self.planned.stretches())
        kinds: dict[_Kind, int] = {}
        needs: list[int] = []
        present: list[int] = []
        for column, inventory in ((needs, self.planned), (present, self.inventory)):
            for nodes, record in inventory.stretches():
                model = record.accelerator_model if by_model else None
                kind = record.accelerator_type, len(record.accelerator_ids), model
                column += [kinds.setdefault(kind, len(kinds))] * len(nodes)
        return Hardware(needs, present, list(kinds))

    def _problem(self, kept: Sequence[Sets]) -> Problem:
        """Return the task for the core, which numbers the usable nodes; ``kept`` are the sets of each rule."""
        position = {node: index for index, node in enumerate(self.usable)}
        needs = self.hardware.needs
        node_classes = [self.hardware.present[node] for node in self.usable]
        rank_classes = [needs[rank] if rank in self.needed else None for rank in range(self.planned.num_nodes)]
        unfit = {position[node]: ranks for node, ranks in self.unsuited().items() if node in position}
        self._check_nameless(unfit, position)
        return Problem(
            self.hierarchy,
            node_classes=node_classes,
            rank_classes=rank_classes,
            unfit=list(unfit.items()),
            parts=layouts(self.parts),
            sets=self._distinct(kept),
            preferred=[(rule.level or 0, ranks) for rule in self.rules.preferred for ranks in rule.sets()],
            balanced=[(level, list(ranks)) for level, ranks in self.rules.balanced if ranks],
            caps=[(level, self._capped(level)) for level in self.caps],
            pinned=self._kept_nodes(position),
            old=self._survivors(position, unfit, node_classes, rank_classes),
            segment=self.network.largest_segment,
        )

    def _distinct(self, kept: Sequence[Sets]) -> list[tuple[int, tuple[int, ...], int]]:
        """Return the sets with their levels, and the first rule of each: components may have the same segments."""
        sets: dict[tuple[int, tuple[int, ...]], int] = {}
        for index, (rule, divided) in enumerate(zip(self.rules.kept, kept, strict=True)):
            for ranks in divided:
                sets.setdefault((rule.level or 0, ranks), index)
        return [(level, ranks, index) for (level, ranks), index in sets.items()]

    def _kept_nodes(self, position: Mapping[int, int]) -> list[int | None]:
        """Return the node that each node rank with processes must have, if its rank decides that."""
        nodes: list[int | None] = [None] * self.planned.num_nodes
        for rank, place in self._fixtures():
            if place is not None and rank in self.needed:
                nodes[rank] = position.get(place)
        return nodes

    def _survivors(
        self,
        position: Mapping[int, int],
        unfit: Mapping[int, RankSet],
        node_classes: Sequence[int],
        rank_classes: Sequence[int | None],
    ) -> list[int | None]:
        """Return the node that each node rank may keep, if that still suits it."""
        nodes: list[int | None] = []
        for rank, place in enumerate(self.old):
            index = None if place is None else position.get(place)
            if index is not None and (node_classes[index] != rank_classes[rank] or rank in unfit.get(index, ())):
                index = None
            nodes.append(index)
        return nodes

    def unsuited(self) -> dict[int, RankSet]:
        """Return the node ranks that must not be on a node, by node, whatever its kind of hardware."""
        in_groups = self.groups.unfit(self.parts, self.inventory.num_nodes)
        unsuited: dict[int, RankSet] = {}
        for node, ranks in chain(self._unfit(), self._reserved(), self._out_of_place(), self.unfit, in_groups):
            unsuited[node] = unsuited.get(node, RankSet()) | ranks
        return unsuited

    @cached_property
    def caps(self) -> dict[int, dict[int, int]]:
        """By level and domain, the most nodes that the plan may use: what a cap leaves of the domain beside other jobs.

        Of the nodes that the plan has already, as many are left to it as the cap allows: other jobs that came later
        make no survivor move.
        """
        places = self.old or self.pinned
        own = [place for rank in self.needed if places and (place := places[rank]) is not None]
        caps = {}
        for level, most in self.rules.caps.items():
            ids = self.domains[level].ids
            of_others = Counter(ids[node] for node in self.inventory.taken)
            of_plan = Counter(ids[node] for node in own)
            domains = {ids[node] for node in self.usable}
            caps[level] = {domain: max(most - of_others[domain], min(of_plan[domain], most)) for domain in domains}
        return caps

    def _capped(self, level: int) -> list[int]:
        """Return the most nodes that the plan may use of each domain of the hierarchy at a level with a cap."""
        ids, domains = self.domains[level].ids, self.hierarchy.at(level)
        most = {domain: self.caps[level][ids[node]] for domain, node in zip(domains, self.usable, strict=True)}
        return [most[domain] for domain in range(len(most))]

    def _unfit(self) -> Iterator[tuple[int, RankSet]]:
        """Yield each node of which only some accelerators are excluded, with the node ranks that need one of these."""
        broken = {node: local for node, local in self.excluded.marks.items() if local is not None}
        runs = [run for part in self.parts.values() for run in part.rows.runs()] if broken else []
        used = [(range(run.node, run.node + run.nodes), local_accelerators(run.pattern)) for run in runs]
        ranks_of: dict[RankSet, RankSet] = {}
        for node, local in broken.items():
            if local not in ranks_of:
                needing = (ranks for ranks, accelerators in used if not accelerators.isdisjoint(local))
                ranks_of[local] = RankSet(chain.from_iterable(needing))
            if ranks_of[local]:
                yield node, ranks_of[local]

    def _reserved(self) -> Iterator[tuple[int, RankSet]]:
        """Yield each node of a reserve, with the node ranks that must not use it.

        These are those of components that it does not protect. If one of these components needs a node, survivors must
        not use it either: they could move to the reserve only to leave their node to that component.
        """
        places, kept = self._places_before, self.old or self.pinned
        for ranks, names in () if self._new else reserves(self.network.rules.pools):
            others = strangers(self.parts, names)
            stay = RankSet(rank for rank in self.needed if kept[rank] is not None)
            if others - stay:
                others |= stay
            if others:
                yield from ((place, others) for rank in ranks if (place := places[rank]) is not None)
        for node, names in self.reserved:
            yield node, strangers(self.parts, names)

    def _out_of_place(self) -> Iterator[tuple[int, RankSet]]:
        """Yield each node without names whose rank is new in the plan, with all other node ranks."""
        for node in () if self._new else nameless(self.inventory) & self.needed - self._nameless_ranks:
            yield node, self.needed - RankSet([node])

    def _fixtures(self) -> Iterator[tuple[int, int | None]]:
        """Yield the node ranks that keep their nodes, and these.

        They are those with configured hardware, such as robots; those that are pinned, or get their nodes by the order
        of a trainer; those whose nodes have no names; without an old plan, those that a name excludes by their rank.
        """
        for group in () if self.planned.facts is None else self.planned.facts.node_groups:
            if group.hardware is not None:
                yield from ((rank, self._places[rank]) for rank, _ in group.hardware.counts())
        yield from enumerate(self.pinned)
        yield from enumerate(self.ordered)
        yield from ((rank, rank) for rank in self._nameless_ranks)
        if self._new:
            yield from ((rank, node) for rank, node in self.excluded.named.items() if rank < self.planned.num_nodes)

    def _fill(self, nodes: list[int | None]) -> None:
        """Give node ranks without processes the nodes that they had, else others of the same hardware.

        `arrange` leaves out the last node ranks from the first one on that needs no node and gets none.
        """
        self._return_own_nodes(nodes)
        if None not in nodes:
            return
        kinds = self.hardware.needs
        spares = self._spares(nodes)
        usable = set(self.usable)
        reserved = RankSet().union(*(ranks for ranks, _ in reserves(self.network.rules.pools)))
        for rank in _without_node(nodes):
            candidates = spares.get(kinds[rank], [])
            if not self._new and rank in reserved:  # a reserve needs a node that can be used
                candidates.sort(key=lambda node: (node in usable, node))
            if candidates:
                nodes[rank] = candidates.pop()
                continue
            if self._new and rank > max(self.needed, default=-1):
                del nodes[rank:]
                return
            alike = [node for node, kind in zip(nodes, kinds, strict=True) if kind == kinds[rank]]
            raise PlacementError([self._shortage(kinds[rank], len(alike), len(alike) - alike.count(None))])

    def _return_own_nodes(self, nodes: list[int | None]) -> None:
        """Give node ranks without a node the one that they had, if it is free and has the hardware that they need."""
        kinds, present = self.hardware.needs, self.hardware.present
        taken = {node for node in nodes if node is not None}
        for rank in _without_node(nodes):
            own = self._places[rank]
            if own is not None and own not in taken and present[own] == kinds[rank]:
                nodes[rank] = own
                taken.add(own)

    def _spares(self, nodes: Sequence[int | None]) -> dict[int, list[int]]:
        """Return the nodes of the inventory that no node rank has, by their kind of hardware, to be taken from the end.

        Those that nobody can use are taken first, so that spares stay, and those that have a rank of their own last.
        """
        present = self.hardware.present
        taken, usable, named = set(nodes), set(self.usable), set(self.excluded.named.values())
        unused = [node for node in range(self.inventory.num_nodes) if node not in taken]
        spares: dict[int, list[int]] = {}
        for node in sorted(unused, key=lambda node: (node not in named, node not in usable, node)):
            spares.setdefault(present[node], []).append(node)
        return spares

    def unfixed_moves(self) -> int | None:
        """Return the survivors that move without ``fixed``; ``None`` if that does not help."""
        try:
            answer = replace(self, pinned=()).answer
        except PlacementError:
            return None
        if isinstance(answer, Refusal):
            return None
        position = {node: index for index, node in enumerate(self.usable)}
        pairs = zip(self.old, answer.best.nodes, strict=True)
        return sum(old is not None and node is not None and position.get(old) != node for old, node in pairs)

    def _before(self) -> list[list[int]]:
        """Return the crossings on the nodes before; on those of the plan where the inventory does not have them."""
        return crossings(self.parts, self._hierarchy_before(), self.planned.num_nodes)

    def _hierarchy_before(self) -> Hierarchy:
        places = self._places_before
        present_places = [place for place in places if place is not None]
        if len(present_places) == len(places):
            return hierarchy_of(self.domains, present_places)
        planned, present = _labels(self.planned), _labels(self.inventory)
        labels = [planned[rank] if place is None else present[place] for rank, place in enumerate(places)]
        return hierarchy_of(domains(labels, self.network.levels), range(len(labels)))

    def _shortage(self, kind: int, needed: int, found: int) -> Diagnostic:
        message = f"the plan needs {counted(needed, 'node')} with {self.equipment(kind)}; {found} can be used"
        if self.groups.nodes:
            message += ", as components stay in their node groups"
        return Diagnostic("too-few-nodes", message, f"add {counted(needed - found, 'node')}, or place fewer processes")

    def equipment(self, kind: int) -> str:
        """Return the accelerators of a kind of hardware in words."""
        return equipment(*self.hardware.kinds[kind])


def _better(answer: Solution | Refusal, other: Solution | Refusal) -> Solution | Refusal:
    """Return the answer that moves less, the first one if both move as much; of two refusals, the second one."""
    if isinstance(other, Refusal):
        if isinstance(answer, Refusal):
            return replace(other, proved=other.proved and answer.proved)
        return answer
    if isinstance(answer, Refusal) or other.best.cost[_MOVES] < answer.best.cost[_MOVES]:
        return other
    return answer


def _labels(inventory: Inventory) -> list[Mapping[str, str]]:
    """Return the labels of each node."""
    return [record.labels for nodes, record in inventory.stretches() for _ in nodes]


def _without_node(nodes: Sequence[int | None]) -> list[int]:
    """Return the node ranks that have no node."""
    return [rank for rank, node in enumerate(nodes) if node is None]


def reject_nameless(inventory: Inventory, order: Sequence[int]) -> None:
    """Raise `PlacementError` if a node gets another rank that only its rank tells from others."""
    unnamed = RankSet(node for node in nameless(inventory) if order[node] != node)
    if unnamed:
        raise PlacementError([faults.nameless_nodes_reordered(unnamed)])


def nameless(inventory: Inventory) -> RankSet:
    """Return the nodes without a hostname and an address."""
    nodes = (nodes for nodes, record in inventory.stretches() if not (record.hostname or record.ip))
    return RankSet(chain.from_iterable(nodes))


def equipment(accelerator_type: str, count: int, model: str | None) -> str:
    """Return the accelerators of a node in words."""
    return f"{count} {' '.join(part for part in (model, accelerator_type) if part)}" if count else "no accelerators"
