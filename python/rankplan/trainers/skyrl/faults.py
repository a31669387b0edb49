"""The warnings of SkyRL's configs: what was found, what is allowed, and what to write instead."""

from __future__ import annotations

from rankplan import Diagnostic, RankSet
from rankplan.dialects.placing.sharing import Shape
from rankplan.words import nodes_text


def other_engines(policy: Shape, engines: str, *, by_default: bool) -> Diagnostic:
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
