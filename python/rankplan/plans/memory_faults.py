"""The faults of a plan whose components do not fit, each with the changes that would."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from rankplan.config.models import component_names
from rankplan.config.text.faults import KeyPath
from rankplan.config.text.reader import Reader
from rankplan.errors import Diagnostic, PlacementError
from rankplan.memory.cards import size_text
from rankplan.plans.memory import SWITCH, Crowd, Need, Needs
from rankplan.plans.plan import Plan
from rankplan.plans.slot_memory import Evaluation

_MOST_CHANGES = 2


def memory_faults(plan: Plan) -> Iterator[tuple[str, Diagnostic]]:
    """Yield what cannot fit, with the name of its component: lower bounds that exceed an accelerator, or a node."""
    needs = plan.needs
    found: dict[tuple[tuple[str, ...], str], tuple[Crowd, Need]] = {}
    for crowd in needs.crowds:
        for need in needs.of_crowd(crowd):
            if need.answer == "refused":
                found.setdefault((need.components, need.phase), (crowd, need))
    for crowd, need in found.values():
        yield need.components[0], _fault(needs, crowd, need)
    yield from _host_faults(plan)


def reject_memory(plan: Plan, reader: Reader) -> None:
    """Raise `PlacementError` if a component cannot fit, at its ``memory`` in a config."""
    found = [reader.located(_path(reader, name), fault) for name, fault in memory_faults(plan)]
    if found:
        raise PlacementError(found)


def _path(reader: Reader, name: str) -> KeyPath:
    """Return the path of what a component states about its memory, or else of its model, empty if there is none."""
    here: Any = reader.content if reader.config is None else reader.config
    for part in ("cluster", "component_placement"):
        here = here.get(part) if isinstance(here, Mapping) else None
    for key, entry in here.items() if isinstance(here, Mapping) else ():
        if isinstance(entry, Mapping) and "memory" in entry and name in component_names(str(key)):
            return "cluster", "component_placement", str(key), "memory"
    return reader.memory_paths.get(name, {}).get("model", ())


def _fault(needs: Needs, crowd: Crowd, need: Need) -> Diagnostic:
    name, (node, index) = need.components[0], need.where
    card = size_text(need.card[1]) if need.card else "?"
    if not need.starts:
        share = needs.evaluations[name].entry.share
        least = size_text(need.parts["weights"][0] + need.parts["cache"][0])
        message = (
            f"the engine of `{name}` needs at least {least} for its weights and one request, more than its share "
            f"{share:g} of {card} on accelerator {index} of node {node}"
        )
        return Diagnostic("engine-share", message, _engine_help(needs, crowd, need))
    names = " and ".join(f"`{one}`" for one in need.components)
    verb = "needs" if len(need.components) == 1 else "need"
    phase = f"in the phase {need.phase}, "
    message = (
        f"{names} {verb} at least {size_text(need.lower)} {phase}but accelerator {index} of node {node} has {card}"
    )
    return Diagnostic("memory-exceeded", message, _help(needs, crowd, need))


def _help(needs: Needs, crowd: Crowd, need: Need) -> str:
    """Return the smallest changes that are not refused, each with its bounds."""
    works = [] if need.phase == SWITCH else list(_changes(needs, crowd, need.components[0]))
    if works:
        return f"use {', or '.join(works[:_MOST_CHANGES])}, or more accelerators"
    return "use more accelerators, or a smaller model"


def _changes(needs: Needs, crowd: Crowd, name: str) -> Iterator[str]:
    """Yield the changes of a component that are not refused: next tensor sizes, and the optimizer on the host."""
    evaluation = needs.evaluations[name]
    sizes, shape = evaluation.component.parallel, evaluation.model.shape if evaluation.model is not None else None
    larger = [sizes.tp * 2**power for power in range(1, 7)] if sizes.stated else []
    options: list[dict[str, Any]] = [{"tp": tp} for tp in larger]
    if evaluation.entry.kind == "training" and evaluation.entry.optimizer_on_host < 1:
        options.append({"optimizer_on_host": 1.0})
        options += [{"tp": tp, "optimizer_on_host": 1.0} for tp in larger]
    for option in options:
        tp = option.get("tp", sizes.tp)
        if shape is not None and shape.heads % tp:
            continue
        memory = evaluation.entry
        if "optimizer_on_host" in option:
            memory = memory.model_copy(update={"optimizer_on_host": 1.0})
        try:
            changed = evaluation.component.with_settings(parallel=replace(sizes, tp=tp, dp=None), memory=memory)
        except PlacementError:
            continue  # these sizes do not divide the slots
        need = needs.need(crowd, name, Evaluation(changed, memory))
        if need.answer != "refused":
            words = " and ".join(f"{key} {value:g}" for key, value in option.items())
            upper = "no upper bound" if math.isinf(need.upper) else f"to {size_text(need.upper)}"
            yield f"{words} ({size_text(need.lower)} {upper}: {need.answer})"


def _engine_help(needs: Needs, crowd: Crowd, need: Need) -> str:
    """Return the smallest share, or else the longest request, that an engine can start with."""
    name = need.components[0]
    entry = needs.evaluations[name].entry
    card = need.card[1] if need.card else 1.0
    weights, cache = need.parts["weights"][0], need.parts["cache"][0]
    share = math.ceil((weights + cache) / card * 100) / 100
    helps = [f"set share to {share:g} or more"] if share <= 1 else []
    if entry.share and entry.length and cache:
        longest = math.floor((entry.share * card - weights) / (cache / entry.length))
        helps += [f"set length to {longest} or less"] if longest > 0 else []
    helps += [f"use {change}" for change in list(_changes(needs, crowd, name))[:1]]
    return ", or ".join(helps[:_MOST_CHANGES]) or "use more accelerators for an engine"


def _host_faults(plan: Plan) -> Iterator[tuple[str, Diagnostic]]:
    """Yield a fault for the nodes whose ranks need more memory than they have."""
    kept: dict[tuple[int, float], dict[str, float]] = {}
    for crowd in plan.needs.crowds:
        if crowd.host is None:
            continue
        on_node = kept.setdefault((crowd.where[0], crowd.host), {})
        for need in plan.needs.of_crowd(crowd):
            if need.phase != SWITCH:
                name = need.components[0]
                on_node[name] = min(need.host[0], on_node.get(name, need.host[0]))
    for (node, size), lower in kept.items():
        if (total := sum(lower.values())) > size:
            largest = max(lower, key=lambda name: lower[name])
            message = f"node {node} has {size_text(size)}, but its ranks keep at least {size_text(total)} on the host"
            help = f"lower optimizer_on_host of `{largest}`, or place fewer of its ranks on a node"
            yield largest, Diagnostic("host-memory", message, help)
