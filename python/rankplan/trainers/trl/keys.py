"""The keys by which TRL places (f2cd577: `trl/trainer/grpo_config.py`, `rloo_config.py`, `experimental/`), and vLLM.

They are flags of the trainer, keys of the YAML after ``--config``, or arguments of ``GRPOConfig(...)`` in a program of
Python. Those of accelerate stand beside them in ``trl grpo --config``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rankplan.sdk import Key, KeyTable, size, switch, text

MODES = ("server", "colocate")
SERVER, COLOCATE = MODES

_VLLM = "whether vLLM generates"
USE_VLLM = switch("use_vllm", _VLLM, tells="tells")
MODE = text("vllm_mode", "whether vLLM is a server, or in the processes of the trainer", tells="tells")
TENSOR = size("vllm_tensor_parallel_size", "the size of an engine in the trainer", default=1)
BASE_URL = text("vllm_server_base_url", "the server of vLLM", tells="tells")
HOST = text("vllm_server_host", "the server of vLLM", default="0.0.0.0", tells="tells")
PORT = size("vllm_server_port", "the port of the server", default=8000, tells="tells")
GROUP_PORT = size("vllm_group_port", "the port of the weights", default=51216, tells="tells")

_BATCH = "whether a batch has whole groups of generations"
NUM_GENERATIONS = size("num_generations", _BATCH)
BATCH = size("per_device_train_batch_size", _BATCH, default=8)
ACCUMULATION = size("gradient_accumulation_steps", _BATCH, default=1)
STEPS_PER_GENERATION = size("steps_per_generation", _BATCH)
GENERATION_BATCH = size("generation_batch_size", _BATCH)

_PROCESSES = "the processes of the trainer, in `trl grpo`"
NUM_PROCESSES = size("num_processes", _PROCESSES)
NUM_MACHINES = size("num_machines", _PROCESSES)
ACCELERATE_CONFIG = text("accelerate_config", "the config of accelerate: its file, or a name of TRL")


def _is_of_accelerate(config: Mapping[Any, Any]) -> bool:
    """Return whether a config is a file of accelerate, which is no job by itself."""
    return "distributed_type" in config and ("num_processes" in config or "compute_environment" in config)


KEYS = KeyTable(Key.among(globals()), "rankplan.trainers.trl.memory:ROLES", tells=_is_of_accelerate, finds_typos=False)

SERVER_TENSOR = size("tensor_parallel_size", default=1)
SERVER_DATA = size("data_parallel_size", default=1)
SERVER_PORT = size("port", default=8000)
SERVER_MODEL = text("model")
SERVER_BACKEND = text("distributed_executor_backend")
"""Keys of the server, which are values of another program."""

PLACING = (
    *(USE_VLLM, MODE, TENSOR, BASE_URL, HOST, PORT, GROUP_PORT),
    *(NUM_GENERATIONS, BATCH, ACCUMULATION, STEPS_PER_GENERATION, GENERATION_BATCH),
)
"""The keys of the trainer, which may be arguments of its config in Python."""

OF_VLLM = (
    *("use_vllm", "vllm_enable_sleep_mode", "vllm_gpu_memory_utilization", "vllm_group_port"),
    *("vllm_importance_sampling_cap", "vllm_importance_sampling_clip_max", "vllm_importance_sampling_clip_min"),
    *("vllm_importance_sampling_correction", "vllm_importance_sampling_mode", "vllm_max_model_length", "vllm_mode"),
    *("vllm_model_impl", "vllm_server_base_url", "vllm_server_host", "vllm_server_port", "vllm_server_timeout"),
    *("vllm_structured_outputs_regex", "vllm_sync_frequency", "vllm_tensor_parallel_size"),
)
"""The keys of TRL about vLLM."""
