"""Rules that nodes without labels cannot show, such as those of a size."""

from __future__ import annotations

from collections.abc import Iterable

from rankplan.plans.rules import Rules


def unchecked(rules: Iterable[Rules]) -> str:
    """Return the levels of the network that rules name, as text; it is empty if they name none."""
    rules = list(rules)
    levels = sorted(set().union(*(each.named_levels() for each in rules)))
    if not levels and any(each.has_plain_segments for each in rules):
        return "segments"
    return " and ".join(levels)
