"""The map as one SVG file, for light and dark pages, with a tooltip for each band."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib.resources import files
from string import Template
from textwrap import wrap

from rich.cells import cell_len, chop_cells

from rankplan._core import WHOLE_NODE
from rankplan.nodes.inventory import Inventory
from rankplan.plans.plan import Plan
from rankplan.render.lines import reserved_lines, sharing_lines
from rankplan.render.map.domains import EXCLUDED, SPARE, TAKEN, Chart, Row
from rankplan.render.map.markup import (
    CHARACTER,
    MARK,
    SOFT,
    STRONG,
    attributes,
    band_data,
    columns,
    counts,
    fill,
    hatch,
)
from rankplan.render.map.memory import gauge_note, texts_of
from rankplan.render.map.model import MOST_BANDS, Band, Entry, Map, Node, Notes, Strip, map_of, tip
from rankplan.render.map.network import Network
from rankplan.render.map.text import clean
from rankplan.words import nodes_text

_EDGE, _LEFT, _GAP = 16, 136, 4
_INDEX, _LANE, _LINE, _BAR = 16, 24, 16, 7
_HEAD, _FOOT, _BETWEEN = 18, 6, 10
"""Height of the name above the nodes of a frame, and of the space below them; width between two lines."""
_NODE, _STEP = 12, 14
"""Most width of a node in the bar of a domain, and the shift of a level."""

_INK = "#1b1f24"
_LOOK: dict[str, dict[str, object]] = {
    "page": {"fill": "#fff"},
    "card": {"fill": "#f6f7f9", "stroke": "#d5d9df"},
    "cell": {"fill": "#fff", "stroke": "#c3c9d1"},
    "idle": {"fill": "none", "stroke": "#9aa2ad", "stroke_dasharray": "3 3"},
    "bar": {"stroke": "#000", "stroke_opacity": ".35"},
    "hatch": {},
    "taken": {"fill": "#8a94a3"},
    "excluded": {"fill": "none", "stroke": "#9aa2ad", "stroke_dasharray": "3 3"},
    "gap": {"stroke": "#d5d9df", "stroke_width": 1.5, "fill": "none"},
    "free": {"fill": "#d0d5dc"},
    "most": {"fill": "#a9b4c2"},
    "least": {"fill": "#4a5568"},
    "refused": {"fill": "#c5221f"},
    "": {"fill": _INK},
    "soft": {"fill": SOFT},
    "strong": {"fill": _INK, "font_weight": 600},
    "on": {"fill": "#000"},
    "on mark": {"fill": "#000", "font_weight": 600},
}
"""The attributes of each class. Not every renderer reads style sheets; svg.css only adds the dark mode and hovering."""

_MARK: dict[str, object] = {"stroke": MARK, "stroke_opacity": 1, "stroke_width": 3}
"""The frame of processes that differ from a plan."""


def svg(
    plan: Plan,
    title: str = "",
    by: str | None = None,
    most_bands: int = MOST_BANDS,
    notes: Notes | None = None,
    around: Inventory | None = None,
) -> str:
    """Return the map of a plan as SVG; see `map_of` for ``by``, ``notes`` and ``around``."""
    return _Drawing(plan, map_of(plan, by, most_bands, notes, around), clean(title), notes).text()


class _Drawing:
    def __init__(self, plan: Plan, picture: Map, title: str, notes: Notes | None) -> None:
        self._plan = plan
        self._notes = notes
        self._parts: list[str] = []
        self._across, self._cell = columns(picture)
        self._right = _LEFT + self._across * self._cell
        self._network = picture.network
        self._y = _EDGE
        self._title = title or "map"
        if title:
            self._say(_EDGE, title, "strong", size=16, height=24)
        self._say(_EDGE, picture.summary, "soft")
        for line in [*reserved_lines(plan), *sharing_lines(plan)] if notes is None else notes.lines:
            self._paragraph(_EDGE, line.strip(), "soft")
        if picture.gauges:
            self._paragraph(_EDGE, gauge_note(picture.gauges), "soft")
        self._legend(picture.legend, picture.by)
        if picture.chart.rows:
            self._chart(picture.chart)
        self._nodes(picture.nodes)
        if picture.more:
            self._y += 10
            self._paragraph(_EDGE, picture.more, "soft")

    def text(self) -> str:
        width, height = self._right + 2 * _EDGE + _beside(self._network), self._y + _EDGE
        here = files("rankplan.render.map")
        return Template(here.joinpath("map.svg").read_text("utf-8")).substitute(
            size=attributes(viewBox=f"0 0 {width} {height}", width=width, height=height),
            title=escape(self._title),
            style=here.joinpath("svg.css").read_text("utf-8"),
            page=attributes(class_="page", width=width, height=height, rx=6, **_LOOK["page"]),
            parts="\n".join(self._parts),
        )

    def _say(self, x: float, text: str, style: str, size: int = 12, height: int = _LINE) -> None:
        self._text(x, self._y + height - 4, text, style, size)
        self._y += height

    def _paragraph(self, x: float, text: str, style: str) -> None:
        for line in wrap(clean(text), int((self._right + _EDGE - x) / CHARACTER)):
            self._say(x, line, style)

    def _text(self, x: float, y: float, text: str, style: str = "", size: int = 12, anchor: str | None = None) -> None:
        place = attributes(x=f"{x:g}", y=f"{y:g}", class_=style or None)
        more = place + attributes(font_size=size if size != 12 else None, text_anchor=anchor, **_LOOK[style])
        self._parts.append(f"<text{more}>{escape(text)}</text>")

    def _rect(self, x: float, y: float, width: float, height: float, style: str, **more: object) -> None:
        place = attributes(x=f"{x:g}", y=f"{y:g}", width=f"{width:g}", height=f"{height:g}", rx=3, class_=style)
        self._parts.append(f"<rect{place}{attributes(**_LOOK[style] | more)}/>")

    def _bar(self, x: float, y: float, width: float, height: float, color: int | None, *, marked: bool = False) -> None:
        self._rect(x, y, width, height, "bar", fill=fill(color), **(_MARK if marked else {}))
        if pattern := hatch(color):
            self._rect(x, y, width, height, "hatch", fill=f"url(#rankplan-{pattern})")

    def _legend(self, legend: tuple[Entry, ...], by: str | None) -> None:
        x: float = _EDGE
        self._y += 6
        for entry in legend:
            text = f"{entry.name} {counts(entry, by)}"
            shift = 26 if by is None else 0
            width = cell_len(text) * CHARACTER + 20 + shift
            if x > _EDGE and x + width > self._right + _EDGE:
                x, self._y = _EDGE, self._y + 22
            if shift:
                self._bar(x, self._y + 2, 20, 14, entry.index)
            self._text(x + shift, self._y + 13, text)
            x += width
        self._y += 28

    def _chart(self, chart: Chart) -> None:
        """Draw the domains: a line of text for each, and below it the nodes of an innermost one."""
        self._say(_EDGE, chart.summary, "strong")
        means = {TAKEN: "grey", SPARE: "white", EXCLUDED: "dashed"}
        words = [f"{means[state]} if {text}" for state, text in chart.states.items() if state in means]
        self._paragraph(
            _EDGE, f"bars are nodes: {', '.join(['in the color of a component if in use', *words])}", "soft"
        )
        unit = min(_NODE, (self._right - _EDGE - 4 * _STEP) / chart.widest)
        for row in chart.rows:
            self._row(row, unit)
        for line in filter(None, (chart.more, *chart.notes)):
            self._paragraph(_EDGE, line, "soft")
        self._y += 4

    def _row(self, row: Row, unit: float) -> None:
        x, start = _EDGE + row.depth * _STEP, len(self._parts)
        self._paragraph(x, f"{row.name}: {row.text()}", "")
        if row.innermost:
            at: float = x
            for share in row.shares:
                width, stripes = share.count * unit, len(share.components)
                style = {SPARE: "cell", TAKEN: "taken", EXCLUDED: "excluded"}.get(share.state, "bar")
                for index, component in enumerate(share.components or [None]):
                    height = 10 / max(stripes, 1)
                    more = {} if component is None else {"fill": fill(component)}
                    self._rect(at, self._y + index * height, width, height, style, **more)
                at += width
            if unit >= 4:
                path = "".join(f"M{x + count * unit:g} {self._y}v10" for count in range(1, row.size))
                self._parts.append(f"<path{attributes(class_='gap', d=path or None, **_LOOK['gap'])}/>")
            self._y += 16
        title = f"<title>{escape(f'{row.name}: {nodes_text(row.nodes)}')}</title>"
        self._parts[start:] = ['<g class="domain">' + title, *self._parts[start:], "</g>"]

    def _nodes(self, nodes: Sequence[Node]) -> None:
        """Draw the nodes, with frames around those of a domain and lines between those of a crossing group."""
        boxes, back = [], len(self._parts)
        for index, node in enumerate(nodes):
            opening = self._network.opening(index)
            self._y += _HEAD * len(opening)
            top = self._y + 10
            self._node(node)
            boxes.append((top, self._y))
            self._y += _FOOT * self._network.closing(index)
        frames, lines = _drawn(self._network, boxes, _EDGE, self._right + _EDGE)
        self._parts[back:] = frames + self._parts[back:] + lines
        if self._network.more:
            self._paragraph(_EDGE, self._network.more, "soft")

    def _node(self, node: Node) -> None:
        self._y += 10
        top, card = self._y, len(self._parts)
        self._text(_EDGE + 12, top + 24, _fitted(f"node {node.rank}", _LEFT - 20), "strong", 13)
        for number, fact in enumerate(node.facts, 1):
            self._text(_EDGE + 12, top + 24 + number * _LINE, _fitted(fact, _LEFT - 20), "soft")
        least = top + 24 + len(node.facts) * _LINE + 10
        self._y += 6
        for strip in node.strips:
            for part in strip.parts(self._across):
                self._part(part)
            if strip.rest:
                self._paragraph(_LEFT, strip.rest, "soft")
        self._y = max(self._y + 8, least)
        if node.same:
            self._paragraph(_EDGE + 12, node.same, "strong")
            self._y += 8
        height, cards = self._y - top, (8, 4, 0) if node.same else (0,)
        back = len(self._parts)
        for shift in cards:
            self._rect(_EDGE + shift, top + shift, self._right - shift, height, "card")
        self._parts[card:] = self._parts[back:] + self._parts[card:back]
        self._y += cards[0]

    def _part(self, part: Strip) -> None:
        lanes = part.packed()
        top = self._y + _INDEX
        height = max(len(lanes), 1) * _LANE + _GAP + len(part.phases) * _BAR
        for column, index in enumerate(part.cells if part.resource != WHOLE_NODE else ()):
            x, width = _LEFT + column * self._cell, self._cell - _GAP
            self._text(x + width / 2, top - 4, _fitted(part.name(index), width), "soft", 10, "middle")
            word = "idle" if index in part.idle else "excluded" if index in part.excluded else ""
            self._rect(x, top, width, height, "idle" if word else "cell")
            if word:
                self._text(x + width / 2, top + height / 2 + 4, _fitted(word, width), "soft", 11, "middle")
        if part.resource == WHOLE_NODE:
            self._text(_LEFT, top - 4, "by node", "soft", 10)
        for row, bands in enumerate(lanes):
            for band in bands:
                self._band(band, part, top + _GAP + row * _LANE)
        for index in part.gauges:
            self._memory(part, index, top + height - len(part.phases) * _BAR)
        self._y = top + height

    def _memory(self, part: Strip, index: int, y: float) -> None:
        title = escape("\n".join(texts_of(part.gauges, [index])))
        self._parts.append(f'<g class="memory"><title>{title}</title>')
        x, width = _LEFT + (index - part.cells[0]) * self._cell + _GAP, self._cell - 3 * _GAP
        rows = {name: row for row, name in enumerate(part.phases)}
        for one in (one for one in part.gauges[index] if one.name in rows):
            at = y + rows[one.name] * _BAR
            self._rect(x, at, width, _BAR - 2, "free")
            self._rect(x, at, width * one.most, _BAR - 2, "refused" if one.refused else "most")
            self._rect(x, at, width * one.least, _BAR - 2, "refused" if one.refused else "least")
        self._parts.append("</g>")

    def _band(self, band: Band, part: Strip, y: float) -> None:
        x, width = _LEFT, self._across * self._cell - _GAP
        if part.resource != WHOLE_NODE:
            x += (band.cells[0] - part.cells[0]) * self._cell + _GAP
            width = len(band.cells) * self._cell - 3 * _GAP
        height = _LANE - _GAP
        title = escape(tip(self._plan, band, part, self._notes))
        self._parts.append(f'<g class="band"{band_data(band, part)}><title>{title}</title>')
        self._bar(x, y, width, height, band.color, marked=band.marked)
        numbers = band.text(max(int((width - 8) / STRONG), 1))
        name = _fitted(band.component.name, width - 8 - (len(numbers) + 0.5) * STRONG)
        # Two texts: not every renderer centers one text of two weights.
        middle = x + width / 2 + (cell_len(name) * CHARACTER - len(numbers) * STRONG) / 2
        if name:
            self._text(middle - 2, y + height / 2 + 4, name, "on", anchor="end")
        shift = 2 if name else len(numbers) * STRONG / 2
        anchor = "start" if name else "middle"
        self._text(middle + shift, y + height / 2 + 4, numbers, "on mark", anchor=anchor)
        self._parts.append("</g>")


def _beside(network: Network) -> int:
    """Return the space that lines take beside the nodes, in addition to the margin."""
    return (len(network.lines) + 1) * _BETWEEN if network.lines else 0


def _drawn(
    network: Network, boxes: Sequence[tuple[float, float]], left: float, right: float
) -> tuple[list[str], list[str]]:
    """Return the frames, which belong behind the nodes, and the lines, which belong before them.

    ``boxes`` has the top and the bottom of each node, ``left`` and ``right`` are their sides.
    """
    inset = min(5.0, 14 / max(network.depth, 1))  # the frames of all levels fit into the margin
    frames = []
    for frame in network.frames:
        inside = network.depth - frame.depth
        above = sum(1 for other in network.opening(frame.first) if other.depth >= frame.depth)
        below = sum(1 for other in network.frames if other.last == frame.last and other.depth >= frame.depth)
        top, bottom = boxes[frame.first][0] - above * _HEAD, boxes[frame.last][1] + below * _FOOT
        x, width = left - inside * inset, right - left + 2 * inside * inset
        place = attributes(x=f"{x:g}", y=f"{top:g}", width=f"{width:g}", height=f"{bottom - top:g}", rx=6)
        look = attributes(class_="frame", fill="none", stroke="#8a94a3", stroke_dasharray="6 3")
        text = attributes(x=f"{x + 8:g}", y=f"{top + 13:g}", class_="soft", font_size=11, fill=SOFT)
        frames.append(f"<rect{look}{place}/>\n<text{text}>{escape(frame.name)}</text>")
    lines = []
    for lane, line in enumerate(network.lines, 1):
        x = right + network.depth * inset + lane * _BETWEEN
        middles = [(boxes[node][0] + boxes[node][1]) / 2 + lane * 3 - 12 for node in line.nodes]
        path = "".join(f"M{right:g} {y:g}H{x:g}" for y in middles) + f"M{x:g} {middles[0]:g}V{middles[-1]:g}"
        style = attributes(d=path, stroke=fill(line.component), stroke_width=2.5, fill="none")
        lines.append(f'<g class="crossing"><title>{escape(line.text)}</title><path{style}/></g>')
    return frames, lines


def _fitted(text: str, width: float) -> str:
    """Return the text within ``width`` pixels, with an ellipsis if cut; empty if not even that fits."""
    room = int(width / CHARACTER)
    if cell_len(text) <= room:
        return text
    return f"{chop_cells(text, room - 1)[0]}\N{HORIZONTAL ELLIPSIS}" if room > 1 else ""
