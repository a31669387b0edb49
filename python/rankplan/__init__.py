"""rankplan: where every process of a distributed RL job runs, planned and proved before launch, bound to Ray actors.

Everything up to the plan works without Ray. A name is imported when it is used, so that importing this package imports
nothing else.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    __version__: str

    from rankplan._core import Chunks as Chunks
    from rankplan._core import Groups as Groups
    from rankplan._core import Packed as Packed
    from rankplan._core import Placement as Placement
    from rankplan._core import Placements as Placements
    from rankplan._core import RankMap as RankMap
    from rankplan._core import RankSet as RankSet
    from rankplan._core import Requests as Requests
    from rankplan._core import error_codes as error_codes
    from rankplan.accelerators import register_accelerator as register_accelerator
    from rankplan.arranging.arrange import arrange as arrange
    from rankplan.arranging.replan import replan as replan
    from rankplan.arranging.replanned import Replanned as Replanned
    from rankplan.arranging.task import Arrangement as Arrangement
    from rankplan.dialects.convert import Converted as Converted
    from rankplan.dialects.convert import convert as convert
    from rankplan.errors import ClusterError as ClusterError
    from rankplan.errors import Diagnostic as Diagnostic
    from rankplan.errors import Faults as Faults
    from rankplan.errors import Label as Label
    from rankplan.errors import LaunchError as LaunchError
    from rankplan.errors import PlacementError as PlacementError
    from rankplan.errors import RankplanError as RankplanError
    from rankplan.errors import ResourceOutOfRangeError as ResourceOutOfRangeError
    from rankplan.errors import WorkerError as WorkerError
    from rankplan.front.api import check as check
    from rankplan.front.api import plan as plan
    from rankplan.front.api import requests as requests
    from rankplan.front.api import tune as tune
    from rankplan.front.api import tune_async as tune_async
    from rankplan.guests.doors import without_guests as without_guests
    from rankplan.launchers.emit import emit as emit
    from rankplan.launchers.options import EmitOptions as EmitOptions
    from rankplan.memory.need import Need as Need
    from rankplan.moving.transition import Transition as Transition
    from rankplan.moving.transition import transition as transition
    from rankplan.nodes.clusters import SupportsInventory as SupportsInventory
    from rankplan.nodes.inventory import Inventory as Inventory
    from rankplan.nodes.inventory import NodeSpec as NodeSpec
    from rankplan.nodes.topology import Domains as Domains
    from rankplan.parallel import Parallel as Parallel
    from rankplan.plans.component import Component as Component
    from rankplan.plans.component import PlacementMode as PlacementMode
    from rankplan.plans.component import Settings as Settings
    from rankplan.plans.diff import Change as Change
    from rankplan.plans.diff import Move as Move
    from rankplan.plans.diff import PlanDiff as PlanDiff
    from rankplan.plans.diff import diff as diff
    from rankplan.plans.model import Model as Model
    from rankplan.plans.node_kinds import NodeKind as NodeKind
    from rankplan.plans.node_kinds import Stay as Stay
    from rankplan.plans.plan import Oversubscription as Oversubscription
    from rankplan.plans.plan import Plan as Plan
    from rankplan.plans.plan import Sharing as Sharing
    from rankplan.plans.requests import Actors as Actors
    from rankplan.plans.requests import Request as Request
    from rankplan.plans.weights import WeightMap as WeightMap
    from rankplan.read.hardware import Franka as Franka
    from rankplan.read.hardware import HardwareConfig as HardwareConfig
    from rankplan.read.hardware import register_hardware as register_hardware
    from rankplan.read.text.load import load_config as load_config
    from rankplan.render.report import Report as Report
    from rankplan.rlinf.placement import ComponentPlacement as ComponentPlacement
    from rankplan.rlinf.strategies import FlexiblePlacementStrategy as FlexiblePlacementStrategy
    from rankplan.rlinf.strategies import NodePlacementStrategy as NodePlacementStrategy
    from rankplan.rlinf.strategies import PackedPlacementStrategy as PackedPlacementStrategy
    from rankplan.rlinf.strategies import PlacementStrategy as PlacementStrategy
    from rankplan.rlinf.strategies import parse_placement as parse_placement
    from rankplan.runtime.cluster import Cluster as Cluster
    from rankplan.runtime.group.apply import ActiveStep as ActiveStep
    from rankplan.runtime.group.apply import StepTime as StepTime
    from rankplan.runtime.group.apply import apply as apply
    from rankplan.runtime.group.crew import Failure as Failure
    from rankplan.runtime.group.group import Call as Call
    from rankplan.runtime.group.group import WorkerGroup as WorkerGroup
    from rankplan.runtime.group.job import launch as launch
    from rankplan.runtime.group.spec import GroupSpec as GroupSpec
    from rankplan.runtime.group.unfinished import Running as Running
    from rankplan.runtime.group.unfinished import TransitionError as TransitionError
    from rankplan.runtime.group.worker import Worker as Worker
    from rankplan.runtime.live.live import live as live
    from rankplan.runtime.live.pinned import Ran as Ran
    from rankplan.runtime.live.pinned import pin as pin
    from rankplan.runtime.live.pinned import pinned as pinned
    from rankplan.runtime.rank.spec import RankReport as RankReport
    from rankplan.runtime.rank.timing import Timing as Timing
    from rankplan.runtime.reserve.reserve import Reservation as Reservation
    from rankplan.runtime.usage.model import Live as Live
    from rankplan.tuning.costs import ComponentCosts as ComponentCosts
    from rankplan.tuning.costs import Costs as Costs
    from rankplan.tuning.costs import WeightSync as WeightSync
    from rankplan.tuning.schedule import Schedule as Schedule
    from rankplan.tuning.schedule import Sensitivity as Sensitivity
    from rankplan.tuning.search import Ranked as Ranked
    from rankplan.tuning.search import Rejected as Rejected
    from rankplan.tuning.search import Sweep as Sweep
    from rankplan.tuning.search import Tuning as Tuning
    from rankplan.tuning.search import sweep as sweep
    from rankplan.tuning.splits import AsyncTuning as AsyncTuning
    from rankplan.tuning.splits import SplitTime as SplitTime

_NAMES = {
    "_core": (
        *("Chunks", "Groups", "Packed", "Placement", "Placements", "RankMap", "RankSet", "Requests", "error_codes"),
    ),
    "accelerators": ("register_accelerator",),
    "arranging.arrange": ("arrange",),
    "arranging.task": ("Arrangement",),
    "arranging.replan": ("replan",),
    "arranging.replanned": ("Replanned",),
    "read.hardware": ("Franka", "HardwareConfig", "register_hardware"),
    "read.text.load": ("load_config",),
    "dialects.convert": ("Converted", "convert"),
    "rlinf.placement": ("ComponentPlacement",),
    "rlinf.strategies": (
        *("FlexiblePlacementStrategy", "NodePlacementStrategy", "PackedPlacementStrategy"),
        *("PlacementStrategy", "parse_placement"),
    ),
    "errors": (
        *("ClusterError", "Diagnostic", "Faults", "Label", "LaunchError", "PlacementError", "RankplanError"),
        *("ResourceOutOfRangeError", "WorkerError"),
    ),
    "render.report": ("Report",),
    "front.api": ("check", "plan", "requests", "tune", "tune_async"),
    "plans.model": ("Model",),
    "moving.transition": ("Transition", "transition"),
    "nodes.clusters": ("SupportsInventory",),
    "nodes.inventory": ("Inventory", "NodeSpec"),
    "nodes.topology": ("Domains",),
    "parallel": ("Parallel",),
    "plans.component": ("Component", "PlacementMode", "Settings"),
    "plans.diff": ("Change", "Move", "PlanDiff", "diff"),
    "memory.need": ("Need",),
    "plans.node_kinds": ("NodeKind", "Stay"),
    "plans.plan": ("Oversubscription", "Plan", "Sharing"),
    "plans.requests": ("Actors", "Request"),
    "plans.weights": ("WeightMap",),
    "runtime.cluster": ("Cluster",),
    "runtime.group.apply": ("ActiveStep", "StepTime", "apply"),
    "runtime.group.group": ("Call", "WorkerGroup"),
    "runtime.group.spec": ("GroupSpec",),
    "runtime.group.unfinished": ("Running", "TransitionError"),
    "runtime.group.crew": ("Failure",),
    "runtime.group.job": ("launch",),
    "runtime.group.worker": ("Worker",),
    "runtime.live.live": ("live",),
    "runtime.usage.model": ("Live",),
    "runtime.live.pinned": ("Ran", "pin", "pinned"),
    "runtime.rank.spec": ("RankReport",),
    "runtime.rank.timing": ("Timing",),
    "runtime.reserve.reserve": ("Reservation",),
    "guests.doors": ("without_guests",),
    "launchers.emit": ("emit",),
    "launchers.options": ("EmitOptions",),
    "tuning.costs": ("ComponentCosts", "Costs", "WeightSync"),
    "tuning.schedule": ("Schedule", "Sensitivity"),
    "tuning.search": ("Ranked", "Rejected", "Sweep", "Tuning", "sweep"),
    "tuning.splits": ("AsyncTuning", "SplitTime"),
}
"""The public names by the module that has them."""

_HOMES = {name: f"rankplan.{module}" for module, names in _NAMES.items() for name in names}

# `from rankplan import *` must not import Ray.
__all__ = sorted(name for name, home in _HOMES.items() if not home.startswith("rankplan.runtime"))


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
        if "IPython" in sys.modules:
            import_module("rankplan.render.map.notebook")  # plans display themselves
        globals()[name] = value
        return value
    if name == "__version__":
        from importlib.metadata import version

        return version("rankplan")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*_HOMES, "__version__"})
