"""The faults and warnings of ms-swift's configs: what was found, what is allowed, and what to write instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rankplan import Diagnostic
from rankplan.sdk import must_be
from rankplan.trainers.ms_swift import keys
from rankplan.words import counted, did_you_mean, listed

_ALGORITHMS = ("grpo", "gkd")
"""What ms-swift runs with Megatron on Ray (``_TRAINER_REGISTRY``)."""


def unknown_algorithm(name: Any) -> Diagnostic | None:
    """Return the fault of an algorithm that ms-swift does not run on Ray, ``None`` for one that it does."""
    if name in _ALGORITHMS:
        return None
    return must_be(("rlhf_type",), name, "grpo or gkd on Ray", "use one of them, or torchrun without use_ray")


def not_started_on_ray() -> Diagnostic:
    """Return the fault of a command with a config of roles that does not ask for Ray."""
    message = "`megatron rlhf` reads a file with roles only with `--use_ray true`, which this command lacks"
    return Diagnostic("missing-key", message, "add --use_ray true")


def started_by_torchrun() -> Diagnostic:
    """Return the fault of a command of Megatron without Ray: its processes, and where its engines are, are not read."""
    message = "`megatron rlhf` without `--use_ray` is a job of torchrun, whose placement rankplan does not read"
    return Diagnostic("no-components", message, "use `--use_ray true --config FILE` to place its roles on Ray")


def older_ray() -> Diagnostic:
    """Return the fault of ms-swift's older way on Ray, whose groups have ranks."""
    message = "`device_groups` is ms-swift's older way on Ray, whose placement rankplan does not read"
    return Diagnostic("no-components", message, "use a file of roles: train, rollout and teacher with `gpus` each")


def no_training() -> Diagnostic:
    """Return the fault of a job whose training has no GPUs."""
    message = "`train.gpus` is missing or 0: ms-swift trains on no GPU"
    return Diagnostic("missing-key", message, "give train.gpus the GPUs of the training, on all nodes together")


def uneven_nodes(key: str, gpus: int, nodes: int) -> Diagnostic:
    """Return the fault of GPUs that cannot be divided equally among the nodes of a pool."""
    below = gpus // nodes * nodes
    fitting = " or ".join(str(count) for count in (below, below + nodes) if count)
    message = f"`{key}` is {gpus}, which is no multiple of the {counted(nodes, 'node')} of `nnodes`: "
    message += "each of them has the same number of GPUs of a role"
    return Diagnostic("not-multiple", message, f"use {fitting}, or another nnodes")


def not_groups(value: Any) -> Diagnostic:
    """Return the fault of roles that are no list of lists."""
    allowed = "a list of lists of roles"
    return must_be(("colocate_groups",), value, allowed, "write colocate_groups: [[train, rollout]]")


def not_roles(index: int, value: Any) -> Diagnostic:
    """Return the fault of an entry that is no list of two roles or more."""
    help = "write colocate_groups: [[train, rollout]], or leave the key out"
    return must_be(f"`colocate_groups[{index}]`", value, "a list of 2 roles or more", help)


def unknown_role(index: int, role: str) -> Diagnostic:
    """Return the fault of a name that is no role."""
    message = f"unknown role `{role}` in `colocate_groups[{index}]`"
    return Diagnostic("invalid-value", message, did_you_mean(role, keys.ROLES, "the roles are"))


def role_twice(role: str) -> Diagnostic:
    """Return the fault of a role in two places of ``colocate_groups``."""
    message = f"`{role}` is twice in `colocate_groups`"
    return Diagnostic("invalid-value", message, "a role shares one set of GPUs: name it once")


def role_without_gpus(index: int, role: str) -> Diagnostic:
    """Return the fault of a role that is to share GPUs, and has none."""
    message = f"`{role}` is in `colocate_groups[{index}]`, but `{role}.gpus` is missing or 0"
    return Diagnostic("missing-key", message, f"give {role}.gpus the number of the roles beside it")


def other_sizes(sizes: Mapping[str, int]) -> Diagnostic:
    """Return the fault of roles that are to share GPUs, and ask for different numbers."""
    numbers = [f"{role}.gpus {count}" for role, count in sizes.items()]
    message = f"roles of `colocate_groups` have the same GPUs, but ask for different numbers: {listed(numbers)}"
    return Diagnostic("invalid-value", message, "give them the same number, or take them out of colocate_groups")


def undivided_engines(key: str, gpus: int, size: int, sizes: str) -> Diagnostic:
    """Return the fault of GPUs that are no multiple of the size of a replica."""
    below = gpus // size * size
    fitting = " or ".join(str(count) for count in (below, below + size) if count)
    message = f"`{key}` is {gpus}, which is no multiple of the {size} GPUs of a replica ({sizes})"
    return Diagnostic("not-multiple", message, f"use {fitting}, or other sizes of vLLM")


def unequal_parts(name: str, replica: int, parts: Mapping[int, int], sizes: str) -> Diagnostic:
    """Return the fault of a replica on nodes of which each has another number of its GPUs.

    ``parts`` has the number of GPUs by node.
    """
    on_nodes = [f"{count} on node {node}" for node, count in parts.items()]
    message = f"replica {replica} of the {name} would have {' and '.join(on_nodes)} ({sizes}): "
    message += "ms-swift expects the same number on each of its nodes"
    help = "choose sizes of vLLM of which whole replicas fit on a node, or whole nodes make one"
    return Diagnostic("spans-nodes", message, help)


def unlike_replicas(name: str, parts: list[int], sizes: str) -> Diagnostic:
    """Return the fault of replicas some of which are on more nodes than others."""
    message = f"replicas of the {name} ({sizes}) would have {' and '.join(map(str, parts))} GPUs on a node: "
    message += "some of them are on more nodes than others"
    help = "choose sizes of vLLM of which whole replicas fit on a node, or whole nodes make one"
    return Diagnostic("spans-nodes", message, help)
