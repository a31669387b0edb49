"""Warnings of phases about which no answer is possible."""

from __future__ import annotations

from collections.abc import Iterator

from rankplan.errors import Diagnostic
from rankplan.memory import faults
from rankplan.memory.changes import bounds_text
from rankplan.memory.deciding import explained, has_unknown_card, keys_text
from rankplan.memory.needs import Needs


def memory_unknown(needs: Needs) -> Iterator[tuple[str, Diagnostic]]:
    """Yield a warning for each phase without an answer: the keys that would decide it, or a measurement.

    Where accelerators are unknown, one warning says so: that of the phase that needs the most. An engine takes a share
    of whatever there is.
    """
    unknown = [need for need in explained(needs) if need.answer == "unknown"]
    on_unknown_cards = [need for need in unknown if has_unknown_card(need)]
    largest = max(
        on_unknown_cards, key=lambda need: (need.phase != "generate", need.likely or need.lower), default=None
    )
    for need in unknown:
        if has_unknown_card(need) and need is not largest:
            continue
        name, help = need.components[0], keys_text(needs, need)
        close = need.estimate is not None and need.estimate.starts is None
        if close and needs.evaluations[name].entry.uncertain_wake:
            yield name, faults.may_not_wake(need)
        elif need.has_room or close:
            yield name, faults.may_not_start(need, needs.evaluations[name].entry.length, help)
        else:
            yield name, faults.unknown(need, bounds_text(need), help)
