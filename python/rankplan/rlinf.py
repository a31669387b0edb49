"""RLinf's placement classes under their own names, for jobs whose roles have tensor, context and pipeline sizes."""

from __future__ import annotations

from rankplan.dialects.rlinf.modes import PlacementMode, RolloutSyncMode
from rankplan.dialects.rlinf.multi_agent import (
    MultiAgentModelParallelComponentPlacement,
    MultiAgentModelParallelEvalComponentPlacement,
)
from rankplan.dialects.rlinf.placements import (
    HybridComponentPlacement,
    ModelParallelComponentPlacement,
    ModelParallelEvalComponentPlacement,
)

__all__ = [
    "HybridComponentPlacement",
    "ModelParallelComponentPlacement",
    "ModelParallelEvalComponentPlacement",
    "MultiAgentModelParallelComponentPlacement",
    "MultiAgentModelParallelEvalComponentPlacement",
    "PlacementMode",
    "RolloutSyncMode",
]
