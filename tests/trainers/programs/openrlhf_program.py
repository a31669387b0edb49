"""OpenRLHF's own ``train_ppo_ray``, with models and engines that only say where they are."""

from __future__ import annotations

import runpy
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import ray
from placed import FILE, note, note_engine, watch

watch()

import openrlhf.utils  # noqa: E402
from openrlhf.trainer.ray import launcher, ppo_actor, ppo_critic, vllm_engine  # noqa: E402

SEED = 42
"""OpenRLHF's default; engine i gets SEED + i."""


class Model:
    component = ""

    def __init__(self, world_size: int, rank: int, address: str, port: int) -> None:
        note(FILE, self.component, rank)

    def get_master_addr_port(self) -> tuple[str, int]:
        return "", 0

    def init_model_from_pretrained(self, *args: Any) -> None:
        pass

    def save_model(self) -> None:
        pass


class Engine:
    def __init__(self, seed: int, num_gpus: float, bundle_indices: list[int] | None = None, **options: Any) -> None:
        if bundle_indices is None:
            note(FILE, "vllm", seed - SEED)
        else:
            note_engine(FILE, "vllm", seed - SEED, bundle_indices, num_gpus)

    def ready(self) -> None:
        pass


def remote(*args: Any, **options: Any) -> Any:
    """Wait for the engines, in place of ``PPOTrainer``, and return what has its methods."""
    ray.get([engine.ready.remote() for engine in args[6] or ()])
    method = SimpleNamespace(remote=lambda: ray.put(0))
    return SimpleNamespace(get_max_steps=method, fit=method)


for module, name, component in (
    (ppo_actor, "PolicyModelActor", "actor"),
    (launcher, "ReferenceModelActor", "ref"),
    (ppo_critic, "CriticModelActor", "critic"),
    (launcher, "RewardModelActor", "reward"),
):
    setattr(module, name, ray.remote(num_gpus=1)(type(name, (Model,), {"component": component})))
vllm_engine.RolloutRayActor = ray.remote(Engine)
openrlhf.utils.get_strategy = lambda args: SimpleNamespace(print=lambda text: None)
trainer = sys.modules["openrlhf.trainer.ppo_trainer"] = ModuleType("openrlhf.trainer.ppo_trainer")
trainer.PPOTrainer = SimpleNamespace(remote=remote)  # type: ignore[attr-defined]
runpy.run_module("openrlhf.cli.train_ppo_ray", run_name="__main__")
