"""The warnings of SkyRL's configs: what was found, what is allowed, and what to write instead."""

from __future__ import annotations

from rankplan import Diagnostic, RankSet
from rankplan.words import nodes_text


def no_first_rank(model: str, each: int, nodes: RankSet) -> Diagnostic:
    """Return the warning of nodes where no process of a model is the first of ``each`` by its number."""
    message = f"no process of {model} on {nodes_text(nodes)} makes the folders of checkpoints, or downloads the model: "
    message += f"SkyRL expects {each} processes on each node, and leaves that to the first of them"
    help = f"set {model}_num_gpus_per_node to the GPUs of a node, and more nodes, or share the folders"
    return Diagnostic("assumed-nodes", message, help, warning=True)
