"""The map as one self-contained HTML file, with tooltips and a component filter that works by keyboard."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from importlib.resources import files
from string import Template

from rankplan._core import WHOLE_NODE
from rankplan.nodes.inventory import Inventory
from rankplan.plans.plan import Plan
from rankplan.render.lines import reserved_lines, sharing_lines
from rankplan.render.map.domains import Chart, Row
from rankplan.render.map.markup import attributes, band_data, columns, counts, fill, hatch
from rankplan.render.map.memory import gauge_note, texts_of
from rankplan.render.map.model import Band, Entry, Map, Node, Notes, Strip, map_of, tip
from rankplan.render.map.text import clean
from rankplan.words import nodes_text

_ROOM, _WIDE = 32, 8
"""Most characters of numbers per cell, and the cells of a band as wide as the page; the page cuts longer texts."""
_MOST_APART = 64
"""The most nodes of a domain that its bar shows one by one."""


def page(
    plan: Plan, title: str, by: str | None = None, notes: Notes | None = None, around: Inventory | None = None
) -> str:
    """Return the map of a plan as an HTML page; see `map_of` for ``by``, ``notes`` and ``around``."""
    picture = map_of(plan, by, notes=notes, around=around)
    lines = [*reserved_lines(plan), *sharing_lines(plan)] if notes is None else notes.lines
    across, width = columns(picture)
    here = files("rankplan.render.map")
    return Template(here.joinpath("page.html").read_text("utf-8")).substitute(
        title=escape(clean(title)),
        style=here.joinpath("page.css").read_text("utf-8"),
        script=here.joinpath("page.js").read_text("utf-8"),
        summary=escape(picture.summary),
        legend="\n".join(_entry(entry, by) for entry in picture.legend),
        notes="\n".join(
            f"<li>{escape(clean(line.strip()))}</li>" for line in (*lines, gauge_note(picture.gauges)) if line
        ),
        across=across,
        width=width,
        network=_chart(picture.chart) if picture.chart.rows else "",
        nodes="\n".join(_nodes(picture, plan, across, notes)),
        more=f'<p class="more">{escape(picture.more)}</p>' if picture.more else "",
    )


def _color(index: int | None) -> dict[str, str]:
    return {"class_": f"bar {hatch(index)}".strip(), "style": f"--fill:{fill(index)}"}


def _entry(entry: Entry, by: str | None) -> str:
    swatch = f"<span{attributes(**_color(entry.index))}></span>" if by is None else ""
    return (
        f'<button type="button" aria-pressed="false"{attributes(data_component=entry.name)}>'
        f"{swatch}{escape(entry.name)} <small>{escape(counts(entry, by))}</small></button>"
    )


def _chart(chart: Chart) -> str:
    meanings = "".join(f'<li><span class="run {state}"></span>{text}</li>' for state, text in chart.states.items())
    rows = "\n".join(map(_row, chart.rows))
    notes = "".join(f"<li>{escape(note)}</li>" for note in filter(None, (chart.more, *chart.notes)))
    look = "network" if chart.widest <= _MOST_APART else "network many"
    return (
        f'<section class="{look}" aria-label="network" style="--widest:{chart.widest}">\n'
        f"<h2>{escape(chart.summary)}</h2>\n"
        f'<ul class="key">{meanings}</ul>\n{rows}\n<ul>{notes}</ul>\n</section>'
    )


def _row(row: Row) -> str:
    runs = "".join(
        f'<span class="run {share.state}" style="--nodes:{share.count}{_stripes(share.components)}"></span>'
        for share in (row.shares if row.innermost else ())
    )
    bar = f'<span class="nodes">{runs}</span>' if runs else ""
    title = attributes(title=f"{row.name}: {nodes_text(row.nodes)}")
    return (
        f'<div class="domain" style="--depth:{row.depth}"{title}><b>{escape(row.name)}</b>{bar}'
        f"<span>{escape(row.text())}</span></div>"
    )


def _stripes(components: Sequence[int]) -> str:
    """Return the colors of components as stripes, one below the other."""
    if not components:
        return ""
    each = 100 / len(components)
    stops = (f"{fill(one)} {at * each:.4g}% {(at + 1) * each:.4g}%" for at, one in enumerate(components))
    return f";--fill:linear-gradient({','.join(stops)})"


def _nodes(picture: Map, plan: Plan, across: int, notes: Notes | None) -> Iterator[str]:
    """Yield the nodes, with frames around those of a domain."""
    for index, node in enumerate(picture.nodes):
        for frame in picture.network.opening(index):
            yield f'<div class="frame"><p>{escape(frame.name)}</p>'
        crossing = "".join(
            f'<p class="crossing"><span{attributes(**_color(line.component))}></span>{escape(line.text)}</p>'
            for line in picture.network.crossing(index)
        )
        yield _node(node, plan, across, notes, crossing)
        yield "</div>" * picture.network.closing(index)
    if picture.network.more:
        yield f'<p class="more">{escape(picture.network.more)}</p>'


def _node(node: Node, plan: Plan, across: int, notes: Notes | None, crossing: str = "") -> str:
    strips = "\n".join(text for strip in node.strips for text in _strip(strip, plan, across, notes))
    facts = "".join(f"<span>{escape(fact)}</span> " for fact in node.facts)
    same = f'<p class="same">{escape(node.same)}</p>' if node.same else ""
    return (
        f'<section class="node{" fold" if node.same else ""}" aria-label="node {node.rank}">\n'
        f"<header><h2>node {node.rank}</h2><p>{facts}</p></header>\n"
        f'<div class="strips">\n{strips}\n</div>\n{same}{crossing}</section>'
    )


def _strip(strip: Strip, plan: Plan, across: int, notes: Notes | None) -> Iterator[str]:
    for part in strip.parts(across):
        lanes = part.packed()
        yield f'<div class="strip"{attributes(style=f"--lanes:{max(len(lanes), 1)}")}>'
        if part.resource == WHOLE_NODE:
            yield '<span class="index wide">by node</span>'
        for column, index in enumerate(part.cells if part.resource != WHOLE_NODE else (), 1):
            yield f'<span class="index" style="grid-column:{column}">{escape(part.name(index))}</span>'
            kind, text = ("cell idle", "idle") if index in part.idle else ("cell", "")
            yield f'<div class="{kind}" style="grid-column:{column}">{text}</div>'
            if index in part.gauges:
                yield _memory(part, index, column, len(lanes) or 1)
        for row, bands in enumerate(lanes, 2):
            yield from (_band(band, part, row, plan, notes) for band in bands)
        yield "</div>"
    if strip.rest:
        yield f'<p class="rest">{escape(strip.rest)}</p>'


def _memory(part: Strip, index: int, column: int, lanes: int) -> str:
    rows = {name: row for row, name in enumerate(part.phases, 1)}
    bars = "".join(
        f"<span{attributes(class_='refused' if one.refused else None)} "
        f'style="grid-row:{rows[one.name]};--least:{one.least:.1%};--most:{one.most:.1%}"></span>'
        for one in part.gauges[index]
        if one.name in rows
    )
    title = "\n".join(texts_of(part.gauges, [index]))
    return (
        f'<div class="memory"{attributes(title=title)} style="grid-column:{column};grid-row:{lanes + 2}">{bars}</div>'
    )


def _band(band: Band, part: Strip, row: int, plan: Plan, notes: Notes | None) -> str:
    color = _color(band.color)
    color["style"] += f";grid-row:{row}"
    color["class_"] += " band marked" if band.marked else " band"
    if part.resource == WHOLE_NODE:
        color["class_"] += " wide"
    else:
        color["style"] += f";grid-column:{band.cells[0] - part.cells[0] + 1} / span {len(band.cells)}"
    more = attributes(title=tip(plan, band, part, notes), role="img", tabindex=-1, **color)
    ranks = band.text(_ROOM * (_WIDE if part.resource == WHOLE_NODE else len(band.cells)))
    return f"<div{more}{band_data(band, part)}><b>{escape(band.component.name)}</b> <i>{escape(ranks)}</i></div>"
