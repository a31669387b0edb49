"""vime as a dialect: like slime, with engines of vLLM (2b83ea2: ``backends/vllm_utils/arguments.py``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rankplan.sdk import Dialect, Key, Program, size

STAGES = size("vllm_pipeline_parallel_size", "sizes of an engine", like="sglang_pipeline_parallel_size")

_SIZES = ("actor_num_gpus_per_node", "rollout_num_gpus", "rollout_num_gpus_per_engine")


def _has_engines_of_vllm(config: Mapping[Any, Any]) -> bool:
    """Return whether flags are those of slime's sizes, and of engines of vLLM, which slime does not have."""
    flags = {str(name).removeprefix("--").replace("-", "_") for name in config}
    return any(size in flags for size in _SIZES) and any(flag.startswith("vllm_") for flag in flags)


DIALECT = Dialect.like(
    "slime",
    name="vime",
    system="vime",
    keys=Key.among(globals()),
    lacks=("sglang_pp_size", "sglang_expert_parallel_size", "sglang_ep_size"),
    tells=_has_engines_of_vllm,
    memory="rankplan.trainers.forks.vime_memory:ROLES",
    programs=(Program(r"(.*\.)?train\w*", imports=(r"^\s*from vime\.",)),),
)
