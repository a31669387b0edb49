"""Shared by the formats: colors, escaped attributes, the data of a band, and the size of cells."""

from __future__ import annotations

from html import escape

from rich.cells import cell_len

from rankplan._core import RankSet
from rankplan.render.map.model import Band, Entry, Map, Strip
from rankplan.words import counted

CHARACTER, STRONG = 6.8, 7.6
"""Mean width of a 12-pixel character and of a bold digit, in a wide common font."""
SOFT = "#5b6470"
"""The color of text that is read second."""
MARK = "#c4162a"
"""The color of the frame around processes that differ from a plan."""
_FILLS = ("#77aadd", "#ee8866", "#eedd88", "#ffaabb", "#99ddff", "#44bb99", "#bbcc33", "#aaaa00")
"""Paul Tol's "light" scheme, made for labelled cells, in his order; https://personal.sron.nl/~pault/."""
_PLAIN = "#dddddd"
"""The scheme's grey, for bands without a color of their own."""
_HATCHES = ("", "up", "down", "across")
"""Patterns that distinguish repeated colors."""
_LEAST_ACROSS, _MOST_ACROSS = 4, 16
_LEAST_CELL, _MOST_CELL = 72, 132


def fill(index: int | None) -> str:
    """Return the color with this index; grey without one."""
    return _PLAIN if index is None else _FILLS[index % len(_FILLS)]


def hatch(index: int | None) -> str:
    """Return the pattern on the color: empty for its first use."""
    return "" if index is None else _HATCHES[index // len(_FILLS) % len(_HATCHES)]


def attributes(**values: object) -> str:
    """Return attributes of an element, each after a blank, without those that are ``None``.

    In a name, ``_`` becomes ``-``, and a trailing ``_`` is removed.
    """
    given = {name.rstrip("_").replace("_", "-"): value for name, value in values.items() if value is not None}
    return "".join(f' {name}="{escape(str(value))}"' for name, value in given.items())


def band_data(band: Band, strip: Strip) -> str:
    """Return the attributes of a band for scripts and tests."""
    return attributes(
        data_component=band.component.name,
        data_ranks=band.ranks,
        data_node=band.node,
        data_resource=strip.resource,
        data_cells=RankSet(band.cells),
        data_groups=band.groups or None,
    )


def columns(picture: Map) -> tuple[int, int]:
    """Return the number of cells side by side, and the width of a cell in pixels."""
    across = min(max(picture.across, _LEAST_ACROSS), _MOST_ACROSS)
    longest = (
        (cell_len(band.component.name) * CHARACTER + len(str(band.ranks)) * STRONG) / len(band.cells)
        for band in picture.bands
    )
    return across, min(max(int(max(longest, default=0)) + 26, _LEAST_CELL), _MOST_CELL if across <= 8 else _LEAST_CELL)


def counts(entry: Entry, by: str | None) -> str:
    """Return the number of processes of a component and, if the map shows groups of a kind, of these."""
    groups = f", {counted(entry.groups, f'{by} group')}" if entry.groups else ""
    return f"\N{MULTIPLICATION SIGN} {entry.processes:,}{groups}"
