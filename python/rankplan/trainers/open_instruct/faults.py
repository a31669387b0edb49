"""The faults of open-instruct's flags: what was found, what is allowed, and what to write instead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rankplan import Diagnostic
from rankplan.sdk import must_be
from rankplan.sdk.words import counted

_GENERAL_HELP = "use fewer learners on each node, or nodes with more GPUs"


def renamed_learners() -> Diagnostic:
    """Return the fault of learners under the name that they had before (``HfArgumentParser`` refuses the flag)."""
    message = "open-instruct has no `actor_num_gpus_per_node` any more: it refuses the command"
    return Diagnostic("unknown-key", message, "write num_learners_per_node, which has the same numbers")


def not_learners(value: Any) -> Diagnostic:
    """Return the fault of a value that is no list of numbers of learners."""
    allowed = "one or more whole numbers of 1 or more"
    return must_be(("num_learners_per_node",), value, allowed, "write a number for each node: 8 8")


def no_node(sizes: Sequence[int], placed: int, present: int) -> Diagnostic:
    """Return the fault of learners for which no node is left: each number of them needs a node of its own.

    ``placed`` is how many numbers have a node, ``present`` the nodes that have any accelerators.
    """
    size = sizes[placed]
    message = f"the learners need {counted(len(sizes), 'node')}, one for each of {' '.join(map(str, sizes))}, but "
    if placed:
        message += f"{'none' if present == placed else 'no other one'} is left with {size} free accelerators after "
        message += counted(placed, "node")
    else:
        message += f"no node has {size} free accelerators"
    return Diagnostic("resource-out-of-range", message, _GENERAL_HELP)


def no_room(engine: int, tensor: int, free: int) -> Diagnostic:
    """Return the fault of an engine that needs more of a node than the learners leave on any."""
    message = f"engine {engine} needs {tensor} accelerators of one node (vllm_tensor_parallel_size {tensor}), but no "
    message += f"node has as many left: {free} are free in all"
    help = "give the learners whole nodes, or use a smaller vllm_tensor_parallel_size"
    return Diagnostic("spans-nodes", message, help)


def large_single(tensor: int) -> Diagnostic:
    """Return the fault of an engine of several GPUs in ``single_gpu_mode``."""
    message = f"`vllm_tensor_parallel_size` is {tensor}; with single_gpu_mode, an engine has a part of one GPU"
    return Diagnostic("invalid-value", message, "use 1, or give the engines GPUs of their own")


def engines_without_node(engines: int, nodes: int) -> Diagnostic:
    """Return the fault of more engines than nodes of learners in ``single_gpu_mode``: each takes a bundle."""
    message = f"`vllm_num_engines` is {engines}; with single_gpu_mode, each engine takes one of the "
    message += f"{counted(nodes, 'bundle')} of the learners: open-instruct ends with an IndexError"
    return Diagnostic("invalid-value", message, f"use at most {nodes}")


def shared_gpus(learners: int) -> Diagnostic:
    """Return the warning of several learners on a node in ``single_gpu_mode``: Ray may put two on a GPU."""
    message = f"{learners} learners of a node with single_gpu_mode ask for a part of a GPU each: "
    message += "Ray chooses the GPUs, and may put two of them on one"
    return Diagnostic("not-read", message, "use one learner on each node, or no single_gpu_mode", warning=True)


def small_batch(samples: int, ranks: int) -> Diagnostic:
    """Return the fault of a batch with fewer samples than learners that need one."""
    message = f"{samples} samples of a step (num_unique_prompts_rollout x num_samples_per_prompt_rollout) are fewer "
    message += f"than the {counted(ranks, 'data-parallel learner')}"
    return Diagnostic("invalid-value", message, "use more prompts or samples, or fewer learners")


def other_shards(shards: int, replicas: int, learners: int) -> Diagnostic:
    """Return the fault of shards and replicas that do not make up the learners."""
    message = f"`fsdp_shard_degree` {shards} x `fsdp_num_replicas` {replicas} are {shards * replicas}, but there are "
    message += counted(learners, "learner")
    return Diagnostic("parallel-not-divisible", message, "state one of them: the other one follows")


def undivided(key: str, size: int, learners: int) -> Diagnostic:
    """Return the fault of a size that does not divide the learners."""
    message = f"{counted(learners, 'learner')} are not a multiple of `{key}` {size}"
    return Diagnostic("parallel-not-divisible", message, "use a number that divides them")
