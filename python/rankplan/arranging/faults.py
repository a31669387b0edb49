"""The faults of arranging and replanning, as functions of facts."""

from __future__ import annotations

from rankplan._core import RankSet
from rankplan.errors import Diagnostic
from rankplan.words import nodes_text

NAMELESS_HELP = "give the nodes of the inventory hostnames or addresses, and plan on it"


def nameless_node_lost(ranks: RankSet) -> Diagnostic:
    """Return the fault of lost node ranks whose nodes have neither hostname nor address."""
    message = f"{nodes_text(ranks)} {_have(ranks)} no hostname and no address, so that no spare can be told from it"
    return Diagnostic("too-few-nodes", message, NAMELESS_HELP)


def nameless_nodes_reordered(nodes: RankSet) -> Diagnostic:
    """Return the fault of nodes without names that a file would list in other ranks."""
    message = f"{nodes_text(nodes)} would get other ranks, but {_have(nodes)} no hostname and no address"
    help = "give the nodes of the inventory hostnames or addresses, so that the file says which machine each is"
    return Diagnostic("invalid-value", message, help)


def _have(nodes: RankSet) -> str:
    return "has" if len(nodes) == 1 else "have"
