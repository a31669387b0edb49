"""The same plan with the nodes of its pools exchanged, in the order in which the trainer sorts them.

A trainer gives its ranks to the nodes of a pool in an order of its own: by address, or by Ray's ids. A saved plan has
them in another one where its addresses are those of other pods. Its nodes may change places: every process keeps its
rank and its local accelerators, and gets them on another node.

Two nodes may change places if they have the same hardware, if the same of it is excluded or in use by others, if they
are in the same node groups, and if they are in the same domain of each level that a rule names. Pools that share a node
move alike, so each node has one new place. In a pool, the trainer's order leaves no choice; pools that share only some
nodes may leave one, and then the first exchange in the plan's order counts. Where no exchange within domains is sorted,
whole domains may change places: any exchange after which all rules hold. That needs labels which the cluster itself
shows.

The search places rank after rank. In the sorted order, a node has at least as many nodes before it as its pools have
before it, and as many after it. So a pool that contains all others has a single way, which is found at once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice, pairwise

from rankplan._core import RankSet
from rankplan.errors import Diagnostic, PlacementError
from rankplan.frozen import frozen
from rankplan.nodes.inventory import Inventory
from rankplan.nodes.ordered import reordered
from rankplan.plans.component import used_nodes
from rankplan.plans.fitting import moved
from rankplan.plans.node_order import ORDER_WORDS, in_trainers_order, node_names
from rankplan.plans.plan import Plan
from rankplan.plans.requests import NodeOrder
from rankplan.plans.topology import NodeRules, stated_levels, topology_faults

_MOST_STEPS = 20_000
"""Steps of a search among pools that share only some nodes; with more, they have no exchange."""
_MOST_TRIED = 50
"""Exchanges across domains whose rules are checked."""


@frozen
class Exchange:
    """A plan whose nodes have changed places: ``order`` is the former rank of the node of each rank."""

    plan: Plan
    order: tuple[int, ...]

    @classmethod
    def of(cls, plan: Plan, order: Sequence[int]) -> Exchange:
        """Return a plan with the same places on its nodes in another order, given by their ranks."""
        inventory = reordered(plan.inventory, order)
        return cls(plan.placed(inventory, [moved(component, inventory) for component in plan.values()]), tuple(order))

    def after(self, earlier: Exchange | None) -> Exchange:
        """Return this exchange and an earlier one, to which it was applied, as a single one."""
        return self if earlier is None else replace(self, order=tuple(earlier.order[rank] for rank in self.order))

    def moved(self) -> dict[int, tuple[str, str]]:
        """Return the name of the node before and after, for each node rank that has another node now."""
        inventory = self.plan.inventory
        now = {rank: node_names(inventory, [rank]) for rank in range(inventory.num_nodes)}
        before = {former: now[rank] for rank, former in enumerate(self.order)}
        return {rank: (before[rank], now[rank]) for rank, former in enumerate(self.order) if former != rank}


@frozen
class Sorted:
    """A plan whose pools are sorted, the exchange of nodes by which they are, and notes about processes that moved."""

    plan: Plan
    exchange: Exchange | None = None
    changes: tuple[Diagnostic, ...] = ()


def sorted_for_trainer(plan: Plan, planned: Inventory, node_ids: Sequence[str] = ()) -> Sorted:
    """Return a plan on the nodes of a cluster with its pools in the order of its trainer; see `in_order_by_exchange`.

    Where the nodes of a pool cannot change places, its processes may: see `in_trainers_order`. They keep no rule about
    domains, so a plan with such rules is refused.

    Raises `PlacementError` (``order-not-kept``).
    """
    try:
        exchange = in_order_by_exchange(plan, planned, node_ids)
    except PlacementError:
        if named_levels(plan, planned):
            raise
        try:
            in_order, changes = in_trainers_order(plan, node_ids)
        except PlacementError:
            in_order, changes = plan, []
        if not changes:
            raise
        return Sorted(in_order, changes=tuple(changes))
    return Sorted(plan) if exchange is None else Sorted(exchange.plan, exchange)


def in_order_by_exchange(plan: Plan, planned: Inventory, node_ids: Sequence[str] = ()) -> Exchange | None:
    """Return a plan on the nodes of a cluster with the nodes of its pools exchanged; ``None`` if all are sorted.

    ``planned`` are the nodes that the plan was made for, whose labels count where the cluster shows none. ``node_ids``
    are Ray's ids of the nodes, by rank. Raises `PlacementError` (``order-not-kept``) where no exchange is allowed.
    """
    pools = _pools(plan, node_ids)
    if all(pool.is_sorted() for pool in pools):
        return None
    levels = named_levels(plan, planned)
    used = used_nodes(plan.values())
    domains = _domains(plan.inventory, levels, used)
    shown = domains is not None
    if domains is None:
        domains = _domains(planned, levels, used)
    if domains is None:
        raise PlacementError([_unknown_domains(plan, pools, levels)])
    alike = _kinds(plan.inventory)
    within_domains = _orders(plan, pools, node_ids, lambda node: (alike[node], domains.get(node)))
    for exchange in _first_exchanges(plan, within_domains):
        if not shown or keeps_rules(exchange.plan):
            return exchange
    if shown and levels:
        for exchange in _first_exchanges(plan, _orders(plan, pools, node_ids, alike.__getitem__)):
            if keeps_rules(exchange.plan):
                return exchange
    raise PlacementError([_not_exchanged(plan, pools, levels, shown=shown)])


def _first_exchanges(plan: Plan, orders: Iterable[Sequence[int]]) -> Iterator[Exchange]:
    """Yield the exchanges of the first orders of nodes."""
    for order in islice(orders, _MOST_TRIED):
        yield Exchange.of(plan, order)


def named_levels(plan: Plan, planned: Inventory) -> tuple[str, ...]:
    """Return the levels that the rules of a plan name, from the outermost to the innermost of these.

    ``planned`` are the nodes that it was made for: those of a cluster may have no labels. Raises `PlacementError` for
    rules that name what neither has.
    """
    levels = planned.levels or plan.inventory.levels
    found = NodeRules.of(plan.rules, dict(plan), levels, lost=stated_levels(planned))
    if found.faults:
        raise PlacementError([plan.rules.where(*path).locate(fault) for path, fault in found.faults])
    indexes = {rule.level for rule in (*found.kept, *found.preferred) if rule.level is not None}
    indexes |= {index for index, _ in found.balanced} | set(found.caps)
    return tuple(levels[: max(indexes) + 1]) if indexes else ()


@frozen
class _Pool:
    """The nodes of a pool in the order of its requests, what its trainer sorts by, and the places in that order."""

    component: str
    order: NodeOrder
    nodes: tuple[int, ...]
    places: Mapping[int, int]

    def is_sorted(self) -> bool:
        return all(self.places[node] <= self.places[after] for node, after in pairwise(self.nodes))


def _pools(plan: Plan, node_ids: Sequence[str]) -> list[_Pool]:
    """Return the pools whose order is known."""
    pools = []
    for order, numbers in plan.requests.pools():
        nodes = tuple(dict.fromkeys(node for number in numbers for node in plan.requests[number].nodes))
        places = plan.inventory.core.places(order, RankSet(nodes), node_ids)
        if places is not None:
            pools.append(_Pool(plan.requests[numbers[0]].component, order, nodes, places))
    return pools


def _domains(inventory: Inventory, levels: Sequence[str], used: RankSet) -> dict[int, Hashable] | None:
    """Return the domain of each node on the innermost of some levels; ``None`` if one that is used lacks a label.

    A node that lacks a label, and is not used or has no accelerators, is a domain of its own.
    """
    domain_of: dict[int, Hashable] = {}
    for nodes, record in inventory.stretches():
        labels = tuple(record.labels.get(level) for level in levels)
        if None not in labels:
            domain_of |= dict.fromkeys(nodes, labels)
        elif record.num_accelerators and not used.isdisjoint(RankSet(nodes)):
            return None
        else:
            domain_of |= {node: node for node in nodes}
    return domain_of


def _kinds(inventory: Inventory) -> list[Hashable]:
    """Return what must be the same of two nodes that change places.

    That is their hardware, what of it must not be used, and their node groups.
    """
    marks, taken = inventory.marks, inventory.taken
    groups = inventory.node_groups
    kinds: list[Hashable] = []
    for nodes, record in inventory.stretches():
        hardware = record.accelerator_type, record.num_accelerators, record.accelerator_model
        for node in nodes:
            excluded = str(marks[node]) if node in marks else ""
            labels = tuple(group.label for group in groups if node in group.node_ranks)
            kinds.append((hardware, excluded, node in taken, labels))
    return kinds


def _orders(
    plan: Plan, pools: Sequence[_Pool], node_ids: Sequence[str], kind: Callable[[int], Hashable]
) -> Iterator[list[int]]:
    """Yield the node of each rank after an exchange, in the plan's order: only nodes of one kind change places."""
    joined = []
    for order in dict.fromkeys(pool.order for pool in pools):
        for members in _sharing([pool.nodes for pool in pools if pool.order == order]):
            inside = [pool.nodes for pool in pools if pool.order == order and not members.isdisjoint(pool.nodes)]
            places = plan.inventory.core.places(order, RankSet(members), node_ids) or {}
            joined.append(_Joined(sorted(members), sorted(members, key=places.__getitem__), inside))
    yield from _combined(list(range(plan.inventory.num_nodes)), joined, kind)


def _sharing(pools: Sequence[Sequence[int]]) -> list[set[int]]:
    """Return the nodes of pools that share a node, also through other pools, as one set."""
    groups: list[set[int]] = []
    for pool in pools:
        members, others = set(pool), []
        for group in groups:
            if group.isdisjoint(members):
                others.append(group)
            else:
                members |= group
        groups = [*others, members]
    return groups


@frozen
class _Joined:
    """The nodes of pools that share nodes, by rank and as the trainer sorts them, and those of each pool."""

    nodes: Sequence[int]
    by_place: Sequence[int]
    pools: Sequence[Sequence[int]]

    def position(self) -> dict[int, int]:
        """Return where each node comes as the trainer sorts them."""
        return {node: index for index, node in enumerate(self.by_place)}


def _combined(order: list[int], joined: Sequence[_Joined], kind: Callable[[int], Hashable]) -> Iterator[list[int]]:
    """Yield every combination of the exchanges of pools that share no node."""
    if not joined:
        if len(set(order)) == len(order):  # pools that are sorted in two ways may claim one node
            yield order
        return
    first, *others = joined
    for places in _exchanges(first, kind):
        changed = list(order)
        for rank, node in places.items():
            changed[rank] = node
        yield from _combined(changed, others, kind)


def _exchanges(joined: _Joined, kind: Callable[[int], Hashable]) -> Iterator[dict[int, int]]:
    """Yield the bijections of some nodes after which each pool is sorted, in the plan's order."""
    nodes, pools = joined.nodes, joined.pools
    whole = next((pool for pool in pools if len(pool) == len(nodes)), None)
    if whole is not None:
        yield from _only_exchange(joined, whole, kind)
    elif len(nodes) * (len(nodes) + 1) // 2 <= _MOST_STEPS:  # placing each rank looks at all nodes that others have
        yield from _Search(joined, kind).exchanges()


def _only_exchange(joined: _Joined, whole: Sequence[int], kind: Callable[[int], Hashable]) -> Iterator[dict[int, int]]:
    """Yield the exchange that sorts a pool with all nodes, if it is allowed and sorts the other pools, too."""
    position = joined.position()
    exchange = dict(zip(whole, joined.by_place, strict=True))
    is_allowed = all(kind(rank) == kind(node) for rank, node in exchange.items())
    if is_allowed and all(_ascends(pool, exchange, position) for pool in joined.pools):
        yield exchange


class _Search:
    """The exchanges of pools that share only some nodes: places rank after rank, and takes back what leads nowhere.

    A node fits a rank if it is of its kind, and in the sorted order after the nodes of all ranks that a pool has before
    this one, and before those of all that come after it. Enough nodes must be left on both sides of it.
    """

    def __init__(self, joined: _Joined, kind: Callable[[int], Hashable]) -> None:
        self._nodes = joined.nodes
        self._kind = kind
        self._position = joined.position()
        self._before = _before(joined.nodes, joined.pools)
        self._after: dict[int, set[int]] = {rank: set() for rank in joined.nodes}
        for rank, earlier in self._before.items():
            for other in earlier:
                self._after[other].add(rank)
        self._steps = 0
        self._placed: dict[int, int] = {}

    def exchanges(self) -> Iterator[dict[int, int]]:
        """Yield the exchanges that are found within the steps of a search."""
        index = len(self._placed)
        if index == len(self._nodes):
            yield dict(self._placed)
            return
        rank = self._nodes[index]
        used = set(self._placed.values())
        for node in self._nodes:
            self._steps += 1
            if self._steps > _MOST_STEPS:
                return
            if node not in used and self._fits(node, rank):
                self._placed[rank] = node
                yield from self.exchanges()
                del self._placed[rank]

    def _fits(self, node: int, rank: int) -> bool:
        """Return whether a node may get a rank, by its kind and by what is placed already."""
        place = self._position[node]
        before, after = self._before[rank], self._after[rank]
        if not len(before) <= place < len(self._nodes) - len(after) or self._kind(rank) != self._kind(node):
            return False
        is_behind = all(self._position[self._placed[other]] <= place for other in before & self._placed.keys())
        return is_behind and all(self._position[self._placed[other]] >= place for other in after & self._placed.keys())


def _before(nodes: Sequence[int], pools: Sequence[Sequence[int]]) -> dict[int, set[int]]:
    """Return the ranks that some pool has before each rank, also through other pools; a circle has no exchange."""
    before: dict[int, set[int]] = {rank: set() for rank in nodes}
    for pool in pools:
        for rank, following in pairwise(pool):
            before[following].add(rank)
    changed = True
    while changed:
        changed = False
        for rank, earlier in before.items():
            more = set().union(earlier, *(before[other] for other in earlier))
            if more != earlier:
                before[rank] = more
                changed = True
    return before


def _ascends(ranks: Sequence[int], nodes: Mapping[int, int], position: Mapping[int, int]) -> bool:
    return all(position[nodes[rank]] < position[nodes[after]] for rank, after in pairwise(ranks))


def shows_domains(plan: Plan, planned: Inventory) -> bool:
    """Whether the nodes of a plan on a cluster show the domains of all levels that its rules name, if they name any."""
    levels = named_levels(plan, planned)
    return bool(levels) and _domains(plan.inventory, levels, used_nodes(plan.values())) is not None


def keeps_rules(plan: Plan) -> bool:
    """Whether no rule is broken in the domains that the nodes of a plan show."""
    return not list(topology_faults(plan.rules, dict(plan), plan.inventory))


def _unsorted(plan: Plan, pools: Sequence[_Pool]) -> str:
    """Return in words the first pool that is not sorted, and how the trainer sorts it."""
    pool = next(pool for pool in pools if not pool.is_sorted())
    name = f"the pool of `{pool.component}`" if pool.component else "the cluster"
    here = node_names(plan.inventory, pool.nodes)
    there = node_names(plan.inventory, sorted(pool.nodes, key=pool.places.__getitem__))
    trainer = plan.dialect or "the trainer"
    return f"{name} has the nodes {here}; {trainer} sorts them by {ORDER_WORDS[pool.order]}: {there}"


def _unknown_domains(plan: Plan, pools: Sequence[_Pool], levels: Sequence[str]) -> Diagnostic:
    """Return the fault of nodes whose domains neither the cluster nor the plan tells."""
    message = f"{_unsorted(plan, pools)}; which of them share a {levels[-1]} is unknown"
    return Diagnostic("order-not-kept", message, _label_help(levels))


def _not_exchanged(plan: Plan, pools: Sequence[_Pool], levels: Sequence[str], *, shown: bool) -> Diagnostic:
    """Return the fault of nodes that cannot be exchanged."""
    message = f"{_unsorted(plan, pools)}; no exchange of nodes with the same hardware keeps the rules"
    help = "plan the config again with --pinned, on the nodes of this cluster (--ray or --inventory)"
    if not levels:
        message = f"{_unsorted(plan, pools)}; these nodes differ, so they cannot be exchanged"
    elif not shown:
        message = f"{_unsorted(plan, pools)}; the cluster does not show which of them share a {levels[-1]}"
        help = _label_help(levels)
    return Diagnostic("order-not-kept", message, help)


def _label_help(levels: Sequence[str]) -> str:
    labels = ",".join(f"{level}=NAME" for level in levels)
    return f"start Ray with its label on every node: `ray start --labels={labels}`; or plan the config again on them"
