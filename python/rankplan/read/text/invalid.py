"""What a function raises that reads a value: its faults, whose place its caller knows; and faults of any value."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from rankplan.errors import Diagnostic, KeyPath
from rankplan.read.text.unresolved import RESOLVE, unresolved
from rankplan.words import must_be, path_text

THIS = "this value"
"""The name of a value in the message of a function that does not know its key; `named` puts it in."""


RANKS = re.compile(r"[0-9: -]+")
"""A part of a placement between two commas."""

CUT = "quote the placement: inside YAML braces a comma ends the text"

EXPECTED = {
    "int": ("a whole number", "write a number such as 1"),
    "float": ("a number", "write a number such as 0.5"),
    "string": ("text", "write text; quote it if it looks like something else"),
    "list": ("a list", "write a list: one `- ...` per line, or [a, b]"),
    "tuple": ("a list", "write a list: one `- ...` per line, or [a, b]"),
    "dict": ("a mapping", "write keys and values"),
    "bool": ("true or false", "write true or false"),
}
"""What a value of a type must be, and what to write, by pydantic's word for the type."""

Located = tuple[KeyPath, Diagnostic]
"""A fault, and the path from the value that was read to the part at fault."""


class Invalid(ValueError):
    """A value that a key cannot have, with all its faults."""

    def __init__(self, faults: Iterable[Located]) -> None:
        self.faults = tuple(faults)
        super().__init__("; ".join(fault.message for _, fault in self.faults))

    def below(self, path: KeyPath) -> Iterator[Located]:
        """Yield the faults of a value at a path, each with the path of the part at fault."""
        for inner, fault in self.faults:
            whole = (*path, *inner)
            yield whole, named(fault, whole)


def invalid(fault: Diagnostic, path: Iterable[str | int] = ()) -> Invalid:
    """Return the exception for one fault; ``path`` leads from the value to the part at fault."""
    return Invalid([(tuple(path), fault)])


def named(fault: Diagnostic, path: KeyPath) -> Diagnostic:
    """Return a fault with the name of the value at a path in place of `THIS`; an index alone is no name."""
    is_named = any(isinstance(part, str) for part in path)
    if not (is_named and fault.message.startswith(f"{THIS} ")):
        return fault
    return replace(fault, message=f"{value_name(path)}{fault.message.removeprefix(THIS)}")


def value_name(path: Sequence[str | int]) -> str:
    """Return the last key of a path and the indexes after it, as messages show them: ```configs[0]```."""
    last = max((index for index, part in enumerate(path) if isinstance(part, str)), default=0)
    return f"`{path_text(tuple(path[last:]))}`" if path else "the config"


def unlike(name: str, value: Any, allowed: str, help: str) -> Diagnostic:
    """Return the fault of a value of the wrong kind; an interpolation that is left must be resolved first."""
    return must_be(name, value, allowed, RESOLVE if unresolved(value) else help)


def missing(key: str, written: str | None) -> Diagnostic:
    """Return the fault of a missing key; ``written`` is a similar key that may stand for it."""
    help = f"rename `{written}` to `{key}`" if written else f"add `{key}:` with its value"
    return Diagnostic("missing-key", f"`{key}` is missing", help)


def wrong_type(name: str, value: Any, expected: str) -> Diagnostic:
    """Return the fault of a value of the wrong type; ``expected`` is pydantic's word: ``list``, ``dict``."""
    return must_be(name, value, *EXPECTED[expected])
