"""RLinf's placement classes for jobs with parallel sizes, from rankplan: same names and attributes as before."""

from rankplan.rlinf import (  # noqa: I001  # sorted as in RLinf
    HybridComponentPlacement,
    ModelParallelComponentPlacement,
    ModelParallelEvalComponentPlacement,
    MultiAgentModelParallelComponentPlacement,
    MultiAgentModelParallelEvalComponentPlacement,
    PlacementMode,
    RolloutSyncMode,
)

from rlinf.scheduler import ComponentPlacement

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
