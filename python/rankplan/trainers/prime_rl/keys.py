"""The keys by which prime-rl places (559b447: `packages/prime-rl-configs/src/prime_rl/configs`).

A key without a value in a file or on the command line has the default of its pydantic model. The text ``None`` is no
value, as pydantic-config reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from rankplan.sdk import Key, KeyTable, anything
from rankplan.sdk import size as _size
from rankplan.sdk import switch as _switch
from rankplan.sdk import text as _text

NONE = "None"
size = partial(_size, absent=(NONE,))
switch = partial(_switch, absent=(NONE,))
text = partial(_text, absent=(NONE,))

SINGLE_NODE, MULTI_NODE, DISAGGREGATED = "single_node", "multi_node", "disaggregated"

TRAINER: Key[Any] = anything("trainer", "whether there is a trainer")
ORCHESTRATOR: Key[Any] = anything("orchestrator", "whether there is an orchestrator")
INFERENCE: Key[Any] = anything("inference", "whether the job starts the servers that generate")
SLURM: Key[Any] = anything("slurm", "whether the job may have several nodes")

DEPLOYMENT = text("deployment.type", "one node, or several", default=SINGLE_NODE)
GPUS_PER_NODE = size("deployment.gpus_per_node", "GPUs of a node", default=8)
TRAIN_GPUS = size("deployment.num_train_gpus", "the GPUs of the trainer on one node", default=1, tells="alone")
INFER_GPUS = size(
    "deployment.num_infer_gpus", "the GPUs of the inference on one node", default=1, least=0, tells="alone"
)
TRAIN_NODES = size("deployment.num_train_nodes", "the nodes of the trainer", tells="alone")
INFER_NODES = size("deployment.num_infer_nodes", "the nodes of a replica of the inference", least=0, tells="alone")
INFER_REPLICAS = size("deployment.num_infer_replicas", "the replicas of the inference", default=1, tells="alone")
NODES_PER_FSDP_GROUP = size("deployment.nodes_per_fsdp_group", "the nodes that shard the weights together")
ORCHESTRATOR_ON_INFERENCE = switch(
    "deployment.orchestrator_on_inference", "whether the orchestrator is on the last node of the inference"
)
OF_ONE_NODE = (TRAIN_GPUS, INFER_GPUS)
OF_SEVERAL_NODES = (TRAIN_NODES, INFER_NODES, INFER_REPLICAS, NODES_PER_FSDP_GROUP, ORCHESTRATOR_ON_INFERENCE)

VLLM: Key[Any] = anything("inference.vllm", "the servers that generate", tells="alone")
TENSOR = size("inference.vllm.tensor_parallel_size", "GPUs of a server", default=1)
DATA = size("inference.vllm.data_parallel_size", "servers that share experts", default=1)
DATA_LOCAL = size("inference.vllm.data_parallel_size_local", "servers of a node that share experts")
EXPERT_PARALLEL = switch("inference.vllm.enable_expert_parallel", "whether servers share experts", default=None)
OLDER_PARALLEL: Key[Any] = anything("inference.parallel", "nothing: its sizes have moved to inference.vllm")
SERVER_PORT = size("inference.server.port", "the port that the orchestrator must know", default=8000)
ROUTER: Key[Any] = anything("inference.router", "whether a router stands before the servers")
INFERENCE_DEPLOYMENT = text(
    "inference.deployment.type", "whether other servers prefill than decode", default=SINGLE_NODE
)
INFERENCE_NODES = size("inference.deployment.num_nodes", "the nodes of a replica of the inference", default=2)
PREFILL_NODES, DECODE_NODES = (
    size(f"inference.deployment.{role}_nodes_per_replica", f"the nodes of a group of servers that {role}", default=1)
    for role in ("prefill", "decode")
)
PREFILL_REPLICAS, DECODE_REPLICAS = (
    size(f"inference.deployment.num_{role}_replicas", f"the groups of servers that {role}", default=1)
    for role in ("prefill", "decode")
)

CONTEXT = size("trainer.model.cp", "the context size of the trainer", default=1)
EXPERT: Key[Any] = anything("trainer.model.ep", "the expert size of the trainer", default="auto")
REPLICATE = size("trainer.model.dp_replicate", "the copies of the weights of the trainer", default=1)
IMPLEMENTATION = text("trainer.model.impl", "whether experts are divided by default", default="auto")
MODEL = text("trainer.model.name", "whether experts are divided by default", fallbacks=("model.name",))
LORA: Key[Any] = anything("trainer.model.lora", "how new weights reach the servers")
CHECKPOINTING: Key[Any] = anything("trainer.model.ac", "nothing: it tells what the trainer computes again")
OFFLOADING: Key[Any] = anything("trainer.model.ac_offloading", "nothing: it tells what the trainer keeps on the host")
FAKE_DATA: Key[Any] = anything("trainer.data.fake", "whether the trainer needs no servers")

BROADCAST = text("weight_broadcast.type", "how new weights reach the servers")
TRAIN_SOURCES: Key[Any] = anything("orchestrator.train.source", "the environment servers", tells="alone")
EVAL_SOURCES: Key[Any] = anything("orchestrator.eval.source", "the environment servers", tells="tells")
ALGORITHM: Key[Any] = anything("orchestrator.algo", "which models serve beside the job", tells="tells")
RENDERER: Key[Any] = anything("orchestrator.renderer", "nothing: it tells configs of prime-rl", tells="tells")
PORT_OF_SERVER = size("server.port", "the port of a server beside the job (`inference`)", default=8000)
BASE_URL = text("orchestrator.model.client.base_url", "the server that the orchestrator asks")


def tells(config: Mapping[Any, Any]) -> bool:
    """Return whether a config has both sections that every job of ``rl`` must have."""
    return all(isinstance(config.get(name), Mapping) for name in ("trainer", "orchestrator"))


KEYS = KeyTable(Key.among(globals()), "rankplan.trainers.prime_rl.memory:ROLES", tells=tells)
