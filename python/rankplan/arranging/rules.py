"""The levels of the network of an arrangement, what is stated about them, and the nodes of other jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import lcm
from typing import Any, TypeAlias

from pydantic import ValidationError

from rankplan.config.models import component_names, topology_of
from rankplan.config.network import ALL, Topology
from rankplan.config.text.faults import diagnostics
from rankplan.errors import PlacementError
from rankplan.nodes.inventory import Inventory
from rankplan.plans.component import used_nodes
from rankplan.plans.diff import same_nodes
from rankplan.plans.plan import Plan, check_plan
from rankplan.plans.segments import level_sizes

Segments: TypeAlias = int | Mapping[str, int | Mapping[str, int]]
"""A number of nodes, or numbers by component, or by component and level."""

Keep: TypeAlias = Mapping[str, Mapping[str, str | Mapping[str, int]]]
"""Levels, or most numbers of domains by level, by component and kind of group."""

Prefer: TypeAlias = Mapping[str, Mapping[str, str]]
"""Levels by component and kind of group."""

Balance: TypeAlias = str | Mapping[str, str]
"""A level, or levels by component."""

Cap: TypeAlias = Mapping[str, int]
"""The most nodes in use of a domain, by level."""


@dataclass(frozen=True, slots=True)
class Network:
    """The levels of the network, keys of labels, outermost first, and what a plan states about them."""

    levels: tuple[str, ...] = ()
    topology: Topology = field(default_factory=Topology)

    @classmethod
    def of(
        cls,
        inventory: Inventory,
        planned: Inventory,
        *,
        keep: Keep | None = None,
        segment: Segments | None = None,
        prefer: Prefer | None = None,
        balance: Balance | None = None,
        cap: Cap | None = None,
    ) -> Network:
        """Return what a plan on an inventory follows: its cluster section, and the levels of its nodes.

        The others replace the keys of their names in the section. Raises `PlacementError` with every invalid value.
        """
        topology = topology_of(planned.section)
        levels = topology.levels if topology.levels is not None else inventory.levels or planned.levels
        stated = {"keep": keep, "segment": segment, "prefer": prefer, "balance": balance, "cap": cap}
        changed: dict[str, Any] = {key: value for key, value in stated.items() if value is not None}
        if changed:
            try:
                read = Topology.model_validate(changed)
            except ValidationError as error:
                faults = [found for _, found in diagnostics(error, {"": Topology})]
                # A wrong word of an option is a wrong value; in a config, it is a key.
                wrong = [replace(one, code="invalid-value") if one.code == "unknown-key" else one for one in faults]
                raise PlacementError(wrong) from None
            topology = topology.model_copy(update={key: getattr(read, key) for key in changed})
        return cls(levels, topology)

    @property
    def largest_segment(self) -> int:
        """The largest number of nodes that must be together in an innermost domain."""
        segment = self.topology.segment or 1
        sizes = [segment] if isinstance(segment, int) else segment.values()
        inner = self.levels[-1] if self.levels else ""
        return max((size.get(inner, 1) if isinstance(size, Mapping) else size for size in sizes), default=1)

    def whole_segments(self, name: str) -> int:
        """Return the least number of nodes of a component that its outermost segments divide."""
        stated = self.topology.segment or {}
        by_key = {ALL: stated} if isinstance(stated, int) else stated
        sizes = {key: size for key, size in by_key.items() if {name, ALL} & set(component_names(key))}
        found = [level_sizes(key, size, self.levels)[0] for key, size in sizes.items()]
        return lcm(*(size for by_level in found for _, size, _ in by_level))


def beside(inventory: Inventory, plans: Plan | Iterable[Plan]) -> Inventory:
    """Return an inventory in which other jobs have the nodes of their plans; it may lack some of these."""
    others: list[Plan] = [plans] if isinstance(plans, Plan) or not isinstance(plans, Iterable) else list(plans)
    for other in others:
        check_plan(other, "beside")
    if not others:
        return inventory
    taken: dict[str, set[int]] = {}
    for other in others:
        places = same_nodes(other.inventory, inventory)
        ranks = used_nodes(other.values())
        taken.setdefault(", ".join(other), set()).update(place for rank in ranks if (place := places[rank]) is not None)
    for job, nodes in taken.items():
        inventory = inventory.taken_by(job, nodes)
    return inventory
