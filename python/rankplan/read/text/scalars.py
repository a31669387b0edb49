"""Scalars of YAML 1.2's core schema: null, booleans, ints, floats or text; and the parser that resolves them so."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, ClassVar

import yaml

if TYPE_CHECKING:
    from typing_extensions import Self

TAG = "tag:yaml.org,2002:"
NULL = re.compile(r"^(?:~|null|Null|NULL|)$")
BOOL = re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$")
# Python rejects ints of thousands of digits, which no key accepts.
_INT = re.compile(r"^(?:[-+]?[0-9]{1,999}|0o[0-7]{1,999}|0x[0-9a-fA-F]{1,999})$")
_FLOAT = re.compile(
    r"^(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
)


_FIRST = frozenset(["", *"~nNtTfF-+.0123456789"])
"""The first letters of what is no text."""


class Composer(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Parses text into events, or into nodes with places."""

    yaml_implicit_resolvers: ClassVar[dict[str | None, list[tuple[str, re.Pattern[str]]]]] = {}


for _name, _pattern, _first in (
    ("null", NULL, ["~", "n", "N", ""]),
    ("bool", BOOL, list("tTfF")),
    ("int", _INT, list("-+0123456789")),
    ("float", _FLOAT, list("-+.0123456789")),
    ("merge", re.compile("^<<$"), ["<"]),
):
    Composer.add_implicit_resolver(TAG + _name, _pattern, _first)


class Written:
    """A number that Python writes differently, or that is too large for it: texts show it as written in the file."""

    text: str
    plain: ClassVar[Any]

    def __new__(cls, value: int | str, text: str) -> Self:
        self = super().__new__(cls, value)  # type: ignore[call-arg]
        self.text = text
        return self

    def __repr__(self) -> str:
        return self.text

    def __reduce__(self) -> tuple[type[float], tuple[float]]:
        return self.plain, (self.plain(self),)


class _WrittenInt(Written, int):
    plain = int


class _WrittenFloat(Written, float):
    plain = float


def number(kind: str, text: str) -> Any:
    """Return the number of a kind, ``int`` or ``float``, that a text is; ``None`` if it is none."""
    if kind == "int" and _INT.match(text):
        found = int(text, 0) if text[:2] in ("0o", "0x") else int(text)
        return found if str(found) == text else _WrittenInt(found, text)
    if kind in ("float", "int") and _FLOAT.match(text):
        return _WrittenFloat(text.replace(".", "") if text[-1].isalpha() else text, text)
    return None


def plain_scalar(text: str) -> Any:
    """Return the value of a text without quotes: null, a boolean, a number, else the text."""
    if text[:1] not in _FIRST:  # most texts
        return text
    if NULL.match(text):
        return None
    if BOOL.match(text):
        return text.lower() == "true"
    found = number("int", text)
    return text if found is None else found
