"""The texts of faults and warnings about memory, from facts."""

from __future__ import annotations

from collections.abc import Sequence

from rankplan.errors import Diagnostic
from rankplan.hardware.cards import size_text
from rankplan.memory.need import Need
from rankplan.memory.settings import GIB
from rankplan.words import did_you_mean, shown


def where(need: Need) -> str:
    """Return the accelerator of a need: ``accelerator 3 of node 0``."""
    return f"accelerator {need.where[1]} of node {need.where[0]}"


def card_text(need: Need) -> str:
    """Return the memory of the accelerator of a need."""
    return size_text(need.card[1]) if need.card else "unknown memory"


def _needs(need: Need) -> str:
    names = " and ".join(f"`{name}`" for name in need.components)
    return f"{names} {'needs' if len(need.components) == 1 else 'need'}"


def exceeded(need: Need, help: str) -> Diagnostic:
    """Return the fault of a phase whose lower bound exceeds the accelerator."""
    message = f"{_needs(need)} at least {size_text(need.lower)} in the phase {need.phase}"
    return Diagnostic("memory-exceeded", f"{message}, but {where(need)} has {card_text(need)}", help)


def share_exceeded(need: Need, share: float, help: str) -> Diagnostic:
    """Return the fault of an engine whose share does not hold its weights and one request."""
    least = size_text(need.parts["weights"][0] + need.parts["cache"][0])
    message = f"the engine of `{need.components[0]}` needs at least {least} for its weights and one request"
    more = f"more than its share {share:g} of {card_text(need)} on {where(need)}"
    return Diagnostic("engine-share", f"{message}, {more}", help)


def small_cache(name: str, size: int, tokens: int, length: int, help: str) -> Diagnostic:
    """Return the fault of an engine whose cache of a stated size does not hold one request."""
    message = f"the cache of the engine of `{name}` has {size_text(size)}, which hold {tokens:,} tokens"
    return Diagnostic("engine-share", f"{message}, but its longest request has {length:,}", help)


def likely_exceeded(need: Need, assumed: str, help: str) -> Diagnostic:
    """Return the warning of a phase that likely needs more than the accelerator has."""
    likely = f"about {size_text(need.likely)}" if need.likely is not None else f"{size_text(need.lower)} or more"
    message = f"{_needs(need)} {likely} in the phase {need.phase} on {where(need)}, which has {card_text(need)}"
    around = "" if need.likely is None or need.card is None or need.likely > need.card[1] else _around(need)
    return Diagnostic("memory-likely", f"{message}{around}{assumed}", help, warning=True)


def _around(need: Need) -> str:
    room = 0.0 if need.estimate is None else need.estimate.room
    return f"; with contexts, buffers and lost blocks that is {size_text(room)}"


def likely_no_start(need: Need, length: int | None, help: str) -> Diagnostic:
    """Return the warning of an engine whose share likely leaves no room for one request."""
    request = "one request" if length is None else f"one request of {length:,}"
    message = (
        f"the engine of `{need.components[0]}` likely does not start on {where(need)}: its weights and a step leave "
        f"less of its share than {request} needs"
    )
    return Diagnostic("memory-likely", message, help, warning=True)


def unknown(need: Need, bounds: str, help: str) -> Diagnostic:
    """Return the warning of a phase that nothing can be said about."""
    size = f"which has {size_text(need.card[1])}" if need.card else "whose memory is unknown"
    message = f"{_needs(need)} {bounds} in the phase {need.phase} on {where(need)}, {size}"
    return Diagnostic("memory-unknown", message, help, warning=True)


def uncounted(name: str, keys: Sequence[str]) -> str:
    """Return why nothing is said about a component: some ``keys`` have an effect that is unknown."""
    return f"the effect of {', '.join(f'`{key}`' for key in keys)} on `{name}` is unknown"


def unnamed_card(key: str) -> str:
    """Return the help for accelerators of unknown memory; ``key`` is another way to state it, or empty."""
    ways = ["`accelerator_model` in an inventory", *([key] if key else [])]
    return f"name the accelerators: `--nodes 1x8:H100`, or state {' or '.join(ways)}"


def may_not_start(need: Need, length: int | None, help: str) -> Diagnostic:
    """Return the warning of an engine whose share may not leave room for one request."""
    request = "one request" if length is None else f"one request of {length:,}"
    message = (
        f"the engine of `{need.components[0]}` may not start on {where(need)}: its weights and a step may leave less "
        f"of its share than {request} needs"
    )
    return Diagnostic("memory-unknown", message, help, warning=True)


def may_not_wake(need: Need) -> Diagnostic:
    """Return the warning of an engine whose version decides whether it wakes up beside a sleeping trainer."""
    others = " and ".join(f"`{other}`" for other in need.others)
    message = (
        f"the engine of `{need.components[0]}` may not wake up beside {others} on {where(need)}: vLLM 0.25 takes more "
        "of the same share for its cache than 0.20, and was out of memory (NVIDIA-NeMo/RL#3280)"
    )
    return Diagnostic(
        "memory-unknown", message, "state the size of its cache: vLLM's kv_cache_memory_bytes", warning=True
    )


def share_taken(
    need: Need, share: float, engines: int, others: Sequence[str], resident: float, help: str
) -> Diagnostic:
    """Return the warning of engines that take a share which others on their accelerator do not leave."""
    name = need.components[0]
    takes = f"{engines} engines of `{name}` take" if engines > 1 else f"the engine of `{name}` takes"
    keeps = "keeps" if len(others) == 1 else "keep"
    message = (
        f"{takes} {share:g} of {card_text(need)} on {where(need)}, where {' and '.join(others)} {keeps} at least "
        f"{size_text(resident)}"
    )
    return Diagnostic("memory-shared", message, help, warning=True)


def host_exceeded(node: int, size: float, lower: float, help: str) -> Diagnostic:
    """Return the fault of a node whose ranks surely keep more than its memory."""
    message = f"node {node} has {size_text(size)}, but its ranks keep at least {size_text(lower)} on the host"
    return Diagnostic("host-memory", message, help)


def host_may_exceed(node: int, size: float, upper: float, store: float, help: str) -> Diagnostic:
    """Return the warning of a node whose ranks may keep more than its memory."""
    message = f"node {node} has {size_text(size)}; its ranks keep up to {size_text(upper)} on the host"
    of_store = f"{size_text(store)} of it are for the object store and may be unused"
    return Diagnostic("host-memory", message, f"{help}; {of_store}", warning=True)


def host_help(largest: str, *, stated: bool) -> str:
    """Return the help for the component that keeps the most of a node; ``stated``: its optimizer is there by a key."""
    less = f"lower optimizer_on_host of `{largest}`" if stated else f"let less of `{largest}` go to the host"
    return f"{less}, or place fewer of its ranks on a node"


def larger_card(need: Need) -> str:
    """Return the help where no change of a job makes a phase fit."""
    size = need.lower
    if need.answer == "likely exceeds" and need.estimate is not None:
        size = max(size, need.estimate.room)
    return f"use a smaller model, or accelerators with at least {size / GIB:,.1f} GiB"


def no_such_phase(phase: str, phases: Sequence[str]) -> Diagnostic:
    """Return the fault of a measured size for a phase that the plan does not have."""
    if not phases:
        message = f"{shown(phase)} is no phase of a component whose memory is known: there is none"
        return Diagnostic("invalid-value", message, "pass the name of the model, `--model Qwen/Qwen3-8B`")
    names = ", ".join(f"`{name}`" for name in phases)
    message = f"{shown(phase)} is no phase of a component whose memory is known; these are {names}"
    return Diagnostic("invalid-value", message, did_you_mean(phase, phases))
