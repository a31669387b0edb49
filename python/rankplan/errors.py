"""The exceptions of rankplan, and the diagnostic that a refused config is made of.

A leaf: nothing of rankplan is imported here but the renderer of the core, and that only when a text is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Label:
    """A part of the text that a diagnostic points at: characters ``start`` to ``end`` (exclusive), and a word on it."""

    start: int
    end: int
    text: str = ""


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One fault: what was found, what is allowed, what to write instead, and where.

    ``labels`` are places in ``text``, the first one is the place of the fault. ``line`` and ``column`` count from 1 and
    are those of that first place in ``file``; ``source`` is the line of the file, and ``offset`` the column (from 0) in
    it at which ``text`` starts. For a config that did not come from a file these are ``None``, and ``offset`` is 0. A
    ``warning`` refuses nothing.
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

    def render(self, color: bool = False) -> str:
        """Return the fault as text: title, place, the line with carets, help."""
        from rankplan import _core

        return _core.render(self, color)

    def __str__(self) -> str:
        place = self.path or ""
        if self.file is not None:
            place = ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)
        lines = [f"{place}: {self.message}" if place else self.message]
        if self.text is not None and len(self.text) <= 120 and self.text not in self.message:
            lines[0] += f" (in {self.text!r})"
        if self.help:
            lines.append(f"help: {self.help}")
        return "\n".join(lines)


class RankplanError(Exception):
    """Base of every exception that rankplan raises on purpose."""


class PlacementError(RankplanError, ValueError, AssertionError):
    """A placement, config, inventory or plan was refused; ``diagnostics`` holds every fault that was found.

    The other attributes (``code``, ``message``, ``help``, ``span``, ``text``, ``path``, ``file``, ``line``,
    ``column``) are those of the first fault. It is an ``AssertionError`` too, which is what users of RLinf catch.
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

    def render(self, color: bool = False) -> str:
        """Return every fault as text, with carets under its place, a blank line between two."""
        return "\n\n".join(fault.render(color) for fault in self.diagnostics)

    def __reduce__(self) -> tuple[type[PlacementError], tuple[tuple[Diagnostic, ...]]]:
        return type(self), (self.diagnostics,)


class ResourceOutOfRangeError(PlacementError, IndexError):
    """A ``PlacementError`` with a rank that does not exist among its faults."""


def refusal(diagnostics: Sequence[Diagnostic]) -> PlacementError:
    """Return the exception for these faults (at least one)."""
    if any(found.code == "resource-out-of-range" for found in diagnostics):
        return ResourceOutOfRangeError(diagnostics)
    return PlacementError(diagnostics)


class ClusterError(RankplanError, RuntimeError):
    """The Ray cluster cannot be used as asked: not reachable, too few nodes, an order that is not unique."""


class LaunchError(RankplanError, RuntimeError):
    """A group did not come up, or did not come up where the plan says; nothing of it is left running.

    ``component``, ``rank`` (process rank, ``None`` when the whole group is meant) and ``node`` (node rank) say who.
    """

    def __init__(
        self, message: str, component: str | None = None, rank: int | None = None, node: int | None = None
    ) -> None:
        super().__init__(message)
        self.message, self.component, self.rank, self.node = message, component, rank, node

    def __reduce__(self) -> tuple[type[LaunchError], tuple[str, str | None, int | None, int | None]]:
        return type(self), (self.message, self.component, self.rank, self.node)


class WorkerError(RankplanError, RuntimeError):
    """A method failed in a rank, or the rank died.

    ``component``, ``rank`` and ``node`` (node rank) say who; ``remote_traceback`` is the traceback of the worker's own
    process, or ``None`` when the process is gone. The exception that the method raised is ``__cause__`` where it could
    be brought over.
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

    def __reduce__(self) -> tuple[type[WorkerError], tuple[str, str | None, int | None, int | None, str | None]]:
        return type(self), (self.message, self.component, self.rank, self.node, self.remote_traceback)
