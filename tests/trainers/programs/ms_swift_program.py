"""ms-swift's ``MegatronRayPipeline`` with its pools, workers and servers, which only say where they are.

The argument is the text of the file of ``megatron rlhf --use_ray true --config``. Its data, batches and trainers are
left out: they place no process.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import ray
from _stub import become
from placed import ENVIRONMENT, FILE, watch, write

watch()

for name in ("base_trainer", "megatron_worker", "rollout.vllm_server"):
    become(f"swift.ray.megatron.{name}")

from swift.ray.megatron import pipeline  # noqa: E402


def say(component: str, rank: int, index: int, gpus: list[str]) -> None:
    """Say which GPUs a process uses: ms-swift gives them by number, and asks Ray for none."""
    node = ray.get_runtime_context().get_node_id()
    write(FILE, component=component, rank=rank, index=index, node=node, gpus=[int(gpu) for gpu in gpus])


def visible() -> list[str]:
    """Return the GPUs that ms-swift lets this process see."""
    return os.environ["CUDA_VISIBLE_DEVICES"].split(",")


class Worker:
    """A worker of the training."""

    def __init__(self) -> None:
        say("train", int(os.environ["RANK"]), 0, [visible()[int(os.environ["LOCAL_RANK"])]])

    def init_actor(self, *args: Any, **options: Any) -> None:
        pass

    def get_parallel_info(self) -> dict[str, Any]:
        return {"dp_rank": 0, "is_collector": True, "dp_size": 1}


class Server:
    """A server of an engine, on one of its nodes."""

    def __init__(self, node_rank: int, **options: Any) -> None:
        _, role, _, replica, _ = str(ray.get_runtime_context().get_actor_name()).split("_")
        say(role, int(replica), node_rank, visible())

    def get_master_address(self) -> tuple[str, int, int]:
        return "", 0, 0

    def launch_server(self, **options: Any) -> None:
        pass


sys.modules["swift.ray.megatron.megatron_worker"].MegatronWorker = Worker  # type: ignore[attr-defined]
sys.modules["swift.ray.megatron.rollout.vllm_server"].VllmServer = Server  # type: ignore[attr-defined]
(file := Path("ms_swift.yaml")).write_text(sys.argv[1])
job = pipeline.MegatronRayPipeline(str(file))
job._data_info = {}
ray.init(runtime_env={"env_vars": ENVIRONMENT}, log_to_driver=False)
job._create_pools()
job._spawn_train_group("train")
job._init_rollout_replicas()
job._init_teacher_replicas()
