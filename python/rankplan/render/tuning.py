"""A tuning as a table, as JSON and as a plot of the period against the split."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import yaml

from rankplan.errors import Diagnostic
from rankplan.frozen import frozen
from rankplan.render.tables import table
from rankplan.tuning.lent import LENDING
from rankplan.tuning.schedule import seconds_text
from rankplan.tuning.search import Ranked, Rejected, Sweep, Tuning
from rankplan.words import counted

if TYPE_CHECKING:
    from rich.table import Table

_COLORS = {"disaggregated": "#0072b2", "hybrid": "#d55e00", "collocated": "#777777", "lending": "#009e73"}
"""Okabe and Ito's colors, distinct for readers with any kind of color vision."""
_DASHES = {"collocated": "6 4", "hybrid": "2 3", "lending": "8 3 2 3"}


def ranking_table(tuning: Tuning) -> Table:
    """Return the ranking, a column per component. An ``*`` marks times far from every measured size."""
    names = sorted(tuning.best.accelerators)
    has_memory = any(ranked.memory is not None for ranked in tuning.ranking)
    result = table("rank#", "period#", *names, "idle#", "sharing", *(["memory"] if has_memory else []))
    for rank, ranked in enumerate(tuning.ranking, 1):
        ranks = [f"{ranked.accelerators[name]}{'*' if name in ranked.extrapolated else ''}" for name in names]
        cells = [str(rank), seconds_text(ranked.seconds), *ranks, str(ranked.idle), ranked.sharing]
        if has_memory:
            cells.append(ranked.memory or "")
        result.add_row(*cells)
    return result


def sensitivity_line(tuning: Tuning) -> Iterator[str]:
    """Yield the line about the measured number that decides the choice, if there is one."""
    deciding = tuning.sensitivity
    if deciding is not None:
        where = f"{deciding.component} on {counted(deciding.accelerators, 'accelerator')}"
        limit = f"more than {seconds_text(deciding.limit)} (measured: {seconds_text(deciding.seconds)})"
        yield f"the first beats the second until {where} takes {limit}"


def reason_lines(tuning: Tuning) -> Iterator[str]:
    """Yield why each placement takes as long as it does, and why faster ones are rejected."""
    for rank, placement in enumerate(tuning.ranking, 1):
        yield f"{rank}: {placement.why}"
    if any(placement.extrapolated for placement in tuning.ranking):
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
    lent = next((placement for placement in tuning.ranking if placement.sharing == LENDING), None)
    without = next((placement for placement in tuning.ranking if placement.sharing != LENDING), None)
    if lent is None:
        yield f"lending: no placement in which {tuning.terms.trainer} lends accelerators is valid"
    elif without is None:
        yield f"lend: {_lent_text(tuning, lent)}"
    elif lent.seconds < without.seconds:
        gain = f"{without.seconds / lent.seconds:.2f} times as fast as {without.sharing} without lending"
        yield f"lend: {_lent_text(tuning, lent)}, {gain} ({seconds_text(without.seconds)})"
    else:
        yield f"do not lend: {without.sharing} takes {seconds_text(without.seconds)}; {_lent_text(tuning, lent)}"
    yield "this assumes:"
    yield from (f"- {assumption}" for assumption in tuning.terms.assumptions)


def _lent_text(tuning: Tuning, lent: Ranked) -> str:
    terms = tuning.terms
    sizes = lent.schedule.sizes
    if terms is None:
        return ""
    cards = f"{sizes[terms.trainer]} for {terms.trainer} and {sizes[terms.rollout]} for {terms.rollout}"
    return f"{cards} take {seconds_text(lent.seconds)} with lending"


def placement_text(placement: Ranked) -> str:
    """Return the ``component_placement`` of a placement, to paste into a config."""
    section = placement.config["cluster"]["component_placement"]
    return yaml.safe_dump({"component_placement": section}, sort_keys=False, default_flow_style=None, width=120)


def tuning_json(tuning: Tuning) -> str:
    """Return the ranking as JSON, with the measured time that decides it."""
    content: dict[str, Any] = {
        "ranking": [_ranked(placement) for placement in tuning.ranking],
        "rejected": [_rejected(placement) for placement in tuning.rejected],
        "sensitivity": tuning.sensitivity and asdict(tuning.sensitivity),
        "component_placement": tuning.best.config["cluster"]["component_placement"],
        "warnings": [_code_and_message(warning) for warning in (*tuning.warnings, *tuning.best.warnings)],
    }
    if tuning.terms is not None:
        content["lending"] = asdict(tuning.terms)
    return json.dumps(content, indent=2) + "\n"


def _rejected(placement: Rejected) -> dict[str, Any]:
    return {
        "seconds": placement.seconds,
        "sharing": placement.sharing,
        "schedule": str(placement.schedule),
        "faults": [_code_and_message(fault) for fault in placement.diagnostics],
    }


def _code_and_message(diagnostic: Diagnostic) -> dict[str, str]:
    return {"code": diagnostic.code, "message": diagnostic.message}


def _ranked(placement: Ranked) -> dict[str, Any]:
    ranks = {name: {"accelerators": len(ranks), "ranks": str(ranks)} for name, ranks in placement.accelerators.items()}
    return {
        "seconds": placement.seconds,
        "components": ranks,
        "sharing": placement.sharing,
        "idle": placement.idle,
        "schedule": str(placement.schedule),
        "why": placement.why,
        "extrapolated": list(placement.extrapolated),
        "memory": placement.memory,
    }


_WIDTH, _HEIGHT = 720, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 24, 64, 52


@frozen
class _Axes:
    """The scales of a plot: accelerators to the right, up to ``most``, and seconds upwards."""

    most: int
    bottom: float
    top: float

    def x(self, size: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * size / self.most

    def y(self, seconds: float) -> float:
        return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * (seconds - self.bottom) / (self.top - self.bottom)


def plot(sweep: Sweep, tuning: Tuning) -> str:
    """Return the period against the accelerators of a component as SVG, for light and dark pages."""
    points = [point for curve in sweep.curves.values() for point in curve]
    lowest = min(seconds for _, seconds in points)
    # Splits that take several times as long as the best would flatten the rest.
    highest = min(max(seconds for _, seconds in points), 3 * lowest)
    bottom, top, ticks = _scale(0.9 * lowest if highest < 1.6 * lowest else 0.0, highest)
    axes = _Axes(max(size for size, _ in points), bottom, top)
    component = escape(sweep.component)
    title = f"Period by accelerators of {component}"
    label = f"accelerators of {component}; the other components have the best sizes for it"
    parts = [
        f'<rect class="page" width="{_WIDTH}" height="{_HEIGHT}" rx="6"/>',
        f'<text x="{_LEFT}" y="26" class="strong" font-size="15">{title}</text>',
        *_grid(axes, ticks),
        f'<text x="{_LEFT}" y="{_HEIGHT - 12}" class="soft">{label}</text>',
        *_curves(sweep, axes),
        *_legend(sweep),
        *_best(sweep, tuning, axes),
    ]
    style = files("rankplan.render").joinpath("tuning.css").read_text("utf-8")
    size = f'viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" class="rankplan-plot" {size}>\n<title>{title}</title>'
    return "\n".join([head, f"<style>\n{style}</style>", *parts, "</svg>\n"])


def _grid(axes: _Axes, ticks: Sequence[float]) -> Iterator[str]:
    """Yield the lines and the numbers of both axes; ``ticks`` are those of the seconds."""
    for tick in ticks:
        y = axes.y(tick)
        yield f'<path class="grid" d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}"/>'
        yield f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end" class="soft">{tick:g} s</text>'
    _, _, sizes = _scale(0, axes.most)
    for tick in sizes:
        if tick <= axes.most:
            x = axes.x(tick)
            place = f'x="{x:.1f}" y="{_HEIGHT - _BOTTOM + 20}"'
            yield f'<path class="grid" d="M{x:.1f} {_HEIGHT - _BOTTOM}v5"/>'
            yield f'<text {place} text-anchor="middle" class="soft">{tick:g}</text>'


def _stroke(sharing: str) -> str:
    return f'stroke="{_COLORS[sharing]}" stroke-dasharray="{_DASHES.get(sharing, "none")}"'


def _curves(sweep: Sweep, axes: _Axes) -> Iterator[str]:
    """Yield a line for each way of sharing, or a dot if it has one point; the best one last, above the others."""
    for sharing, curve in reversed(sweep.curves.items()):
        points = [(axes.x(size), axes.y(seconds)) for size, seconds in curve if seconds <= axes.top]
        if len(points) == 1:
            [(x, y)] = points
            yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{_COLORS[sharing]}"/>'
        elif points:
            line = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
            yield f'<path class="line" d="M{line}" {_stroke(sharing)}/>'


def _legend(sweep: Sweep) -> Iterator[str]:
    """Yield a short line and a name for each way of sharing."""
    left = float(_LEFT)
    for sharing in sweep.curves:
        yield f'<path class="line" d="M{left:.0f} 46h24" {_stroke(sharing)}/>'
        yield f'<text x="{left + 30:.0f}" y="50">{sharing}</text>'
        left += 30 + 7.5 * len(sharing) + 24


def _best(sweep: Sweep, tuning: Tuning, axes: _Axes) -> Iterator[str]:
    """Yield the point of the best placement, with its numbers on the side where there is room."""
    size = len(tuning.best.accelerators[sweep.component])
    x = axes.x(size)
    y = axes.y(tuning.best.seconds)
    yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{_COLORS[tuning.best.sharing]}"/>'
    text = f"{size}: {seconds_text(tuning.best.seconds)}"
    anchor = "end" if size > axes.most / 2 else "start"
    text_x = x - 10 if anchor == "end" else x + 10
    yield f'<text x="{text_x:.1f}" y="{y + 18:.1f}" text-anchor="{anchor}" class="strong">{text}</text>'


def _scale(low: float, high: float) -> tuple[float, float, list[float]]:
    """Return round ends of a scale, and about five ticks."""
    rough = max((high - low) / 5, 1e-9)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    first, last = math.floor(low / step), math.ceil(high / step)
    return first * step, last * step, [round(tick * step, 9) for tick in range(first, last + 1)]
