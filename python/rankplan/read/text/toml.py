"""TOML files with line and column: the values of Python's parser, and the places of their keys and values.

No TOML library for Python tells where a value is: ``tomllib`` and ``tomli`` return plain values, tomlkit keeps the text
without positions. `Positions` walks over a text that the parser has accepted already, so that it checks nothing.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

from rankplan.errors import Diagnostic, KeyPath, PlacementError
from rankplan.read.text.document import Section
from rankplan.read.text.places import Place, Places, Text, relocated
from rankplan.read.text.toml_faults import invalid_toml, nested_toml

if sys.version_info >= (3, 11):
    from tomllib import TOMLDecodeError, loads
else:
    from tomli import TOMLDecodeError, loads

_KEY = re.compile(r"""[A-Za-z0-9_-]+|"(?:\\.|[^"\\\n])*"|'[^'\n]*'""")
_BLANKS = re.compile(r"(?:[ \t\r\n]|\#[^\n]*)*")
"""White space, line ends and comments."""
_LINE_BLANKS = re.compile(r"[ \t]*")
_SCALAR = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}'  # up to two quotes may stand before the closing ones
    r"|'''.*?'{3,5}"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'[^'\n]*'"
    r"|[^,\]}\#\n]*[^,\]}\#\s]",
    re.DOTALL,
)
"""A text in one of the four forms, or a number, a date, true or false."""
_WHERE = re.compile(r" \(at (?:line (?P<line>\d+), column (?P<column>\d+)|end of document)\)$")


class Span(NamedTuple):
    """The characters ``start`` to ``end`` of a text."""

    start: int
    end: int


class KeyAndValue(NamedTuple):
    """Where a key is, and its value; a table has the place of its key for both."""

    key: Span
    value: Span


class Positions:
    """Where the keys and values of a text in TOML are, by path. Items of arrays have their number in the path.

    The text is walked once, statement by statement. A header ``[a.b]`` sets the path of the keys below it; where part
    of it is an array of tables, the path goes through the last item of that array so far. A table with several headers
    is where it is named first.
    """

    def __init__(self, text: str) -> None:
        self.places: dict[KeyPath, KeyAndValue] = {}
        self._text = text
        self._position = 0
        self._items: dict[KeyPath, int] = {}
        """The number of items of each array of tables so far."""
        table: KeyPath = ()
        self._skip(_BLANKS)
        while self._position < len(text):
            if text[self._position] == "[":
                table = self._header()
            else:
                self._pair(table)
            self._skip(_BLANKS)

    def _skip(self, what: re.Pattern[str]) -> None:
        matched = what.match(self._text, self._position)
        if matched is not None:
            self._position = matched.end()

    def _put(self, path: KeyPath, key: Span, value: Span) -> None:
        self.places.setdefault(path, KeyAndValue(key, value))

    def _header(self) -> KeyPath:
        """Walk over the header of a table, and return its path."""
        is_item = self._text.startswith("[[", self._position)
        self._position += 2 if is_item else 1
        parts = list(self._key())
        self._position += 2 if is_item else 1
        path: KeyPath = ()
        for index, (name, span) in enumerate(parts):
            path = (*path, name)
            self._put(path, span, span)
            is_last = index == len(parts) - 1
            if is_last and is_item:
                self._items[path] = self._items.get(path, 0) + 1
            if path in self._items:
                path = (*path, self._items[path] - 1)
                self._put(path, span, span)
        return path

    def _pair(self, table: KeyPath) -> None:
        """Walk over ``key = value`` in a table."""
        path = table
        parts = list(self._key())
        for name, span in parts:
            path = (*path, name)
            if len(path) < len(table) + len(parts):
                self._put(path, span, span)
        self._position += 1  # the equals sign
        self._skip(_LINE_BLANKS)
        self._put(path, parts[-1][1], self._value(path))

    def _key(self) -> Iterator[tuple[str, Span]]:
        """Yield the parts of a key, and move to what follows it."""
        while True:
            self._skip(_LINE_BLANKS)
            matched = _KEY.match(self._text, self._position)
            if matched is None:  # the parser has accepted the text
                return
            self._position = matched.end()
            yield _name(matched[0]), Span(*matched.span())
            self._skip(_LINE_BLANKS)
            if not self._text.startswith(".", self._position):
                return
            self._position += 1

    def _value(self, path: KeyPath) -> Span:
        """Walk over a value, and return its place."""
        start = self._position
        opening = self._text[start : start + 1]
        if opening == "[":
            self._array(path)
        elif opening == "{":
            self._inline_table(path)
        else:
            self._skip(_SCALAR)
        return Span(start, self._position)

    def _array(self, path: KeyPath) -> None:
        for index, _ in enumerate(self._elements("]")):
            inner = (*path, index)
            span = self._value(inner)
            self._put(inner, span, span)

    def _inline_table(self, path: KeyPath) -> None:
        for _ in self._elements("}"):
            self._pair(path)

    def _elements(self, closing: str) -> Iterator[None]:
        """Move to each element up to the closing bracket, and then behind it."""
        self._position += 1
        self._skip(_BLANKS)
        while self._position < len(self._text) and self._text[self._position] != closing:
            before = self._position
            yield
            self._skip(_BLANKS)
            if self._text.startswith(",", self._position):
                self._position += 1
                self._skip(_BLANKS)
            if self._position == before:  # never in a text that the parser accepts
                return
        self._position += 1


def _name(written: str) -> str:
    """Return the name that a part of a key stands for."""
    if written[0] not in "\"'":
        return written
    name: str = loads(f"name = {written}")["name"]
    return name


class TomlDocument:
    """A TOML file whose places are found when a fault needs one."""

    def __init__(self, file: str, text: str) -> None:
        self.file = file
        self.warnings: list[Diagnostic] = []
        self._text = text

    @cached_property
    def _places(self) -> Places:
        lines = Text(self.file, self._text)
        places = Places(self.file)
        for path, (key, value) in Positions(self._text).places.items():
            places.put(path, lines.place(*key), lines.place(*value))
        return places

    def locate(self, path: Sequence[str | int], fault: Diagnostic) -> Diagnostic:
        """Return the fault with the place of ``path``, or of the longest part of ``path`` that exists."""
        return self._places.locate(path, fault)


def read_toml(file: str, text: str) -> Section:
    """Return the content of a TOML file, whose faults have a place. Dates and times are texts in ISO format.

    Raises `PlacementError` (``syntax``) with the line of what is no TOML.
    """
    text = text.replace("\r\n", "\n")
    try:
        section: Section = relocated(_plain(loads(text)), TomlDocument(file, text))
    except TOMLDecodeError as error:
        raise PlacementError([_wrong(file, text, error)]) from None
    except RecursionError:
        raise PlacementError([replace(nested_toml(), file=file)]) from None
    except ValueError:  # Python reads no integer of more than 4,300 digits
        raise PlacementError([replace(invalid_toml("Number with too many digits"), file=file)]) from None
    return section


def _wrong(file: str, text: str, error: TOMLDecodeError) -> Diagnostic:
    """Return the fault of a text that the parser rejects, at the place that its message names.

    The parser has read a repeated key or header when it finds that it has one already: the place is that of its line.
    """
    message = str(error)
    where = _WHERE.search(message)
    if where is None:
        return replace(invalid_toml(message), file=file)
    fault = invalid_toml(message[: where.start()])
    lines = text.split("\n")
    if where["line"] is None:
        number = len(text.rstrip().split("\n"))
        column = len(lines[number - 1].rstrip()) - 1
    else:
        number = int(where["line"])
        column = int(where["column"]) - 1
    source = lines[number - 1]
    last = max(len(source.rstrip()) - 1, 0)
    start = min(max(column, 0), last)
    if fault.code != "duplicate-key":
        return Place(file, number, start, start + 1, source).of(fault)
    first = len(source) - len(source.lstrip())
    return Place(file, number, first, start + 1, source).of(fault)


def _plain(value: Any) -> Any:
    """Return a value of the parser with texts in place of dates and times."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, str | bool | int | float):
        return value
    return value.isoformat()
