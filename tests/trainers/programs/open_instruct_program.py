"""open-instruct's ``create_model_and_optimizer`` of `grpo_fast.py`, with actors that only say where they are.

The arguments are the learners of each node, the engines and the size of an engine.
"""

from __future__ import annotations

import dataclasses
import importlib
import sys
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import ray
from _stub import Anything, become
from placed import ENVIRONMENT, FILE, note, watch

watch()


@dataclasses.dataclass
class MambaSpec:
    """The class of vLLM whose field open-instruct widens on import."""

    dtypes: tuple[Any]


class Progress:
    """``tqdm`` without a bar."""

    def __new__(cls, items: Iterable[Any], **options: Any) -> Any:
        return items


importlib.import_module("vllm.v1.kv_cache_interface").MambaSpec = MambaSpec  # type: ignore[attr-defined]
importlib.import_module("transformers").MODEL_FOR_CAUSAL_LM_MAPPING = {}  # type: ignore[attr-defined]
importlib.import_module("tqdm").tqdm = Progress  # type: ignore[attr-defined]
PLACE_NO_PROCESS = """
    data_loader grpo_utils model_utils dataset_transformation ground_truth_utils rl_utils rubrics environments
"""
for name in PLACE_NO_PROCESS.split():
    become(f"open_instruct.{name}")

from open_instruct import grpo_fast, utils, vllm_utils  # noqa: E402

SEED = 1
"""open-instruct's default; engine i gets SEED + i."""


class Learner:
    """A process of the training."""

    def __init__(self, world_size: int, rank: int, *others: Any) -> None:
        note(FILE, "learner", rank)

    def get_master_addr_port(self) -> tuple[str, int]:
        return "", 0

    def from_pretrained(self, *args: Any) -> dict[str, Any]:
        return {"optimization_steps_done": 0, "checkpoint_state": None}


class Engine:
    """An engine of vLLM."""

    def __init__(self, seed: int, **options: Any) -> None:
        note(FILE, "vllm", seed - SEED)

    def ready(self) -> None:
        pass

    def get_kv_cache_info(self) -> int:
        return 1


class Manager:
    """The actor that watches the engines."""

    def __init__(self, *args: Any) -> None:
        pass

    def set_kv_cache_max_concurrency(self, count: int) -> None:
        pass


class Preparation:
    """The actor that prepares the data."""

    def __init__(self, **options: Any) -> None:
        pass

    def start(self) -> None:
        pass


grpo_fast.PolicyTrainerRayProcess = ray.remote(num_gpus=1)(Learner)
grpo_fast.ActorManager = Manager
grpo_fast.data_loader_lib.DataPreparationActor = ray.remote(Preparation)
grpo_fast.data_loader_lib.DATA_PREP_ACTOR_NAME = "data_prep_singleton"
vllm_utils.LLMRayActor = Engine
utils.ModelDims = Anything

*learners, engines, size = map(int, sys.argv[1:])
ray.init(runtime_env={"env_vars": ENVIRONMENT}, log_to_driver=False)
grpo_fast.create_model_and_optimizer(
    args=SimpleNamespace(
        num_learners_per_node=learners,
        single_gpu_mode=False,
        num_nodes=len(learners),
        num_training_steps=1,
        seed=SEED,
        per_device_train_batch_size=1,
        world_size=sum(learners),
        sequence_parallel_size=1,
        verbose=False,
        output_dir="",
        run_name="",
        with_tracking=False,
    ),
    tc=SimpleNamespace(tokenizer_name_or_path="M"),
    model_config=SimpleNamespace(model_name_or_path="M", model_revision=None),
    beaker_config=None,
    wandb_url="",
    tokenizer=None,
    inference_results_Q=None,
    prompt_Q=None,
    evaluation_inference_results_Q=None,
    streaming_config=SimpleNamespace(
        num_unique_prompts_rollout=16,
        num_samples_per_prompt_rollout=4,
        max_possible_score=1,
        max_prompt_token_length=1,
        response_length=1,
        eval_response_length=1,
        mask_tool_use=True,
        inflight_updates=False,
    ),
    vllm_config=SimpleNamespace(
        vllm_num_engines=engines,
        vllm_tensor_parallel_size=size,
        vllm_enforce_eager=False,
        vllm_enable_prefix_caching=False,
        vllm_gpu_memory_utilization=0.9,
        vllm_attention_backend=None,
    ),
    train_dataset=None,
    eval_dataset=None,
    reward_config=None,
    generation_config=None,
    base_env_config=None,
)
