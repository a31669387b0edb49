"""The map of a transition: each node before and after, with the slots that change in color, as SVG and as a page."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from html import escape
from itertools import chain
from typing import NamedTuple

from rankplan.moving.changes import LOST, MOVE, RENAME, RESHAPE, RESTART, START, STAY, STOP
from rankplan.moving.sides import Node, Place
from rankplan.moving.transition import PlannedStep, Transition
from rankplan.render.map.text import clean
from rankplan.render.moving import answer_line, gigabytes, summary_lines
from rankplan.words import counted

MOST_NODES = 32
"""Nodes that the map shows: those where something changes first."""
_MOST_STEPS = 512

_COLORS = {
    STAY: "#dddddd",
    RENAME: "#99ddff",
    RESHAPE: "#eedd88",
    RESTART: "#ffaabb",
    MOVE: "#77aadd",
    START: "#44bb99",
    STOP: "#ee8866",
    LOST: "#c4162a",
}
"""By kind, of Paul Tol's "light" scheme; what is lost has the color of a fault."""

_MEANING = {
    STAY: "stays",
    RENAME: "other rank",
    RESHAPE: "other share",
    RESTART: "restarts",
    MOVE: "comes from elsewhere",
    START: "starts",
    STOP: "stops",
    LOST: "is lost",
}

_CELL, _BAR, _GAP, _LEFT, _TOP, _BETWEEN = 84, 20, 4, 120, 92, 56
_LINE = 18
_STYLE = (
    ".page{fill:#fff}.card{fill:#f6f7f9;stroke:#d5d9df}.cell{fill:#fff;stroke:#c3c9d1}"
    "text{font:12px system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;fill:#1b1f24}"
    ".soft{fill:#5b6470}.strong{font-weight:600}.bar{stroke:#000;stroke-opacity:.35}.on{font-size:11px}"
)


class _Bar(NamedTuple):
    """A slot on an accelerator: its component, number, kind, and the bytes that it gets."""

    component: str
    slot: int
    kind: str
    bytes: int | None

    @property
    def text(self) -> str:
        return f"{self.component} {self.slot}"

    @property
    def tip(self) -> str:
        size = "" if self.kind == STAY or not self.bytes else f", gets {gigabytes(self.bytes)}"
        return f"{self.component} slot {self.slot}: {_MEANING[self.kind]}{size}"


Cells = Mapping[tuple[Node, int], list[_Bar]]


def moving_svg(transition: Transition, title: str) -> str:
    """Return the map of a transition as SVG."""
    before, after = _cells(transition)
    nodes = _nodes(transition, before, after)
    shown = nodes[:MOST_NODES]
    widest = max((index + 1 for node, index in (*before, *after) if node in shown), default=1)
    block = widest * (_CELL + _GAP)
    sides = {_LEFT: before, _LEFT + block + _BETWEEN: after}
    legend, legend_end = _legend({bar.kind for cells in (before, after) for bar in _bars(cells)})
    width = max(_LEFT + 2 * block + _BETWEEN + 12, legend_end)
    parts = [_text(16, 26, title, "strong"), _text(16, 46, answer_line(transition), "soft"), *legend]
    for left, name in zip(sides, ("before", "after"), strict=True):
        parts.append(_text(left, _TOP, name, "strong"))
    top = _TOP + 10
    for node in shown:
        columns = {left: _of_node(cells, node, widest) for left, cells in sides.items()}
        height = _card_height(columns)
        parts += _card(clean(transition.node_name(node)), columns, top, width - 16, height)
        top += height + 8
    if len(nodes) > len(shown):
        parts.append(_text(16, top + 14, f"and {counted(len(nodes) - len(shown), 'more node')}", "soft"))
        top += _LINE
    size = f'viewBox="0 0 {width} {top + 12}" width="{width}" height="{top + 12}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size}>\n<title>{escape(clean(title))}</title>'
    page = f'<rect class="page" width="{width}" height="{top + 12}"/>'
    return "\n".join([head, f"<style>{_STYLE}</style>", page, *parts, "</svg>\n"])


def _card_height(columns: Mapping[int, list[list[_Bar]]]) -> int:
    """Return the height of the card of a node, which has room for the bars of its fullest accelerator."""
    lanes = max(len(bars) for cells in columns.values() for bars in cells) or 1
    return 20 + lanes * (_BAR + 2) + 4


def _card(name: str, columns: Mapping[int, list[list[_Bar]]], top: int, width: int, height: int) -> Iterator[str]:
    """Yield the card of a node: by where they start from the left, its accelerators before and after."""
    yield f'<rect class="card" x="8" y="{top}" width="{width}" height="{height}" rx="6"/>'
    yield _text(16, top + 20, name, "strong")
    for left, cells in columns.items():
        for index, bars in enumerate(cells):
            yield from _cell(left + index * (_CELL + _GAP), top + 4, index, bars, height - 8)


def _legend(kinds: Collection[str]) -> tuple[list[str], int]:
    """Return the colors of the kinds of slots with their meanings, in a row, and where it ends."""
    parts: list[str] = []
    left = 16
    for kind, color in _COLORS.items():
        if kind in kinds:
            parts.append(f'<rect class="bar" x="{left}" y="58" width="16" height="12" rx="2" fill="{color}"/>')
            parts.append(_text(left + 22, 68, _MEANING[kind]))
            left += 22 + 7 * len(_MEANING[kind]) + 20
    return parts, left


def moving_page(transition: Transition, title: str) -> str:
    """Return the map of a transition as an HTML page, with its summary and its steps."""
    lines = "\n".join(f"<li>{escape(clean(line))}</li>" for line in summary_lines(transition))
    steps = "\n".join(map(_step_item, transition.steps[:_MOST_STEPS]))
    more = len(transition.steps) - _MOST_STEPS
    rest = f"<p>and {counted(more, 'step')} more</p>" if more > 0 else ""
    return (
        f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>{escape(clean(title))}</title>\n'
        "<style>body{margin:1.25rem;font:13px/1.45 system-ui,-apple-system,'Segoe UI',Roboto,sans-serif;"
        "background:#fff;color:#1b1f24}svg{max-width:100%;height:auto}</style>\n"
        f"<ul>\n{lines}\n</ul>\n{moving_svg(transition, title)}<h2>Steps</h2>\n<ol>\n{steps}\n</ol>\n{rest}</html>\n"
    )


def _step_item(step: PlannedStep) -> str:
    needs = f" after {escape(clean(', '.join(step.needs)))}" if step.needs else ""
    return f"<li><b>{escape(clean(step.id))}</b>{needs}</li>"


def _cells(transition: Transition) -> tuple[Cells, Cells]:
    """Return the slots of each accelerator before and after."""
    before: dict[tuple[Node, int], list[_Bar]] = defaultdict(list)
    after: dict[tuple[Node, int], list[_Bar]] = defaultdict(list)
    received = {(slot.component, slot.slot): slot.bytes for slot in transition.slots}
    for name, component in transition.parts.items():
        changes = component.changes
        kinds: dict[int, str] = {}
        for change in changes.of_after:
            if change.before is not None:
                kinds[change.before.number] = STOP if change.kind == MOVE else change.kind
            if change.after is not None:
                number = change.after.number
                bar = _Bar(name, number, change.kind, received.get((name, number)))
                after[_place(change.after.place)].append(bar)
        # Last: what is lost may continue elsewhere, but its old place is that of a lost slot.
        kinds |= {change.before.number: change.kind for change in changes.gone if change.before is not None}
        for slot in [] if component.before is None else component.before.slots:
            before[_place(slot.place)].append(_Bar(name, slot.number, kinds.get(slot.number, STOP), None))
    return before, after


def _place(place: Place) -> tuple[Node, int]:
    """Return the column of a slot; processes without accelerators are in the first."""
    return place.node, place.local[0] if place.kind == "accelerator" else 0


def _bars(cells: Cells) -> Iterator[_Bar]:
    for bars in cells.values():
        yield from bars


def _of_node(cells: Cells, node: Node, widest: int) -> list[list[_Bar]]:
    return [cells.get((node, index), []) for index in range(widest)]


def _nodes(transition: Transition, before: Cells, after: Cells) -> list[Node]:
    """Return the nodes in use, those where something changes first."""
    used: set[Node] = set()
    changing: set[Node] = set()
    for (node, _), bars in chain(before.items(), after.items()):
        used.add(node)
        if any(bar.kind != STAY for bar in bars):
            changing.add(node)
    return sorted(used, key=lambda node: (node not in changing, node if node >= 0 else 10**9 - node))


def _cell(left: int, top: int, index: int, bars: list[_Bar], height: int) -> Iterator[str]:
    yield f'<rect class="cell" x="{left}" y="{top}" width="{_CELL}" height="{height}" rx="4"/>'
    yield _text(left + _CELL // 2, top + 12, str(index), "soft on", middle=True)
    for lane, bar in enumerate(bars):
        y = top + 16 + lane * (_BAR + 2)
        fill = _COLORS[bar.kind]
        yield f"<g><title>{escape(clean(bar.tip))}</title>"
        yield f'<rect class="bar" x="{left + 3}" y="{y}" width="{_CELL - 6}" height="{_BAR}" rx="3" fill="{fill}"/>'
        text = bar.text if len(bar.text) <= 12 else f"{bar.text[:11]}\N{HORIZONTAL ELLIPSIS}"
        yield _text(left + _CELL // 2, y + 14, text, "on", middle=True) + "</g>"


def _text(x: float, y: float, text: str, style: str = "", *, middle: bool = False) -> str:
    anchor = ' text-anchor="middle"' if middle else ""
    kind = f' class="{style}"' if style else ""
    return f'<text x="{x}" y="{y}"{kind}{anchor}>{escape(clean(text))}</text>'
