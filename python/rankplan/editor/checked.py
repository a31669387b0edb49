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
        if not self.report.is_job or (self._is_invalid and not self._looks_like_a_job):
            return ()
        return self.report.diagnostics

    @property
    def _is_invalid(self) -> bool:
        """Whether the text is there, but nothing can be read from it."""
        faults = self.report.faults
        return self.config is None and bool(faults) and faults[0].code != "unreadable"

    @property
    def _looks_like_a_job(self) -> bool:
        """Whether the text is that of a script, or has a key of a job at the start of a line."""
        return Path(self.file).suffix in SCRIPTS or not _telling().isdisjoint(_TOP.findall(self.text))

    @property
    def components(self) -> tuple[str, ...]:
        """The components of the plan; of a job file with faults, those of its trainer's config."""
        plan = self.report.plan
        if plan is None and self.config is not None and JOB in self.config:
            bare = Section(self.config.document, ())
            bare.update({key: self.config[key] for key in _OF_CONFIG if key in self.config})
            plan = check(bare).plan
        return () if plan is None else tuple(plan)

    def range(self, diagnostic: Diagnostic, label: Label | None = None) -> types.Range:
        """Return what a diagnostic, or one of its labels, marks; the first line if it has no place in this text."""
        if diagnostic.line is None or diagnostic.file != self.file:
            return _span(0, 0, len(self.lines[0]))
        if label is None and diagnostic.labels:
            label = diagnostic.labels[0]
        line = min(diagnostic.line, len(self.lines)) - 1
        length = len(self.lines[line].rstrip())
        if diagnostic.source is None or label is None:
            column = (diagnostic.column or 1) - 1
            return _span(line, min(column, length), length)
        start = min(diagnostic.offset + label.start, max(length - 1, 0))
        end = min(diagnostic.offset + label.end, length)
        return _span(line, start, max(end, start + 1))

    def in_range(self, place: types.Range) -> str:
        """Return the text of a range within a line."""
        return self.lines[place.start.line][place.start.character : place.end.character]

    def changed(self, place: types.Range, new: str) -> str:
        """Return the text with a range within a line replaced."""
        starts = [0, *(line_break.end() for line_break in _BREAK.finditer(self.text))]
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


def fix(buffer: Checked, diagnostic: Diagnostic, options: Options) -> Fix | None:
    """Return the change that the help of a diagnostic states, if it states exactly one.

    The changed text is checked: a change that leaves the fault, or that leaves no readable config, is none.
    """
    change = _change_in_help(buffer, diagnostic)
    if change is None:
        return None
    after = checked(buffer.changed(change.place, change.new), buffer.file, options)
    remaining = {(other.code, other.message) for other in after.report.diagnostics}
    if after.config is None or (diagnostic.code, diagnostic.message) in remaining:
        return None
    return change


def _change_in_help(buffer: Checked, diagnostic: Diagnostic) -> Fix | None:
    """Return the change that the help of a diagnostic states, whether it removes the fault or not."""
    if diagnostic.help is None or diagnostic.line is None or diagnostic.file != buffer.file:
        return None
    place = buffer.range(diagnostic)
    marked = buffer.in_range(place)
    if (match := _RENAME.fullmatch(diagnostic.help)) is not None:
        old, new = match.groups()
        places = [place] if marked == old else list(_keys_named(buffer.root, old))
        return Fix(f"Rename `{old}` to `{new}`", places[0], new) if len(places) == 1 else None
    if (match := _REPLACE.fullmatch(diagnostic.help)) is not None:
        is_whole = _names_word(diagnostic.message, marked.strip("\"'"))
        return Fix(f"Replace with `{match[1]}`", place, match[1]) if is_whole else None
    if (match := _WRITE.fullmatch(diagnostic.help)) is not None:
        return Fix(f"Replace with `{match[1]}`", place, match[1])
    if diagnostic.help == "remove the quotes" and marked[:1] in ("'", '"') and marked[-1:] == marked[:1]:
        return Fix("Remove the quotes", place, marked[1:-1])
    return None


def _names_word(message: str, word: str) -> bool:
    """Whether a message names a word: if not, more is marked than what is wrong, and all of it would be replaced."""
    return word != "" and re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", message) is not None


def _keys_named(root: yaml.Node | None, name: str) -> Iterator[types.Range]:
    """Yield the places of the keys with a name."""
    nodes = [root]
    visited = set[int]()  # aliases share a node
    while nodes:
        node = nodes.pop()
        if id(node) in visited:
            continue
        visited.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            nodes += node.value
        elif isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                nodes.append(value)
                if isinstance(key, yaml.ScalarNode) and key.value == name:
                    yield _span(key.start_mark.line, key.start_mark.column, key.end_mark.column)
