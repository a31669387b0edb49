"""The memory of the phases of each accelerator on a map, as bars."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from rankplan.frozen import frozen
from rankplan.hardware.cards import size_text
from rankplan.memory.changes import bounds_text
from rankplan.memory.need import Need
from rankplan.memory.needs import Needs
from rankplan.plans.node_kinds import NodeKind
from rankplan.plans.plan import Plan

MOST_GAUGES = 8
"""Phases of an accelerator that are shown."""


@frozen
class Gauge:
    """A phase on an accelerator: what it needs at least and at most, as parts of the accelerator."""

    components: tuple[str, ...]
    phase: str
    least: float
    most: float
    refused: bool
    text: str

    @property
    def name(self) -> str:
        """The phase and its components."""
        return f"{self.phase} of {' and '.join(self.components)}"


Gauges = Mapping[int, tuple[Gauge, ...]]
"""The phases of accelerators, by local index."""


class Memory:
    """The gauges of a plan; none unless its components state what they keep, and accelerators are known."""

    def __init__(self, plan: Plan) -> None:
        self._needs = Needs(plan.inventory, plan)

    def of_kind(self, kind: NodeKind) -> Gauges:
        """Return the gauges of the accelerators of the first node of a kind."""
        stays = [(stay.component_name, stay.pattern) for stay in kind.stays]
        found = self._needs.of_node(kind.nodes[0], stays)
        return {index: tuple(map(_gauge, [need for need in needs if need.card])) for index, needs in found.items()}


def texts_of(gauges: Gauges, cells: Iterable[int]) -> list[str]:
    """Return the bounds and the answer of each phase on some accelerators, equal ones once."""
    texts = dict.fromkeys(one.text for index in cells for one in gauges.get(index, ()))
    return [*islice(texts, MOST_GAUGES), *(["..."] if len(texts) > MOST_GAUGES else [])]


def gauge_labels(gauges: Sequence[Gauge]) -> dict[str, str]:
    """Return a label for each name of a gauge: its phase, with the components if several have it."""
    phases = [one.phase for one in gauges]
    return {one.name: one.phase if phases.count(one.phase) == 1 else one.name for one in gauges}


def gauge_note(gauges: Sequence[Gauge]) -> str:
    """Return what the bars of a map mean, empty without any."""
    if not gauges:
        return ""
    names = ", ".join(list(gauge_labels(gauges).values())[:MOST_GAUGES]) + (
        ", ..." if len(gauges) > MOST_GAUGES else ""
    )
    return f"bars: the memory of each phase at least (strong), at most (pale), or refused (red): {names}"


def _gauge(need: Need) -> Gauge:
    size = need.card[1] if need.card else math.inf
    answer = f"{need.answer}, measured" if need.measured else need.answer
    text = f"{' and '.join(need.components)}, {need.phase}: {bounds_text(need)} of {size_text(size)}: {answer}"
    least, most = (min(bound / size, 1.0) for bound in (need.lower, need.upper))
    return Gauge(need.components, need.phase, least, most, need.answer == "refused", text)
