"""The keys by which ms-swift places (3602360: `ray/megatron/driver_utils.py`, `rlhf_trainers/args_mixin.py`).

A key of a role takes the place of the same key at the top of the file (``merge_group_dict``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rankplan.sdk import Config, Key, KeyTable, anything, size, switch, text

TRAIN, ROLLOUT, TEACHER = ROLES = ("train", "rollout", "teacher")
ENGINES = (ROLLOUT, TEACHER)
DEVICE_GROUPS_SECTION = "device_groups"

USE_RAY = switch("use_ray", "whether the job runs on Ray")
RLHF_TYPE = text("rlhf_type", "the algorithm: grpo or gkd on Ray")

MODES = ("server", "colocate")
SERVER, COLOCATE = MODES
DEFAULT_PORT = 8000
USE_VLLM = switch("use_vllm", "whether vLLM generates, without Ray")
MODE = text("vllm_mode", "whether vLLM is a server, or in the processes of the training")
HOSTS = anything("vllm_server_host", "the nodes of the servers")
PORTS = anything("vllm_server_port", "the ports of the servers")
URLS = anything("vllm_server_base_url", "the addresses of the servers")
SEQUENCE = size("sequence_parallel_size", "the processes of `swift` that share a sequence", default=1)
DEEPSPEED = anything("deepspeed", "whether a process may have several devices")
FSDP = anything("fsdp", "whether a process may have several devices")

NNODES = size("nnodes", "the nodes of each pool", default=1, least=0)
GPUS = {
    name: size(f"{name}.gpus", "the GPUs of a role on all nodes", default=0, least=0, tells="tells") for name in ROLES
}
COLOCATE_GROUPS = anything("colocate_groups", "the roles that share GPUs")
SLEEP_LEVEL = size("sleep_level", "whether colocated engines sleep", default=1, least=0)
TRAINING = {
    kind: size(f"@.{name}", "sizes of the training", at=(TRAIN,), fallbacks=(name,))
    for kind, name in {
        "tp": "tensor_model_parallel_size",
        "cp": "context_parallel_size",
        "ep": "expert_model_parallel_size",
        "etp": "expert_tensor_parallel_size",
        "pp": "pipeline_model_parallel_size",
    }.items()
}


def _of_engine(name: str, decides: str) -> Key[int]:
    """Return the key of a size of engines, which the roles inherit from the top."""
    return size(f"@.{name}", decides, default=1, at=ENGINES, fallbacks=(name,))


TENSOR = _of_engine("vllm_tensor_parallel_size", "the size of an engine")
DATA = _of_engine("vllm_data_parallel_size", "the groups of a replica")

DEVICE_GROUPS = anything(DEVICE_GROUPS_SECTION, "groups of processes on the older Ray", tells="alone")


def is_on_pools(config: Config) -> bool:
    """Return whether a config has the roles of Megatron on Ray."""
    return any(map(config.has, GPUS.values()))


_BESIDE_ALGORITHM = ("colocate_groups", USE_VLLM.path, MODE.path, "ENV")
"""Keys of which one stands beside ``rlhf_type``."""


def tells(config: Mapping[Any, Any]) -> bool:
    """Return whether a config is one of ms-swift: keys of roles alone may be misspelt."""
    return RLHF_TYPE.path in config and any(name in config for name in _BESIDE_ALGORITHM)


KEYS = KeyTable(Key.among(globals()), "rankplan.trainers.ms_swift.memory:ROLES", never="", tells=tells)

SERVER_PORT = size("port", default=DEFAULT_PORT)
"""A key of the server, which is a value of another program."""
