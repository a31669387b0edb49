"""The faults and warnings of slime's flags: what was found, what is allowed, and what to write instead."""

from __future__ import annotations

from rankplan import Diagnostic


def colocated_async() -> Diagnostic:
    """Return the fault of a colocated job that the asynchronous program starts."""
    message = "`train_async` refuses `colocate`: it trains while the engines generate, on GPUs of their own"
    help = "remove colocate and set rollout_num_gpus, or start train.py"
    return Diagnostic("invalid-value", message, help)


def wrong_engine_address(engine: int, node: int, leader: int, leader_node: int, node_gpus: int) -> Diagnostic:
    """Return the warning of an engine to which slime gives the address of an engine on another node."""
    message = (
        f"slime gives engine {engine} on node {node} the address of engine {leader} on node {leader_node}: it expects "
        f"that every node has {node_gpus} GPUs, and that the rollout starts with a whole one"
    )
    help = f"give the training a multiple of {node_gpus} GPUs, and set num_gpus_per_node to the GPUs of a node"
    return Diagnostic("engine-address", message, help, warning=True)
