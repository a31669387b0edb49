"""The faults of nodes, each from its facts. ``place`` describes a node: address, hostname and what it has."""

from __future__ import annotations

from collections.abc import Sequence

from rankplan._core import RankSet
from rankplan.errors import ClusterError
from rankplan.words import listed


def no_process(place: str, timeout: float) -> ClusterError:
    """Return the fault of a node that did not run a task within ``timeout`` seconds."""
    return ClusterError(f"node {place}: it did not start a process for rankplan within {timeout:g} s")


def full_disk(place: str, reason: str) -> ClusterError:
    """Return the fault of a node on which a process failed because a disk is full."""
    advice = "make room there, for Ray's files (RAY_TMPDIR, by default /tmp/ray) in particular"
    return ClusterError(f"node {place}: a disk of it is full: the probe {reason}; {advice}")


def probe_failed(place: str, reason: str) -> ClusterError:
    """Return the fault of a node that cannot run rankplan."""
    return ClusterError(f"node {place}: the probe {reason}; install the same version of rankplan on every node")


def rank_not_everywhere(source: str, unset: Sequence[str], nodes: int) -> ClusterError:
    """Return the fault of ranks that only some nodes have; ``unset`` are the others."""
    return ClusterError(
        f"{source} is set on {nodes - len(unset)} of {nodes} nodes, but not on {listed(unset, 4)}; "
        "set it on every node before its `ray start`, or on none"
    )


def rank_on_several(source: str, claims: Sequence[str]) -> ClusterError:
    """Return the fault of nodes that would have the same rank; ``claims`` are these with what they state."""
    return ClusterError(f"{source} must be different on every node, but {listed(claims, 4)}")


def ranks_missing(source: str, missing: RankSet, present: RankSet) -> str:
    """Return why a cluster cannot be used yet: no node has these ranks."""
    ranks = f"the ranks are {present}" if present else "no node has one"
    return f"{source}: no node has rank {missing}; {ranks}"


def ranks_by_address(source: str, ranks: RankSet) -> str:
    """Return the warning that nodes with the same ranks are told apart by their addresses only."""
    return f"{source}: nodes of ranks {ranks} have no labels of the network; addresses decide"
