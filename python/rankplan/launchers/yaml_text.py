"""YAML text of plain values: equal values give equal bytes, and every YAML reader gets these values."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

_PLAIN = re.compile(r"(--)?[A-Za-z_/$][A-Za-z0-9_./$()+=@~ :'\[\]-]*|[0-9]+[-+][A-Za-z0-9$()+*_-]*")
"""Text that needs no quotes, unless it reads as something else."""
_WORDS = frozenset(["null", "true", "false", "yes", "no", "on", "off", "y", "n", "~"])
_SIXTY = re.compile(r"[-+0-9._:eExXoO]+")
"""Digits and signs, which some reader takes for a number or a date."""
_ENDS = {"\n": "\\n", "\t": "\\t"}
_BLOCK = re.compile(r"[^ \n][^\n]*(\n[^\n]*)*\n")


def documents_text(documents: list[dict[str, Any]]) -> str:
    """Return the documents of a file."""
    return "---\n".join("".join(_lines(document, 0)) for document in documents)


def _lines(value: Any, indent: int) -> Iterator[str]:
    """Yield the lines of a mapping or a list that is not empty."""
    space = " " * indent
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _entry(f"{space}{_scalar(str(key))}:", part, indent)
        return
    for part in value:
        if isinstance(part, (Mapping, list)) and part:
            first, *rest = _lines(part, indent + 2)
            yield f"{space}- {first.lstrip(' ')}"
            yield from rest
        else:
            yield from _entry(f"{space}-", part, indent)


def _entry(start: str, value: Any, indent: int) -> Iterator[str]:
    if isinstance(value, (Mapping, list)):
        if value:
            yield f"{start}\n"
            yield from _lines(value, indent + 2)
        else:
            yield f"{start} {'{}' if isinstance(value, Mapping) else '[]'}\n"
    elif isinstance(value, str) and "\n" in value and _is_block(value):
        yield f"{start} |\n"
        space = " " * (indent + 2)
        yield from (f"{space}{line}\n" if line else "\n" for line in value[:-1].split("\n"))
    else:
        yield f"{start} {_scalar(value)}\n"


def _is_block(text: str) -> bool:
    """Whether a text is the same in a literal block, which keeps one line end at its end and escapes nothing."""
    lines = text.split("\n")
    return bool(_BLOCK.fullmatch(text)) and not text.endswith("\n\n") and all(map(str.isprintable, lines))


def _scalar(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    if not isinstance(value, str):
        return str(value)  # a number keeps the text that it was read from
    if _PLAIN.fullmatch(value) and not _misread(value):
        return value
    if value.isprintable():
        return "'" + value.replace("'", "''") + "'"
    return '"' + "".join(map(_escaped, value)) + '"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    return character if character.isprintable() else _ENDS.get(character, f"\\U{ord(character):08x}")


def _misread(text: str) -> bool:
    return (
        text.lower() in _WORDS
        or bool(_SIXTY.fullmatch(text) and not re.fullmatch(r"[0-9]+-[0-9]+", text))
        or ": " in text
        or text.endswith((":", " "))
    )
