"""The faults of NeMo-RL's configs: what was found, what is allowed, and what to write instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rankplan import Diagnostic
from rankplan.sdk import Key, must_be
from rankplan.sdk.words import counted
from rankplan.trainers.nemo_rl import keys

_VERSION = "NeMo-RL at 7ea279a"

# Nodes


def no_nodes_left(taken: Mapping[str, int], count: int) -> Diagnostic:
    """Return the fault of ``count`` nodes of which the others take all; ``taken`` is how many each takes."""
    return _nothing_left("nodes", taken, keys.NUM_NODES, count)


def no_gpus_left(taken: Mapping[str, int], count: int) -> Diagnostic:
    """Return the fault of the ``count`` GPUs of the only node, of which the others take all."""
    return _nothing_left("GPUs of the node", taken, keys.GPUS_PER_NODE, count)


def _nothing_left(what: str, taken: Mapping[str, int], key: Key[int], count: int) -> Diagnostic:
    takes = " and ".join(f"{name} takes {number}" for name, number in taken.items() if number)
    message = f"no {what} are left for training: {takes} of {count}"
    return Diagnostic("empty-placement", message, f"raise {key.name}, or lower those of the others")


def no_size(key: Key[int | None], what: str) -> Diagnostic:
    """Return the fault of a size of inference that is missing."""
    return Diagnostic("missing-key", f"`{key.name}` is missing: {what}", f"add {key.path}")


def shares_one_node(count: int | None) -> Diagnostic:
    """Return the fault of a number of nodes for inference, where it has one node together with training."""
    message = f"`{keys.INFERENCE_NODES.name}` is {count}; it must be 1 or null: training and inference share one node"
    return Diagnostic("invalid-value", message, "write null")


def not_whole_nodes(gpus: int, per_node: int) -> Diagnostic:
    """Return the fault of inference that uses a part of each of its nodes."""
    message = f"`{keys.INFERENCE_GPUS.name}` is {gpus}; it must be cluster.gpus_per_node, which is {per_node}"
    return Diagnostic("invalid-value", message, f"write {per_node}")


def torn_segments(nodes: int, segment: int) -> Diagnostic:
    """Return the fault of a size of segments that does not divide the nodes of the training."""
    message = f"training has {counted(nodes, 'node')}, which cannot be divided into segments of {segment}"
    return Diagnostic("not-multiple", message, f"use a divisor of {nodes}")


def too_many_gpus(user: str, gpus: int, per_node: int) -> Diagnostic:
    """Return the fault of a teacher or a reward model that needs more GPUs of a node than it has."""
    message = f"{user} needs {gpus} GPUs of a node, but cluster.gpus_per_node is {per_node}"
    return Diagnostic("resource-out-of-range", message, f"use at most {per_node}")


# Engines and models


def other_backend(backend: str, allowed: str, algorithm: str, *, colocated: bool) -> Diagnostic:
    """Return the fault of a backend that an algorithm does not generate with."""
    where = "on the nodes of the training" if colocated else "on nodes of its own"
    allowed = f"{allowed}: {algorithm} of {_VERSION} generates with nothing else {where}"
    return must_be((keys.BACKEND.name,), backend, allowed, "change the backend")


def other_engine_size(stated: Any, gpus: int) -> Diagnostic:
    """Return the fault of a number of GPUs that is not the one that the sizes of an engine give."""
    return must_be((keys.SERVER_GPUS_PER_ENGINE.name,), stated, f"tp_size x pp_size, which is {gpus}", f"write {gpus}")


def trtllm_pipeline(key: str, stages: int) -> Diagnostic:
    """Return the fault of an engine of TensorRT-LLM with pipeline stages."""
    return must_be((key,), stages, "1 with trtllm", "write 1")


def engine_on_one_node(gpus: int, sizes: str, backend: str, per_node: int) -> Diagnostic:
    """Return the fault of an engine that is larger than a node, though its backend starts it on one."""
    message = f"an engine of {gpus} GPUs ({sizes}) needs several nodes, but {backend} starts it on one"
    return Diagnostic("spans-nodes", message, f"use at most {per_node}")


def two_trainings(section: str) -> Diagnostic:
    """Return the fault of a model that is to be trained with DTensor and with Megatron."""
    message = f"`{section}` has dtensor_cfg.enabled and megatron_cfg.enabled: NeMo-RL trains with one of them"
    return Diagnostic("invalid-value", message, "disable one")
