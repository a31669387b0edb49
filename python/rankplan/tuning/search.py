"""The ranking: the best schedule of each way to share accelerators, planned and checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rankplan._core import RankSet
from rankplan.errors import Diagnostic, PlacementError
from rankplan.nodes.inventory import Inventory
from rankplan.plans.diff import PlanDiff, diff
from rankplan.plans.plan import Plan
from rankplan.tuning.costs import Costs
from rankplan.tuning.layout import Cluster
from rankplan.tuning.placing import Placed, placed, plain
from rankplan.tuning.reasons import reason, transfers_of
from rankplan.tuning.schedule import Schedule
from rankplan.tuning.sensitivity import Sensitivity, sensitivity
from rankplan.tuning.shapes import best_of_shape
from rankplan.tuning.sizes import Size, possible
from rankplan.words import counted


@dataclass(frozen=True)
class Ranked:
    """A placement and the seconds that an iteration takes in it, by the model.

    ``accelerators`` are the ranks of each component, counted over the cluster. ``sharing`` is ``disaggregated``,
    ``collocated`` or ``hybrid``, ``idle`` the number of accelerators that no component uses. ``extrapolated`` names the
    components whose times are far from any measured size. ``moves`` are the changes from the present plan.
    """

    seconds: float
    schedule: Schedule
    accelerators: Mapping[str, RankSet]
    sharing: str
    idle: int
    why: str
    extrapolated: tuple[str, ...]
    plan: Plan
    config: Mapping[str, Any]
    warnings: tuple[Diagnostic, ...]
    moves: PlanDiff | None = None


@dataclass(frozen=True)
class Rejected:
    """A schedule whose plan is rejected, with every fault."""

    seconds: float
    schedule: Schedule
    sharing: str
    diagnostics: tuple[Diagnostic, ...]


@dataclass(frozen=True)
class Tuning:
    """The ranking, fastest first, and what it depends on.

    ``rejected`` are schedules that would be as fast but whose plans are rejected. ``sensitivity`` says which measured
    number would have to change for another choice, if any does. ``warnings`` are about the costs.
    """

    ranking: tuple[Ranked, ...]
    rejected: tuple[Rejected, ...]
    sensitivity: Sensitivity | None
    warnings: tuple[Diagnostic, ...]
    costs: Costs
    inventory: Inventory = field(repr=False)
    sizes: Mapping[str, list[Size]] = field(repr=False)
    accelerators: int

    @property
    def best(self) -> Ranked:
        """The fastest placement."""
        return self.ranking[0]

    @property
    def plan(self) -> Plan:
        """The plan of the fastest placement."""
        return self.best.plan


def search(
    costs: Costs,
    inventory: Inventory,
    config: Mapping[str, Any] | None = None,
    *,
    extrapolate: bool = False,
    present: Plan | None = None,
) -> Tuning:
    """Rank the placements of components with these costs on an inventory; see `rankplan.tune`.

    ``config`` is RLinf's or rankplan's own; its sections decide which placements are valid.
    """
    total = len(inventory.core.accelerators())
    sizes = possible(costs, total, extrapolate=extrapolate)
    whole = plain(config) if config is not None else None
    cluster = Cluster.of(costs, inventory, present)
    ranking: list[Ranked] = []
    rejected: list[Rejected] = []
    for shape in costs.shapes if len(costs.components) > 1 else ("collocated",):
        if (found := best_of_shape(costs, sizes, cluster, shape)) is None:
            continue
        seconds, node, starts = found
        ranks = {name: RankSet(f"{starts[name]}-{starts[name] + size - 1}") for name, size in node.sizes.items()}
        sharing = "collocated" if shape == "equal" else shape
        try:
            made = placed(ranks, costs, inventory, whole)
        except PlacementError as error:
            rejected.append(Rejected(seconds, node, sharing, error.diagnostics))
            continue
        ranking.append(_ranked(costs, seconds, node, ranks, made, sharing, total, present))
    ranking.sort(key=lambda one: (one.seconds, total - one.idle))
    rejected.sort(key=lambda one: one.seconds)
    if not ranking:
        raise _nothing(costs, total, rejected)
    return Tuning(
        tuple(ranking),
        tuple(rejected),
        _decides(costs, *ranking[:2]) if len(ranking) > 1 else None,
        costs.warnings,
        costs,
        inventory,
        sizes,
        total,
    )


def _ranked(
    costs: Costs,
    seconds: float,
    node: Schedule,
    ranks: Mapping[str, RankSet],
    made: Placed,
    sharing: str,
    total: int,
    present: Plan | None,
) -> Ranked:
    far = [name for name, size in node.sizes.items() if not costs.components[name].times.within(size)]
    used = RankSet().union(*ranks.values())
    return Ranked(
        seconds,
        node,
        dict(ranks),
        sharing,
        total - len(used),
        reason(costs, node, seconds),
        tuple(far),
        made.plan,
        made.config,
        made.warnings,
        None if present is None else diff(present, made.plan),
    )


def _decides(costs: Costs, first: Ranked, second: Ranked) -> Sensitivity | None:
    weights = [transfers_of(costs, one.schedule, one.seconds) for one in (first, second)]
    return sensitivity(costs, first.schedule, second.schedule, (weights[0], weights[1]))


def _nothing(costs: Costs, total: int, rejected: list[Rejected]) -> PlacementError:
    if rejected:
        return PlacementError(rejected[0].diagnostics)
    names = ", ".join(costs.components)
    ways = " or ".join("collocated" if shape == "equal" else shape for shape in costs.shapes)
    message = f"no {ways} schedule of {names} fits on {counted(total, 'accelerator')}"
    fault = Diagnostic(
        "no-schedule", message, "allow more in `sharing`, measure smaller sizes, or use more accelerators"
    )
    return PlacementError([costs.located((), fault)])
