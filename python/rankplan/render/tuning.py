"""A tuning as a table, as JSON and as a plot of the period against the split."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import yaml

from rankplan.render.tables import table
from rankplan.tuning.lent import LENDING
from rankplan.tuning.schedule import seconds_text
from rankplan.tuning.search import Ranked, Sweep, Tuning
from rankplan.words import counted

if TYPE_CHECKING:
    from rich.table import Table

_COLORS = {"disaggregated": "#0072b2", "hybrid": "#d55e00", "collocated": "#777777", "lending": "#009e73"}
"""Okabe and Ito's colors, distinct for readers with any kind of color vision."""
_DASHES = {"collocated": "6 4", "hybrid": "2 3", "lending": "8 3 2 3"}


def ranking_table(tuning: Tuning) -> Table:
    """Return the ranking, a column per component. An ``*`` marks times far from every measured size."""
    names = sorted(tuning.best.accelerators)
    told = any(one.memory is not None for one in tuning.ranking)
    result = table("rank#", "period#", *names, "idle#", "sharing", *(["memory"] if told else []))
    for rank, one in enumerate(tuning.ranking, 1):
        ranks = [f"{one.accelerators[name]}{'*' if name in one.extrapolated else ''}" for name in names]
        memory = [one.memory or ""] if told else []
        result.add_row(str(rank), seconds_text(one.seconds), *ranks, str(one.idle), one.sharing, *memory)
    return result


def sensitivity_line(tuning: Tuning) -> Iterator[str]:
    """Yield the line about the measured number that decides the choice, if there is one."""
    if (found := tuning.sensitivity) is not None:
        where = f"{found.component} on {counted(found.accelerators, 'accelerator')}"
        limit = f"more than {seconds_text(found.limit)} (measured: {seconds_text(found.seconds)})"
        yield f"the first beats the second until {where} takes {limit}"


def reason_lines(tuning: Tuning) -> Iterator[str]:
    """Yield why each placement takes as long as it does, and why faster ones are rejected."""
    for rank, one in enumerate(tuning.ranking, 1):
        yield f"{rank}: {one.why}"
    if any(one.extrapolated for one in tuning.ranking):
        yield "*: times extrapolated far from every measured size"
    if estimated := tuning.costs.estimated:
        yield f"memory and switch of {' and '.join(estimated)}: from the least that they keep, where not stated"
    for other in tuning.rejected:
        first = other.diagnostics[0]
        yield f"rejected: {other.sharing}, {seconds_text(other.seconds)}: {first.code}: {first.message}"
    if (moves := tuning.best.moves) is not None:
        moved = counted(len(moves.moved), "process", "processes")
        yield f"from the present plan: {moved} move, {len(moves.appeared)} appear, {len(moves.went)} go"


def lending_lines(tuning: Tuning) -> Iterator[str]:
    """Yield the advice about lending and its assumptions, if placements that lend were considered."""
    if tuning.terms is None:
        return
    lent = next((one for one in tuning.ranking if one.sharing == LENDING), None)
    others = [one for one in tuning.ranking if one.sharing != LENDING]
    if lent is None:
        yield f"lending: no placement in which {tuning.terms.trainer} lends accelerators is valid"
    elif not others:
        yield f"lend: {_lent_text(tuning, lent)}"
    elif lent.seconds < others[0].seconds:
        gain = f"{others[0].seconds / lent.seconds:.2f} times as fast as {others[0].sharing} without lending"
        yield f"lend: {_lent_text(tuning, lent)}, {gain} ({seconds_text(others[0].seconds)})"
    else:
        yield f"do not lend: {others[0].sharing} takes {seconds_text(others[0].seconds)}; {_lent_text(tuning, lent)}"
    yield "this assumes:"
    yield from (f"- {assumption}" for assumption in tuning.terms.assumptions)


def _lent_text(tuning: Tuning, lent: Ranked) -> str:
    terms, sizes = tuning.terms, lent.schedule.sizes
    if terms is None:
        return ""
    cards = f"{sizes[terms.trainer]} for {terms.trainer} and {sizes[terms.rollout]} for {terms.rollout}"
    return f"{cards} take {seconds_text(lent.seconds)} with lending"


def placement_text(one: Ranked) -> str:
    """Return the ``component_placement`` of a placement, to paste into a config."""
    section = one.config["cluster"]["component_placement"]
    return yaml.safe_dump({"component_placement": section}, sort_keys=False, default_flow_style=None, width=120)


def tuning_json(tuning: Tuning) -> str:
    """Return the ranking as JSON, with the measured time that decides it."""
    content: dict[str, Any] = {
        "ranking": [_ranked(one) for one in tuning.ranking],
        "rejected": [
            {
                "seconds": one.seconds,
                "sharing": one.sharing,
                "schedule": str(one.schedule),
                "faults": [{"code": fault.code, "message": fault.message} for fault in one.diagnostics],
            }
            for one in tuning.rejected
        ],
        "sensitivity": tuning.sensitivity and asdict(tuning.sensitivity),
        "component_placement": tuning.best.config["cluster"]["component_placement"],
        "warnings": [{"code": one.code, "message": one.message} for one in (*tuning.warnings, *tuning.best.warnings)],
    }
    if tuning.terms is not None:
        content["lending"] = asdict(tuning.terms)
    return json.dumps(content, indent=2) + "\n"


def _ranked(one: Ranked) -> dict[str, Any]:
    ranks = {name: {"accelerators": len(ranks), "ranks": str(ranks)} for name, ranks in one.accelerators.items()}
    return {
        "seconds": one.seconds,
        "components": ranks,
        "sharing": one.sharing,
        "idle": one.idle,
        "schedule": str(one.schedule),
        "why": one.why,
        "extrapolated": list(one.extrapolated),
        "memory": one.memory,
    }


_WIDTH, _HEIGHT = 720, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 24, 64, 52


def plot(found: Sweep, tuning: Tuning) -> str:
    """Return the period against the accelerators of a component as SVG, for light and dark pages."""
    points = [point for curve in found.curves.values() for point in curve]
    best = len(tuning.best.accelerators[found.component])
    lowest = min(seconds for _, seconds in points)
    # Splits that take several times as long as the best would flatten the rest.
    highest = min(max(seconds for _, seconds in points), 3 * lowest)
    bottom, top, ticks = _scale(0.9 * lowest if highest < 1.6 * lowest else 0.0, highest)
    most = max(size for size, _ in points)

    def x(size: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * size / most

    def y(seconds: float) -> float:
        return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * (seconds - bottom) / (top - bottom)

    title = f"Period by accelerators of {escape(found.component)}"
    parts = [f'<rect class="page" width="{_WIDTH}" height="{_HEIGHT}" rx="6"/>']
    parts.append(f'<text x="{_LEFT}" y="26" class="strong" font-size="15">{title}</text>')
    for tick in ticks:
        parts.append(f'<path class="grid" d="M{_LEFT} {y(tick):.1f}H{_WIDTH - _RIGHT}"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{y(tick) + 4:.1f}" text-anchor="end" class="soft">{tick:g} s</text>')
    for tick in (tick for tick in _scale(0, most)[2] if tick <= most):
        place = f'x="{x(tick):.1f}" y="{_HEIGHT - _BOTTOM + 20}"'
        parts.append(f'<path class="grid" d="M{x(tick):.1f} {_HEIGHT - _BOTTOM}v5"/>')
        parts.append(f'<text {place} text-anchor="middle" class="soft">{tick:g}</text>')
    label = f"accelerators of {escape(found.component)}; the other components have the best sizes for it"
    parts.append(f'<text x="{_LEFT}" y="{_HEIGHT - 12}" class="soft">{label}</text>')
    legend, below = float(_LEFT), len(parts)
    for sharing, curve in found.curves.items():
        style = f'stroke="{_COLORS[sharing]}" stroke-dasharray="{_DASHES.get(sharing, "none")}"'
        line = [f"{x(size):.1f} {y(seconds):.1f}" for size, seconds in curve if seconds <= top]
        drawn = [f'<path class="line" d="M{"L".join(line)}" {style}/>'] if line else []
        if len(line) == 1:
            cx, cy = line[0].split()
            drawn = [f'<circle cx="{cx}" cy="{cy}" r="3.5" fill="{_COLORS[sharing]}"/>']
        parts[below:below] = drawn  # the best one is drawn last, above the others
        parts.append(f'<path class="line" d="M{legend:.0f} 46h24" {style}/>')
        parts.append(f'<text x="{legend + 30:.0f}" y="50">{sharing}</text>')
        legend += 30 + 7.5 * len(sharing) + 24
    at, height = x(best), y(tuning.best.seconds)
    parts.append(f'<circle cx="{at:.1f}" cy="{height:.1f}" r="5" fill="{_COLORS[tuning.best.sharing]}"/>')
    anchor, at = ("end", at - 10) if best > most / 2 else ("start", at + 10)
    text = f"{best}: {seconds_text(tuning.best.seconds)}"
    parts.append(f'<text x="{at:.1f}" y="{height + 18:.1f}" text-anchor="{anchor}" class="strong">{text}</text>')
    style = files("rankplan.render").joinpath("tuning.css").read_text("utf-8")
    size = f'viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" class="rankplan-plot" {size}>\n<title>{title}</title>'
    return "\n".join([head, f"<style>\n{style}</style>", *parts, "</svg>\n"])


def _scale(low: float, high: float) -> tuple[float, float, list[float]]:
    """Return round ends of a scale, and about five ticks."""
    rough = max((high - low) / 5, 1e-9)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    first, last = math.floor(low / step), math.ceil(high / step)
    return first * step, last * step, [round(tick * step, 9) for tick in range(first, last + 1)]
