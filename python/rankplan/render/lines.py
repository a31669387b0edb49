"""A plan in a few lines: parallel groups, their coordinates, and which components share accelerators."""

from __future__ import annotations

from collections.abc import Sequence

from rankplan._core import RankSet, Spans
from rankplan.plans.component import Component, Coordinates
from rankplan.plans.plan import Plan
from rankplan.plans.rules import GROUP_KINDS
from rankplan.words import amount_text, by_nodes, counted

_CROSSING = ("tp", "cp", "etp", "ep", "pp")
"""The kinds of groups that `group_lines` names; data groups usually cross nodes."""
_MOST_CROWDS, _MOST_NAMES = 20, 8
"""How many lines `sharing_lines` gives about sharing, and how many components a line names."""


def size_lines(plan: Plan) -> list[str]:
    """Return the sizes of each component that states some: ``actor: tp 4 x dp 8, experts ep 8 x edp 4``."""
    return [f"{name}: {sizes_text(component)}" for name, component in plan.items() if component.parallel.stated]


def sizes_text(component: Component) -> str:
    """Return the sizes that a component states, without its name."""
    shape, names = component.mesh()
    sizes = [f"{kind} {size}" for kind, size in zip(reversed(names), reversed(shape), strict=True)]
    experts = [kind for kind in ("etp", "ep", "edp") if kind in component.layout.kinds]
    of_experts = " x ".join(f"{kind} {component.layout.size(kind)}" for kind in experts)
    return f"{' x '.join(sizes)}{', experts ' if experts else ''}{of_experts}"


def group_lines(plan: Plan) -> list[str]:
    """Return which groups of each component stay within a node, and within the domains of each level, innermost first.

    ``actor: 32 tp groups within nodes``, then ``  nvlink: 1 of 4 ep groups cross a domain``.
    """
    lines = []
    for name, component in plan.items():
        if component.parallel.stated:
            kinds = [kind for kind in _CROSSING if component.layout.size(kind) > 1]
            found = "; ".join(_crossings(component.spans(kind), kind) for kind in kinds)
            lines.append(f"{name}: {found or 'only data groups'}")
            for level in reversed(component.inventory.levels):
                kinds = [kind for kind in GROUP_KINDS if kind in component.layout.kinds]
                found = "; ".join(_crossings(component.spans(kind, level), kind, "domain") for kind in kinds)
                lines.extend([f"  {level}: {found}"] if found else [])
    return lines


def _crossings(spans: Spans, kind: str, unit: str = "node") -> str:
    total = spans.within + spans.crossing
    if not spans.crossing:
        return f"{counted(total, f'{kind} group')} within {f'a {unit}' if total == 1 else f'{unit}s'}"
    if not spans.within:
        return f"{counted(total, f'{kind} group')} across {unit}s"
    return f"{spans.crossing:,} of {total:,} {kind} groups cross a {unit}"


def coordinates_of(component: Component, rank: int) -> list[Coordinates] | None:
    """Return the coordinates of each slot of a process, ``None`` if the component states no sizes."""
    return component.coordinates(rank) if component.parallel.stated else None


def coordinates_text(component: Component, rank: int) -> str:
    """Return the coordinates of a process in a line: ``tp 0-3, dp 1`` for a process with four slots."""
    slots = coordinates_of(component, rank)
    if slots is None:
        return ""
    return ", ".join(f"{kind} {RankSet({slot[kind] for slot in slots})}" for kind in slots[0])


def sharing_lines(plan: Plan) -> list[str]:
    """Return lines on which components share accelerators, with how many processes, and on idle ones."""
    lines = [] if plan.mode is None else [f"mode: {plan.mode.name}"]
    if sum(bool(component.rows.accelerators()) for component in plan.values()) > 1:
        lines.append(plan.sharing().kind)
    crowds = plan.oversubscribed()
    for crowd in crowds[:_MOST_CROWDS]:
        names, counts = zip(*crowd.processes.items(), strict=True)
        who = f"processes of {names[0]}" if len(names) == 1 else " and ".join(_shortened(names).rsplit(", ", 1))
        each = f"{sum(counts)} processes per accelerator"
        if len(names) > 1 and max(counts) > 1:
            each += f" ({_shortened([f'{count} {name}' for name, count in crowd.processes.items()])})"
        lines.append(f"  {who} share {by_nodes(crowd.accelerators)}, {each}")
    if len(crowds) > _MOST_CROWDS:
        lines.append(f"  and {len(crowds) - _MOST_CROWDS} more lines")
    if idle := plan.idle():
        lines.append(f"idle: {by_nodes(idle)}")
    return lines


def reserved_lines(plan: Plan) -> list[str]:
    """Return what each process of each component reserves: ``actor: each process reserves 4 CPUs``."""
    lines = []
    for name, component in plan.items():
        cpus, memory = component.cpus_per_process, component.host_memory_per_process
        amounts = [amount_text("CPU", cpus)] if cpus else []
        amounts += [amount_text("memory", memory)] if memory else []
        if amounts:
            lines.append(f"{name}: each process reserves {' and '.join(amounts)}")
    return lines


def _shortened(names: Sequence[str]) -> str:
    kept = names if len(names) <= _MOST_NAMES else [*names[: _MOST_NAMES - 1], f"{len(names) - _MOST_NAMES + 1} more"]
    return ", ".join(kept)
