"""TOML files with line and column."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from typing import Any

from rankplan.config.text.document import Section
from rankplan.config.text.places import Path, Places, Text, relocated
from rankplan.errors import Diagnostic, PlacementError

_KEY = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')"""
_KEYS = rf"{_KEY}(?:[ \t]*\.[ \t]*{_KEY})*"
_TABLE = re.compile(rf"[ \t]*(\[\[?)[ \t]*({_KEYS})[ \t]*\]\]?", re.ASCII)
_PAIR = re.compile(rf"[ \t]*({_KEYS})[ \t]*=[ \t]*", re.ASCII)
_STRING = re.compile(r'"{3}.*?(?<!\\)"{3,5}|\'{3}.*?\'{3,5}|"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'', re.DOTALL)
_ERROR = re.compile(r"(.*) \(at (?:line ([0-9]+), column ([0-9]+)|end of document)\)", re.DOTALL)


def parse_toml(file: str, text: str) -> Section:
    """Return the content of a TOML file. Raises `PlacementError` (``syntax``)."""
    text = text.replace("\r\n", "\n")
    lines = Text(file, text)
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = _ERROR.fullmatch(str(error))
        message = (found[1] if found else str(error)).strip()
        start = len(text.rstrip())
        if found and found[2]:
            start = sum(len(line) + 1 for line in lines.lines[: int(found[2]) - 1]) + int(found[3]) - 1
        fault = Diagnostic("syntax", f"invalid TOML: {message[:1].lower()}{message[1:]}", "see toml.io for the format")
        raise PlacementError([lines.place(start, start + 1).of(fault)]) from None
    except ValueError:
        fault = Diagnostic("syntax", "invalid TOML: a number has too many digits", "use 64 bits", file=file)
        raise PlacementError([fault]) from None
    except RecursionError:
        raise _too_deep(file) from None
    places = Places(file)
    for path, key, value in _pairs(text):
        places.put(path, lines.place(*key), lines.place(*value))
    try:
        section: Section = relocated(_plain(content), places)
    except RecursionError:
        raise _too_deep(file) from None
    return section


def _too_deep(file: str) -> PlacementError:
    return PlacementError([Diagnostic("syntax", "the file is nested too deeply", "use fewer levels", file=file)])


def _plain(value: Any) -> Any:
    """Return a value with dates as text, which no key takes."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, int) and value.bit_length() > 1024:
        return float("inf")  # as in YAML
    return value if isinstance(value, (str, int, float)) else str(value)


def _pairs(text: str) -> Iterator[tuple[Path, tuple[int, int], tuple[int, int]]]:
    """Yield the path of each key of valid TOML, with the spans of the key and of its value."""
    table: Path = ()
    counts: dict[Path, int] = {}
    position = 0
    while position < len(text):
        if header := _TABLE.match(text, position):
            table = _path(header[2])
            if header[1] == "[[":
                counts[table] = counts.get(table, -1) + 1
            table = tuple(part for length in range(len(table)) for part in _indexed(table, length, counts))
            yield table, header.span(2), header.span(2)
            position = header.end()
        elif pair := _PAIR.match(text, position):
            end = _end_of_value(text, pair.end())
            yield (*table, *_path(pair[1])), pair.span(1), (pair.end(), end)
            position = end
        end = text.find("\n", position)
        position = len(text) if end < 0 else end + 1


def _indexed(table: Path, length: int, counts: dict[Path, int]) -> Path:
    here = table[: length + 1]
    return (table[length], counts[here]) if here in counts else (table[length],)


def _path(keys: str) -> Path:
    return tuple(key[1:-1] if key[0] in "\"'" else key for key in re.findall(_KEY, keys))


def _end_of_value(text: str, position: int) -> int:
    depth, end = 0, position
    while position < len(text):
        if string := _STRING.match(text, position):
            position = end = string.end()
            continue
        character = text[position]
        if character == "#" or (character == "\n" and not depth):
            if not depth:
                break
            position = text.find("\n", position) if character == "#" else position
            if position < 0:
                break
        depth += (character in "[{") - (character in "]}")
        position += 1
        if not text[position - 1].isspace():
            end = position
    return end
