"""A plan or its rows in a notebook: a picture or a table of limited size.

Importing this module makes plans, components and rows display themselves. Plans do not depend on it: the package
imports it in a notebook.
"""

from __future__ import annotations

from html import escape
from itertools import islice
from typing import Any

from rankplan._core import Placements
from rankplan.plans.component import Component
from rankplan.plans.plan import Plan
from rankplan.render.map.model import map_of
from rankplan.render.map.svg import svg
from rankplan.render.map.terminal import lines
from rankplan.render.map.text import short
from rankplan.render.tables import COLUMNS, MOST_ROWS, cells

_MOST_BANDS, _MOST_TEXT = 512, 1_000_000
"""A notebook stores its output, so a larger picture is replaced by text."""
_WIDTH = 120


def html(shown: Plan | Component | Placements) -> str:
    """Return the map of a plan, or a table of the first rows of a component."""
    if not isinstance(shown, Plan):
        return _table(shown)
    drawn = svg(shown, most_bands=_MOST_BANDS)
    if len(drawn) <= _MOST_TEXT:
        return drawn
    written = (line.plain for line in lines(map_of(shown, most_bands=_MOST_BANDS), _WIDTH))
    return f"<pre>{escape(chr(10).join(written))}</pre>"


def _table(rows: Component | Placements) -> str:
    head = "".join(f"<th>{name.rstrip('#')}</th>" for name in COLUMNS)
    lines = []
    for row in islice(rows, MOST_ROWS):
        lines.append("<tr>" + "".join(f"<td>{escape(short(cell))}</td>" for cell in cells(row)) + "</tr>")
    more = f"<p>and {len(rows) - MOST_ROWS:,} more</p>" if len(rows) > MOST_ROWS else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>{more}"


_KINDS: tuple[Any, ...] = (Plan, Component, Placements)
for _kind in _KINDS:
    _kind._repr_html_ = html
