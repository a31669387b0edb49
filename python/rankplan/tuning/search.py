"""The ranking: the best schedule of each way to share accelerators, planned and checked like any other config."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import field, replace
from typing import Any, TypeAlias

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
from rankplan.tuning.shapes import Found, best_of_shape, possible
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
    cluster = config.cluster
    if costs is None:
        if cluster is None or PROFILE not in config.reader.content:
            raise PlacementError([nothing_measured(file)])
        present, total = dialect.plan(config, inventory), len(inventory.core.accelerators())
        return filled(costs_of(config.reader, present, total), present, total), {}
    planned: Plan | None = None
    with suppress(PlacementError):  # the placement is about to be replaced
        planned = dialect.plan(config, inventory)
    known: Mapping[str, Component] = planned or {}
    node_groups = {} if cluster is None else cluster.node_groups
    keys = [key for key, labels in node_groups.items() if labels == (CLUSTER,)]
    timed = costs.components.keys() | costs.like.keys()
    if untimed := [name for key in keys for name in component_names(key) if name not in timed]:
        raise PlacementError(costs.located(("components",), untimed_component(name)) for name in untimed)
    costs = with_parallel(costs, known)
    memory = _memory(known) if cluster is None else {}
    return costs if planned is None else filled(costs, planned, len(inventory.core.accelerators())), memory


def with_parallel(costs: Costs, planned: Mapping[str, Component]) -> Costs:
    """Return the costs with the parallel sizes of a plan for the components that state none."""
    components = {
        name: replace(one, parallel=planned[name].parallel) if name in planned and not one.parallel.stated else one
        for name, one in costs.components.items()
    }
    return replace(costs, components=components)


def _memory(components: Mapping[str, Component]) -> dict[str, Any]:
    """Return the ``memory`` of components, as a config states it."""
    return {name: one.memory.written() for name, one in components.items() if one.memory is not None}


def search(
    costs: Costs,
    inventory: Inventory,
    config: ReadConfig | None = None,
    *,
    extrapolate: bool = False,
    present: Plan | None = None,
    lend: bool = False,
    memory: Mapping[str, Any] | None = None,
    finish: Callable[[Plan], Plan] | None = None,
) -> Tuning:
    """Rank the placements of components with these costs on an inventory; see `rankplan.tune`.

    If the config is RLinf's or rankplan's own, its sections decide which placements are valid. ``memory``
    is what components keep that their trainer's own keys tell. ``finish`` returns a plan with what a job file states,
    and raises `PlacementError` if it does not hold.
    """
    total = len(inventory.core.accelerators())
    sizes = possible(costs, total, extrapolate=extrapolate)
    content = None if config is None or config.cluster is None else _plain(config.reader.content)
    if present is not None:
        check_plan(present, "present")
    cluster = Cluster.of(costs, inventory, present)
    terms = lending_terms(costs) if lend else None
    placing = _Placing(costs, inventory, content, memory or {}, terms, finish)
    placed: list[tuple[Ranked, tuple[int, ...]]] = []
    rejected: list[Rejected] = []
    shapes = costs.shapes if len(costs.components) > 1 else ("collocated",)
    ways: list[tuple[str, Candidates | LentCandidates]] = []
    for shape in shapes:
        ways.append(("collocated" if shape == "equal" else shape, Candidates(costs, sizes, cluster, shape)))
    if terms is not None:
        ways.append((LENDING, LentCandidates(costs, terms, sizes, cluster, total)))
    for sharing, candidates in ways:
        chosen, refused = _fitting(candidates, sharing, placing)
        rejected += [] if refused is None else [refused]
        if chosen is None:
            continue
        (seconds, node, _, rest), ranks, plan, whole, needs = chosen
        far = [name for name, size in node.sizes.items() if not costs.components[name].times.within(size)]
        one = Ranked(
            seconds,
            node,
            ranks,
            sharing,
            idle=total - len(RankSet().union(*ranks.values())),
            why=reason(costs, node, seconds),
            extrapolated=tuple(far),
            plan=plan,
            config=whole,
            warnings=tuple(found for component in plan.values() for found in component.parallel_warnings()),
            moves=None if present is None else diff(present, plan),
            memory=answer_of(needs),
        )
        placed.append((one, (total - one.idle, *rest)))
    ranking = [one for one, _ in ranked(placed, lambda pair: pair[0].seconds, lambda pair: pair[1])]
    ranking.sort(key=lambda one: one.memory == "likely exceeds")  # stable: those that likely fit come first
    rejected.sort(key=lambda one: one.seconds)
    if not ranking:
        raise _nothing(costs, total, rejected)
    decides: Sensitivity | None = None
    if len(ranking) > 1 and not as_fast(ranking[1].seconds, ranking[0].seconds):
        weights, others = (transfers_of(costs, one.schedule, one.seconds) for one in ranking[:2])
        decides = sensitivity(costs, ranking[0].schedule, ranking[1].schedule, weights - others)
    warnings = (*costs.warnings, *_colocated_times(costs, ranking))
    return Tuning(tuple(ranking), tuple(rejected), decides, warnings, costs, inventory, sizes, total, terms)


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
    """What a schedule is placed with: costs, nodes, config, memory of its components, terms of lending, a job file."""

    costs: Costs
    inventory: Inventory
    config: Mapping[str, Any] | None
    memory: Mapping[str, Any]
    terms: LendingTerms | None
    finish: Callable[[Plan], Plan] | None


_Chosen: TypeAlias = tuple[Found, Mapping[str, RankSet], Plan, dict[str, Any], Needs]


def _fitting(
    candidates: Candidates | LentCandidates, sharing: str, placing: _Placing
) -> tuple[_Chosen | None, Rejected | None]:
    """Return the fastest schedule that may fit into memory, and the fastest one whose plan is rejected."""
    rejected: Rejected | None = None
    costs = placing.costs
    while (found := candidates.best()) is not None:
        seconds, node, starts, _ = found
        ranks = _ranks(node, starts, placing)
        try:
            plan, whole = _placed(ranks, placing)
        except PlacementError as error:
            return None, rejected or Rejected(seconds, node, sharing, error.diagnostics)
        needs = Needs(plan.inventory, plan, peaks=costs.peaks)
        if not (faults := [fault for _, fault in memory_faults(needs)]):
            return (found, ranks, plan, whole, needs), rejected
        rejected = rejected or Rejected(seconds, node, sharing, tuple(faults))
        together = [[costs.like.get(name, name) for name in names] for names in refused_of(needs)]
        candidates.exclude(node.sizes, together)
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
    whole = _config(ranks, placing)
    try:
        plan = DIALECTS[OWN].plan(whole, placing.inventory)
        return (plan if placing.finish is None else placing.finish(plan)), whole
    except PlacementError:
        # Collocated, RLinf's actor computes the log probabilities itself.
        alike = len({str(one) for one in ranks.values()}) == 1
        if placing.config is None or not alike or _IN_THE_ACTOR not in ranks or "actor" not in ranks:
            raise
        return _placed({name: one for name, one in ranks.items() if name != _IN_THE_ACTOR}, placing)


def _config(ranks: Mapping[str, RankSet], placing: _Placing) -> dict[str, Any]:
    """Return a config that places components on these accelerators."""
    costs, config = placing.costs, placing.config
    section = dict(config["cluster"]) if config is not None else {}
    entries: dict[str, Any] = {}
    alike = {name: ranks[other] for name, other in costs.like.items() if other in ranks}
    stated = dict(placing.memory) | {
        name: entry["memory"]
        for key, entry in section.get("component_placement", {}).items()
        if isinstance(entry, Mapping) and "memory" in entry
        for name in component_names(str(key))
    }
    for name, where in {**ranks, **alike}.items():
        sizes = costs.components[name].parallel if name in costs.components else NO_SIZES
        has_section = config is not None and name in config
        entry: dict[str, Any] = {"placement": str(where)}
        if sizes.stated and not has_section:
            entry["parallel"] = sizes.plain()
        if name in stated:
            entry["memory"] = stated[name]
        entries[name] = entry if len(entry) > 1 else str(where)
    known = {*costs.components, *costs.like}
    for key, value in section.get("component_placement", {}).items():
        if known.isdisjoint(component_names(str(key))):
            entries[key] = value
    section |= {"num_nodes": placing.inventory.num_nodes, "component_placement": entries}
    return {**(config or {}), "cluster": section}


def _nothing(costs: Costs, total: int, rejected: list[Rejected]) -> PlacementError:
    if rejected:
        return PlacementError(rejected[0].diagnostics)
    ways = " or ".join("collocated" if shape == "equal" else shape for shape in costs.shapes)
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
    name = max(best, key=lambda one: best[one])
    sizes = tuning.sizes[name]
    step = -(-len(sizes) // _MOST_POINTS)
    chosen = [size for index, size in enumerate(sizes) if index % step == 0 or size.accelerators == best[name]]
    cluster = Cluster.of(tuning.costs, tuning.inventory)
    curves: dict[str, list[tuple[int, float]]] = {}
    if tuning.terms is not None and any(one.sharing == LENDING for one in tuning.ranking):
        curves[LENDING] = []
        for size in chosen:
            limited = {**tuning.sizes, name: [size]}
            fastest = LentCandidates(tuning.costs, tuning.terms, limited, cluster, tuning.accelerators).best()
            if fastest is not None:
                curves[LENDING].append((size.accelerators, fastest[0]))
    for one in (one for one in tuning.ranking if one.sharing != LENDING):
        shape = "equal" if one.sharing == "collocated" and "equal" in tuning.costs.shapes else one.sharing
        found = [best_of_shape(tuning.costs, {**tuning.sizes, name: [size]}, cluster, shape) for size in chosen]
        pairs = zip(chosen, found, strict=True)
        curves[one.sharing] = [(size.accelerators, at[0]) for size, at in pairs if at is not None]
    return Sweep(name, curves)
