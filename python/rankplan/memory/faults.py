"""The faults of a plan whose components do not fit, with the changes that would, and the warnings about the others."""

from __future__ import annotations

import math
from collections.abc import Iterator

from rankplan._core import host_store
from rankplan.errors import Diagnostic
from rankplan.hardware.cards import size_text
from rankplan.memory.needs import RESERVED, SWITCH, Crowd, Need, Needs

_MOST_CHANGES = 3


def memory_faults(needs: Needs) -> Iterator[tuple[str, Diagnostic]]:
    """Yield what cannot fit, with the name of its component: lower bounds that exceed an accelerator, or a node."""
    for need in needs.phases().values():
        if need.answer == "refused":
            yield need.components[0], _fault(needs, need)
    yield from (found for found in _host(needs) if not found[1].warning)


def memory_warnings(needs: Needs) -> Iterator[tuple[str, Diagnostic]]:
    """Yield what may not fit, with the name of its component."""
    yield from _shared(needs)
    yield from (found for found in _host(needs) if found[1].warning)


def memory_unknown(needs: Needs) -> Iterator[tuple[str, Diagnostic]]:
    """Yield a warning for each phase between its bounds: the keys that would decide it, or a measurement."""
    from rankplan.memory.changes import bounds_text, explained, keys_text  # most memory fits, and needs no changes

    for need in explained(needs):
        if need.answer == "unknown" and need.has_room:
            yield need.components[0], _may_not_start(needs, need, keys_text(needs, need))
        elif need.answer == "unknown":
            size = f"which has {size_text(need.card[1])}" if need.card else "whose memory is unknown"
            message = f"{_who(need)} {bounds_text(need)} in the phase {need.phase} on {_where(need)}, {size}"
            yield need.components[0], Diagnostic("memory-unknown", message, keys_text(needs, need), warning=True)


def _may_not_start(needs: Needs, need: Need, help: str) -> Diagnostic:
    """Return the warning of an engine whose share may not leave room for one request."""
    name = need.components[0]
    length = needs.evaluations[name].entry.length
    request = "one request" if length is None else f"one request of {length:,}"
    message = (
        f"the engine of `{name}` may not start on {_where(need)}: its weights and a step may leave less of its share "
        f"than {request} needs"
    )
    return Diagnostic("memory-unknown", message, help, warning=True)


def _who(need: Need) -> str:
    names = " and ".join(f"`{one}`" for one in need.components)
    return f"{names} {'needs' if len(need.components) == 1 else 'need'}"


def _where(need: Need) -> str:
    return f"accelerator {need.where[1]} of node {need.where[0]}"


def _fault(needs: Needs, need: Need) -> Diagnostic:
    name = need.components[0]
    card = size_text(need.card[1]) if need.card else "?"
    if need.starts is False and needs.evaluations[name].entry.cache_size is not None:
        return _small_cache(needs, need)
    if need.starts is False:
        share = needs.evaluations[name].entry.share
        least = size_text(need.parts["weights"][0] + need.parts["cache"][0])
        message = (
            f"the engine of `{name}` needs at least {least} for its weights and one request, more than its share "
            f"{share:g} of {card} on {_where(need)}"
        )
        return Diagnostic("engine-share", message, _engine_help(needs, need))
    message = f"{_who(need)} at least {size_text(need.lower)} in the phase {need.phase}, but {_where(need)} has {card}"
    return Diagnostic("memory-exceeded", message, _help(needs, need))


def _small_cache(needs: Needs, need: Need) -> Diagnostic:
    """Return the fault of an engine whose cache of a stated size does not hold one request."""
    name = need.components[0]
    entry = needs.evaluations[name].entry
    size = entry.cache_size or 0
    tokens = int(need.tokens[0]) if need.tokens else 0
    length = entry.length or 0
    message = (
        f"the cache of the engine of `{name}` has {size_text(size)}, which hold {tokens:,} tokens, but its longest "
        f"request has {length:,}"
    )
    helps = _limits(needs, name, "length", tokens, "less") if tokens else []
    if tokens:
        helps += _limits(needs, name, "cache_size", math.ceil(size * length / tokens), "more")
    return Diagnostic("engine-share", message, ", or ".join(helps) or "use a larger cache")


def _help(needs: Needs, need: Need) -> str:
    """Return the smallest changes that are not refused, each with its bounds."""
    from rankplan.memory.changes import changes

    works = [change.text(needs, need.components[0]) for change in changes(needs, need)[:_MOST_CHANGES]]
    if works:
        return f"use {', or '.join(works)}"
    return f"use a smaller model, or accelerators with at least {size_text(need.lower)}"


def _engine_help(needs: Needs, need: Need) -> str:
    """Return the smallest share, or else the longest request, that an engine can start with."""
    from rankplan.memory.changes import changes

    name = need.components[0]
    entry = needs.evaluations[name].entry
    card = need.card[1] if need.card else 1.0
    weights, cache = need.parts["weights"][0], need.parts["cache"][0]
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
    plain = f"set {setting} to {value:g}" if setting == "share" else f"set {setting} to {value}"
    return [f"{f'write {text}' if needs.spelled(name) else plain} or {way}"] if text else []


def _shared(needs: Needs) -> Iterator[tuple[str, Diagnostic]]:
    """Yield a warning for engines that take their whole share of an accelerator that others do not leave.

    vLLM: `request_memory` of `vllm/v1/worker/utils.py` refuses to start unless the share is free.
    """
    seen: set[str] = set()
    for crowd in needs.crowds:
        for need in needs.of_crowd(crowd):
            name = need.components[0]
            entry = needs.evaluations[name].entry
            if name in seen or need.phase == SWITCH or entry.engine != "vllm" or not entry.share or not crowd.card:
                continue
            times, size = crowd.users[name], crowd.card[1]
            stays = {other: held for other in need.others if (held := _stays(needs, crowd, other, need)) > 0}
            resident = sum(stays.values()) + needs.reserve
            if resident + times * entry.share * size > size and need.answer != "refused":
                seen.add(name)
                yield name, _share_warning(needs, need, entry.share, times, resident, tuple(stays))


def _stays(needs: Needs, crowd: Crowd, other: str, need: Need) -> float:
    """Return what another component surely keeps while an engine starts; an engine that stays keeps its share."""
    held = need.parts.get(f"{other} asleep", (0.0, 0.0))[0]
    if other in needs.evaluations and crowd.card is not None:
        entry = needs.evaluations[other].entry
        if entry.engine == "vllm" and entry.sleep == "none" and entry.share:
            held = max(held, entry.share * crowd.card[1] * crowd.users[other])
    return held


def _share_warning(
    needs: Needs, need: Need, share: float, times: int, resident: float, others: tuple[str, ...]
) -> Diagnostic:
    size = 0.0 if need.card is None else need.card[1]
    engines = f"{times} engines" if times > 1 else "the engine"
    kept = " and ".join([f"`{other}`" for other in others] + ([RESERVED] if RESERVED in need.parts else []))
    message = (
        f"{engines} of `{need.components[0]}` {'take' if times > 1 else 'takes'} {share:g} of {size_text(size)} on "
        f"{_where(need)}, where {kept} {'keeps' if len(others) == 1 else 'keep'} at least {size_text(resident)}"
    )
    lower = math.floor((size - resident) / size / times * 100) / 100
    least = need.parts["weights"][0] + need.parts["cache"][0]
    name, helps = need.components[0], list[str]()
    if lower * size * times >= least and lower > 0:
        helps += (
            _limits(needs, name, "share", lower, "less") if needs.spelled(name) else [f"lower the share to {lower:g}"]
        )
    for other in others:
        if (text := needs.written(other, {"sleep": "host"})) is not None:
            helps.append(f"write {text}" + ("" if needs.spelled(other) else f" for `{other}`"))
    return Diagnostic("memory-shared", message, ", or ".join(helps) or "reserve less", warning=True)


def _host(needs: Needs) -> Iterator[tuple[str, Diagnostic]]:
    """Yield a fault for the nodes whose ranks need more memory than they have, and a warning where they may."""
    kept: dict[tuple[int, float], dict[str, tuple[float, float]]] = {}
    for crowd in needs.crowds:
        if crowd.host is None:
            continue
        on_node = kept.setdefault((crowd.where[0], crowd.host), {})
        for need in needs.of_crowd(crowd):
            if need.phase != SWITCH:
                name = need.components[0]
                low, high = on_node.get(name, need.host)
                on_node[name] = min(need.host[0], low), max(need.host[1], high)
    warned = False
    for (node, size), found in kept.items():
        if not found:
            continue  # its ranks state no memory
        lower = sum(low for low, _ in found.values())
        store = host_store()[1]
        upper = sum(high - store for _, high in found.values() if high) + store
        largest = max(found, key=lambda name: found[name])
        help = f"lower optimizer_on_host of `{largest}`, or place fewer of its ranks on a node"
        if lower > size:
            message = f"node {node} has {size_text(size)}, but its ranks keep at least {size_text(lower)} on the host"
            yield largest, Diagnostic("host-memory", message, help)
        elif size < upper < math.inf and upper > store and not warned:
            warned = True
            message = f"node {node} has {size_text(size)}; its ranks keep up to {size_text(upper)} on the host"
            help = f"{help}; {size_text(store)} of it are for the object store and may be unused"
            yield largest, Diagnostic("host-memory", message, help, warning=True)
