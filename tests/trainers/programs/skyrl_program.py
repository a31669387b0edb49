"""SkyRL's groups, servers and models, with workers that only say where they are; in a task, like its entry point."""

from __future__ import annotations

import sys
from argparse import Namespace
from typing import Any

import ray
import ray.cloudpickle
from placed import ENVIRONMENT, FILE, note, note_engine, watch


class Model:
    component = ""

    def __init__(self, cfg: Any, world_size: int, rank: int, **options: Any) -> None:
        self.rank = rank
        note(FILE, self.component, rank)

    def get_master_addr_port(self) -> tuple[str, int]:
        return "", 0

    def init_worker_process_group(self) -> None:
        pass

    def get_mesh_rank(self) -> int:
        return self.rank


def model(component: str) -> Any:
    return ray.remote(num_gpus=1)(type(component, (Model,), {"component": component}))


@ray.remote(num_cpus=1)
def train(words: list[str]) -> None:
    watch(FILE)
    sys.modules["cloudpickle"] = ray.cloudpickle  # SkyRL pickles functions with it
    import _stub
    from skyrl.backends.skyrl_train.inference_servers import common, setup, vllm_router, vllm_server_actor
    from skyrl.train import trainer
    from skyrl.train.config import SkyRLTrainConfig
    from skyrl.train.entrypoints.main_base import BasePPOExp

    class Server:
        compute_num_gpus_per_server = staticmethod(vllm_server_actor.VLLMServerActor.compute_num_gpus_per_server)
        prepare_server_kwargs = staticmethod(vllm_server_actor.VLLMServerActor.prepare_server_kwargs)

        def __init__(self, cli_args: Any, port: int, bundle_indices: list[int], **options: Any) -> None:
            self.port = port
            rank = (port - setup.VLLM_START_PORT) // common.SERVER_PORT_STRIDE
            note_engine(FILE, "generator", rank, bundle_indices, 0.1)

        def start(self) -> Any:
            return common.ServerInfo(ip="", port=self.port)

    cfg = SkyRLTrainConfig.from_cli_overrides(words)
    vllm_server_actor.VLLMServerActor, vllm_router.VLLMRouter = Server, _stub.Anything
    base = BasePPOExp.__new__(BasePPOExp)
    base.cfg = cfg
    group = base.get_colocate_pg()
    engine = cfg.generator.inference_engine
    sizes = Namespace(
        tensor_parallel_size=engine.tensor_parallel_size, pipeline_parallel_size=engine.pipeline_parallel_size
    )
    setup.build_router_args = lambda *args, **options: None
    setup.create_inference_servers(engine, sizes, "", placement_group=group)
    for name in ("async_init_model", "async_run_ray_method"):
        setattr(trainer.PPORayActorGroup, name, lambda *args, **options: [])
    trainer.PPORayActorGroup.offload_to_cpu = lambda *args, **options: None
    trainer.WorkerDispatch = _stub.Anything
    made = trainer.RayPPOTrainer.__new__(trainer.RayPPOTrainer)
    made.cfg, made.colocate_pg, made.colocate_all = cfg, group, cfg.trainer.placement.colocate_all
    made.tokenizer, made.total_training_steps, made.inference_engine_client = _stub.Anything(), None, None
    made.build_models(model("policy"), model("critic"), model("ref"))


ray.init(runtime_env={"env_vars": ENVIRONMENT})
ray.get(train.remote(sys.argv[1:]))
