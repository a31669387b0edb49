"""The faults and warnings of SkyRL's configs: what was found, what is allowed, and what to write instead."""

from __future__ import annotations

from collections.abc import Iterable

from rankplan import Diagnostic, RankSet
from rankplan.sdk import must_be
from rankplan.sdk.sharing import ModelNodes
from rankplan.sdk.words import nodes_text
from rankplan.trainers.skyrl import keys

# Programs and keys


def other_program(program: str) -> Diagnostic:
    """Return the warning of a program that takes the place of SkyRL's own."""
    message = f"`{program}` takes the place of SkyRL's program: it is read like that one"
    return Diagnostic("not-read", message, "compare the components with those that the program starts")


def unknown_placement_key(name: str, known: Iterable[str]) -> Diagnostic:
    """Return the fault of a key of ``trainer.placement`` that SkyRL does not have."""
    return Diagnostic("unknown-key", f"unknown key `{name}`", f"the keys are {', '.join(known)}")


# Engines


def no_engine_decodes(prefilling: int, engines: int) -> Diagnostic:
    """Return the fault of engines that prefill, of which there are none, or as many as engines."""
    allowed = f"1 or more, and less than num_engines, which is {engines}: the other engines decode"
    help = "use at least 2 engines, or set enable_pd: false"
    return must_be((keys.NUM_PREFILL.name,), prefilling, allowed, help)


def other_expert_size(experts: int, whole: int) -> Diagnostic:
    """Return the fault of an expert size of an engine that is neither 1 nor its tensor size x data size."""
    message = f"`{keys.EXPERT.name}` is {experts}; SkyRL accepts 1, or tensor size x data size, which is {whole}"
    return Diagnostic("invalid-value", message, f"use 1 or {whole}")


def engine_on_one_node(gpus: int, per_node: int) -> Diagnostic:
    """Return the fault of an engine that is larger than a node, with a backend that starts it on one."""
    message = f"an engine of {gpus} GPUs needs several nodes of {per_node} (policy_num_gpus_per_node), "
    message += "but the mp backend of vLLM starts it on one"
    return Diagnostic("spans-nodes", message, f"use at most {per_node}, or distributed_executor_backend: ray")


def other_engines(policy: ModelNodes, engines: str, *, by_default: bool) -> Diagnostic:
    """Return the fault of engines that share the GPUs of the policy, and have another number of them."""
    reason = "colocate_all, the default" if by_default else "colocate_all"
    sizes = f"policy_num_nodes {policy.nodes} x policy_num_gpus_per_node {policy.gpus_per_node}"
    message = f"{reason}: the policy has {policy.gpus} GPUs ({sizes}), but the engines have {engines}"
    help = "make policy_num_nodes x policy_num_gpus_per_node equal to it, or set colocate_all: false"
    return Diagnostic("invalid-value", message, help)


def no_first_rank(model: str, each: int, nodes: RankSet) -> Diagnostic:
    """Return the warning of nodes where no process of a model is the first of ``each`` by its number."""
    message = f"no process of {model} on {nodes_text(nodes)} makes the folders of checkpoints, or downloads the model: "
    message += f"SkyRL expects {each} processes on each node, and leaves that to the first of them"
    help = f"set {model}_num_gpus_per_node to the GPUs of a node, and more nodes, or share the folders"
    return Diagnostic("assumed-nodes", message, help, warning=True)
