"""The one collector of a config's faults: each gets its path and its place in the file, and all are raised together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self

from rankplan.config.faults import KeyPath
from rankplan.config.load import Section
from rankplan.errors import Diagnostic, PlacementError, refusal
from rankplan.words import path_text, shown


class Reader:
    """A config and the faults found in it so far.

    ``prefix`` is the path of ``content`` in its config. The mapping of a file knows its own path and its document.
    """

    def __init__(self, content: Any, prefix: KeyPath = ()) -> None:
        self.content = content
        self.faults: list[Diagnostic] = []
        self._document = content.document if isinstance(content, Section) else None
        self._prefix = content.path if isinstance(content, Section) else prefix
        self.size_paths: dict[str, KeyPath] = {}
        """The path of the parallel sizes of each component that states some."""
        self._positions: list[tuple[int, ...]] = []
        self._keys: dict[KeyPath, dict[Any, int]] = {}

    def fork(self) -> Self:
        """Return a reader with the same content and faults; what either finds from now on is its own."""
        other = type(self).__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.faults, other._positions = list(self.faults), list(self._positions)
        return other

    @property
    def from_file(self) -> bool:
        """Whether the content comes from a file, so that faults have a line and a column."""
        return self._document is not None

    def add(self, path: KeyPath, diagnostic: Diagnostic) -> None:
        """Record a fault at a path within the content."""
        diagnostic = self.located(path, diagnostic)
        self._positions.append(self._position(path, diagnostic))
        self.faults.append(diagnostic)

    def located(self, path: KeyPath, diagnostic: Diagnostic) -> Diagnostic:
        """Return a diagnostic with a path within the content, and its place in the file."""
        whole = self._prefix + path
        diagnostic = replace(diagnostic, path=path_text(whole))
        return diagnostic if self._document is None else self._document.locate(whole, diagnostic)

    def add_all(self, path: KeyPath, error: PlacementError) -> None:
        """Record every fault of an error at a path."""
        for diagnostic in error.diagnostics:
            self.add(path, diagnostic)

    def finish(self) -> None:
        """Raise the `refusal` if there are faults."""
        if self.faults:
            raise self.refusal()

    def refusal(self) -> PlacementError:
        """Return the exception with every fault (at least one), in the order of the file or of the mapping."""
        order = sorted(range(len(self.faults)), key=self._positions.__getitem__)
        return refusal([self.faults[index] for index in order])

    def _position(self, path: KeyPath, diagnostic: Diagnostic) -> tuple[int, ...]:
        if self._document is not None:
            return diagnostic.line or 0, diagnostic.column or 0
        here, position = self.content, []
        for depth, part in enumerate(path):
            if isinstance(here, Mapping):
                keys = self._keys.get(path[:depth])
                if keys is None:
                    keys = self._keys[path[:depth]] = {str(key): index for index, key in enumerate(here)}
                position.append(keys.get(str(part), -1))
            elif isinstance(part, int):
                position.append(part)
            try:
                here = here[part]
            except Exception:  # a missing key, or one that its config library cannot resolve
                break
        return tuple(position)


def not_a_mapping(name: str, value: Any, help: str = "write num_nodes and component_placement in it") -> Diagnostic:
    """Return the fault of a value that must be a mapping."""
    return Diagnostic("invalid-value", f"{name} is {shown(value)}; it must be a mapping", help)


def unreadable(key: Any, error: Exception) -> Diagnostic:
    """Return the fault of a value that its config library cannot give: it is missing, or cannot be resolved."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    help = "write the value, or an interpolation that can be resolved"
    return Diagnostic("invalid-value", f"`{key}` cannot be read: {lines[0]}", help)
