"""What several trainers share in their tables of memory: settings, what a value means for one (`convert`), and the
layers of a model that keys state (`Shape`), for a `Model`."""

from rankplan.dialects.keys.roles import Setting
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
from rankplan.plans.shape import Experts, Latent, Shape

__all__ = [
    "REQUESTS",
    "SGLANG_EFFECTS",
    "VLLM_EFFECTS",
    "Experts",
    "Latent",
    "Setting",
    "Shape",
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
