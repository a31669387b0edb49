"""RLinf's placement classes under their own names, for programs written for RLinf.

Their `PlacementError` is an ``AssertionError``, too.
"""

from __future__ import annotations

from rankplan.dialects.rlinf.modes import PlacementMode, RolloutSyncMode
from rankplan.dialects.rlinf.placements import (
    ComponentPlacement,
    HybridComponentPlacement,
    ModelParallelComponentPlacement,
    ModelParallelEvalComponentPlacement,
    MultiAgentModelParallelComponentPlacement,
    MultiAgentModelParallelEvalComponentPlacement,
)

__all__ = [
    "ComponentPlacement",
    "HybridComponentPlacement",
    "ModelParallelComponentPlacement",
    "ModelParallelEvalComponentPlacement",
    "MultiAgentModelParallelComponentPlacement",
    "MultiAgentModelParallelEvalComponentPlacement",
    "PlacementMode",
    "RolloutSyncMode",
]
