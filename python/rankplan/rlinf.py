"""RLinf's classes under their own names: placement of roles with tensor, context and pipeline sizes, and the worker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from rankplan.runtime.group.worker import RLinfWorker

    Worker = RLinfWorker

__all__ = [
    "HybridComponentPlacement",
    "ModelParallelComponentPlacement",
    "ModelParallelEvalComponentPlacement",
    "MultiAgentModelParallelComponentPlacement",
    "MultiAgentModelParallelEvalComponentPlacement",
    "PlacementMode",
    "RolloutSyncMode",
]  # not the worker: `from rankplan.rlinf import *` must not import Ray


def __getattr__(name: str) -> Any:
    if name == "Worker":
        from rankplan.runtime.group.worker import RLinfWorker  # needs Ray

        return RLinfWorker
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
