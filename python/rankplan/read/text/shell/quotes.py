"""Quotes of a script that span lines: one that somebody forgot to open or to close turns all later ones around."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_TOKEN = re.compile(
    r"(?P<comment>(?<![^\s;&|(])#[^\n]*)"
    r"|(?P<escaped>\\.)"
    r"|<<-?[ \t]*(?P<mark>['\"]?)(?P<word>\w+)(?P=mark)(?P<rest>[^\n]*\n)(?P<document>.*?\n)?[ \t]*(?P=word)(?=\n|\Z)"
    r"|(?P<quoted>'[^']*'|\"(?:\\.|[^\"\\])*\")",
    re.DOTALL,
)


class LongQuote(NamedTuple):
    """A quote that ends on a later line than it starts: its offset, and the numbers of both lines, from 1."""

    start: int
    first: int
    last: int


def long_quotes(text: str, begin: int, end: int) -> Iterator[LongQuote]:
    """Yield the quotes between two offsets of a script that span lines. Here-documents and comments have none."""
    for token in _TOKEN.finditer(text, begin, end):
        quoted = token["quoted"]
        if quoted is not None and "\n" in quoted:
            first = text.count("\n", 0, token.start()) + 1
            yield LongQuote(token.start(), first, first + quoted.count("\n"))


def hint(text: str, fault_at: int) -> str | None:
    """Return what to look at besides a syntax fault: the first quote that spans lines before it, or else after it."""
    quotes = (*long_quotes(text, 0, fault_at), *long_quotes(text, fault_at, len(text)))
    if not quotes:
        return None
    first = quotes[0]
    return f"or look at the quote of line {first.first}, which ends on line {first.last}"
