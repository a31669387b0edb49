"""AReaL's ``RayScheduler`` with workers that only say where they are: the engines of a config of ``PPOTrainer``."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import Any

import ray
from placed import ENVIRONMENT, FILE, note, watch

watch()

from areal.api.cli_args import SchedulingSpec  # noqa: E402
from areal.api.scheduler_api import Job  # noqa: E402
from areal.infra.scheduler import ray as scheduler  # noqa: E402


class Worker:
    def __init__(self) -> None:
        role, _, rank = str(ray.get_runtime_context().get_actor_name()).partition("/")
        note(FILE, role, int(rank))

    def ping(self) -> str:
        return "ok"

    def configure(self, *args: Any) -> None:
        pass


scheduler.RayRPCServer = ray.remote(Worker)
ray.init(runtime_env={"env_vars": ENVIRONMENT})
config = SimpleNamespace(enable_offload=False, cluster=SimpleNamespace(n_gpus_per_node=4))
made = scheduler.RayScheduler(startup_timeout=120, exp_config=config)
for role, workers, gpus, strategy in json.loads(sys.argv[1]):  # in the order of `PPOTrainer.__init__`
    spec = SchedulingSpec(cpu=1, gpu=gpus, mem=1, ray_placement_strategy=strategy)
    made.create_workers(Job(role=role, replicas=workers, tasks=[spec]))
