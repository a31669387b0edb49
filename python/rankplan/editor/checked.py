"""The text of an editor's buffer, checked: its diagnostics with their ranges, and the quick fixes of these.

Positions count characters from 0; the server converts them to the units of the editor.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import field
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from lsprotocol import types

from rankplan.dialects import with_guests
from rankplan.errors import Diagnostic, Label, PlacementError
from rankplan.files import unreadable
from rankplan.front.api import check
from rankplan.front.job import Nodes
from rankplan.frozen import frozen
from rankplan.jobs.recognising import JOB
from rankplan.marks import has_mark
from rankplan.read.text.document import Document, Section
from rankplan.read.text.load import SCRIPTS, load_config
from rankplan.render.report import Report

_BREAK = re.compile(r"\r\n|\r|\n")
_TOP = re.compile(r"^[\"']?(\w+)[\"']?[ \t]*:", re.MULTILINE)
_REPLACE = re.compile(r"(?:did you mean|rename it to) `([^`]+)`\??")
_RENAME = re.compile(r"rename `([^`]+)` to `([^`]+)`")
_WRITE = re.compile(r"write ([0-9][0-9,:-]*)")


_OF_CONFIG = (JOB, "dialect", "overrides")
"""The keys of a job file that decide which components there are."""


@frozen
class Options:
    """What the checks of all buffers have in common; see `rankplan.check`."""

    nodes: Nodes | None = None
    dialect: str | None = None
    without: tuple[str, ...] = ()


@frozen
class Checked:
    """What `rankplan.check` finds in a text, as if it were the content of its file.

    ``config`` is ``None`` if the text cannot be read.
    """

    file: str
    text: str
    config: Section | None
    report: Report
    lines: list[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "lines", _BREAK.split(self.text))

    @property
    def root(self) -> yaml.Node | None:
        """The nodes of the text, if it is YAML that can be read."""
        document: Any = None if self.config is None else self.config.document
        return document.root if isinstance(document, Document) and document.file == self.file else None

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """Every fault and warning; none for a file that is no job, or that rankplan has written for a launcher."""
        if has_mark(self.text.encode(errors="replace")):
            return ()
        unread = self.config is None and self.report.faults and self.report.faults[0].code != "unreadable"
        if unread and Path(self.file).suffix not in SCRIPTS and not _telling().intersection(_TOP.findall(self.text)):
            return ()
        return self.report.diagnostics if self.report.is_job else ()

    @property
    def components(self) -> tuple[str, ...]:
        """The components of the plan; of a job file with faults, those of its trainer's config."""
        plan = self.report.plan
        if plan is None and self.config is not None and JOB in self.config:
            bare = Section(self.config.document, ())
            bare.update({key: self.config[key] for key in _OF_CONFIG if key in self.config})
            plan = check(bare).plan
        return () if plan is None else tuple(plan)

    def range(self, one: Diagnostic, label: Label | None = None) -> types.Range:
        """Return what a diagnostic, or one of its labels, marks; the first line if it has no place in this text."""
        if one.line is None or one.file != self.file:
            return _span(0, 0, len(self.lines[0]))
        line = min(one.line, len(self.lines)) - 1
        label = label or (one.labels[0] if one.labels else None)
        length = len(self.lines[line].rstrip())
        if one.source is None or label is None:
            return _span(line, min((one.column or 1) - 1, length), length)
        start = min(one.offset + label.start, max(length - 1, 0))
        return _span(line, start, max(min(one.offset + label.end, length), start + 1))

    def in_range(self, place: types.Range) -> str:
        """Return the text of a range within a line."""
        return self.lines[place.start.line][place.start.character : place.end.character]

    def changed(self, place: types.Range, new: str) -> str:
        """Return the text with a range within a line replaced."""
        starts = [0, *(found.end() for found in _BREAK.finditer(self.text))]
        start = starts[place.start.line]
        return self.text[: start + place.start.character] + new + self.text[start + place.end.character :]


@cache
def _telling() -> set[str]:
    """Return the keys at the top of configs of jobs, by which a text that is no valid YAML counts as one."""
    keys = {"cluster", JOB}
    for dialect in with_guests():
        keys |= {str(path[0]) for path in (*dialect.keys.telling, *dialect.keys.alone)}
        keys.update(*(key.sections for key in dialect.keys.keys))
    return keys


def _span(line: int, start: int, end: int) -> types.Range:
    return types.Range(types.Position(line, start), types.Position(line, end))


def checked(text: str, file: str, options: Options) -> Checked:
    """Check a text under the name of its file."""
    config: Section | None = None
    try:
        config = load_config(file, text=text)
        report = check(config, options.nodes, dialect=options.dialect, without=options.without)
    except PlacementError as error:
        report = Report(file, None, error.diagnostics)
    except OSError as error:
        message = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        report = Report(file, None, (unreadable(file, message),))
    return Checked(file, text, config, report)


@frozen
class Fix:
    """A change of a range that removes a fault."""

    title: str
    place: types.Range
    new: str


def fix(buffer: Checked, one: Diagnostic, options: Options) -> Fix | None:
    """Return the change that the help of a diagnostic states, if it states exactly one.

    The changed text is checked: a change that leaves the fault, or that leaves no readable config, is none.
    """
    for found in _stated(buffer, one):
        after = checked(buffer.changed(found.place, found.new), buffer.file, options)
        left = {(other.code, other.message) for other in after.report.diagnostics}
        if after.config is not None and (one.code, one.message) not in left:
            return found
    return None


def _stated(buffer: Checked, one: Diagnostic) -> Iterator[Fix]:
    if one.help is None or one.line is None or one.file != buffer.file:
        return
    place = buffer.range(one)
    marked = buffer.in_range(place)
    if (found := _RENAME.fullmatch(one.help)) is not None:
        old, new = found.groups()
        places = [place] if marked == old else [*_keys_named(buffer.root, old)]
        if len(places) == 1:
            yield Fix(f"Rename `{old}` to `{new}`", places[0], new)
    elif (found := _REPLACE.fullmatch(one.help)) is not None:
        # The message names what is wrong: a mark with more in it would be replaced as a whole.
        word = re.escape(marked.strip("\"'"))
        if word and re.search(rf"(?<![\w-]){word}(?![\w-])", one.message):
            yield Fix(f"Replace with `{found[1]}`", place, found[1])
    elif (found := _WRITE.fullmatch(one.help)) is not None:
        yield Fix(f"Replace with `{found[1]}`", place, found[1])
    elif one.help == "remove the quotes" and marked[:1] in ("'", '"') and marked[-1:] == marked[:1]:
        yield Fix("Remove the quotes", place, marked[1:-1])


def _keys_named(root: yaml.Node | None, name: str) -> Iterator[types.Range]:
    """Yield the places of the keys with a name."""
    nodes, seen = [root], set[int]()
    while nodes:
        node = nodes.pop()
        if not isinstance(node, yaml.CollectionNode) or id(node) in seen:
            continue
        seen.add(id(node))
        for item in node.value:
            nodes.append(item[1] if isinstance(item, tuple) else item)
            if isinstance(item, tuple) and isinstance(item[0], yaml.ScalarNode) and item[0].value == name:
                start, end = item[0].start_mark, item[0].end_mark
                yield _span(start.line, start.column, end.column)
