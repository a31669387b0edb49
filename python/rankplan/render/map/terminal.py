"""The map on a terminal: one line per component, cells in columns; colors only repeat the text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from textwrap import wrap

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from rankplan._core import WHOLE_NODE
from rankplan.render.map.domains import EXCLUDED, SPARE, TAKEN, USED, Chart, Row
from rankplan.render.map.markup import fill
from rankplan.render.map.memory import Gauge, gauge_labels
from rankplan.render.map.model import Entry, Map, Strip
from rankplan.words import counted

_MOST_NAME, _MOST_RANKS = 24, 17
_LEAST, _MOST, _FREE, _REFUSED = "#", "=", ".", "!"
"""Characters of the bar of a phase."""
_CELL = 7
"""Width of a cell in characters, if there is room and its ranks fit."""
_NODES = {USED: "#", SPARE: ".", TAKEN: "+", EXCLUDED: "x"}
"""A character for each node of a domain."""
_MOST_BAR, _LEAST_ROOM = 24, 24


def lines(picture: Map, width: int) -> Iterator[Text]:
    """Yield the map in lines of ``width`` characters; sentences may be longer.

    Domains whose nodes are shown one by one are headings above them.
    """
    names = max((cell_len(component.name) for component in picture.legend), default=0)
    labels = gauge_labels(picture.gauges)
    phases = max(map(cell_len, labels.values()), default=0)
    margin = min(max(names, phases, len("accelerator")), _MOST_NAME, width // 3) + 4
    cell, across = _columns(picture, width - margin)
    yield Text(picture.summary)
    yield from _legend(picture.legend, picture.by, width)
    if picture.chart.rows:
        yield Text()
        yield from _chart(picture.chart, width)
    for index, node in enumerate(picture.nodes):
        yield Text()
        for frame in picture.network.opening(index):
            yield Text(f"{'  ' * frame.depth}{frame.name}", "italic")
        yield Text.assemble((f"node {node.rank}", "bold"), f"  {', '.join(node.facts)}")
        for strip in node.strips:
            if strip.resource == WHOLE_NODE:
                yield from _by_node(strip, margin, width)
                continue
            for part in strip.parts(across):
                yield from _part(part, margin, cell, labels)
            if strip.rest:
                yield Text(f"{' ' * margin}{strip.rest}")
        if node.same:
            yield Text(node.same, "italic")
    if picture.gauges:
        yield Text(f"\nmemory of a phase: {_LEAST} at least, {_MOST} at most, {_FREE} free, {_REFUSED} refused", "dim")
    if picture.more:
        yield Text.assemble("\n", (picture.more, "italic"))


def _chart(chart: Chart, width: int) -> Iterator[Text]:
    """Yield a line for each domain, what the characters mean, and the notes about the network."""
    yield Text(chart.summary)
    names = min(max(cell_len(_indented(row)) for row in chart.rows), max(width // 3, 8))
    bar = min(chart.widest, _MOST_BAR)
    for row in chart.rows:
        line = Text(_fitted(_indented(row), names) + "  ")
        if row.innermost:
            _draw(line, row, bar)
        margin = line.cell_len
        first, *more = wrap(row.text(), max(width - margin, _LEAST_ROOM))
        yield line.append(first)
        yield from (Text(" " * margin + text) for text in more)
    if chart.more:
        yield Text(f"  {chart.more}", "italic")
    meanings = ", ".join(f"{_NODES[state]} {meaning}" for state, meaning in chart.states.items())
    yield Text(f"  {'each node' if bar == chart.widest else 'nodes, to scale'}: {meanings}", "dim")
    for note in chart.notes:
        yield from map(Text, wrap(note, width, subsequent_indent="  "))


def _draw(line: Text, row: Row, most: int) -> None:
    """Append a bar with a character for each node of a domain, or for several of a large one."""
    used = 0
    for share, wanted in zip(row.shares, row.widths(most), strict=True):
        width = min(wanted, most - used)
        used += width
        line.append(_NODES[share.state] * width, f"black on {fill(share.components[0])}" if share.components else "")
    line.append(" " * (most - used + 2))


def _indented(row: Row) -> str:
    return "  " * (row.depth + 1) + row.name


def _columns(picture: Map, room: int) -> tuple[int, int]:
    """Return the width of a cell, and the number of cells side by side."""
    ranks = (len(str(band.groups or band.ranks)) // len(band.cells) for band in picture.bands)
    least = min(max(ranks, default=0), _MOST_RANKS) + len("[] ")
    most, cell = picture.across, max(_CELL, least)
    if cell * min(most, 8) > room:
        cell = max(least, len("[ 0] "))
    fits = max(room // cell, 1)
    return cell, most if most <= fits else max(count for count in (1, 2, 4, 8, 16, 32, 64) if count <= fits)


def _legend(legend: tuple[Entry, ...], by: str | None, width: int) -> Iterator[Text]:
    line = Text()
    for component in legend:
        groups = f" in {counted(component.groups, f'{by} group')}" if component.groups else ""
        style = f"black on {fill(component.index)}" if by is None else ""
        entry = Text.assemble((component.name, style), f" {component.processes:,}{groups}")
        if line and line.cell_len + 3 + entry.cell_len > width:
            yield line
            line = Text()
        line = Text("   ").join([line, entry]) if line else entry
    if line:
        yield line


def _part(part: Strip, margin: int, cell: int, labels: Mapping[str, str]) -> Iterator[Text]:
    yield _row(part.resource, map(str, part.cells), margin, cell)
    for lane in part.lanes:
        line, end = Text(_name(lane[0].component.name, margin)), part.cells[0]
        for band in lane:
            line.append(" " * (cell * (band.cells.start - end)))
            room = cell * len(band.cells) - 3
            line.append(f"[{band.text(room).center(room)}]", f"black on {fill(band.color)}")
            line.append(" ")
            end = band.cells.stop
        line.rstrip()
        yield line
    yield from _gauges(part, margin, cell, labels)
    if part.idle:
        yield _row("idle", ("-" if index in part.idle else "" for index in part.cells), margin, cell)
    if part.excluded:
        yield _row("excluded", ("x" if index in part.excluded else "" for index in part.cells), margin, cell)


def _gauges(part: Strip, margin: int, cell: int, labels: Mapping[str, str]) -> Iterator[Text]:
    """Yield a line for each phase: of each accelerator, a bar as long as it, with what the phase needs."""
    for name in part.phases:
        line = Text(_name(labels[name], margin), "dim")
        for index in part.cells:
            found = [one for one in part.gauges.get(index, ()) if one.name == name]
            line.append_text(_gauge(found[0], cell - 1) if found else Text(" " * (cell - 1)))
            line.append(" ")
        line.rstrip()
        yield line


def _gauge(gauge: Gauge, width: int) -> Text:
    least = max(round(gauge.least * width), 1)
    most = max(round(gauge.most * width), least)
    if gauge.refused:
        return Text(_LEAST * (width - 1) + _REFUSED, "red")
    return Text(_LEAST * least + _MOST * (most - least) + _FREE * (width - most))


def _row(name: str, texts: Iterable[str], margin: int, cell: int) -> Text:
    return Text((_name(name, margin) + "".join(text.center(cell - 1) + " " for text in texts)).rstrip(), "dim")


def _by_node(strip: Strip, margin: int, width: int) -> Iterator[Text]:
    for lane in strip.lanes:
        name, ranks = _name(lane[0].component.name, margin), lane[0].text(width - margin - 12)
        yield Text.assemble(name, (f"[ {ranks} ]", f"black on {fill(lane[0].color)}"), (" by node", "dim"))


def _name(name: str, margin: int) -> str:
    """Return a name, padded or cut to the common width, as the start of a line."""
    return "  " + _fitted(name, margin - 4) + "  "


def _fitted(name: str, room: int) -> str:
    """Return a name, padded or cut to a width."""
    return set_cell_size(name if cell_len(name) <= room else set_cell_size(name, room - 3) + "...", room)
