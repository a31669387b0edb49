"""The levels of the network of an arrangement, what is stated about them, and the nodes of other jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import lcm

from rankplan.frozen import frozen
from rankplan.nodes.inventory import Inventory
from rankplan.plans.component import used_nodes
from rankplan.plans.diff import same_nodes
from rankplan.plans.plan import Plan, check_plan
from rankplan.plans.rules import ALL, NO_RULES, Balance, Cap, Keep, Prefer, Rules, Segments, component_names
from rankplan.plans.segments import level_sizes
from rankplan.read.facts import with_stated


@frozen
class Network:
    """The levels of the network, keys of labels, outermost first, and what a plan states about its components."""

    levels: tuple[str, ...] = ()
    rules: Rules = NO_RULES

    @classmethod
    def of(
        cls,
        inventory: Inventory,
        plan: Plan,
        *,
        keep: Keep | None = None,
        segment: Segments | None = None,
        prefer: Prefer | None = None,
        balance: Balance | None = None,
        cap: Cap | None = None,
    ) -> Network:
        """Return what a plan on an inventory follows: its rules, and the levels of its nodes.

        The others replace the rules of their names. Raises `PlacementError` with every invalid value.
        """
        facts = plan.inventory.facts
        levels = None if facts is None else facts.levels
        if levels is None:
            levels = inventory.levels or plan.inventory.levels
        stated = {"keep": keep, "segment": segment, "prefer": prefer, "balance": balance, "cap": cap}
        return cls(levels, with_stated(plan.rules, {key: value for key, value in stated.items() if value is not None}))

    @property
    def largest_segment(self) -> int:
        """The largest number of nodes that must be together in an innermost domain."""
        segment = self.rules.segment or 1
        sizes = [segment] if isinstance(segment, int) else segment.values()
        inner = self.levels[-1] if self.levels else ""
        return max((size.get(inner, 1) if isinstance(size, Mapping) else size for size in sizes), default=1)

    def whole_segments(self, name: str) -> int:
        """Return the least number of nodes of a component that its outermost segments divide."""
        stated = self.rules.segment or {}
        by_key = {ALL: stated} if isinstance(stated, int) else stated
        sizes = {key: size for key, size in by_key.items() if {name, ALL} & set(component_names(key))}
        found = [level_sizes(key, size, self.levels)[0] for key, size in sizes.items()]
        return lcm(*(size for by_level in found for _, size, _ in by_level))


def plans_beside(beside: Plan | Iterable[Plan]) -> list[Plan]:
    """Return the plans of other jobs as a list. Raises `TypeError` for anything else."""
    plans: list[Plan] = [beside] if isinstance(beside, Plan) or not isinstance(beside, Iterable) else list(beside)
    for plan in plans:
        check_plan(plan, "beside")
    return plans


def beside(inventory: Inventory, plans: Plan | Iterable[Plan]) -> Inventory:
    """Return an inventory in which other jobs have the nodes of their plans; it may lack some of these."""
    others = plans_beside(plans)
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
