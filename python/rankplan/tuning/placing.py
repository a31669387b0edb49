"""A schedule as a plan: its ranks in a config, planned and checked like any other config."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rankplan._core import RankSet
from rankplan.config.models import component_names
from rankplan.config.parallel import ParallelEntry
from rankplan.config.text.document import Section
from rankplan.dialects.rlinf import dialect as rlinf
from rankplan.errors import Diagnostic, PlacementError
from rankplan.nodes.inventory import Inventory
from rankplan.parallel import NO_SIZES
from rankplan.plans.plan import Plan
from rankplan.tuning.costs import Costs

_IN_THE_ACTOR = "inference"
"""The component that RLinf runs in the processes of a collocated actor."""


@dataclass(frozen=True)
class Placed:
    """A plan, the config that it comes from, and the warnings about its parallel groups."""

    plan: Plan
    config: dict[str, Any]
    warnings: tuple[Diagnostic, ...]


def plain(value: Any) -> Any:
    """Return nested mappings and lists of any kind as dicts and lists."""
    if isinstance(value, Section):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {str(key): plain(value[key]) for key in value}
    return [plain(item) for item in value] if isinstance(value, list) else value


def placed(
    ranks: Mapping[str, RankSet], costs: Costs, inventory: Inventory, config: Mapping[str, Any] | None
) -> Placed:
    """Plan components on these accelerators and check the plan.

    Other entries of the config, and its sections, stay. Raises `PlacementError` if the plan is rejected.
    """
    try:
        return _planned(ranks, costs, inventory, config)
    except PlacementError:
        # Collocated, RLinf's actor computes the log probabilities itself.
        alike = len({str(one) for one in ranks.values()}) == 1
        if config is None or not alike or _IN_THE_ACTOR not in ranks or "actor" not in ranks:
            raise
        return _planned({name: one for name, one in ranks.items() if name != _IN_THE_ACTOR}, costs, inventory, config)


def _planned(
    ranks: Mapping[str, RankSet], costs: Costs, inventory: Inventory, config: Mapping[str, Any] | None
) -> Placed:
    everything = {**ranks, **{name: ranks[other] for name, other in costs.like.items() if other in ranks}}
    section = dict(config["cluster"]) if config is not None else {}
    stated = section.get("component_placement", {})
    known = {*costs.components, *costs.like}
    kept = {key: value for key, value in stated.items() if known.isdisjoint(component_names(str(key)))}
    entries: dict[str, Any] = {}
    for name, where in everything.items():
        sizes = costs.components[name].parallel if name in costs.components else NO_SIZES
        if sizes.stated and not (config is not None and name in config):
            entries[name] = {"placement": str(where), "parallel": ParallelEntry.plain(sizes)}
        else:
            entries[name] = str(where)
    section |= {"num_nodes": inventory.num_nodes, "component_placement": entries | kept}
    whole = {**(config or {}), "cluster": section}
    planned = rlinf.plan(whole, inventory)
    warnings = tuple(found for component in planned.values() for found in component.parallel_warnings())
    return Placed(planned, whole, warnings)
