"""rankplan: where every process of a distributed RL job runs, planned and proved before launch, bound to Ray actors.

Everything up to the plan works without Ray, and importing this package does not import it; `Cluster` and `Worker` do.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rankplan import interrupts as interrupts  # first: it handles Ctrl-C during the other imports
from rankplan._core import Chunks, Groups, Packed, RankMap, RankSet, error_codes
from rankplan.accelerators import register_accelerator
from rankplan.clusters import HasInventory
from rankplan.component import Component
from rankplan.config.hardware import Franka, HardwareConfig, register_hardware
from rankplan.config.load import load_config
from rankplan.errors import (
    ClusterError,
    Diagnostic,
    Label,
    LaunchError,
    PlacementError,
    RankplanError,
    ResourceOutOfRangeError,
    WorkerError,
)
from rankplan.inventory import Inventory, NodeSpec
from rankplan.parallel import Parallel
from rankplan.placement import (
    ComponentPlacement,
    FlexiblePlacementStrategy,
    NodePlacementStrategy,
    PackedPlacementStrategy,
    Placement,
    Placements,
    PlacementStrategy,
    parse_placement,
)
from rankplan.plan import Plan
from rankplan.weights import WeightMap

if TYPE_CHECKING:
    __version__: str

    from rankplan.runtime import Cluster as Cluster
    from rankplan.runtime import Worker as Worker
    from rankplan.runtime import WorkerGroup as WorkerGroup
    from rankplan.tuning.costs import ComponentCosts, Costs
    from rankplan.tuning.search import Tuning, tune

__all__ = [
    "Chunks",
    "ClusterError",
    "Component",
    "ComponentCosts",
    "ComponentPlacement",
    "Costs",
    "Diagnostic",
    "FlexiblePlacementStrategy",
    "Franka",
    "Groups",
    "HardwareConfig",
    "HasInventory",
    "Inventory",
    "Label",
    "LaunchError",
    "NodePlacementStrategy",
    "NodeSpec",
    "Packed",
    "PackedPlacementStrategy",
    "Parallel",
    "Placement",
    "PlacementError",
    "PlacementStrategy",
    "Placements",
    "Plan",
    "RankMap",
    "RankSet",
    "RankplanError",
    "ResourceOutOfRangeError",
    "Tuning",
    "WeightMap",
    "WorkerError",
    "error_codes",
    "load_config",
    "parse_placement",
    "register_accelerator",
    "register_hardware",
    "tune",
]


def _html(self: Plan | Component | Placements) -> str:
    """Return what a notebook shows. Plans do not depend on `render`, which is imported only here."""
    from rankplan.render.notebook import html

    return html(self)


_in_notebooks: tuple[Any, ...] = (Plan, Component, Placements)
for _kind in _in_notebooks:
    _kind._repr_html_ = _html

# Not in __all__: `from rankplan import *` must not import Ray.
_RUNTIME = dict.fromkeys(["Cluster", "Worker", "WorkerGroup"], "rankplan.runtime")
_TUNING = dict.fromkeys(("ComponentCosts", "Costs"), "rankplan.tuning.costs")
_TUNING |= dict.fromkeys(("Tuning", "tune"), "rankplan.tuning.search")
_ON_USE = _RUNTIME | _TUNING
"""The modules that are imported when a name is used, because they take long."""


def __getattr__(name: str) -> Any:
    if name in _ON_USE:
        return getattr(import_module(_ON_USE[name]), name)
    if name == "__version__":
        from importlib.metadata import version

        return version("rankplan")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *_RUNTIME, "__version__"})
