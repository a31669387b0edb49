"""Completion: the keys of a section, and the words, node groups and components that are values.

The place of the cursor is read from the lines, by their indentation: a text is rarely valid while it is typed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rankplan.editor.checked import Checked
from rankplan.editor.keys import keys_at, sections_at, words_at
from rankplan.errors import KeyPath
from rankplan.frozen import frozen
from rankplan.jobs.recognising import JOB
from rankplan.plans.rules import component_names

_KEY = re.compile(r" *(?P<dash>-)? *(?P<key>[^\s:#,\[\]{}-][^:#{}\[\]]*?) *:(?= |$)")
_WORD = re.compile(r"[^\s\[\]{},:\"']*$")
_LABEL = re.compile(r"\blabel:\s*[\"']?([^\s,}\"']+)")
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
    before = lines[line][:column] if line < len(lines) else ""
    word = _WORD.search(before)
    typed = "" if word is None else word[0]
    dash = re.match(r" *-(?= |$)", before)
    found = _KEY.match(before)
    if found is None:
        indent = len(before) - len(before.lstrip(" -"))
        path = _sections(lines[:line], indent, None if dash is None else dash.end() - 1)
        if dash is not None and ":" not in before and _is_list_of_words(before, typed):
            return Cursor(path, typed, value=False)
        path, value = _inside(path, before.lstrip(" -"))
        return Cursor(path, typed, value=value)
    path = _sections(lines[:line], found.start("key"), None if found["dash"] is None else found.start("dash"))
    path, value = _inside((*path, _unquoted(found["key"])), before[found.end() :], value=True)
    return Cursor(path, typed, value=value)


def _is_list_of_words(before: str, typed: str) -> bool:
    return before.lstrip(" -") == typed


def _unquoted(key: str) -> str:
    return key.strip("\"'")


def _sections(lines: Sequence[str], limit: int, dash: int | None) -> KeyPath:
    """Return the keys above a line, whose own key starts at a column; ``dash``: where the line starts an item."""
    path: list[str | int] = []
    column = limit
    if dash is not None:
        path, limit = [0], dash + 1
    for line in reversed(lines):
        found = _KEY.match(line)
        if found is None:
            continue
        at, item = found.start("key"), found.start("dash") if found["dash"] else None
        if at < limit:
            path.insert(0, _unquoted(found["key"]))
            limit = column = at
        elif not (item is not None and item < limit and at == column):
            continue
        if item is not None:
            path.insert(0, 0)
            limit = item + 1
    return tuple(path)


def _inside(path: KeyPath, text: str, *, value: bool = False) -> tuple[KeyPath, bool]:
    """Follow braces and brackets of the rest of a line; return the path at its end, and whether a value is there."""
    stack: list[tuple[KeyPath, bool, bool]] = []
    inside_mapping = False
    start = 0
    for index, character in enumerate(text):
        if character in "{[":
            stack.append((path, value, inside_mapping))
            inside_mapping, value = character == "{", character == "["
            start = index + 1
        elif character in "}]" and stack:
            path, value, inside_mapping = stack.pop()
        elif character == "," and stack:
            if inside_mapping and value:
                path, value = path[:-1], False
            start = index + 1
        elif character == ":" and inside_mapping and not value and text[index + 1 : index + 2] in ("", " "):
            path, value = (*path, _unquoted(text[start:index].strip())), True
    return path, value


def proposals(
    cursor: Cursor, buffer: Checked, before: str, dialect: str | None, codes: Iterable[str]
) -> list[Proposal]:
    """Return what can be at a cursor of a buffer; ``before`` is its line up to it."""
    text, config = buffer.text, buffer.config
    if re.search(r"(^|\s)#", before):
        return [Proposal(code, code, "", "code") for code in codes] if _EXPLAIN in before else []
    if not cursor.value:
        keys = [Proposal(key, f"{key}: ", about, "key") for key, about in keys_at(dialect, cursor.path).items()]
        if cursor.path[:2] == ("cluster", "topology") and len(cursor.path) == 3:
            keys += [Proposal(name, f"{name}: ", "", "component") for name in _components(config)]
        if dialect == JOB and cursor.path[:1] == ("topology",) and len(cursor.path) == 2:
            keys += [Proposal(name, f"{name}: ", "", "component") for name in buffer.components]
        return keys
    if cursor.path[-1:] == ("node_group",):
        labels = dict.fromkeys((*_LABEL.findall(text), "cluster", "node"))
        return [Proposal(label, label, "", "group") for label in labels]
    if dialect == JOB and cursor.path[-1:] == ("components",):
        return [Proposal(name, name, "", "component") for name in buffer.components]
    if sections := sections_at(dialect, cursor.path):
        present = [name for name in sections if config is None or name in config]
        return [Proposal(name, name, "", "component") for name in present]
    return [Proposal(word, word, "", "word") for word in words_at(dialect, cursor.path)]


def _components(config: Mapping[Any, Any] | None) -> list[str]:
    """Return the components of rankplan's own section."""
    section = None if config is None else config.get("cluster")
    placed = section.get("component_placement") if isinstance(section, Mapping) else None
    names = placed if isinstance(placed, Mapping) else ()
    return [part for name in names for part in component_names(str(name))]
