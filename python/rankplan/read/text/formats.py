"""Files in formats that only the dialect of a guest reads, such as TOML."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from rankplan.errors import Diagnostic, KeyPath, Label, PlacementError
from rankplan.guests.doors import GuestError
from rankplan.read.text.document import Section
from rankplan.read.text.places import relocated
from rankplan.read.text.programs import DIALECT_TABLE

Format: TypeAlias = Callable[[str], tuple[Mapping[str, Any], Mapping[KeyPath, int]]]
"""Returns what a text says, and the lines of its keys, counted from 1; ``ValueError`` for a text that is wrong."""

_LINE = r"\bline (\d+)"


class Lines:
    """A text whose keys are at known lines."""

    def __init__(self, file: str, text: str, lines: Mapping[KeyPath, int]) -> None:
        self.file = file
        self.warnings: list[Diagnostic] = []
        self._text = text.splitlines()
        self._lines = lines

    def locate(self, path: Sequence[str | int], fault: Diagnostic) -> Diagnostic:
        """Return the fault at the line of the longest part of ``path`` that has one."""
        fault = replace(fault, file=self.file, text=None)
        for length in range(len(path), 0, -1):
            line = self._lines.get(tuple(path[:length]))
            if line is not None:
                return self.at(line, fault)
        return fault

    def at(self, line: int, fault: Diagnostic) -> Diagnostic:
        """Return the fault at a line, as far as the text has it."""
        if not 1 <= line <= len(self._text):
            return fault
        source = self._text[line - 1]
        start = len(source) - len(source.lstrip())
        marked = (Label(0, max(len(source.strip()), 1)),)
        return replace(fault, line=line, column=start + 1, source=source, offset=start, labels=marked)


def read_format(file: str, text: str) -> Section | None:
    """Return the content of a file in the format of a guest, ``None`` if none has its suffix.

    Raises `PlacementError` (``syntax``) for a text that is wrong, `GuestError` if the code of the guest fails.
    """
    suffix = "." + file.rpartition(".")[2]
    guests = sorted(DIALECT_TABLE.loaded().guests.items(), key=lambda item: item[0].name)
    for guest, dialect in guests:
        read: Format | None = getattr(dialect, "formats", {}).get(suffix)
        if read is None:
            continue
        try:
            with guest.running():
                content, lines = read(text)
        except GuestError as error:
            if isinstance(error.__cause__, ValueError):
                raise PlacementError([_wrong(file, text, error.__cause__)]) from None
            raise
        section = relocated(_plain(content), Lines(file, text, lines))
        return section if isinstance(section, Section) else None
    return None


def _wrong(file: str, text: str, error: ValueError) -> Diagnostic:
    """Return the fault of a text that its format rejects, at the line that the message names."""
    fault = Diagnostic("syntax", f"the file cannot be read: {error}", "correct the text", file=file)
    line = re.search(_LINE, str(error))
    return fault if line is None else Lines(file, text, {}).at(int(line[1]), fault)


def _plain(value: Any) -> Any:
    """Return mappings and lists of any kind as those of a config."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
