"""The faults and warnings of ``device_groups``: what was found, what is allowed, and what to write instead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rankplan import Diagnostic
from rankplan.sdk.words import counted, listed

_EXAMPLE = "write {nproc_per_node: 4, default: {device: GPU, ranks: list(range(0, 4)), workers: [default]}}"


def ignored() -> Diagnostic:
    """Return the fault of groups that ms-swift ignores."""
    message = "`device_groups` counts only with `use_ray: true`: there is no component to place"
    return Diagnostic("no-components", message, "set use_ray: true, or pass the script with the command")


def not_groups() -> Diagnostic:
    """Return the fault of groups that are no mapping, and no text of one."""
    return Diagnostic("invalid-value", "`device_groups` must be a mapping, or one in JSON", _EXAMPLE)


def no_processes(value: Any) -> Diagnostic:
    """Return the fault of groups without the processes of a node."""
    if value is None:
        return Diagnostic("missing-key", "`device_groups.nproc_per_node` is missing", _EXAMPLE)
    message = f"`device_groups.nproc_per_node` is {value!r}; it must be a whole number of 1 or more"
    return Diagnostic("invalid-value", message, _EXAMPLE)


def incomplete(name: str, missing: Sequence[str]) -> Diagnostic:
    """Return the fault of a group without a key that each needs."""
    return Diagnostic(
        "missing-key", f"`device_groups.{name}` lacks {listed([f'`{key}`' for key in missing])}", _EXAMPLE
    )


def several_devices(devices: Sequence[str]) -> Diagnostic:
    """Return the fault of groups on no accelerators, or on several kinds."""
    found = f"are on {' and '.join(devices)}" if devices else "are on CPUs only"
    message = f"the groups {found}: ms-swift needs one kind of accelerator"
    return Diagnostic("invalid-value", message, "use device: GPU, or NPU, in all groups that are not on CPUs")


def unread_ranks(name: str, value: Any) -> Diagnostic:
    """Return the fault of ranks that are no number and no list."""
    message = f"`device_groups.{name}.ranks` is {value!r}; it must be a whole number, a list, or `list(range(0, 4))`"
    return Diagnostic("invalid-value", message, "write numbers inside `list`, `range` and `[...]`, joined by `+`")


def no_ranks(name: str) -> Diagnostic:
    """Return the fault of a group without ranks, on which ms-swift ends with an error."""
    message = f"`device_groups.{name}.ranks` has no rank: ms-swift ends with an IndexError"
    return Diagnostic("invalid-value", message, "give it a rank, or remove the group")


def rank_twice(rank: int, first: str, second: str) -> Diagnostic:
    """Return the fault of a rank in two groups, or twice in one."""
    where = f"in `{first}` and `{second}`" if first != second else f"twice in `{first}`"
    return Diagnostic("duplicate-resource", f"rank {rank} is {where}", "give each rank to one group")


def rank_beyond(rank: int, per_node: int, nodes: int) -> Diagnostic:
    """Return the fault of a rank on a node that ms-swift does not count."""
    message = f"rank {rank} would be on node {rank // per_node}, but the ranks of all groups fill "
    message += f"{counted(nodes, 'node')} of {per_node}: ms-swift ends with a KeyError"
    return Diagnostic("resource-out-of-range", message, "number the ranks of all groups from 0, without gaps")


def cpu_ranks(name: str, value: Any) -> Diagnostic:
    """Return the fault of a group on CPUs whose processes are no number."""
    message = f"`device_groups.{name}.ranks` is {value!r}; of a group on CPUs it must be a whole number of 1 or more"
    return Diagnostic("invalid-value", message, "write the number of its processes")


def no_cpu_workers(name: str) -> Diagnostic:
    """Return the warning of a group on CPUs."""
    message = f"`{name}` is on CPUs: ms-swift 3602360 ends with a KeyError when it starts its workers"
    return Diagnostic("invalid-value", message, "use device: GPU, or a version that starts them", warning=True)


def other_devices(per_node: int) -> Diagnostic:
    """Return the fault of nodes whose first GPUs another job has."""
    message = f"other jobs have some of the first {counted(per_node, 'GPU')} of a node: ms-swift shows its processes "
    message += f"GPUs 0 to {per_node - 1} by number, whichever Ray has reserved"
    return Diagnostic("duplicate-resource", message, "use nodes whose first GPUs are free")


def few_nodes(nodes: int, per_node: int, present: int) -> Diagnostic:
    """Return the fault of a cluster with too few nodes that have enough GPUs."""
    message = f"the ranks need {counted(nodes, 'node')} with {per_node} GPUs each, but the cluster has {present}: "
    message += "ms-swift ends with an IndexError"
    return Diagnostic("resource-out-of-range", message, "use a larger cluster, or fewer ranks")


def few_free(nodes: int, per_node: int, found: int) -> Diagnostic:
    """Return the fault of too few nodes that have enough GPUs left."""
    message = f"the ranks need {counted(nodes, 'node')} with {per_node} free GPUs each, but only {found} have them"
    return Diagnostic("resource-out-of-range", message, "use a larger cluster, or fewer ranks")
