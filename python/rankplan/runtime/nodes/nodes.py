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
from typing import Any

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
from rankplan.runtime.ray.asking import ask
from rankplan.words import Name, listed, natural

NODE_RANK_LABEL = "rankplan.io/node-rank"
"""The Ray node label with a node's rank."""

BY_ADDRESS = "the node addresses"
AS_RLINF = "RLinf (the driver's node first, then addresses as text)"
BY_VARIABLE = "the node rank variables"
BY_LABEL = f"the Ray label {NODE_RANK_LABEL}"
"""The possible orders of nodes. Without ranks, further nodes may change the order."""


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

    Without ranks, the order of ``facts`` counts; levels that it does not state are detected from the labels.
    ``num_nodes`` is how many nodes are used, all if ``None``. Where ranks are set, nodes with the rank ``none`` are
    left out, and `absent` stands for each missing rank that is not ``needed``; by default, all are.

    Raises `PlacementError` (``bad-node-rank``) for a rank that cannot be read; ``ClusterError`` if ranks are set on
    some nodes only, or occur twice; ``MissingRanks`` if needed ones are missing. Nodes that cannot be used come last if
    the others have a rank variable.
    """
    usable = [node for node in nodes if node.fault is None]
    if any(node.rank_variable is not None for node in usable):
        source, unusable = " or ".join(NODE_RANK_VARIABLES), [node for node in nodes if node.fault is not None]
        ranked = _by_rank([(node, node.rank_variable) for node in usable], source, num_nodes, facts, needed)
        return ranked + unusable, BY_VARIABLE
    if any(node.rank_label is not None for node in nodes):
        labelled = [(node, node.rank_label) for node in nodes]
        return _by_rank(labelled, BY_LABEL, num_nodes, facts, needed), BY_LABEL
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


def _by_rank(
    nodes: Sequence[tuple[FoundNode, str | None]],
    source: str,
    num_nodes: int | None,
    facts: ClusterFacts,
    needed: RankSet | None,
) -> list[FoundNode]:
    unset = [str(node) for node, rank in nodes if rank is None]
    if unset:
        raise ClusterError(
            f"{source} is set on {len(nodes) - len(unset)} of {len(nodes)} nodes, but not on {listed(unset, 4)}; "
            "set it on every node before its `ray start`, or on none"
        )
    alike: dict[RankSet, list[tuple[FoundNode, str]]] = {}
    faults: list[Diagnostic] = []
    for node, text in nodes:
        try:
            alike.setdefault(node_ranks(str(text), f"{node}: {source}"), []).append((node, str(text)))
        except PlacementError as error:
            faults += error.diagnostics
    if faults:
        raise PlacementError(faults)
    alike.pop(RankSet(), None)  # nodes outside the plan
    by_rank: dict[int, FoundNode] = {}
    claimed = RankSet()
    for ranks, here in alike.items():
        if len(here) > len(ranks) or ranks & claimed:
            wrong = [f"{node} has {text!r}" for one, some in alike.items() if one & ranks for node, text in some]
            raise ClusterError(f"{source} must be different on every node, but {listed(wrong, 4)}")
        claimed |= ranks
        ordered, levels = _along_network([node for node, _ in here], facts)
        if len(ranks) > 1 and not all(set(levels) & set(node.spec.labels) for node in ordered):
            _logger.warning("%s: nodes of ranks %s have no labels of the network; addresses decide", source, ranks)
        by_rank |= zip(ranks, ordered, strict=False)
    present = RankSet(by_rank)
    if needed is None:
        last = num_nodes - 1 if num_nodes is not None else present[-1] if present else 0
        needed = RankSet(f"0-{last}")
    if missing := needed - present:
        found = f"the ranks are {present}" if present else "no node has one"
        raise MissingRanks(f"{source}: no node has rank {missing}; {found}")
    used = num_nodes or needed[-1] + 1
    return [by_rank.get(rank) or absent() for rank in range(used)] + [by_rank[rank] for rank in present if rank >= used]


def absent() -> FoundNode:
    """Return what stands for a node that is in no use and has not joined: no plan may use it."""
    return FoundNode("", NodeSpec(ranks=RankSet(), healthy=False))


def by_address_key(node: FoundNode) -> tuple[AddressKey, Name, str]:
    """Return the key that sorts nodes by address."""
    return (AddressKey(str(node.spec.ip)), natural(str(node.spec.hostname)), node.node_id)


@frozen
class Nodes:
    """Ray's ids of the nodes by node rank, their facts, whether they are raylets started here, and the exports."""

    ids: tuple[str, ...]
    inventory: Inventory
    simulated: bool = False
    exports: Mapping[str, str] = field(default_factory=dict)

    def address(self, rank: int) -> str:
        return str(self.inventory.node(rank).ip)

    def of_plan(self, planned: Inventory) -> Nodes:
        """Return these nodes in the order of a plan that names them: its node 3 may be a spare of this cluster.

        Other nodes stand for those that the plan names and the cluster lacks.
        """
        present = range(self.inventory.num_nodes)
        places = present_nodes(planned, self.inventory)
        others = iter(sorted({*present} - {*places}))
        order: dict[int, None] = {}
        for place in places:
            rank = next(others, None) if place is None or place in order else place
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
        found = fitted(components, nodes.inventory)
        if found:
            parts = {component.name: component for component in found}
            rules, labelled = components[0].plan_rules, not self.simulated
            check_topology(rules, parts, found[0].inventory, labelled=labelled, complete=complete)
        return nodes, found

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
