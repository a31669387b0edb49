"""RLinf: its placement language, strategies, placement classes and modes, and its classes under their own names.

The `PlacementError` of these classes is an ``AssertionError``, too. A name is imported when it is used: every module of
the room starts with this one.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rankplan.plans.component import PlacementMode as PlacementMode
    from rankplan.rlinf.model_parallel import RolloutSyncMode as RolloutSyncMode
    from rankplan.rlinf.placements import ComponentPlacement as ComponentPlacement
    from rankplan.rlinf.placements import HybridComponentPlacement as HybridComponentPlacement
    from rankplan.rlinf.placements import ModelParallelComponentPlacement as ModelParallelComponentPlacement
    from rankplan.rlinf.placements import ModelParallelEvalComponentPlacement as ModelParallelEvalComponentPlacement
    from rankplan.rlinf.placements import (
        MultiAgentModelParallelComponentPlacement as MultiAgentModelParallelComponentPlacement,
    )
    from rankplan.rlinf.placements import (
        MultiAgentModelParallelEvalComponentPlacement as MultiAgentModelParallelEvalComponentPlacement,
    )
    from rankplan.rlinf.section import with_section as with_section
    from rankplan.runtime.group.worker import RLinfWorker

    Worker = RLinfWorker

_PLACEMENTS = "rankplan.rlinf.placements"
_HOMES = {
    "ComponentPlacement": _PLACEMENTS,
    "HybridComponentPlacement": _PLACEMENTS,
    "ModelParallelComponentPlacement": _PLACEMENTS,
    "ModelParallelEvalComponentPlacement": _PLACEMENTS,
    "MultiAgentModelParallelComponentPlacement": _PLACEMENTS,
    "MultiAgentModelParallelEvalComponentPlacement": _PLACEMENTS,
    "PlacementMode": "rankplan.plans.component",
    "RolloutSyncMode": "rankplan.rlinf.model_parallel",
    "with_section": "rankplan.rlinf.section",
}
"""The public names by the module that has them."""

__all__ = sorted(_HOMES)  # not the worker: `from rankplan.rlinf import *` must not import Ray


def __getattr__(name: str) -> Any:
    if name == "Worker":
        from rankplan.runtime.group.worker import RLinfWorker  # needs Ray

        return RLinfWorker
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "Worker"]
