"""What a plan's memory refuses and warns of, with what to change."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from rankplan.errors import Diagnostic
from rankplan.memory import faults
from rankplan.memory.need import RESERVED, SWITCH, Need
from rankplan.memory.needs import Needs
from rankplan.memory.shared_cards import SharedCard

_MOST_CHANGES = 3


def memory_faults(needs: Needs) -> Iterator[tuple[str, Diagnostic]]:
    """Yield what cannot fit, with the name of its component: lower bounds that exceed an accelerator, or a node."""
    for need in needs.phases().values():
        if need.answer == "refused":
            yield need.components[0], _refusal(needs, need)
    yield from (named for named in _host(needs) if not named[1].warning)


def memory_warnings(needs: Needs) -> Iterator[tuple[str, Diagnostic]]:
    """Yield what likely does not fit, with the name of its component."""
    of_shares = dict(_shared(needs))
    yield from of_shares.items()
    for need in needs.phases().values():
        has_warning = need.phase == "generate" and need.components[0] in of_shares
        if need.answer == "likely exceeds" and not has_warning:
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


def _host(needs: Needs) -> Iterator[tuple[str, Diagnostic]]:
    """Yield the faults and warnings of nodes whose memory is known."""
    if any(shared.host is not None for shared in needs.cards):
        from rankplan.memory.hosts import host_faults  # most inventories do not state it

        yield from host_faults(needs)


def _likely(needs: Needs, need: Need) -> Diagnostic:
    name = need.components[0]
    if need.estimate is not None and need.estimate.starts is False:
        help = _engine_help(needs, need)
        return faults.likely_no_start(need, needs.evaluations[name].entry.length, help)
    assumed = assumed_text(needs, need)
    return faults.likely_exceeded(need, f", {assumed}" if assumed else "", _changes_help(needs, need))


def _refusal(needs: Needs, need: Need) -> Diagnostic:
    entry = needs.evaluations[need.components[0]].entry
    if need.starts is not False:
        return faults.exceeded(need, _changes_help(needs, need))
    if entry.cache_size is None:
        return faults.share_exceeded(need, entry.share or 1.0, _engine_help(needs, need))
    return _small_cache(needs, need, entry.cache_size, entry.length or 0)


def _small_cache(needs: Needs, need: Need, size: int, length: int) -> Diagnostic:
    """Return the fault of a cache of so many bytes that does not hold a request of a length."""
    name = need.components[0]
    tokens = int(need.tokens[0]) if need.tokens else 0
    helps: list[str] = []
    if tokens:
        helps += _limits(needs, name, "length", tokens, "less")
        helps += _limits(needs, name, "cache_size", math.ceil(size * length / tokens), "more")
    return faults.small_cache(name, size, tokens, length, ", or ".join(helps) or "use a larger cache")


def _changes_help(needs: Needs, need: Need) -> str:
    """Return the smallest changes after which a phase likely fits, each with its bounds."""
    from rankplan.memory.changes import changes

    remedies = [change.text(needs, need.components[0]) for change in changes(needs, need)[:_MOST_CHANGES]]
    return f"use {', or '.join(remedies)}" if remedies else faults.larger_card(need)


def _engine_help(needs: Needs, need: Need) -> str:
    """Return the smallest share, the most requests and the longest one that an engine can start with."""
    from rankplan.memory.changes import changes, fewer_requests

    name = need.components[0]
    entry = needs.evaluations[name].entry
    card = need.card[1] if need.card else 1.0
    weights, cache = need.parts["weights"][0], need.parts["cache"][0]
    if need.answer == "likely exceeds" and need.estimate is not None:
        weights = need.estimate.parts["weights"] + need.estimate.parts["activations"]
    share = math.ceil((weights + cache) / card * 100) / 100
    helps = _limits(needs, name, "share", share, "more") if share <= 1 else []
    if (requests := fewer_requests(needs, need)) is not None:
        helps += _limits(needs, name, "sequences", requests, "less")
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
    residents = {other: _resident(needs, shared, other, need) for other in need.others}
    residents = {other: size_of_other for other, size_of_other in residents.items() if size_of_other > 0}
    resident = sum(residents.values()) + needs.reserve
    if resident + engines * entry.share * size <= size:
        return None
    names = [f"`{other}`" for other in residents]
    if RESERVED in need.parts:
        names.append(RESERVED)
    helps = _smaller_share(needs, need, (size - resident) / size / engines, size * engines)
    helps += [help for other in residents for help in _sleep_help(needs, other)]
    return faults.share_taken(need, entry.share, engines, names, resident, ", or ".join(helps) or "reserve less")


def _smaller_share(needs: Needs, need: Need, largest: float, size: float) -> list[str]:
    """Return the help to lower the share to the ``largest`` one of so many bytes, if an engine starts with that."""
    name = need.components[0]
    share = math.floor(largest * 100) / 100
    if share <= 0 or need.parts["weights"][0] + need.parts["cache"][0] > share * size:
        return []
    if needs.spelled(name):
        return _limits(needs, name, "share", share, "less")
    return [f"lower the share to {share:g}"]


def _sleep_help(needs: Needs, name: str) -> list[str]:
    """Return the help to let a component sleep, none if its config cannot state that."""
    texts = (needs.written(name, {"sleep": place}) for place in needs.sleeps(name))
    text = next(filter(None, texts), None)
    if text is None:
        return []
    return [f"write {text}" if needs.spelled(name) else f"write {text} for `{name}`"]


def _resident(needs: Needs, shared: SharedCard, other: str, need: Need) -> float:
    """Return what another component surely keeps while an engine starts; an engine that stays keeps its share."""
    least = need.parts.get(f"{other} asleep", (0.0, 0.0))[0]
    if other not in needs.evaluations or shared.card is None:
        return least
    entry = needs.evaluations[other].entry
    if entry.engine == "vllm" and entry.sleep == "none" and entry.share:
        return max(least, entry.share * shared.card[1] * shared.users[other])
    return least
