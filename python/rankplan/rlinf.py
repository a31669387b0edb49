"""RLinf's classes under their own names: its placement classes, and the worker.

Their `PlacementError` is an ``AssertionError``, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rankplan.dialects.rlinf.model_parallel import RolloutSyncMode
from rankplan.dialects.rlinf.placements import (
    ComponentPlacement,
    HybridComponentPlacement,
    ModelParallelComponentPlacement,
    ModelParallelEvalComponentPlacement,
    MultiAgentModelParallelComponentPlacement,
    MultiAgentModelParallelEvalComponentPlacement,
)
from rankplan.plans.component import PlacementMode
from rankplan.read.section import with_section

if TYPE_CHECKING:
    from rankplan.runtime.group.worker import RLinfWorker

    Worker = RLinfWorker

__all__ = [
    "ComponentPlacement",
    "HybridComponentPlacement",
    "ModelParallelComponentPlacement",
    "ModelParallelEvalComponentPlacement",
    "MultiAgentModelParallelComponentPlacement",
    "MultiAgentModelParallelEvalComponentPlacement",
    "PlacementMode",
    "RolloutSyncMode",
    "with_section",
]  # not the worker: `from rankplan.rlinf import *` must not import Ray


def __getattr__(name: str) -> Any:
    if name == "Worker":
        from rankplan.runtime.group.worker import RLinfWorker  # needs Ray

        return RLinfWorker
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
