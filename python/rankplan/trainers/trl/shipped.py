"""The configs of accelerate that TRL brings, by the names of ``--accelerate_config`` (`trl/accelerate_configs`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_STANDARD = "standard"


def _config(kind: str, processes: int = 8, **sections: Any) -> Mapping[str, Any]:
    return {
        "distributed_type": kind,
        "machine_rank": 0,
        "num_machines": 1,
        "num_processes": processes,
        "rdzv_backend": "static",
        "same_network": True,
        **sections,
    }


def _zero(stage: int) -> Mapping[str, Any]:
    return _config("DEEPSPEED", deepspeed_config={"deepspeed_multinode_launcher": _STANDARD, "zero_stage": stage})


CONFIGS = {
    "fsdp1": _config("FSDP", fsdp_config={"fsdp_version": 1}),
    "fsdp2": _config("FSDP", fsdp_config={"fsdp_version": 2}),
    "multi_gpu": _config("MULTI_GPU", gpu_ids="all"),
    "single_gpu": _config("NO", gpu_ids="all"),
    "zero1": _zero(1),
    "zero2": _zero(2),
    "zero3": _zero(3),
}
