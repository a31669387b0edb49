"""The faults of components whose node group a job file states, and of commands with their devices."""

from __future__ import annotations

from rankplan._core import RankSet
from rankplan.errors import Diagnostic
from rankplan.words import counted, nodes_text

_CONFLICT = "job-conflict"


def group_nodes(nodes: RankSet) -> str:
    """Return the nodes of a group as messages show them."""
    return nodes_text(nodes) if nodes else "none of the nodes that the job uses"


def groups_of_shared(name: str, label: str, other: str, other_label: str) -> Diagnostic:
    """Return the fault of a component that shares its accelerators with one of another node group."""
    message = f"`{name}` is in node group `{label}`, but it shares accelerators with `{other}` in `{other_label}`"
    help = f"put both in one group, or give `{name}` accelerators of its own in the trainer's config"
    return Diagnostic(_CONFLICT, message, help)


def outside_group(name: str, label: str, nodes: RankSet, outside: RankSet) -> Diagnostic:
    """Return the fault of a component that the trainer's config puts outside of its node group."""
    message = f"`{name}` is in node group `{label}` ({group_nodes(nodes)}), but the trainer's config puts it on "
    help = "change its place in the trainer's config, or the nodes of the group"
    return Diagnostic(_CONFLICT, f"{message}{nodes_text(outside)}", help)


def group_not_bound(name: str, label: str) -> Diagnostic:
    """Return the fault of a component without accelerators in a node group: nothing binds its processes."""
    message = f"`{name}` is in node group `{label}`, but it has no accelerators: the trainer asks Ray for no group of "
    message += "bundles for it that `rankplan pin` could bind"
    return Diagnostic(_CONFLICT, message, "remove it from the group")


def group_without_ray(name: str, label: str) -> Diagnostic:
    """Return the fault of a node group in a job whose trainer starts its processes without Ray."""
    message = f"`{name}` is in node group `{label}`, but this job does not ask Ray for its accelerators, so "
    message += "`rankplan pin` cannot bind them"
    return Diagnostic(_CONFLICT, message, "let the trainer start its processes with Ray, or remove the component")


def group_counts_other(name: str, label: str, counted: str) -> Diagnostic:
    """Return the fault of a component with accelerators in a node group that counts something else."""
    message = f"node group `{label}` counts {counted}, but `{name}` needs accelerators"
    return Diagnostic(_CONFLICT, message, "put it in a group without `hardware` and `ignore_hardware`")


def group_not_selected(name: str, label: str, present: str, system: str) -> Diagnostic:
    """Return the fault of a component whose own config selects another node group; ``present`` is that one."""
    message = f"`{name}` is in node group `{label}` here, but the config of {system} selects `{present}`"
    help = f"{system} selects node groups itself: write `node_group: {label}` in its `component_placement`"
    return Diagnostic(_CONFLICT, message, help)


def no_such_node(command: str, node: int, nodes: int) -> Diagnostic:
    """Return the fault of a command on a node that the cluster lacks."""
    message = f"{command} needs node {node}, but the cluster has {counted(nodes, 'node')}"
    return Diagnostic("too-few-nodes", message, f"use {node + 1} nodes or more")


def no_device(device: int, node: int, present: int, stated: str) -> Diagnostic:
    """Return the fault of a mask with a device that its node lacks."""
    message = f"{stated} has device {device}, but node {node} has {present}"
    return Diagnostic("resource-out-of-range", message, f"use devices 0 to {present - 1}")
