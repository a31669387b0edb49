"""The memory of components to tune: what stays resident, the seconds to switch, and whether a placement fits."""

from __future__ import annotations

from dataclasses import replace

from rankplan.memory.need import ANSWERS, Answer
from rankplan.memory.needs import Needs
from rankplan.memory.settings import GIB
from rankplan.memory.slots import Evaluation
from rankplan.plans.plan import Plan
from rankplan.tuning.costs import ComponentCosts, Costs

HOST_BANDWIDTH = 25e9
"""Bytes per second between an accelerator and its host: what PCIe 4.0 with 16 lanes gives."""

_MOST_SIZES = 4096


def filled(costs: Costs, planned: Plan, accelerators: int) -> Costs:
    """Return costs with the memory of components that state what they keep in a config, where the costs state none.

    What is resident is the lower bound of a component alone, in GiB by number of accelerators. To switch is to move
    that from the host and back, with as many accelerators as in the plan. `Costs.capacity` is the memory of the
    smallest accelerator, unless it is stated; if it is stated in another unit, nothing is filled in.
    """
    needs = Needs(planned.inventory, planned)
    cards = [shared.card[0] for shared in needs.cards if shared.card is not None]
    if not cards or len(cards) < len(needs.cards):
        return costs
    card = min(cards)
    if costs.capacity is not None and not card / 2 <= costs.capacity * GIB <= 1.1 * card:
        return costs
    components = dict(costs.components)
    for name, one in costs.components.items():
        if name in needs.evaluations and (not one.memory or one.switch is None):
            components[name] = _filled(one, needs.evaluations[name], card, accelerators)
    estimated = tuple(name for name, one in components.items() if one is not costs.components[name])
    capacity = costs.capacity if costs.capacity is not None or not estimated else card / GIB
    return replace(costs, components=components, capacity=capacity, estimated=estimated)


def _filled(one: ComponentCosts, evaluation: Evaluation, card: float, accelerators: int) -> ComponentCosts:
    now = len(evaluation.component.rows.accelerators()) or 1
    sizes = [size for size in range(1, accelerators + 1) if one.divides(size)]
    step = -(-len(sizes) // _MOST_SIZES) or 1

    def resident(size: int) -> float:
        slots = max(size * evaluation.slots // now, 1)
        parts = evaluation.changed(evaluation.entry, one.parallel, slots).slot(card).parts
        return sum(lower for lower, _ in parts.values())

    memory = one.memory or {size: resident(size) / GIB for size in sizes[::step]}
    switch = 2 * resident(now) / HOST_BANDWIDTH if one.switch is None else one.switch
    return replace(one, memory=memory, switch=switch)


def refused_of(needs: Needs) -> list[list[str]]:
    """Return the components of each reason why a plan cannot fit: those whose sizes decide a refused phase, or all."""
    refused = [need for need in needs.phases().values() if need.answer == "refused"]
    asleep = [[name for name in need.others if need.parts.get(f"{name} asleep", (0.0, 0.0))[0] > 0] for need in refused]
    found = [[*need.components, *names] for need, names in zip(refused, asleep, strict=True)]
    return found or [list(needs.evaluations)]


def answer_of(needs: Needs) -> Answer | None:
    """Return the answer for all phases of a plan: the worst one, ``None`` if no component states what it keeps."""
    answers = [need.answer for need in needs.phases().values()]
    return max(answers, key=ANSWERS.index, default=None)
