"""Which node is node 0: the same cluster gets the same node ranks every time. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rankplan._core import MAX_RANK, RankSet
from rankplan.config.network import AS_RLINF_ORDER, BY_TOPOLOGY, USUAL_TOPOLOGY, Topology
from rankplan.environment import NODE_RANK_VARIABLES
from rankplan.errors import ClusterError
from rankplan.nodes.inventory import NodeSpec
from rankplan.nodes.topology import detect, natural_order
from rankplan.nodes.topology.domains import Key, address_key
from rankplan.words import Name, natural

NODE_RANK_LABEL = "rankplan.io/node-rank"
"""The Ray node label with a node's rank."""

BY_ADDRESS = "the node addresses"
AS_RLINF = "RLinf (the driver's node first, then addresses as text)"
BY_VARIABLE = "the node rank variables"
BY_LABEL = f"the Ray label {NODE_RANK_LABEL}"
"""The possible orders of nodes. Without ranks, further nodes may change the order."""


@dataclass(frozen=True, slots=True)
class FoundNode:
    """A live node: Ray's id, its record without ranks, and the node rank that is set there, if any.

    ``fault`` is why it cannot be used; its record has only its names then. ``started`` is when its raylet started, by
    ``time.monotonic``.
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
    nodes: Sequence[FoundNode], num_nodes: int | None, topology: Topology = USUAL_TOPOLOGY, driver: str | None = None
) -> tuple[list[FoundNode], str]:
    """Return the nodes by node rank, the nodes to use first, and the order that was applied.

    Without ranks, the order of ``topology`` counts: by ``address``; by ``topology``, domain after domain in natural
    order of their labels, and within a domain by explicit ranks, then by address; or as ``rlinf``, with the
    ``driver``'s node first. Levels that it does not state are detected from the labels. ``num_nodes`` is how many nodes
    are used, all if ``None``.

    Raises ``ClusterError`` if node ranks are set on some nodes only, are invalid or occur twice; ``MissingRanks`` if
    some of 0 to ``num_nodes - 1`` are missing. Nodes that cannot be used have no known rank variable, and come last if
    the others have one.
    """
    usable = [node for node in nodes if node.fault is None]
    if any(node.rank_variable is not None for node in usable):
        source, unusable = " or ".join(NODE_RANK_VARIABLES), [node for node in nodes if node.fault is not None]
        ranked = _by_rank([(node, node.rank_variable) for node in usable], source, num_nodes)
        return ranked + unusable, BY_VARIABLE
    if any(node.rank_label is not None for node in nodes):
        return _by_rank([(node, node.rank_label) for node in nodes], BY_LABEL, num_nodes), BY_LABEL
    by_address = sorted(nodes, key=by_address_key)
    if topology.order == AS_RLINF_ORDER:
        return _as_rlinf(nodes, driver), AS_RLINF
    if topology.order != BY_TOPOLOGY:
        return by_address, BY_ADDRESS
    specs = [node.spec for node in by_address]
    levels = detect((1, spec.labels) for spec in specs) if topology.levels is None else topology.levels
    if not levels:
        return by_address, f"{BY_ADDRESS} (no levels detected)"
    ordered = [by_address[index] for index in natural_order([spec.labels for spec in specs], levels)]
    return ordered, f"the topology ({', '.join(levels)}), then {BY_ADDRESS}"


def _as_rlinf(nodes: Sequence[FoundNode], driver: str | None) -> list[FoundNode]:
    """Return the driver's node, then nodes of one accelerator type after another, by address as text.

    As RLinf: ``NodeProbe._sort_nodes``. RLinf takes the types in the order in which
    Ray lists the nodes, which varies: here the lowest address comes first.
    """
    by_address = sorted(nodes, key=lambda node: (str(node.spec.ip), str(node.spec.hostname), node.node_id))
    types = list(dict.fromkeys(node.spec.accelerator_type for node in by_address))
    return sorted(by_address, key=lambda node: (node.node_id != driver, types.index(node.spec.accelerator_type)))


def _by_rank(nodes: Sequence[tuple[FoundNode, str | None]], source: str, num_nodes: int | None) -> list[FoundNode]:
    unset = [str(node) for node, rank in nodes if rank is None]
    if unset:
        raise ClusterError(
            f"{source} is set on {len(nodes) - len(unset)} of {len(nodes)} nodes, but not on {_few(unset)}; "
            "set it on every node before its `ray start`, or on none"
        )
    counts = Counter(rank for _, rank in nodes)
    wrong = [f"{node} has {text!r}" for node, text in nodes if _rank(text) is None or counts[text] > 1]
    if wrong:
        raise ClusterError(f"{source} must be a rank from 0 on, different on every node, but {_few(wrong)}")
    by_rank = {_rank(text): node for node, text in nodes}
    present = RankSet(rank for rank in by_rank if rank is not None)
    last = present[-1] if num_nodes is None else num_nodes - 1
    if missing := RankSet(f"0-{last}") - present:
        raise MissingRanks(f"{source}: no node has rank {missing}; the ranks are {present}")
    return [by_rank[rank] for rank in present]


def _rank(text: str | None) -> int | None:
    """Return the rank that this text is, in decimal digits without leading zeros."""
    if text is None or not (text.isascii() and text.isdecimal() and len(text) <= len(str(MAX_RANK))):
        return None
    rank = int(text)
    return rank if str(rank) == text and rank <= MAX_RANK else None


def by_address_key(node: FoundNode) -> tuple[Key, Name, str]:
    """Return the key that sorts nodes by address."""
    return (address_key(str(node.spec.ip)), natural(str(node.spec.hostname)), node.node_id)


def _few(items: Sequence[str]) -> str:
    shown = ", ".join(items[:4])
    return f"{shown} and {len(items) - 4} more" if len(items) > 4 else shown
