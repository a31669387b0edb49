"""The faults of what is stated of nodes."""

from __future__ import annotations

from rankplan._core import RankSet
from rankplan.errors import Diagnostic
from rankplan.words import nodes_text


def label_twice(label: str) -> Diagnostic:
    """Two node groups have one label."""
    message = f"two node groups have the label `{label}`"
    return Diagnostic("duplicate-node-group", message, "give each group a label of its own")


def no_nodes(help: str = "name at least one node, e.g. 0") -> Diagnostic:
    """A set of node ranks is empty."""
    return Diagnostic("invalid-value", "node_ranks is empty", help)


def beyond_cluster(ranks: RankSet, num_nodes: int) -> Diagnostic:
    """Node ranks are larger than those of the cluster."""
    nodes = "1 node, rank 0" if num_nodes == 1 else f"{num_nodes} nodes, ranks 0-{num_nodes - 1}"
    message = f"node_ranks {ranks} are out of range: the cluster has {nodes}"
    help = f"use ranks up to {num_nodes - 1}, or set num_nodes to {ranks[-1] + 1}"
    return Diagnostic("node-out-of-range", message, help)


def _inside(group: RankSet) -> str:
    return f"use nodes of the group: {group}"


def no_nodes_of_group(group: RankSet) -> Diagnostic:
    """The node ranks of an environment are empty."""
    return no_nodes(_inside(group))


def beyond_group(outside: RankSet, label: str, group: RankSet) -> Diagnostic:
    """An environment names nodes that its group lacks."""
    message = f"env_configs name {nodes_text(outside)}, not part of node group `{label}`"
    return Diagnostic("node-out-of-range", message, _inside(group))


def two_environments(nodes: RankSet, label: str) -> Diagnostic:
    """Two environments of a group are for the same nodes."""
    verb = "is" if len(nodes) == 1 else "are"
    message = f"{nodes_text(nodes)} of node group `{label}` {verb} in two env_configs"
    return Diagnostic("overlapping-env", message, "give each node one env_config")


def hardware_beyond_group(kind: str, node: int, label: str, group: RankSet) -> Diagnostic:
    """A piece of hardware is on a node that its group lacks."""
    message = f"{kind} hardware is configured on node {node}, not part of node group `{label}` ({group})"
    help = f"use a node of the group ({group}), or add node {node} to its node_ranks"
    return Diagnostic("node-out-of-range", message, help)


def same_hardware(label: str) -> Diagnostic:
    """Two pieces of hardware are described alike."""
    message = f"two configs of node group `{label}` describe the same piece of hardware"
    help = "configure each piece once, or add a field that distinguishes them, e.g. name"
    return Diagnostic("duplicate-hardware", message, help)


def shared_hardware(first: str, second: str, kind: str, nodes: RankSet) -> Diagnostic:
    """Two groups state hardware of one type on the same nodes."""
    message = f"node groups `{first}` and `{second}` both configure {kind} hardware on {nodes_text(nodes)}"
    return Diagnostic("duplicate-hardware", message, "configure all hardware of one type on a node in the same group")
