"""The faults of nodes, each from its facts. ``place`` describes a node: address, hostname and what it has."""

from __future__ import annotations

from rankplan.errors import ClusterError


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
