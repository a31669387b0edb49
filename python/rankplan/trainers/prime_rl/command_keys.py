"""The keys that decide no placement, but words of the commands of a job on several nodes (559b447)."""

from __future__ import annotations

from typing import Any

from rankplan.sdk import Config, Key, anything
from rankplan.trainers.prime_rl import keys

RUN_NAME = keys.text("run.name", "the folder of the run")
RUN_FOLDER = keys.text("run.dir", "the folder of the run, if it is not its name")
OUTPUT = keys.text("output_dir", "where the folder of the run is", default="outputs")


def _backend_port(config: Config) -> int:
    """Return the port of servers behind a router (``auto_setup_backend_port``)."""
    return config[keys.SERVER_PORT] + 100


BACKEND_PORT = keys.size("inference.backend_port", "the port of the first server of a node", default=_backend_port)
RPC_PORT = keys.size(
    "inference.vllm.data_parallel_rpc_port", "the port at which servers that share experts meet", default=13345
)
ROUTER_KIND = keys.text("inference.router.type", "which router there is", default="vllm-router")
ROUTER_POLICY = keys.text("inference.router.policy", "how the router chooses a server", default="consistent_hash")
OFFLOADING = keys.text("inference.kv_cache_offload.type", "whether servers share a cache")
TRANSPORT = keys.text(
    "rollout_transport.type",
    "how rollouts reach the trainer",
    default="zmq",
    fallbacks=("trainer.rollout_transport.type", "orchestrator.rollout_transport.type"),
)
RANKS_FILTER: Key[Any] = anything("trainer.log.ranks_filter", "the ranks of a node whose output is shown", default=[0])
TEMPLATE = keys.text("slurm.template_path", "the script that prime-rl submits itself")
BEFORE_RUN = keys.text("slurm.pre_run_command", "what prime-rl's own script runs first")
VARIABLES: Key[Any] = anything("env_vars", "the environment of every component")
TRAINER_VARIABLES: Key[Any] = anything("trainer.env_vars", "the environment of the trainer")
ORCHESTRATOR_VARIABLES: Key[Any] = anything("orchestrator.env_vars", "the environment of the orchestrator")
INFERENCE_VARIABLES: Key[Any] = anything("inference.env_vars", "the environment of the servers")
