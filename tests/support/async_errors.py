"""The errors of the model of asynchronous runs on published ones, and a picture of them.

``docs/generate.py`` writes both into the guide. The usual numbers of the model were fitted to these runs, so their
errors are too small. `left_out` fits them again without a table, and looks at the errors on that table.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from html import escape
from importlib.resources import files
from itertools import product
from statistics import fmean, median
from typing import NamedTuple

from rankplan.tuning.async_step import LEAST, MOST, USUAL, Assumed, step_of
from rankplan.tuning.schedule import seconds_text
from rankplan.tuning.split_times import run_times

from support.published_runs import ROWS, Prediction, costs_for, guesses, near, rule_of

_STEPS = {"kappa": 6, "leave": 8, "tail": 8}
"""How many values of each number a fit tries, between its ends."""


def fitted(prediction: Prediction) -> bool:
    """Whether the prediction depends on the numbers that are fitted: one from a colocated run does."""
    return ROWS[prediction.row["reference"]]["split"] is None


def _values(name: str) -> list[float]:
    low, high, count = getattr(LEAST, name), getattr(MOST, name), _STEPS[name]
    return [low + (high - low) * index / (count - 1) for index in range(count)]


@functools.cache
def _published() -> tuple[list[Prediction], list[Prediction]]:
    return list(guesses()), list(near())


@functools.cache
def _log_errors() -> dict[Assumed, dict[str, float]]:
    """Return the logarithm of predicted by measured seconds of each fitted run, for each choice of numbers."""
    costs = {
        prediction.row["id"]: costs_for(prediction.row, [ROWS[prediction.row["reference"]]])
        for prediction in _published()[0]
        if fitted(prediction)
    }
    errors: dict[Assumed, dict[str, float]] = {}
    for kappa, leave, tail in product(*(_values(name) for name in _STEPS)):
        assumed = USUAL._replace(kappa=kappa, leave=leave, tail=tail)
        errors[assumed] = {}
        for name, stated in costs.items():
            row, terms = ROWS[name], stated.asynchronous
            split = (row["cards"],) * 2 if row["split"] is None else (row["split"]["trainer"], row["split"]["rollout"])
            parts = None if terms is None else run_times(stated, terms, assumed).on(split, assumed)
            if terms is not None and parts is not None:
                step = step_of(terms, stated.batches, parts.seconds, split, terms.levels[0], assumed)
                errors[assumed][name] = math.log(step.seconds / row["step_seconds"])
    return errors


def without(table: str) -> Assumed:
    """Return the numbers with the least mean error on all tables but one."""

    def mean_error(errors: dict[str, float]) -> float:
        return fmean(abs(error) for name, error in errors.items() if ROWS[name]["table"] != table)

    every = _log_errors()
    return min(every, key=lambda assumed: mean_error(every[assumed]))


def left_out(table: str) -> list[float]:
    """Return the errors of a table's runs, by numbers that were fitted to all others."""
    errors = _log_errors()[without(table)]
    return [abs(math.exp(error) - 1) for name, error in errors.items() if ROWS[name]["table"] == table]


class Line(NamedTuple):
    """The errors of a table, as shares of the measured seconds."""

    table: str
    rows: int
    parts: str
    inside: int
    usual: float
    left_out: float | None
    worst: float


def lines() -> Iterator[Line]:
    """Yield the errors of each table of published runs that are guessed from another one."""
    predictions, _ = _published()
    for table in dict.fromkeys(prediction.row["table"] for prediction in predictions):
        rows = [prediction for prediction in predictions if prediction.row["table"] == table]
        again = left_out(table)
        errors = [prediction.error for prediction in rows]
        yield Line(
            table,
            len(rows),
            "with parts" if rows[0].has_parts else "step only",
            sum(prediction.inside for prediction in rows),
            median(errors),
            median(again) if again else None,
            max(again or errors),
        )


def table_lines() -> list[str]:
    """Return the errors as the lines of a Markdown table."""
    text = ["| table | runs | measured | inside | error | left out | worst |", "|---|--:|---|--:|--:|--:|--:|"]
    for line in lines():
        again = "-" if line.left_out is None else f"{line.left_out:.0%}"
        cells = [
            line.table,
            str(line.rows),
            line.parts,
            str(line.inside),
            f"{line.usual:.0%}",
            again,
            f"{line.worst:.0%}",
        ]
        text.append(f"| {' | '.join(cells)} |")
    for name in ("with parts", "step only"):
        chosen = [prediction for prediction in _published()[0] if prediction.has_parts == (name == "with parts")]
        tables = dict.fromkeys(prediction.row["table"] for prediction in chosen)
        again = [error for table in tables for error in left_out(table)]
        inside = sum(prediction.inside for prediction in chosen)
        usual = median(prediction.error for prediction in chosen)
        cells = [f"all {name}", str(len(chosen)), name, str(inside), f"{usual:.0%}", f"{median(again):.0%}"]
        text.append(f"| {' | '.join([*cells, f'{max(again):.0%}'])} |")
    between = _published()[1]
    cells = ["near", str(len(between)), "runs around it", str(sum(prediction.inside for prediction in between))]
    cells += [f"{median(prediction.error for prediction in between):.0%}", "-"]
    text.append(f"| {' | '.join([*cells, f'{max(prediction.error for prediction in between):.0%}'])} |")
    return text


_WIDTH, _ROW, _TOP, _LEFT, _RIGHT, _BOTTOM = 860, 15, 64, 330, 150, 40
_LEAST, _MOST = 0.3, 3.2
_COLORS = {"guess": "#0072b2", "near": "#009e73", "outside": "#d55e00"}


def picture() -> str:
    """Return the range of each published run, divided by its measured seconds, as SVG for light and dark pages."""
    predictions, between = _published()
    rows: list[Prediction | str] = []
    for name, chosen in (("guesses", predictions), ("near to measured runs", between)):
        tables = dict.fromkeys(prediction.row["table"] for prediction in chosen)
        for table in tables:
            rows.append(f"{table}: {name}")
            rows += [prediction for prediction in chosen if prediction.row["table"] == table]
    height = _TOP + _ROW * len(rows) + _BOTTOM
    title = "Predicted range and measured step of published runs"
    parts = [f'<rect class="page" width="{_WIDTH}" height="{height}" rx="6"/>']
    parts.append(f'<text x="16" y="26" class="strong" font-size="15">{title}</text>')
    parts.append(
        '<text x="16" y="46" class="soft">bar: range; dot: usual seconds; both divided by the measured ones</text>'
    )
    for tick in (0.5, 1, 2, 3):
        kind = "line" if tick == 1 else "grid"
        style = ' stroke="#777777"' if tick == 1 else ""
        parts.append(f'<path class="{kind}"{style} d="M{_x(tick):.1f} {_TOP - 8}V{height - _BOTTOM + 4}"/>')
        label = "measured" if tick == 1 else f"{tick:g}x"
        parts.append(f'<text x="{_x(tick):.1f}" y="{height - 18}" text-anchor="middle" class="soft">{label}</text>')
    for index, row in enumerate(rows):
        y = _TOP + _ROW * index + _ROW / 2
        parts += _heading(row, y) if isinstance(row, str) else _bar(row, y)
    style = files("rankplan.render").joinpath("tuning.css").read_text("utf-8")
    size = f'viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" class="rankplan-plot" {size}>\n<title>{title}</title>'
    return "\n".join([head, f"<style>\n{style}</style>", *parts, "</svg>\n"])


def _x(ratio: float) -> float:
    share = math.log(ratio / _LEAST) / math.log(_MOST / _LEAST)
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * min(max(share, 0.0), 1.0)


def _heading(text: str, y: float) -> list[str]:
    return [f'<text x="16" y="{y + 4:.1f}" class="strong" font-size="11">{escape(text)}</text>']


def _bar(prediction: Prediction, y: float) -> Sequence[str]:
    result, measured = prediction.result, prediction.measured
    color = _COLORS[result.known.value if prediction.inside else "outside"]
    low, high, usual = (_x(seconds / measured) for seconds in (result.low, result.high, result.seconds))
    name = prediction.row["id"].removeprefix(f"{prediction.row['table']}/")
    numbers = f"{seconds_text(measured)}; {seconds_text(result.low).removesuffix(' s')}-{seconds_text(result.high)}"
    return [
        f'<text x="28" y="{y + 4:.1f}" font-size="11">{escape(f"{name}, {rule_of(prediction.row)}")}</text>',
        f'<path d="M{low:.1f} {y:.1f}H{high:.1f}" stroke="{color}" stroke-width="5" stroke-opacity="0.45"/>',
        f'<circle cx="{usual:.1f}" cy="{y:.1f}" r="3.5" fill="{color}"/>',
        f'<text x="{_WIDTH - _RIGHT + 10}" y="{y + 4:.1f}" class="soft" font-size="11">{numbers}</text>',
    ]
