"""The ranking: the best schedule of each way to share accelerators, planned and checked like any other config."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import field, replace
from typing import Any, NamedTuple

from rankplan._core import CLUSTER, RankSet
from rankplan.dialects import DIALECTS, OWN, Dialect
from rankplan.errors import Diagnostic, PlacementError
from rankplan.frozen import frozen
from rankplan.memory.need import Answer
from rankplan.memory.needs import Needs
from rankplan.memory.verdicts import memory_faults
from rankplan.nodes.inventory import Inventory
from rankplan.parallel import NO_SIZES
from rankplan.plans.component import Component
from rankplan.plans.diff import PlanDiff, diff
from rankplan.plans.plan import Plan, check_plan
from rankplan.plans.rules import component_names
from rankplan.read.read_config import ReadConfig
from rankplan.read.text.document import Section
from rankplan.tuning.candidates import Candidates
from rankplan.tuning.costs import Costs
from rankplan.tuning.faults import colocated_times, no_schedule, nothing_measured, untimed_component
from rankplan.tuning.layout import Cluster
from rankplan.tuning.lending import LendingTerms, lending_terms
from rankplan.tuning.lent import LENDING, LentCandidates, lent_places
from rankplan.tuning.memory import answer_of, filled, refused_of
from rankplan.tuning.profile import PROFILE, costs_of
from rankplan.tuning.schedule import Schedule, Sensitivity, Size, reason, sensitivity, transfers_of
from rankplan.tuning.shapes import Candidate, best_of_shape, possible
from rankplan.tuning.times import as_fast, ranked

_IN_THE_ACTOR = "inference"
"""The component that RLinf runs in the processes of a collocated actor."""
_MOST_POINTS = 64
"""Points of a sweep."""


@frozen(slots=False)
class Ranked:
    """A placement and the seconds that an iteration takes in it, by the model.

    ``accelerators`` are the ranks of each component, counted over the cluster. ``sharing`` is ``disaggregated``,
    ``collocated``, ``hybrid`` or ``lending``, ``idle`` the number of accelerators that no component uses.
    ``extrapolated`` names the components whose times are far from any measured size. ``moves`` are the changes from the
    present plan. ``memory`` tells whether all phases fit, ``None`` if no component states what it keeps.
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
    memory: Answer | None = None


@frozen(slots=False)
class Rejected:
    """A schedule whose plan is rejected, with every fault; one is that it cannot fit into memory."""

    seconds: float
    schedule: Schedule
    sharing: str
    diagnostics: tuple[Diagnostic, ...]


@frozen(slots=False)
class Tuning:
    """The ranking, fastest first, and what it depends on.

    ``rejected`` are schedules that would be as fast but whose plans are rejected. ``sensitivity`` says which measured
    number would have to change for another choice, if any does. ``warnings`` are about the costs. ``terms`` are
    those of lending, if placements that lend were considered.
    """

    ranking: tuple[Ranked, ...]
    rejected: tuple[Rejected, ...]
    sensitivity: Sensitivity | None
    warnings: tuple[Diagnostic, ...]
    costs: Costs
    inventory: Inventory = field(repr=False)
    sizes: Mapping[str, list[Size]] = field(repr=False)
    accelerators: int
    terms: LendingTerms | None = None

    @property
    def best(self) -> Ranked:
        """The fastest placement."""
        return self.ranking[0]

    @property
    def plan(self) -> Plan:
        """The plan of the fastest placement."""
        return self.best.plan


def read_costs(costs: Costs | Mapping[str, Any] | str | os.PathLike[str]) -> Costs:
    """Return the costs in a mapping or a file. Raises `PlacementError` with every fault, ``OSError``."""
    if isinstance(costs, Costs):
        return costs
    return Costs.from_dict(costs) if isinstance(costs, Mapping) else Costs.load(costs)


def costs_for(
    costs: Costs | None, config: ReadConfig, dialect: Dialect, inventory: Inventory, file: str
) -> tuple[Costs, dict[str, Any]]:
    """Return the costs of a config: with its parallel sizes where they state none, or else those of its profile.

    The second value is what its components keep in memory, as far as their trainer's own keys tell.

    Raises `PlacementError` (``missing-times``) if neither has the times of a component on accelerators.
    """
    accelerators = len(inventory.core.accelerators())
    if costs is None:
        if config.cluster is None or PROFILE not in config.reader.content:
            raise PlacementError([nothing_measured(file)])
        present = dialect.plan(config, inventory)
        return filled(costs_of(config.reader, present, accelerators), present, accelerators), {}
    planned: Plan | None = None
    with suppress(PlacementError):  # the placement is about to be replaced
        planned = dialect.plan(config, inventory)
    components: Mapping[str, Component] = planned or {}
    timed = costs.components.keys() | costs.like.keys()
    untimed = [name for name in _placed_on_accelerators(config) if name not in timed]
    if untimed:
        raise PlacementError(costs.located(("components",), untimed_component(name)) for name in untimed)
    costs = with_parallel(costs, components)
    memory = _memory(components) if config.cluster is None else {}
    if planned is not None:
        costs = filled(costs, planned, accelerators)
    return costs, memory


def _placed_on_accelerators(config: ReadConfig) -> Iterator[str]:
    """Yield the components that RLinf's or rankplan's own sections place on accelerators of the whole cluster."""
    if config.cluster is None:
        return
    for key, labels in config.cluster.node_groups.items():
        if labels == (CLUSTER,):
            yield from component_names(key)


def with_parallel(costs: Costs, planned: Mapping[str, Component]) -> Costs:
    """Return the costs with the parallel sizes of a plan for the components that state none."""
    components = dict(costs.components)
    for name, component in costs.components.items():
        if name in planned and not component.parallel.stated:
            components[name] = replace(component, parallel=planned[name].parallel)
    return replace(costs, components=components)


def _memory(components: Mapping[str, Component]) -> dict[str, Any]:
    """Return the ``memory`` of components, as a config states it."""
    return {name: part.memory.written() for name, part in components.items() if part.memory is not None}


def search(
    costs: Costs,
    inventory: Inventory,
    config: ReadConfig | None = None,
    *,
    extrapolate: bool = False,
    present: Plan | None = None,
    lend: bool = False,
    model: str | None = None,
    memory: Mapping[str, Any] | None = None,
    finish: Callable[[Plan], Plan] | None = None,
) -> Tuning:
    """Rank the placements of components with these costs on an inventory; see `rankplan.tune`.

    If the config is RLinf's or rankplan's own, its sections decide which placements are valid; ``model`` is then used
    for components whose own is unknown. ``memory`` is what components keep that their trainer's own keys tell.
    ``finish`` returns a plan with what a job file states, and raises `PlacementError` if it does not hold.
    """
    total = len(inventory.core.accelerators())
    sizes = possible(costs, total, extrapolate=extrapolate)
    content = None if config is None or config.cluster is None else _plain(config.reader.content)
    if present is not None:
        check_plan(present, "present")
    cluster = Cluster.of(costs, inventory, present)
    terms = lending_terms(costs) if lend else None
    placing = _Placing(costs, inventory, content, model, memory or {}, terms, finish)
    shapes = costs.shapes if len(costs.components) > 1 else ("collocated",)
    ways: list[tuple[str, Candidates | LentCandidates]] = []
    for shape in shapes:
        ways.append((_sharing_of(shape), Candidates(costs, sizes, cluster, shape)))
    if terms is not None:
        ways.append((LENDING, LentCandidates(costs, terms, sizes, cluster, total)))
    placed: list[tuple[Ranked, tuple[int, int, int]]] = []
    rejected: list[Rejected] = []
    for sharing, candidates in ways:
        fit, refused = _fitting(candidates, sharing, placing)
        if refused is not None:
            rejected.append(refused)
        if fit is not None:
            placed.append((_placement(fit, sharing, costs, total, present), fit.tie_break))
    ranking = [placement for placement, _ in ranked(placed, lambda pair: pair[0].seconds, lambda pair: pair[1])]
    ranking.sort(key=lambda placement: placement.memory == "likely exceeds")  # stable: those that likely fit come first
    rejected.sort(key=lambda refused: refused.seconds)
    if not ranking:
        raise _nothing(costs, total, rejected)
    warnings = (*costs.warnings, *_colocated_times(costs, ranking))
    decides = _deciding_time(costs, ranking)
    return Tuning(tuple(ranking), tuple(rejected), decides, warnings, costs, inventory, sizes, total, terms)


def _sharing_of(shape: str) -> str:
    """Return how schedules of a shape share accelerators; ``equal`` ones are collocated with equal sizes."""
    return "collocated" if shape == "equal" else shape


def _placement(fit: _Fit, sharing: str, costs: Costs, total: int, present: Plan | None) -> Ranked:
    """Return the placement of a schedule and what is to be said about it."""
    seconds, schedule = fit.candidate.seconds, fit.candidate.schedule
    extrapolated = [name for name, size in schedule.sizes.items() if not costs.components[name].times.within(size)]
    warnings: list[Diagnostic] = []
    for component in fit.plan.values():
        warnings += component.parallel_warnings()
    return Ranked(
        seconds,
        schedule,
        fit.ranks,
        sharing,
        idle=total - fit.used,
        why=reason(costs, schedule, seconds),
        extrapolated=tuple(extrapolated),
        plan=fit.plan,
        config=fit.config,
        warnings=tuple(warnings),
        moves=None if present is None else diff(present, fit.plan),
        memory=answer_of(fit.needs),
    )


def _deciding_time(costs: Costs, ranking: list[Ranked]) -> Sensitivity | None:
    """Return the measured time that decides between the first two placements.

    ``None`` if they are equally fast, or if there is only one.
    """
    if len(ranking) < 2:
        return None
    first, second = ranking[:2]
    if as_fast(second.seconds, first.seconds):
        return None
    weights = transfers_of(costs, first.schedule, first.seconds)
    weights_of_second = transfers_of(costs, second.schedule, second.seconds)
    return sensitivity(costs, first.schedule, second.schedule, weights - weights_of_second)


def _colocated_times(costs: Costs, ranking: list[Ranked]) -> Iterator[Diagnostic]:
    """Yield the warning of a ranking that guesses the times of separate accelerators from one colocated run.

    Such costs have a single number of accelerators, the same for every component. That half the accelerators take twice
    as long then decides the order, which names the faster mode in 15 of 35 published pairs.
    """
    measured = {size for component in costs.components.values() for size in component.written}
    points = [component.written for component in costs.components.values()]
    if len(points) < 2 or len(measured) != 1 or not all(points):
        return
    [accelerators] = measured
    separate = next((one for one in ranking if one.sharing not in ("collocated", LENDING)), None)
    if separate is None or all(size == accelerators for size in separate.schedule.sizes.values()):
        return
    sizes = separate.schedule.sizes
    split = " and ".join(f"`{name}` on {sizes[name]}" for name in costs.components)
    fault = colocated_times(list(costs.components), accelerators, split)
    yield costs.located(("components",), fault)


@frozen(slots=False)
class _Placing:
    """What a schedule is placed with: costs, nodes, config, memory of its components, terms of lending, a job file.

    ``model`` is used for components whose model the config does not name.
    """

    costs: Costs
    inventory: Inventory
    config: Mapping[str, Any] | None
    model: str | None
    memory: Mapping[str, Any]
    terms: LendingTerms | None
    finish: Callable[[Plan], Plan] | None


class _Fit(NamedTuple):
    """A schedule that may fit into memory, with its plan: the ranks of each component, and the config."""

    candidate: Candidate
    ranks: Mapping[str, RankSet]
    plan: Plan
    config: dict[str, Any]
    needs: Needs

    @property
    def used(self) -> int:
        """The number of accelerators that components use."""
        return len(RankSet().union(*self.ranks.values()))

    @property
    def tie_break(self) -> tuple[int, int, int]:
        """What decides between equally fast placements; less is better, the first counts most."""
        return self.used, self.candidate.crossing, self.candidate.moved


def _fitting(
    candidates: Candidates | LentCandidates, sharing: str, placing: _Placing
) -> tuple[_Fit | None, Rejected | None]:
    """Return the fastest schedule that may fit into memory, and the fastest one whose plan is rejected.

    A plan that is rejected for another reason than memory ends the search.
    """
    rejected: Rejected | None = None
    costs = placing.costs
    while (candidate := candidates.best()) is not None:
        seconds, schedule = candidate.seconds, candidate.schedule
        ranks = _ranks(schedule, candidate.starts, placing)
        try:
            plan, config = _placed(ranks, placing)
        except PlacementError as error:
            return None, rejected or Rejected(seconds, schedule, sharing, error.diagnostics)
        needs = Needs(plan.inventory, plan, peaks=costs.peaks)
        faults = [fault for _, fault in memory_faults(needs)]
        if not faults:
            return _Fit(candidate, ranks, plan, config, needs), rejected
        rejected = rejected or Rejected(seconds, schedule, sharing, tuple(faults))
        refused = [[costs.like.get(name, name) for name in names] for names in refused_of(needs)]
        candidates.exclude(schedule.sizes, refused)
    return None, rejected


def _ranks(node: Schedule, starts: Mapping[str, int], placing: _Placing) -> dict[str, RankSet]:
    """Return the accelerators that each component of a schedule uses, counted over the cluster."""
    places = {name: range(starts[name], starts[name] + size) for name, size in node.sizes.items()}
    if node.kind == "lend" and placing.terms is not None:
        places = lent_places(node, placing.terms, starts)
    return {name: RankSet(f"{place.start}-{place.stop - 1}") for name, place in places.items()}


def _plain(value: Any) -> Any:
    """Return nested mappings and lists of any kind as dicts and lists."""
    if isinstance(value, Section):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {str(key): _plain(value[key]) for key in value}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _placed(ranks: Mapping[str, RankSet], placing: _Placing) -> tuple[Plan, dict[str, Any]]:
    """Return the plan of components on these accelerators, and its config.

    Other entries of the config, and its sections, stay. Raises `PlacementError` if the plan is rejected.
    """
    config = _config(ranks, placing)
    try:
        plan = DIALECTS[OWN].plan(config, placing.inventory)
        if placing.finish is not None:
            plan = placing.finish(plan)
        return plan, config
    except PlacementError:
        # Collocated, RLinf's actor computes the log probabilities itself.
        collocated = len({str(accelerators) for accelerators in ranks.values()}) == 1
        if placing.config is None or not collocated or _IN_THE_ACTOR not in ranks or "actor" not in ranks:
            raise
        others = {name: accelerators for name, accelerators in ranks.items() if name != _IN_THE_ACTOR}
        return _placed(others, placing)


def _config(ranks: Mapping[str, RankSet], placing: _Placing) -> dict[str, Any]:
    """Return a config that places components on these accelerators."""
    costs, config = placing.costs, placing.config or {}
    section = dict(config["cluster"]) if config else {}
    before: Mapping[str, Any] = section.get("component_placement", {})
    memory = _memory_stated(before, placing)
    alike = {name: ranks[other] for name, other in costs.like.items() if other in ranks}
    entries: dict[str, Any] = {}
    for name, accelerators in {**ranks, **alike}.items():
        parallel = costs.components[name].parallel if name in costs.components else NO_SIZES
        entry: dict[str, Any] = {"placement": str(accelerators)}
        if parallel.stated and name not in config:  # a section of its own states them
            entry["parallel"] = parallel.plain()
        if name in memory:
            entry["memory"] = memory[name]
        entries[name] = entry if len(entry) > 1 else str(accelerators)
    tuned = {*costs.components, *costs.like}
    for key, value in before.items():
        if tuned.isdisjoint(component_names(str(key))):
            entries[key] = value
    section |= {"num_nodes": placing.inventory.num_nodes, "component_placement": entries}
    if placing.model is not None:
        section.setdefault("model", placing.model)
    return {**config, "cluster": section}


def _memory_stated(entries: Mapping[str, Any], placing: _Placing) -> dict[str, Any]:
    """Return what each component keeps in memory: as entries of a config state it, else as its trainer's keys do."""
    memory = dict(placing.memory)
    for key, entry in entries.items():
        if isinstance(entry, Mapping) and "memory" in entry:
            memory |= dict.fromkeys(component_names(str(key)), entry["memory"])
    return memory


def _nothing(costs: Costs, total: int, rejected: list[Rejected]) -> PlacementError:
    if rejected:
        return PlacementError(rejected[0].diagnostics)
    ways = " or ".join(_sharing_of(shape) for shape in costs.shapes)
    return PlacementError([costs.located((), no_schedule(ways, ", ".join(costs.components), total))])


@frozen(slots=False)
class Sweep:
    """Seconds of the best schedule of each way to share, by number of accelerators of a component."""

    component: str
    curves: dict[str, list[tuple[int, float]]]


def sweep(tuning: Tuning) -> Sweep:
    """Return the period by accelerators of the component that has the most in the best placement.

    All other components have the sizes that are best then.
    """
    best = tuning.best.schedule.sizes
    name = max(best, key=lambda component: best[component])
    sizes = tuning.sizes[name]
    step = -(-len(sizes) // _MOST_POINTS)
    shown = [size for index, size in enumerate(sizes) if index % step == 0 or size.accelerators == best[name]]
    cluster = Cluster.of(tuning.costs, tuning.inventory)
    sharings = sorted([placement.sharing for placement in tuning.ranking], key=lambda sharing: sharing != LENDING)
    curves: dict[str, list[tuple[int, float]]] = {sharing: [] for sharing in sharings}
    for sharing, points in curves.items():
        for size in shown:
            candidate = _best_of(tuning, sharing, {**tuning.sizes, name: [size]}, cluster)
            if candidate is not None:
                points.append((size.accelerators, candidate.seconds))
    return Sweep(name, curves)


def _best_of(tuning: Tuning, sharing: str, sizes: Mapping[str, list[Size]], cluster: Cluster) -> Candidate | None:
    """Return the fastest schedule that shares accelerators like this, with these sizes."""
    if sharing == LENDING and tuning.terms is not None:
        return LentCandidates(tuning.costs, tuning.terms, sizes, cluster, tuning.accelerators).best()
    if sharing == "collocated" and "equal" in tuning.costs.shapes:
        return best_of_shape(tuning.costs, sizes, cluster, "equal")
    return best_of_shape(tuning.costs, sizes, cluster, sharing)
