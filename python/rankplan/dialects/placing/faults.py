"""The faults of places: too little room, node groups that a job file states, and devices of commands."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rankplan._core import MAX_PROCESSES, RankSet
from rankplan.errors import Diagnostic
from rankplan.words import counted, nodes_text

_CONFLICT = "job-conflict"
_LARGER_GROUP = "give the node group more nodes, or use fewer"


def few_nodes(
    name: str, nodes: int, each: int, present: str, sizes: Mapping[int, int], excluded: int, help: str
) -> Diagnostic:
    """Return the fault of a component for which there are too few nodes with ``each`` free accelerators.

    ``present`` is what messages call the nodes that it may have, and ``sizes`` how many have each number of
    accelerators, of which some are ``excluded``.
    """
    message = f"{name} needs {counted(nodes, 'node')} with {each} free accelerators each, but {present} has "
    message += counted(sum(sizes.values()), "node")
    if len(sizes) == 1:
        message += f" with {next(iter(sizes))}"
    else:
        fitting = sum(count for size, count in sizes.items() if size >= each)
        message += f", {fitting or 'none'} of them with {each} or more"
    if excluded:
        message += f", and {counted(excluded, 'accelerator')} {'is' if excluded == 1 else 'are'} excluded"
    return Diagnostic("resource-out-of-range", message, help)


def larger_nodes(*, in_group: bool, cure: Callable[[], str | None]) -> str:
    """Return the help of `few_nodes`: outside a node group, the cure if there is one."""
    if in_group:
        return f"{_LARGER_GROUP} nodes or accelerators per node"
    return cure() or "use a larger cluster, or fewer nodes or accelerators per node"


def few_accelerators(name: str, count: int, present: int, of: str, *, in_group: bool) -> Diagnostic:
    """Return the fault of a component that needs more accelerators than there are; ``of`` says where."""
    message = f"{name} needs {counted(count, 'accelerator')}, more than {of}: {present}"
    help = f"{_LARGER_GROUP} accelerators" if in_group else "use a larger cluster, or fewer accelerators"
    return Diagnostic("resource-out-of-range", message, help)


def too_many_processes(processes: int) -> Diagnostic:
    """Return the fault of more processes than a component may have."""
    message = f"the component has {processes:,} processes; the limit is {MAX_PROCESSES:,}"
    return Diagnostic("too-many-processes", message, "split the component, or place fewer processes")


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
