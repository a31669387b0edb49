"""Rules that nodes without labels cannot show, such as those of a size."""

from __future__ import annotations

from collections.abc import Iterable

from rankplan.plans.rules import Rules


def unchecked(rules: Iterable[Rules]) -> str:
    """Return the levels and the segments without a level that rules are about, as text; empty if there are none."""
    levels: set[str] = set()
    components: dict[str, None] = {}
    for stated in rules:
        levels |= stated.named_levels()
        components |= dict.fromkeys(stated.plain_segments)
    names = sorted(levels)
    if components:
        names.append(f"segments of {' and '.join(components)}")
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
