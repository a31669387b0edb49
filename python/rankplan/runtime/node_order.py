"""Which node is node 0: the same cluster gets the same node ranks every time. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rankplan.addresses import Key, Name, address_key, natural
from rankplan.config.models import NODE_RANK_VARIABLES as NODE_RANK_VARIABLES
from rankplan.errors import ClusterError

NODE_RANK_LABEL = "rankplan.io/node-rank"
"""The Ray node label that says the same."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What is known of a live node. ``node_id`` is Ray's; ``rank_variable`` and ``rank_label`` are as found there."""

    node_id: str
    ip: str
    hostname: str
    rank_variable: str | None
    rank_label: str | None
    accelerator_type: str
    accelerator_model: str | None
    accelerator_ids: tuple[str, ...]
    labels: dict[str, str]

    def __str__(self) -> str:
        return f"{self.ip} ({self.hostname})"


def in_order(nodes: Sequence[NodeFacts]) -> tuple[list[NodeFacts], str]:
    """Return the nodes by node rank, and what the order was taken from.

    Raises ``ClusterError`` when node ranks are set on some nodes only, or are not 0 to n-1, each once.
    """
    variables = [node.rank_variable for node in nodes]
    if any(rank is not None for rank in variables):
        return _by_rank(nodes, variables, " or ".join(NODE_RANK_VARIABLES)), "the node rank variables"
    labels = [node.rank_label for node in nodes]
    if any(rank is not None for rank in labels):
        return _by_rank(nodes, labels, f"the Ray label {NODE_RANK_LABEL}"), f"the Ray label {NODE_RANK_LABEL}"
    return sorted(nodes, key=_address_key), "the node addresses"


def _by_rank(nodes: Sequence[NodeFacts], ranks: Sequence[str | None], source: str) -> list[NodeFacts]:
    missing = [str(node) for node, rank in zip(nodes, ranks, strict=True) if rank is None]
    if missing:
        raise ClusterError(
            f"{source} is set on {len(nodes) - len(missing)} of {len(nodes)} nodes, but not on {_few(missing)}; "
            "set it on every node before its ray start, or on none"
        )
    wanted = {str(rank) for rank in range(len(nodes))}
    counts = Counter(ranks)
    if set(counts) != wanted:
        doubtful = {rank for rank, count in counts.items() if count > 1 or rank not in wanted}
        wrong = [f"{node} has {rank!r}" for node, rank in zip(nodes, ranks, strict=True) if rank in doubtful]
        due = f"{len(nodes)} nodes the ranks 0-{len(nodes) - 1}, each once" if len(nodes) > 1 else "one node the rank 0"
        raise ClusterError(f"{source} must give the {due}, but {_few(wrong)}")
    by_rank = {str(rank): node for node, rank in zip(nodes, ranks, strict=True)}
    return [by_rank[str(rank)] for rank in range(len(nodes))]


def _address_key(node: NodeFacts) -> tuple[Key, Name, str]:
    return (address_key(node.ip), natural(node.hostname), node.node_id)


def _few(items: Sequence[str]) -> str:
    shown = ", ".join(items[:4])
    return f"{shown} and {len(items) - 4} more" if len(items) > 4 else shown
