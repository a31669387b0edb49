"""What a plan's memory refuses and warns of, with what to change."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from rankplan._core import host_store
from rankplan.errors import Diagnostic
from rankplan.memory import faults
from rankplan.memory.need import RESERVED, SWITCH, Need
from rankplan.memory.needs import Needs
from rankplan.memory.shared_cards import SharedCard
from rankplan.memory.slots import Bounds

_MOST_CHANGES = 3


def memory_faults(needs: Needs) -> Iterator[tuple[str, Diagnostic]]:
    """Yield what cannot fit, with the name of its component: lower bounds that exceed an accelerator, or a node."""
    for need in needs.phases().values():
        if need.answer == "refused":
            yield need.components[0], _refusal(needs, need)
    yield from (named for named in _host(needs) if not named[1].warning)


def memory_warnings(needs: Needs) -> Iterator[tuple[str, Diagnostic]]:
    """Yield what likely does not fit, with the name of its component."""
    taken = dict(_shared(needs))
    yield from taken.items()
    for need in needs.phases().values():
        is_told = need.phase == "generate" and need.components[0] in taken
        if need.answer == "likely exceeds" and not is_told:
            yield need.components[0], _likely(needs, need)
    yield from (named for named in _host(needs) if named[1].warning)


def assumed_text(needs: Needs, need: Need) -> str:
    """Return what a likely value assumes, with the keys that would state it; empty without any.

    Where no key states it, components that sleep beside those of the phase are named:
    ``sleep host of `critic` and `reward```.
    """
    assumed = () if need.estimate is None else need.estimate.assumed
    sleepers: dict[str, list[str]] = {}
    for value in assumed:
        key = needs.named(value.component, value.usual.setting)
        names = sleepers.setdefault(value.usual.text(key), [])
        if key is None and value.component not in need.components:
            names.append(f"`{value.component}`")
    texts = [f"{text} of {_joined(names)}" if names else text for text, names in sleepers.items()]
    return f"assuming {', '.join(texts)}" if texts else ""


def _joined(names: Sequence[str]) -> str:
    """Return names as a sentence lists them: ``a, b and c``."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def _likely(needs: Needs, need: Need) -> Diagnostic:
    name = need.components[0]
    if need.estimate is not None and need.estimate.starts is False:
        help = _engine_help(needs, need)
        return faults.likely_no_start(need, needs.evaluations[name].entry.length, help)
    assumed = assumed_text(needs, need)
    return faults.likely_exceeded(need, f", {assumed}" if assumed else "", _changes_help(needs, need))


def _refusal(needs: Needs, need: Need) -> Diagnostic:
    name = need.components[0]
    entry = needs.evaluations[name].entry
    if need.starts is not False:
        return faults.exceeded(need, _changes_help(needs, need))
    if entry.cache_size is None:
        return faults.share_exceeded(need, entry.share or 1.0, _engine_help(needs, need))
    tokens = int(need.tokens[0]) if need.tokens else 0
    length = entry.length or 0
    helps = []
    if tokens:
        helps += _limits(needs, name, "length", tokens, "less")
        helps += _limits(needs, name, "cache_size", math.ceil(entry.cache_size * length / tokens), "more")
    return faults.small_cache(name, entry.cache_size, tokens, length, ", or ".join(helps) or "use a larger cache")


def _changes_help(needs: Needs, need: Need) -> str:
    """Return the smallest changes after which a phase likely fits, each with its bounds."""
    from rankplan.memory.changes import changes

    remedies = [change.text(needs, need.components[0]) for change in changes(needs, need)[:_MOST_CHANGES]]
    return f"use {', or '.join(remedies)}" if remedies else faults.larger_card(need)


def _engine_help(needs: Needs, need: Need) -> str:
    """Return the smallest share, or else the longest request, that an engine can start with."""
    from rankplan.memory.changes import changes

    name = need.components[0]
    entry = needs.evaluations[name].entry
    card = need.card[1] if need.card else 1.0
    weights, cache = need.parts["weights"][0], need.parts["cache"][0]
    if need.answer == "likely exceeds" and need.estimate is not None:
        weights = need.estimate.parts["weights"] + need.estimate.parts["activations"]
    share = math.ceil((weights + cache) / card * 100) / 100
    helps = _limits(needs, name, "share", share, "more") if share <= 1 else []
    if entry.share and entry.length and cache:
        longest = math.floor((entry.share * card - weights) / (cache / entry.length))
        helps += _limits(needs, name, "length", longest, "less") if longest > 0 else []
    helps += [f"use {change.text(needs, name)}" for change in changes(needs, need)[:1]]
    return ", or ".join(helps[: _MOST_CHANGES - 1]) or "use more accelerators for an engine"


def _limits(needs: Needs, name: str, setting: str, value: float, way: str) -> list[str]:
    """Return the help to set a setting to a value, or ``more`` or ``less``; none if no key of the config states it."""
    text = needs.written(name, {setting: value})
    if not text:
        return []
    if needs.spelled(name):
        return [f"write {text} or {way}"]
    number = f"{value:g}" if setting == "share" else str(value)
    return [f"set {setting} to {number} or {way}"]


def _shared(needs: Needs) -> Iterator[tuple[str, Diagnostic]]:
    """Yield a warning for engines that take their whole share of an accelerator that others do not leave.

    vLLM: `request_memory` of `vllm/v1/worker/utils.py` refuses to start unless the share is free.
    """
    seen: set[str] = set()
    for shared in needs.cards:
        for need in needs.on_card(shared):
            name = need.components[0]
            if name in seen or need.phase == SWITCH or need.answer == "refused":
                continue
            if (warning := _share_warning(needs, shared, need)) is not None:
                seen.add(name)
                yield name, warning


def _share_warning(needs: Needs, shared: SharedCard, need: Need) -> Diagnostic | None:
    name = need.components[0]
    entry = needs.evaluations[name].entry
    if entry.engine != "vllm" or not entry.share or shared.card is None:
        return None
    engines, size = shared.users[name], shared.card[1]
    stays = {other: _stays(needs, shared, other, need) for other in need.others}
    stays = {other: kept for other, kept in stays.items() if kept > 0}
    resident = sum(stays.values()) + needs.reserve
    if resident + engines * entry.share * size <= size:
        return None
    others = [f"`{other}`" for other in stays]
    if RESERVED in need.parts:
        others.append(RESERVED)
    largest = math.floor((size - resident) / size / engines * 100) / 100
    starts = largest > 0 and need.parts["weights"][0] + need.parts["cache"][0] <= largest * size * engines
    help = _share_help(needs, name, largest if starts else None, stays)
    return faults.share_taken(need, entry.share, engines, others, resident, help)


def _share_help(needs: Needs, name: str, largest: float | None, others: Mapping[str, float]) -> str:
    """Return the ``largest`` share with which an engine starts beside others, and how to let them sleep."""
    helps: list[str] = []
    if largest is not None and needs.spelled(name):
        helps += _limits(needs, name, "share", largest, "less")
    elif largest is not None:
        helps.append(f"lower the share to {largest:g}")
    for other in others:
        texts = [needs.written(other, {"sleep": place}) for place in needs.sleeps(other)]
        text = next(filter(None, texts), None)
        if text is not None:
            helps.append(f"write {text}" if needs.spelled(other) else f"write {text} for `{other}`")
    return ", or ".join(helps) or "reserve less"


def _stays(needs: Needs, shared: SharedCard, other: str, need: Need) -> float:
    """Return what another component surely keeps while an engine starts; an engine that stays keeps its share."""
    kept = need.parts.get(f"{other} asleep", (0.0, 0.0))[0]
    if other in needs.evaluations and shared.card is not None:
        entry = needs.evaluations[other].entry
        if entry.engine == "vllm" and entry.sleep == "none" and entry.share:
            kept = max(kept, entry.share * shared.card[1] * shared.users[other])
    return kept


@dataclass
class _Host:
    """The memory of a node, and what the ranks of each component on it keep there, in bytes."""

    node: int
    size: float
    kept: dict[str, Bounds] = field(default_factory=dict)

    def add(self, name: str, bounds: Bounds) -> None:
        """Add what a component keeps in one of its phases: on some accelerators it may be less."""
        low, high = self.kept.get(name, bounds)
        self.kept[name] = min(bounds[0], low), max(bounds[1], high)


def _host(needs: Needs) -> Iterator[tuple[str, Diagnostic]]:
    """Yield a fault for the nodes whose ranks need more memory than they have, and a warning for the first that may."""
    hosts: dict[tuple[int, float], _Host] = {}
    for shared in needs.cards:
        if shared.host is None:
            continue
        node = shared.where[0]
        host = hosts.setdefault((node, shared.host), _Host(node, shared.host))
        for need in needs.on_card(shared):
            if need.phase != SWITCH:
                host.add(need.components[0], need.host)
    warned = False
    store = host_store()[1]
    for host in hosts.values():
        if not host.kept:
            continue  # its ranks state no memory
        lower = sum(low for low, _ in host.kept.values())
        upper = sum(high - store for _, high in host.kept.values() if high) + store
        largest = max(host.kept, key=lambda name: host.kept[name])
        if lower > host.size:
            yield largest, faults.host_exceeded(host.node, host.size, lower, largest)
        elif host.size < upper < math.inf and upper > store and not warned:
            warned = True
            yield largest, faults.host_may_exceed(host.node, host.size, upper, store, largest)
