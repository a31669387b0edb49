"""What several trainers share in their tables of memory: settings, and what a value means for one (`convert`)."""

from rankplan.dialects.memory import convert
from rankplan.dialects.memory.common import (
    REQUESTS,
    SGLANG_EFFECTS,
    VLLM_EFFECTS,
    draft_keys,
    end_stages,
    fixed,
    layers,
    nearly,
    offloading,
    recomputing,
    sglang_steps,
    stage_keys,
    unless,
)

__all__ = [
    "REQUESTS",
    "SGLANG_EFFECTS",
    "VLLM_EFFECTS",
    "convert",
    "draft_keys",
    "end_stages",
    "fixed",
    "layers",
    "nearly",
    "offloading",
    "recomputing",
    "sglang_steps",
    "stage_keys",
    "unless",
]
