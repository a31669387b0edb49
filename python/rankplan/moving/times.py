"""The seconds of each step, from the bytes that it moves and the costs that are stated."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from rankplan.moving.boxes import Bytes
from rankplan.moving.costs import STEPS, MoveCosts
from rankplan.moving.instances import Component, Instance
from rankplan.moving.peaks import Seconds
from rankplan.moving.senders import DEVICE, STORAGE, Delivery
from rankplan.moving.steps import Step

_Sizes = dict[tuple[str, str], dict[int, Bytes]]
"""Bytes by the component and the level, then by the slot that sends or receives them."""


class _Traffic(NamedTuple):
    """What slots receive, and what they send."""

    received: _Sizes
    sent: _Sizes


def step_seconds(
    steps: Sequence[Step], deliveries: Sequence[Delivery], components: Mapping[str, Component], costs: MoveCosts
) -> tuple[dict[str, Seconds], list[str]]:
    """Return the seconds of each step by its id, and the costs that are missing.

    A sync takes as long as the slot that sends or receives the longest, and the latency. At least, it has its slots for
    itself; at most, all that they send or receive in the whole transition comes at the same time.
    """
    missing: dict[str, None] = {}
    by_receiver: dict[Instance, list[Delivery]] = defaultdict(list)
    for delivery in deliveries:
        after = components[delivery.component].after
        if after is not None:
            by_receiver[Instance(delivery.component, after.instances.of(delivery.slot))].append(delivery)
    every = _traffic(deliveries, lambda level: True)
    seconds = {}
    for step in steps:
        own = by_receiver.get(step.instance, []) if step.side == "after" else []
        if step.do == "sync":
            seconds[step.id] = _sync(_traffic(own, _is_sent), every, components, costs, missing)
        elif step.do in STEPS:
            stated = costs.seconds(step.instance.component, step.do)
            if stated is None:
                missing[f"components.{step.instance.component}.{step.do}"] = None
            low, high = stated or 0.0, stated
            loaded = _traffic(own if step.do == "load" else (), _is_stored)
            if loaded.received:
                more = _longest(loaded, components, costs, missing)
                low += more.low
                high = None if high is None or more.high is None else high + more.high
            seconds[step.id] = Seconds(low, high)
        else:
            seconds[step.id] = Seconds(0.0, 0.0)
    return seconds, list(missing)


def _is_stored(level: str) -> bool:
    return level == STORAGE


def _is_sent(level: str) -> bool:
    return level != STORAGE


def _traffic(deliveries: Iterable[Delivery], is_chosen: Callable[[str], bool]) -> _Traffic:
    """Return what slots receive and send over some levels."""
    traffic = _Traffic({}, {})
    for delivery in deliveries:
        for part, sender, level in zip(delivery.parts, delivery.senders, delivery.levels, strict=True):
            if not is_chosen(level):
                continue
            sizes = traffic.received.setdefault((delivery.component, level), {})
            sizes[delivery.slot] = sizes.get(delivery.slot, 0) + part.bytes
            if part.source is not None and sender is not None:
                sizes = traffic.sent.setdefault((part.source, level), {})
                sizes[sender] = sizes.get(sender, 0) + part.bytes
    return traffic


def _sync(
    own: _Traffic,
    every: _Traffic,
    components: Mapping[str, Component],
    costs: MoveCosts,
    missing: dict[str, None],
) -> Seconds:
    low = _longest(own, components, costs, missing)
    together = _Traffic(_of_same_slots(every.received, own.received), _of_same_slots(every.sent, own.sent))
    high = _longest(together, components, costs, missing)
    if costs.latency is None:
        missing["latency"] = None
        return Seconds(low.low, None)
    return Seconds(low.low + costs.latency, None if high.high is None else high.high + costs.latency)


def _of_same_slots(every: _Sizes, own: _Sizes) -> _Sizes:
    """Return all that the slots send or receive that are among the own ones."""
    slots: dict[str, set[int]] = defaultdict(set)
    for (component, _), sizes in own.items():
        slots[component].update(sizes)
    chosen: _Sizes = {}
    for (component, level), sizes in every.items():
        common = {slot: sizes[slot] for slot in slots[component] if slot in sizes}
        if common:
            chosen[component, level] = common
    return chosen


def _longest(
    traffic: _Traffic, components: Mapping[str, Component], costs: MoveCosts, missing: dict[str, None]
) -> Seconds:
    """Return the seconds of the slot that sends or receives the longest."""
    longest, is_known = 0.0, True
    for direction in traffic:
        seconds: dict[tuple[str, int], float] = {}
        for (name, level), sizes in direction.items():
            side = components[name].after or components[name].before
            if side is not None and not side.keeper.known:
                missing[f"memory of {name}"] = None
                is_known = False
            elif level in costs.bandwidth:
                for slot, size in sizes.items():
                    seconds[name, slot] = seconds.get((name, slot), 0.0) + float(size) / costs.bandwidth[level]
            elif level != DEVICE:
                missing[f"bandwidth.{level}"] = None
                is_known = False
        longest = max(longest, *seconds.values(), 0.0)
    return Seconds(longest, longest if is_known else None)
