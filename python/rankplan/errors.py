"""The exceptions of rankplan, and the diagnostics in them.

A leaf: it imports only the renderer of the core, and only to render.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field, replace
from typing import Any, NoReturn, Protocol, TypeAlias

from rankplan.frozen import frozen


def printable(text: str) -> str:
    """Return the text with control characters escaped, so that it stays on its line and colors nothing."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def printable_lines(text: str) -> str:
    """Return the text with control characters except newlines escaped."""
    return "\n".join(map(printable, text.split("\n")))


@frozen
class Label:
    """A part of a diagnostic's text, characters ``start`` to ``end`` (exclusive), with a short comment."""

    start: int
    end: int
    text: str = ""


@frozen
class Diagnostic:
    """One fault: what was found, what is allowed, what to write instead, and where.

    ``labels`` are parts of ``text``; the first is the location of the fault. ``line`` and ``column`` (from 1) locate it
    in ``file``; ``source`` is that line, and ``text`` starts at its column ``offset`` (from 0). For a config that does
    not come from a file, these are ``None`` and ``offset`` is 0. A ``warning`` does not reject the config.
    """

    code: str
    message: str
    help: str | None = None
    labels: tuple[Label, ...] = ()
    text: str | None = None
    path: str | None = None
    file: str | None = None
    line: int | None = None
    column: int | None = None
    source: str | None = None
    offset: int = 0
    warning: bool = False

    @property
    def span(self) -> tuple[int, int] | None:
        """Start and end (exclusive) of the fault in ``text``, in characters."""
        return (self.labels[0].start, self.labels[0].end) if self.labels else None

    def plain(self) -> dict[str, Any]:
        """Return the fault as plain values, for JSON: code, message, help, path, file, line, column."""
        names = ("code", "message", "help", "path", "file", "line", "column")
        return {name: getattr(self, name) for name in names}

    def render(self, *, color: bool = False) -> str:
        """Return the fault as text: title, location, the line with carets, help."""
        from rankplan._core import render

        return render(self, color)

    def __str__(self) -> str:
        place = self.path or ""
        if self.file is not None:
            place = ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)
        lines = [f"{printable(place)}: {self.message}" if place else self.message]
        if self.text is not None and len(self.text) <= 120 and self.text not in self.message:
            lines[0] += f" (in {self.text!r})"
        if self.help:
            lines.append(f"help: {self.help}")
        return printable_lines("\n".join(lines))


KeyPath: TypeAlias = tuple[str | int, ...]
"""The keys and indexes that lead to a value of a config."""


@frozen
class Where:
    """The place of a value: its path in a config, and its characters in a file.

    ``line`` and ``column`` count from 1. ``source`` is that line, in which the value has ``width`` characters from
    ``offset`` (from 0) on; without a width, it is written on several lines. A value that comes from no file has a path
    only.
    """

    path: str = ""
    file: str | None = None
    line: int | None = None
    column: int | None = None
    source: str | None = None
    offset: int = 0
    width: int = 0
    order: tuple[int, ...] = field(default=(), compare=False)
    """Its position among the values of the config: faults are reported in this order."""

    @classmethod
    def at(cls, located: Diagnostic) -> Where:
        """Return the place of a diagnostic."""
        width = located.labels[0].end if located.labels else 0
        place = located.file, located.line, located.column, located.source, located.offset
        return cls(located.path or "", *place, width)

    def locate(self, found: Diagnostic) -> Diagnostic:
        """Return a diagnostic at this place. Labels of its own text stay if that text is written here."""
        placed = replace(found, path=self.path, file=self.file, line=self.line, column=self.column)
        if self.source is None or self.column is None:
            return placed
        if found.text is None:
            mark = (Label(0, max(self.width, 1)),)
            return replace(placed, source=self.source, offset=self.offset, labels=mark)
        written = self.source[self.offset : self.offset + self.width]
        quoted = written[:1] in ("'", '"')
        start = self.offset + quoted
        if written[quoted : self.width - quoted] == found.text:
            first = found.span[0] if found.span else 0
            return replace(placed, source=self.source, offset=start, column=start + first + 1)
        if quoted or not written:
            return placed  # folded or escaped: its offsets are not those of the line
        mark = (Label(0, self.width),)  # 0x10 was read as 16
        return replace(placed, text=None, source=self.source, offset=self.offset, labels=mark)


NOWHERE = Where()
"""The place of what no config states."""


class Source(Protocol):
    """Where the values of a config are written."""

    def locate(self, path: Sequence[str | int], fault: Diagnostic) -> Diagnostic:
        """Return the fault with the place of ``path``, or of the longest part of ``path`` that exists."""


class RankplanError(Exception):
    """Base of every exception that rankplan raises on purpose."""


class PlacementError(RankplanError, ValueError):
    """A placement, config, inventory or plan is rejected; ``diagnostics`` has every fault.

    The other attributes (``code``, ``message``, ``help``, ``span``, ``text``, ``path``, ``file``, ``line``,
    ``column``) are those of the first fault. Raised by RLinf's classes, it is an ``AssertionError``, too.
    """

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics: tuple[Diagnostic, ...] = tuple(diagnostics)
        super().__init__("\n".join(str(fault) for fault in self.diagnostics))
        first = self.diagnostics[0]
        self.code = first.code
        self.message = first.message
        self.help = first.help
        self.span = first.span
        self.text = first.text
        self.path = first.path
        self.file = first.file
        self.line = first.line
        self.column = first.column

    def render(self, *, color: bool = False) -> str:
        """Return every fault as text, with carets, separated by blank lines."""
        return "\n\n".join(fault.render(color=color) for fault in self.diagnostics)

    def __reduce__(self) -> tuple[type[PlacementError], tuple[tuple[Diagnostic, ...]]]:
        return type(self), (self.diagnostics,)


class ResourceOutOfRangeError(PlacementError, IndexError):
    """A ``PlacementError`` that contains the fault ``resource-out-of-range``."""


class Faults:
    """Collects the faults and the warnings of a config, to raise all faults together."""

    def __init__(self) -> None:
        self.warnings: list[Diagnostic] = []
        self._faults: list[tuple[tuple[int, ...], Diagnostic]] = []

    def __len__(self) -> int:
        return len(self._faults)

    def __iter__(self) -> Iterator[Diagnostic]:
        """Iterate over the faults in the order recorded, with those that were recorded twice."""
        return (found for _, found in self._faults)

    def copy(self) -> Faults:
        """Return a collector with the same faults; neither sees the later ones of the other. Warnings are shared."""
        other = Faults()
        other.warnings = self.warnings
        other._faults = list(self._faults)
        return other

    def add(self, where: Where, found: Diagnostic) -> None:
        """Record a fault at a place; two components may share a value, and its fault is reported once."""
        self.record(where.order, where.locate(found))

    def record(self, order: tuple[int, ...], located: Diagnostic) -> None:
        """Record a fault that has its place already; ``order`` is its position among the values of the config."""
        self._faults.append((order, located))

    def add_all(self, where: Where, error: PlacementError) -> None:
        """Record every fault of an error at a place."""
        for found in error.diagnostics:
            self.add(where, found)

    def refuse(self, where: Where, found: Diagnostic) -> NoReturn:
        """Raise `PlacementError` with a fault alone: a config that is not read at all has no others worth telling."""
        raise refusal([where.locate(found)])

    def warn(self, where: Where, found: Diagnostic) -> None:
        """Record a warning at a place, once."""
        self.note(where.locate(found))

    def note(self, located: Diagnostic) -> None:
        """Record a warning that has its place already, once."""
        warning = replace(located, warning=True)
        if warning not in self.warnings:
            self.warnings.append(warning)

    def finish(self) -> None:
        """Raise the `refusal` if there are faults."""
        if self._faults:
            raise self.refusal()

    def refusal(self) -> PlacementError:
        """Return the exception with every fault (at least one), once each, in the order of the config."""
        ordered = sorted(self._faults, key=lambda fault: fault[0])
        return refusal(list(dict.fromkeys(found for _, found in ordered)))


def refusal(diagnostics: Sequence[Diagnostic]) -> PlacementError:
    """Return the exception for these faults (at least one)."""
    if any(found.code == "resource-out-of-range" for found in diagnostics):
        return ResourceOutOfRangeError(diagnostics)
    return PlacementError(diagnostics)


class ClusterError(RankplanError, RuntimeError):
    """The Ray cluster cannot be used: it is unreachable, has too few nodes, or their order is ambiguous.

    If Ray is not installed, it is also an ``ImportError``.
    """


class MissingRayError(ClusterError, ImportError):
    """Ray is not installed."""


class LaunchError(RankplanError, RuntimeError):
    """A group failed to start, or started in other places than planned; none of it keeps running.

    ``component``, ``rank`` (process rank, ``None`` for the whole group) and ``node`` (node rank) locate the failure.
    """

    def __init__(
        self, message: str, component: str | None = None, rank: int | None = None, node: int | None = None
    ) -> None:
        super().__init__(message)
        self.message, self.component, self.rank, self.node = message, component, rank, node


class WorkerError(RankplanError, RuntimeError):
    """A method failed in a rank, or the rank died.

    ``component``, ``rank`` and ``node`` (node rank) locate the failure; ``remote_traceback`` is the traceback in the
    worker, or ``None`` if its process died. ``__cause__`` is the exception of the method, if it could be unpickled.
    """

    def __init__(
        self,
        message: str,
        component: str | None = None,
        rank: int | None = None,
        node: int | None = None,
        remote_traceback: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message, self.component, self.rank, self.node = message, component, rank, node
        self.remote_traceback = remote_traceback
