"""verl's ``main_ppo`` and its pools, with workers that only say where they are; in a task runner, like verl's."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hydra
import ray
from placed import FILE, note, watch
from verl.trainer import main_ppo


@ray.remote
class TaskRunner:
    def run(self, config: Any) -> None:
        watch(FILE)
        from verl.single_controller.base import Worker
        from verl.single_controller.ray import RayClassWithInitArgs, RayWorkerGroup, create_colocated_worker_cls
        from verl.trainer.ppo.v1 import trainer_base
        from verl.workers.rollout.replica import RolloutReplica

        class Placed(Worker):  # type: ignore[misc]
            def __init__(self, component: str, first: int = 0) -> None:
                super().__init__()
                note(FILE, component, first + self.rank)

        def placed(component: str, first: int = 0) -> Any:
            return RayClassWithInitArgs(ray.remote(Placed), component=component, first=first)

        class Replica(RolloutReplica):  # type: ignore[misc]
            def get_ray_class_with_init_args(self) -> Any:
                return placed("rollout_standalone", self.replica_rank * self.world_size)

            async def launch_servers(self) -> None:
                started.extend(self.workers)

        started: list[Any] = []
        trainer: Any = SimpleNamespace(config=config)
        trainer_base.PPOTrainer._init_resource_pool_mgr(trainer)
        trainer.resource_pool_manager.create_resource_pool()
        classes: dict[Any, dict[str, Any]] = {}
        for role in trainer.role_worker_mapping:  # as in `PPOTrainer._setup`
            pool = trainer.resource_pool_manager.get_resource_pool(role)
            classes.setdefault(pool, {})[str(role)] = placed("critic" if str(role) == "critic" else "actor")
        for pool, here in classes.items():
            workers = create_colocated_worker_cls(class_dict=here)
            group = RayWorkerGroup(resource_pool=pool, ray_cls_with_init=workers)
            group.spawn(prefix_set=here.keys())
            started.extend(group.workers)
        rollout = config.actor_rollout_ref.rollout
        for rank in range(rollout.nnodes * rollout.n_gpus_per_node // rollout.tensor_model_parallel_size):
            asyncio.run(Replica(rank, rollout, None, gpus_per_node=rollout.n_gpus_per_node).init_standalone())
        ray.get([worker.__ray_ready__.remote() for worker in started])


@hydra.main(config_path=str(Path(main_ppo.__file__).with_name("config")), config_name="ppo_trainer", version_base=None)
def main(config: Any) -> None:
    main_ppo.run_ppo(config, TaskRunner)


main()
