"""The texts that a script consists of, one after the other: its own, and those of the scripts that it runs."""

from __future__ import annotations

from bisect import bisect_right
from typing import Any, NamedTuple, Protocol


class Origin(Protocol):
    """Where a text comes from. ``file`` is the path of its file."""

    @property
    def file(self) -> str:
        """The path, relative to the folder in which the script runs."""

    def place(self, start: int, end: int) -> Any:
        """Return the place of characters ``start`` to ``end`` of the text."""


class Span(NamedTuple):
    """Characters ``start`` to ``end`` of a text that is put together, and the offsets of the text that they show."""

    start: int
    end: int
    first: int
    last: int


class Sources:
    """Texts with one count of offsets, from 0: those of a text start at the offset that `add` returns."""

    def __init__(self) -> None:
        self.text = ""
        self._starts: list[int] = []
        self._origins: list[Origin] = []

    def add(self, text: str, origin: Origin) -> int:
        """Append a text, and return its offset."""
        if self.text:
            self.text += "\n"
        self._starts.append(len(self.text))
        self._origins.append(origin)
        self.text += text
        return self._starts[-1]

    def add_expanded(self, text: str, spans: list[Span]) -> int:
        """Append a text that is put together from parts of these texts, such as that of ``bash -c``."""
        return self.add(text, _Expanded(self, spans))

    def file(self, offset: int) -> str:
        """Return the path of the file that the character at an offset comes from."""
        return self._origins[bisect_right(self._starts, offset) - 1].file

    def place(self, start: int, end: int) -> Any:
        """Return the place of characters ``start`` to ``end``."""
        index = bisect_right(self._starts, start) - 1
        return self._origins[index].place(start - self._starts[index], end - self._starts[index])


class _Expanded:
    def __init__(self, sources: Sources, spans: list[Span]) -> None:
        self._sources, self._spans = sources, spans

    @property
    def file(self) -> str:
        return self._sources.file(self._spans[0].first)

    def place(self, start: int, end: int) -> Any:
        span = self._spans[max(bisect_right([span.start for span in self._spans], start) - 1, 0)]
        if span.end - span.start != span.last - span.first:
            return self._sources.place(span.first, span.last)
        first = span.first + start - span.start
        return self._sources.place(first, first + min(end, span.end) - start)
