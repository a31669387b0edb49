"""The seconds of each step, from the bytes that it moves and the costs that are stated."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from rankplan.moving.boxes import Bytes
from rankplan.moving.costs import STEPS, MoveCosts
from rankplan.moving.instances import Component, Instance
from rankplan.moving.ordering import Step
from rankplan.moving.peaks import Seconds
from rankplan.moving.senders import DEVICE, STORAGE, Transfer

_End = tuple[str, str, int]
"""A slot that sends (``from``) or receives (``to``), with its component."""


def step_seconds(
    steps: Sequence[Step], transfers: Sequence[Transfer], components: Mapping[str, Component], costs: MoveCosts
) -> tuple[dict[str, Seconds], list[str]]:
    """Return the seconds of each step by its id, and the costs that are missing.

    A sync takes as long as the slot that sends or receives the longest, and the latency. At least, it has its slots for
    itself; at most, all that they send or receive in the whole transition comes at the same time.
    """
    missing: dict[str, None] = {}
    by_receiver: dict[Instance, list[Transfer]] = defaultdict(list)
    for transfer in transfers:
        after = components[transfer.component].after
        if after is not None:
            by_receiver[Instance(transfer.component, after.instances.of(transfer.slot))].append(transfer)
    every = _by_end(transfers)
    seconds = {}
    for step in steps:
        own = by_receiver.get(step.instance, []) if step.side == "after" else []
        if step.do == "sync":
            sent = [transfer for transfer in own if transfer.level != STORAGE]
            seconds[step.id] = _sync(sent, every, components, costs, missing)
        elif step.do in STEPS:
            stated = costs.seconds(step.instance.component, step.do)
            if stated is None:
                missing[f"components.{step.instance.component}.{step.do}"] = None
            low, high = stated or 0.0, stated
            loaded = [transfer for transfer in own if transfer.level == STORAGE and step.do == "load"]
            if loaded:
                more = _longest(_by_end(loaded), components, costs, missing)
                low += more.low
                high = None if high is None or more.high is None else high + more.high
            seconds[step.id] = Seconds(low, high)
        else:
            seconds[step.id] = Seconds(0.0, 0.0)
    return seconds, list(missing)


def _by_end(transfers: Iterable[Transfer]) -> dict[_End, dict[str, Bytes]]:
    """Return the bytes of each level that a slot sends or receives."""
    by_end: dict[_End, dict[str, Bytes]] = {}
    for transfer in transfers:
        _add(by_end, ("to", transfer.component, transfer.slot), transfer)
        if transfer.sender is not None:
            _add(by_end, ("from", *transfer.sender), transfer)
    return by_end


def _add(by_end: dict[_End, dict[str, Bytes]], end: _End, transfer: Transfer) -> None:
    levels = by_end.get(end)
    if levels is None:
        by_end[end] = {transfer.level: transfer.bytes}
    else:
        levels[transfer.level] = levels.get(transfer.level, 0) + transfer.bytes


def _sync(
    transfers: Sequence[Transfer],
    every: Mapping[_End, Mapping[str, Bytes]],
    components: Mapping[str, Component],
    costs: MoveCosts,
    missing: dict[str, None],
) -> Seconds:
    own = _by_end(transfers)
    low = _longest(own, components, costs, missing)
    high = _longest({end: every[end] for end in own}, components, costs, missing)
    if costs.latency is None:
        missing["latency"] = None
        return Seconds(low.low, None)
    return Seconds(low.low + costs.latency, None if high.high is None else high.high + costs.latency)


def _longest(
    by_end: Mapping[_End, Mapping[str, Bytes]],
    components: Mapping[str, Component],
    costs: MoveCosts,
    missing: dict[str, None],
) -> Seconds:
    """Return the seconds of the slot that sends or receives the longest."""
    longest, known = 0.0, True
    for (_, name, _), levels in by_end.items():
        component = components[name]
        side = component.after or component.before
        if side is not None and not side.keeper.known:
            missing[f"memory of {name}"] = None
            known = False
            continue
        total = 0.0
        for level, size in levels.items():
            if level in costs.bandwidth:
                total += float(size) / costs.bandwidth[level]
            elif level != DEVICE:
                missing[f"bandwidth.{level}"] = None
                known = False
        longest = max(longest, total)
    return Seconds(longest, longest if known else None)
