"""What a job states about its components in several steps, as rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rankplan.nodes.facts import NO_FACTS
from rankplan.nodes.inventory import Inventory
from rankplan.plans.rules import ALL, Places, Rules


def joined(before: Rules, later: Mapping[str, Any], places: Places) -> Rules:
    """Return rules and later ones, by their names, with the places of these; see `Placer.require`."""
    merged = {name: merged_rule(getattr(before, name), rule) for name, rule in later.items()}
    return replace(before, **merged, places={**before.places, **places})


def as_planned(inventory: Inventory) -> Inventory:
    """Return an inventory whose nodes are all those of the plan: reserves are some of them."""
    return inventory.with_facts(inventory.facts or NO_FACTS, planned=True)


def merged_rule(before: Any, later: Any) -> Any:
    """Return what two rules of a name state together; the later one counts where both state the same thing.

    A size or a level without a component is about all nodes of the plan.
    """
    if isinstance(before, tuple):
        return (*before, *later)
    if not before or not (isinstance(before, Mapping) or isinstance(later, Mapping)):
        return later
    both = [rule if isinstance(rule, Mapping) else {ALL: rule} for rule in (before, later)]
    return _joined(*both)


def _joined(before: Mapping[str, Any], later: Mapping[str, Any]) -> dict[str, Any]:
    """Return mappings as one, and those in them; the later value counts where they differ."""
    found = {**before, **later}
    for key in before.keys() & later.keys():
        if isinstance(before[key], Mapping) and isinstance(later[key], Mapping):
            found[key] = _joined(before[key], later[key])
    return found
