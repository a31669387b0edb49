"""Completion: the keys of a section, and the words, node groups and components that are values.

The place of the cursor is read from the lines, by their indentation: a text is rarely valid while it is typed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from rankplan.editor.checked import Checked
from rankplan.editor.keys import keys_at, sections_at, words_at
from rankplan.errors import KeyPath
from rankplan.frozen import frozen
from rankplan.jobs.recognising import JOB
from rankplan.plans.rules import component_names

_KEY = re.compile(r" *(?P<dash>-)? *(?P<key>[^\s:#,\[\]{}-][^:#{}\[\]]*?) *:(?= |$)")
_WORD = re.compile(r"[^\s\[\]{},:\"']*$")
_DASH = re.compile(r" *(?P<dash>-)(?= |$)")
_LABEL = re.compile(r"\blabel:\s*[\"']?([^\s,}\"']+)")
_COMMENT = re.compile(r"(^|\s)#")
_EXPLAIN = "rankplan explain "


@frozen
class Cursor:
    """Where a cursor is: ``path`` of the section, or of the key if ``value``; ``word`` is what is typed so far."""

    path: KeyPath
    word: str
    value: bool


@frozen
class Proposal:
    """A text to insert in place of the word at the cursor; ``about`` explains it."""

    label: str
    insert: str
    about: str
    kind: str


def cursor_at(lines: Sequence[str], line: int, column: int) -> Cursor:
    """Return where a position is in the structure of YAML, by indentation and braces."""
    above = lines[:line]
    before = lines[line][:column] if line < len(lines) else ""
    word = _WORD.search(before)
    typed = "" if word is None else word[0]
    key = _KEY.match(before)
    if key is None:
        text = before.lstrip(" -")
        dash = _DASH.match(before)
        section = _sections(above, len(before) - len(text), None if dash is None else dash.start("dash"))
        path, is_value = _inside(section, text, value=False)
    else:
        section = _sections(above, key.start("key"), None if key["dash"] is None else key.start("dash"))
        path, is_value = _inside((*section, _unquoted(key["key"])), before[key.end() :], value=True)
    return Cursor(path, typed, value=is_value)


def _unquoted(key: str) -> str:
    return key.strip("\"'")


def _sections(lines: Sequence[str], column: int, dash: int | None) -> KeyPath:
    """Return the keys above a line, whose own key starts at a column; ``dash``: where the line starts an item.

    The lines are read upwards. A key contains the line if it starts further left than everything found so far. A key
    with a dash starts an item of a list, and the keys of the item start at its column: such a line is the start of the
    item that contains the line, even if its key is only a neighbour. The key of a list may start at the column of the
    dashes, so after a dash the limit is one column further right. Every item is 0 in the path: all have the same keys.
    """
    path: list[str | int] = []
    limit = column
    if dash is not None:
        path = [0]
        limit = dash + 1
    for line in reversed(lines):
        key = _KEY.match(line)
        if key is None:
            continue
        key_column = key.start("key")
        item_column = key.start("dash")
        contains = key_column < limit
        starts_item = key["dash"] is not None and (contains or (item_column < limit and key_column == column))
        if contains:
            path.insert(0, _unquoted(key["key"]))
            limit = key_column
            column = key_column
        if starts_item:
            path.insert(0, 0)
            limit = item_column + 1
    return tuple(path)


class _Outside(NamedTuple):
    """What is around a brace or a bracket: the path, whether it is a value, and whether it is in a mapping."""

    path: KeyPath
    value: bool
    in_mapping: bool


def _inside(path: KeyPath, text: str, *, value: bool) -> tuple[KeyPath, bool]:
    """Follow braces and brackets of the rest of a line; return the path at its end, and whether a value is there."""
    stack: list[_Outside] = []
    in_mapping = False
    start = 0
    for index, character in enumerate(text):
        if character in "{[":
            stack.append(_Outside(path, value, in_mapping))
            in_mapping = character == "{"
            value = character == "["
            start = index + 1
        elif character in "}]" and stack:
            path, value, in_mapping = stack.pop()
        elif character == "," and stack:
            if in_mapping and value:
                path = path[:-1]
                value = False
            start = index + 1
        elif character == ":" and in_mapping and not value and text[index + 1 : index + 2] in ("", " "):
            path = (*path, _unquoted(text[start:index].strip()))
            value = True
    return path, value


def proposals(
    cursor: Cursor, buffer: Checked, before: str, dialect: str | None, codes: Iterable[str]
) -> list[Proposal]:
    """Return what can be at a cursor of a buffer; ``before`` is its line up to it."""
    if _COMMENT.search(before):
        return _words("code", codes) if _EXPLAIN in before else []
    if cursor.value:
        return _values(cursor.path, buffer, dialect)
    keys = [Proposal(key, f"{key}: ", about, "key") for key, about in keys_at(dialect, cursor.path).items()]
    components = [
        Proposal(name, f"{name}: ", "", "component") for name in _component_keys(cursor.path, buffer, dialect)
    ]
    is_item = cursor.path[-1:] == (0,)
    if is_item and not keys:  # of a list of words
        return _values(cursor.path[:-1], buffer, dialect)
    return keys + components


def _values(path: KeyPath, buffer: Checked, dialect: str | None) -> list[Proposal]:
    """Return what can be the value of a key, or an item of its list."""
    key = path[-1] if path else None
    if key == "node_group":
        return _words("group", dict.fromkeys((*_LABEL.findall(buffer.text), "cluster", "node")))
    if key == "components" and dialect == JOB:
        return _words("component", buffer.components)
    sections = sections_at(dialect, path)
    if sections:
        return _words("component", [name for name in sections if buffer.config is None or name in buffer.config])
    return _words("word", words_at(dialect, path))


def _words(kind: str, words: Iterable[str]) -> list[Proposal]:
    """Return words that are inserted as they are."""
    return [Proposal(word, word, "", kind) for word in words]


def _component_keys(path: KeyPath, buffer: Checked, dialect: str | None) -> Sequence[str]:
    """Return the components that are keys of a section: those that a rule of ``topology`` can be about."""
    if len(path) == 3 and path[:2] == ("cluster", "topology"):
        return _placed_components(buffer.config)
    if len(path) == 2 and path[0] == "topology" and dialect == JOB:
        return buffer.components
    return ()


def _placed_components(config: Mapping[Any, Any] | None) -> list[str]:
    """Return the components of rankplan's own section."""
    section = None if config is None else config.get("cluster")
    placement = section.get("component_placement") if isinstance(section, Mapping) else None
    if not isinstance(placement, Mapping):
        return []
    return [name for names in placement for name in component_names(str(names))]
