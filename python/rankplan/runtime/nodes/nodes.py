"""The nodes of a live cluster: their order, which is the same every time, and what launches and reservations use."""

from __future__ import annotations

import logging
import math
import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from itertools import chain
from typing import Any, NamedTuple

import psutil
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from rankplan._core import AddressKey, RankSet
from rankplan.environment import NODE_RANK_VARIABLES
from rankplan.errors import ClusterError, Diagnostic, PlacementError
from rankplan.frozen import frozen
from rankplan.nodes.facts import AS_RLINF_ORDER, BY_TOPOLOGY, NO_FACTS, ClusterFacts
from rankplan.nodes.inventory import Inventory, NodeSpec
from rankplan.nodes.node_rank import node_ranks
from rankplan.nodes.topology import detect, natural_order
from rankplan.plans.component import Component
from rankplan.plans.diff import present_nodes
from rankplan.plans.fitting import fitted
from rankplan.plans.topology import check_topology
from rankplan.runtime.nodes import faults
from rankplan.runtime.ray.asking import ask
from rankplan.words import Name, natural

NODE_RANK_LABEL = "rankplan.io/node-rank"
"""The Ray node label with a node's rank."""

BY_ADDRESS = "the node addresses"
AS_RLINF = "RLinf (the driver's node first, then addresses as text)"
BY_VARIABLE = "the node rank variables"
BY_LABEL = f"the Ray label {NODE_RANK_LABEL}"
"""The possible orders of nodes. Where no ranks are set, a node that joins later may change the order."""


_logger = logging.getLogger("rankplan")


@frozen
class FoundNode:
    """A live node: Ray's id, its record without ranks, and the node rank that is set there, if any.

    ``fault`` is why it cannot be used. ``started`` is when its raylet started, by ``time.monotonic``.
    """

    node_id: str
    spec: NodeSpec
    rank_variable: str | None = None
    rank_label: str | None = None
    fault: ClusterError | None = None
    started: float = 0.0

    def __str__(self) -> str:
        return f"{self.spec.ip} ({self.spec.hostname})"


class MissingRanks(ClusterError):
    """No node has some of the required node ranks yet; such a node may still join."""


def in_order(
    nodes: Sequence[FoundNode],
    num_nodes: int | None,
    facts: ClusterFacts = NO_FACTS,
    driver: str | None = None,
    needed: RankSet | None = None,
) -> tuple[list[FoundNode], str]:
    """Return the nodes by node rank, the nodes to use first, and the order that was applied.

    Where no ranks are set, the order that ``facts`` states counts. If ``facts`` states no levels, the labels tell them.
    ``num_nodes`` is how many nodes are used, all if ``None``. Where ranks are set, nodes with the rank ``none`` are
    left out, and `absent` stands for each missing rank that is not ``needed``; by default, all are.

    Raises `PlacementError` (``bad-node-rank``) for a rank that cannot be read; ``ClusterError`` if ranks are set on
    some nodes only, or occur twice; ``MissingRanks`` if needed ones are missing. Nodes that cannot be used come last if
    the others have a rank variable.
    """
    usable = [node for node in nodes if node.fault is None]
    if any(node.rank_variable is not None for node in usable):
        source = " or ".join(NODE_RANK_VARIABLES)
        by_rank = _by_rank([(node, node.rank_variable) for node in usable], source, facts)
        unusable = [node for node in nodes if node.fault is not None]
        return _in_rank_order(by_rank, source, num_nodes, needed) + unusable, BY_VARIABLE
    if any(node.rank_label is not None for node in nodes):
        by_rank = _by_rank([(node, node.rank_label) for node in nodes], BY_LABEL, facts)
        return _in_rank_order(by_rank, BY_LABEL, num_nodes, needed), BY_LABEL
    if facts.order == AS_RLINF_ORDER:
        return _as_rlinf(nodes, driver), AS_RLINF
    if facts.order != BY_TOPOLOGY:
        return sorted(nodes, key=by_address_key), BY_ADDRESS
    ordered, levels = _along_network(nodes, facts)
    order = f"the topology ({', '.join(levels)}), then {BY_ADDRESS}"
    return ordered, order if levels else f"{BY_ADDRESS} (no levels detected)"


def _along_network(nodes: Sequence[FoundNode], facts: ClusterFacts) -> tuple[list[FoundNode], tuple[str, ...]]:
    """Return nodes domain after domain, then by address, and the levels of the network."""
    by_address = sorted(nodes, key=by_address_key)
    labels = [node.spec.labels for node in by_address]
    levels = detect(Counter(chain.from_iterable(labels))) if facts.levels is None else facts.levels
    return [by_address[index] for index in natural_order(labels, levels)] if levels else by_address, levels


def _as_rlinf(nodes: Sequence[FoundNode], driver: str | None) -> list[FoundNode]:
    """Return the driver's node, then nodes of one accelerator type after another, by address as text.

    As RLinf: ``NodeProbe._sort_nodes``, which takes the types as Ray lists the nodes; here the lowest address is first.
    """
    by_address = sorted(nodes, key=lambda node: (str(node.spec.ip), str(node.spec.hostname), node.node_id))
    types = list(dict.fromkeys(node.spec.accelerator_type for node in by_address))
    return sorted(by_address, key=lambda node: (node.node_id != driver, types.index(node.spec.accelerator_type)))


class _Statement(NamedTuple):
    """The text in which a node states its ranks."""

    node: FoundNode
    text: str


def _by_rank(stated: Sequence[tuple[FoundNode, str | None]], source: str, facts: ClusterFacts) -> dict[int, FoundNode]:
    """Return the nodes by the ranks that they state in ``source``; a rank that no node has is left out.

    Several nodes may state the same range, such as the pods of one group of workers. Then they get its ranks in the
    order of the network, else of their addresses, as in a cluster without ranks. There may be fewer
    nodes than ranks. Raises ``ClusterError`` for a node without a rank, and for ranks that two nodes would have.
    """
    unset = [str(node) for node, text in stated if text is None]
    if unset:
        raise faults.rank_not_everywhere(source, unset, len(stated))
    by_ranks = _by_stated_ranks([(node, str(text)) for node, text in stated], source)
    _reject_shared_ranks(by_ranks, source)
    by_rank: dict[int, FoundNode] = {}
    for ranks, statements in by_ranks.items():
        nodes = [statement.node for statement in statements]
        by_rank |= zip(ranks, _along_labels(ranks, nodes, source, facts), strict=False)
    return by_rank


def _by_stated_ranks(stated: Sequence[tuple[FoundNode, str]], source: str) -> dict[RankSet, list[_Statement]]:
    """Return the nodes that state the same ranks, by these ranks. Nodes with the rank ``none`` are left out.

    Raises `PlacementError` with every text that states no ranks.
    """
    by_ranks: dict[RankSet, list[_Statement]] = {}
    unread: list[Diagnostic] = []
    for node, text in stated:
        try:
            ranks = node_ranks(text, f"{node}: {source}")
        except PlacementError as error:
            unread += error.diagnostics
        else:
            by_ranks.setdefault(ranks, []).append(_Statement(node, text))
    if unread:
        raise PlacementError(unread)
    by_ranks.pop(RankSet(), None)
    return by_ranks


def _reject_shared_ranks(by_ranks: Mapping[RankSet, Sequence[_Statement]], source: str) -> None:
    """Raise ``ClusterError`` for more nodes than ranks, or a rank in two statements that differ."""
    claimed = RankSet()
    for ranks, statements in by_ranks.items():
        if len(statements) > len(ranks) or ranks & claimed:
            claims = []
            for other_ranks, other_statements in by_ranks.items():
                if other_ranks & ranks:
                    claims += [f"{node} has {text!r}" for node, text in other_statements]
            raise faults.rank_on_several(source, claims)
        claimed |= ranks


def _along_labels(ranks: RankSet, nodes: Sequence[FoundNode], source: str, facts: ClusterFacts) -> list[FoundNode]:
    """Return nodes that state the same ranks in the order of the network; log those without any of its labels."""
    ordered, levels = _along_network(nodes, facts)
    if len(ranks) > 1 and any(set(levels).isdisjoint(node.spec.labels) for node in ordered):
        _logger.warning("%s", faults.ranks_by_address(source, ranks))
    return ordered


def _in_rank_order(
    by_rank: Mapping[int, FoundNode], source: str, num_nodes: int | None, needed: RankSet | None
) -> list[FoundNode]:
    """Return the nodes by rank, with the nodes to use first and `absent` for each missing rank that is not needed."""
    present = RankSet(by_rank)
    if needed is None:
        highest = present[-1] if present else 0
        last = highest if num_nodes is None else num_nodes - 1
        needed = RankSet(f"0-{last}")  # as text: one label may state a rank of billions
    missing = needed - present
    if missing:
        raise MissingRanks(faults.ranks_missing(source, missing, present))
    used = num_nodes or needed[-1] + 1
    first = [by_rank.get(rank) or absent() for rank in range(used)]
    return first + [by_rank[rank] for rank in present if rank >= used]


def absent() -> FoundNode:
    """Return what stands for a node that has not joined and is not needed: no plan may use it."""
    return FoundNode("", NodeSpec(ranks=RankSet(), healthy=False))


def by_address_key(node: FoundNode) -> tuple[AddressKey, Name, str]:
    """Return the key that sorts nodes by address."""
    return (AddressKey(str(node.spec.ip)), natural(str(node.spec.hostname)), node.node_id)


@frozen
class Nodes:
    """The nodes by node rank: Ray's ids, their facts, whether they are raylets started here, and the exports."""

    ids: tuple[str, ...]
    inventory: Inventory
    simulated: bool = False
    exports: Mapping[str, str] = field(default_factory=dict)

    def address(self, rank: int) -> str:
        return str(self.inventory.node(rank).ip)

    def of_plan(self, planned: Inventory) -> Nodes:
        """Return these nodes in the order of a plan that names them: node 3 of the plan may be node 9 of the cluster.

        A node that the plan names and the cluster lacks is replaced by a node that the plan does not name.
        """
        present = range(self.inventory.num_nodes)
        places = present_nodes(planned, self.inventory)
        unnamed = iter(sorted({*present} - {*places}))
        order: dict[int, None] = {}  # as an ordered set
        for place in places:
            rank = place
            if place is None or place in order:
                rank = next(unnamed, None)
            if rank is not None:
                order[rank] = None
        order |= dict.fromkeys(present)
        if list(order) == list(present):
            return self
        return self.reordered(list(order))

    def reordered(self, ranks: Sequence[int]) -> Nodes:
        """Return the nodes of these ranks in this order."""
        return replace(self, ids=tuple(self.ids[rank] for rank in ranks), inventory=self.inventory.reordered(ranks))

    def fitted(
        self, planned: Inventory, components: Sequence[Component], *, complete: bool = False
    ) -> tuple[Nodes, list[Component]]:
        """Return these nodes in the order of a plan, and components of it in their places on them.

        ``complete``: whether these are all components of the plan. Raises `PlacementError`: ``plan-mismatch``, or the
        faults of `topology_faults` against its rules.
        """
        nodes = self.of_plan(planned)
        on_nodes = fitted(components, nodes.inventory)
        if on_nodes:
            by_name = {component.name: component for component in on_nodes}
            rules = components[0].plan_rules
            check_topology(rules, by_name, on_nodes[0].inventory, labelled=not self.simulated, complete=complete)
        return nodes, on_nodes

    def machine(self, rank: int) -> str:
        """Return the name of the machine that a node runs on: simulated nodes share one."""
        return str(self.inventory.node(rank).hostname)


def pinned(node_id: str) -> NodeAffinitySchedulingStrategy:
    """Return the strategy that runs a task or an actor on this node, or fails if the node has left the cluster."""
    return NodeAffinitySchedulingStrategy(node_id, soft=False)


def live_nodes() -> dict[str, dict[str, Any]]:
    """Return Ray's entries of the live nodes, by Ray's id of the node. Raises `HeadSilent`."""
    return {entry["NodeID"]: entry for entry in ask(ray.nodes) if entry["Alive"]}


def inherited() -> dict[str, str]:
    """Return the environment that this process was started with: Ray may have changed it for a task."""
    try:
        found: dict[str, str] = psutil.Process().environ()
    except (psutil.Error, OSError):
        return dict(os.environ)
    return found


def age(pid: int) -> float:
    """Return the seconds since a process started, infinity if unknown."""
    try:
        started = float(psutil.Process(pid).create_time() - psutil.boot_time())
        return time.clock_gettime(time.CLOCK_BOOTTIME) - started  # the time of the boot is in whole seconds
    except (psutil.Error, AttributeError):
        return math.inf
