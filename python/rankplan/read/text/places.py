"""The places of values that are not in a YAML file: on a command line, in a script."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rankplan.errors import Diagnostic, Label
from rankplan.frozen import frozen
from rankplan.read.text.document import AT_KEY, Section, Source

if TYPE_CHECKING:
    from rankplan.read.text.allocation import Allocation

Path = tuple[str | int, ...]


@frozen
class Place:
    """A part of a line: characters ``start`` to ``end`` (exclusive) of ``source``, counted from 0; lines from 1."""

    file: str
    line: int
    start: int
    end: int
    source: str

    def of(self, fault: Diagnostic) -> Diagnostic:
        """Return the fault at this place; labels of its own text stay if the text is here."""
        fault = replace(fault, file=self.file, line=self.line, column=self.start + 1)
        if fault.text is None or self.source[self.start : self.end] != fault.text:
            label = Label(0, max(self.end - self.start, 1))
            return replace(fault, text=None, source=self.source, offset=self.start, labels=(label,))
        column = self.start + (fault.span[0] if fault.span else 0) + 1
        return replace(fault, column=column, source=self.source, offset=self.start)


class Text:
    """A text by lines."""

    def __init__(self, file: str, text: str) -> None:
        self.file = file
        self.lines = text.split("\n")
        self._starts = [0]
        for line in self.lines:
            self._starts.append(self._starts[-1] + len(line) + 1)

    def place(self, start: int, end: int) -> Place:
        """Return the place of characters ``start`` to ``end``, as far as they are on one line."""
        line = min(bisect_right(self._starts, start), len(self.lines)) - 1
        column, source = start - self._starts[line], self.lines[line].rstrip("\r")
        last = min(max(end - self._starts[line], column), len(source))
        return Place(self.file, line + 1, column, max(last, column), source)


class Places:
    """Where keys and values are; values that are not here are in the file ``base``."""

    def __init__(self, file: str | None, base: Source | None = None) -> None:
        self.file = file
        self.base = base
        self.warnings: list[Diagnostic] = list(base.warnings) if base is not None else []
        self.program: Any = getattr(base, "program", None)
        """The `rankplan.read.text.programs.StartedProgram` that a script passes the values to."""
        self.programs: tuple[Any, ...] = getattr(base, "programs", ())
        """The programs of the job that a script starts: each is a `rankplan.read.text.started.Started`."""
        self.partial: dict[Path, str] = dict(getattr(base, "partial", {}))
        """The texts of which a script leaves a part open, with ``$NAME`` for an unset variable."""
        self.allocation: Allocation | None = getattr(base, "allocation", None)
        """What a batch script asks Slurm for."""
        self.used: set[str] = set()
        """The given environment variables that a script reads."""
        self.environment: dict[str, str] = {}
        """The environment variables of this process that a script reads."""
        self._places: dict[Path, tuple[Place, Place]] = {}
        self._sections: dict[Path, Place] = {}

    def put(self, path: Path, key: Place, value: Place) -> None:
        """Set the places of a key and its value, which replaces everything under the key."""
        self._places[path] = key, value

    def put_section(self, path: Path, key: Place) -> None:
        """Set the place of a section that no text states: that of its first key. A key that it lacks has no place."""
        self._sections[path] = key

    def locate(self, path: Sequence[str | int], fault: Diagnostic) -> Diagnostic:
        """Return the fault with the place of ``path``, or of the longest part of ``path`` that exists."""
        if (section := self._sections.get(tuple(path))) is not None:
            return section.of(fault)
        for length in range(len(path), 0, -1):
            if (found := self._places.get(tuple(path[:length]))) is not None:
                return found[0 if fault.code in AT_KEY else 1].of(fault)
        inside = [places[0] for own, places in self._places.items() if path and own[: len(path)] == tuple(path)]
        if inside and (self.base is None or self.base.locate(path, fault).line is None):
            return inside[0].of(fault)
        return self.base.locate(path, fault) if self.base is not None else replace(fault, file=self.file)


def relocated(value: Any, source: Source, path: Path = ()) -> Any:
    """Return a copy of a value whose mappings are at their path in a source."""
    if isinstance(value, dict):
        section = Section(source, path)
        section.update((key, relocated(item, source, (*path, key))) for key, item in value.items())
        return section
    return (
        [relocated(item, source, (*path, index)) for index, item in enumerate(value)]
        if isinstance(value, list)
        else value
    )
