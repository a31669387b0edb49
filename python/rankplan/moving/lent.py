"""Instances of one plan that fall asleep while others wake, as when a trainer lends its accelerators."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence

from rankplan._core import RankSet
from rankplan.errors import PlacementError
from rankplan.moving.cards import Accelerator, Amount, Sizes, accelerator_of
from rankplan.moving.faults import not_a_name, stuck
from rankplan.moving.instances import Component, Instance
from rankplan.moving.peaks import peaks_of
from rankplan.moving.steps import Hold, Ordered, Step, add_room
from rankplan.nodes.inventory import Inventory

_NAME = re.compile(r"(?P<component>.+?)(?:/(?P<first>[0-9]{1,9})(?:-(?P<last>[0-9]{1,9}))?)?")


def sleep_and_wake(
    components: Mapping[str, Component],
    asleep: tuple[Sequence[str], Sequence[str]],
    sizes: Sizes,
    inventory: Inventory,
) -> tuple[Ordered, bool, int]:
    """Return the steps from one set of sleeping instances to another, whether they fit, and the bytes that go to hosts.

    Raises `PlacementError`: ``unknown-component``, and ``transition-stuck`` if what is awake at the end does not fit.
    """
    before, after = (instances_of(components, names) for names in asleep)
    ordered = Ordered([], [])
    offload = 0
    for instance in sorted(after - before):
        ordered.steps.append(Step(f"sleep {instance.component}/{instance.number}", "sleep", instance, "before", []))
    for instance in sorted(before - after):
        ordered.steps.append(Step(f"wake {instance.component}/{instance.number}", "wake", instance, "after", []))
    steps = {step.instance: step for step in ordered.steps}
    for name, component in components.items():
        side, amounts = component.after, component.new_amounts
        if side is None or amounts is None:
            continue
        for slot in side.slots:
            instance = Instance(name, side.instances.of(slot.number))
            step = steps.get(instance)
            if step is not None:
                step.slots.append(slot.number)
                offload += amounts.held(slot) if step.do == "sleep" and amounts.sleeps else 0
            place = accelerator_of(slot.place)
            if place is None:
                continue
            size = sizes.of(place)
            awake = amounts.loaded(slot, size).plus(amounts.cache(slot, size))
            ordered.holds += _holds(place, awake, amounts.asleep(slot, size), step, is_asleep=instance in before)
    # Whoever wakes waits for as much room as there will be, whether or not that surely is enough.
    add_room(ordered, sizes, strict=True)
    fits = _worst(ordered, sizes, strict=True) is None
    worst = _worst(ordered, sizes, strict=False)
    if worst is None:
        return ordered, fits, offload
    place, total, limit = worst  # by lower bounds
    names = sorted({instance.component for instance in _on(components, place) if instance not in after})
    where = f"accelerator {place[1]} of {inventory.node(place[0]).name}"
    raise PlacementError([stuck(where, int(total), int(limit), names)])


def _holds(place: Accelerator, awake: Amount, asleep: Amount, step: Step | None, *, is_asleep: bool) -> list[Hold]:
    """Return what a slot has of its accelerator before and after a step."""
    first, second = (asleep, awake) if is_asleep else (awake, asleep)
    if step is None:
        return [Hold(place, first, None, None)]
    return [Hold(place, first, None, step.id), Hold(place, second, step.id, None)]


def _worst(ordered: Ordered, sizes: Sizes, *, strict: bool) -> tuple[Accelerator, float, float] | None:
    """Return the accelerator that is exceeded most, with what it may hold and its size; ``None`` if all fit."""
    worst = None
    for peak in peaks_of(ordered.steps, ordered.holds):
        size = sizes.of(peak.accelerator)
        if size is None:
            if strict:
                return peak.accelerator, peak.most, 0.0
            continue
        total, limit = (peak.most, size.usable) if strict else (peak.least, size.most)
        if total > limit and (worst is None or total - limit > worst[1] - worst[2]):
            worst = peak.accelerator, total, limit
    return worst


def _on(components: Mapping[str, Component], place: Accelerator) -> set[Instance]:
    on: dict[Accelerator | None, set[Instance]] = defaultdict(set)
    for name, component in components.items():
        if component.after is not None:
            for slot in component.after.slots:
                on[accelerator_of(slot.place)].add(Instance(name, component.after.instances.of(slot.number)))
    return on[place]


def instances_of(components: Mapping[str, Component], names: Sequence[str]) -> set[Instance]:
    """Return the instances of texts such as ``rollout/2-3``. Raises `PlacementError` for one that does not exist."""
    chosen: set[Instance] = set()
    for text in [names] if isinstance(names, str) else names:
        match = _NAME.fullmatch(text) if isinstance(text, str) else None
        component = None if match is None else components.get(match["component"])
        if match is None or component is None or component.after is None:
            raise PlacementError([not_a_name(str(text), components)])
        count = len(component.after.instances)
        first = int(match["first"] or 0)
        last = int(match["last"] or first) if match["first"] else count - 1
        if not first <= last < count:
            raise PlacementError([not_a_name(str(text), components)])
        chosen |= {Instance(match["component"], number) for number in RankSet(range(first, last + 1))}
    return chosen
