"""The one collector of a config's faults: each gets its path and its place in the file, and all are raised together."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self

from rankplan.config.text.document import Section
from rankplan.config.text.faults import RESOLVE, KeyPath, unresolved
from rankplan.errors import Diagnostic, PlacementError, refusal
from rankplan.words import as_int, must_be, path_text


class Reader:
    """A config and the faults found in it so far.

    ``prefix`` is the path of ``content`` in its config. The mapping of a file knows its own path and its document.
    ``config`` is the config that ``content`` is a section of, or ``None`` if the content is all that is known.
    """

    def __init__(self, content: Any, prefix: KeyPath = (), config: Any = None) -> None:
        self.content = content
        self.config = config
        self.faults: list[Diagnostic] = []
        self._document = content.document if isinstance(content, Section) else None
        self._prefix = content.path if isinstance(content, Section) else prefix
        self._outer = self._prefix if config is None else config.path if isinstance(config, Section) else ()
        self._whole_file = config is None or isinstance(config, Section)
        self.size_paths: dict[str, KeyPath] = {}
        """The path in the config of the parallel sizes of each component that states some."""
        self._positions: list[tuple[int, ...]] = []
        self._keys: dict[KeyPath, dict[Any, int]] = {}

    def fork(self) -> Self:
        """Return a reader with the same content and faults; what either finds from now on is its own."""
        other = type(self).__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.faults, other._positions = list(self.faults), list(self._positions)
        return other

    @property
    def warnings(self) -> list[Diagnostic]:
        """What the config leaves open: values of a launch script that are known only when it runs."""
        return self._document.warnings if self._document is not None else []

    @property
    def from_file(self) -> bool:
        """Whether the content comes from a file, so that faults have a line and a column."""
        return self._document is not None

    def add(self, path: KeyPath, diagnostic: Diagnostic) -> None:
        """Record a fault at a path within the content."""
        self._add(self._prefix + path, diagnostic)

    def add_in_config(self, path: KeyPath, diagnostic: Diagnostic) -> None:
        """Record a fault at a path within the config."""
        self._add(self._outer + path, diagnostic)

    def _add(self, whole: KeyPath, diagnostic: Diagnostic) -> None:
        diagnostic = self._located(whole, diagnostic)
        self._positions.append(self._position(whole[len(self._outer) :], diagnostic))
        self.faults.append(diagnostic)

    def in_config(self, path: KeyPath) -> KeyPath:
        """Return a path within the content as a path within the config."""
        return (self._prefix + path)[len(self._outer) :]

    def located(self, path: KeyPath, diagnostic: Diagnostic) -> Diagnostic:
        """Return a diagnostic with a path within the config, and its place in the file."""
        return self._located(self._outer + path, diagnostic)

    def _located(self, whole: KeyPath, diagnostic: Diagnostic) -> Diagnostic:
        diagnostic = replace(diagnostic, path=path_text(whole))
        if self._document is None or not (self._whole_file or whole[: len(self._prefix)] == self._prefix):
            return diagnostic
        return self._document.locate(whole, diagnostic)

    def value(self, mapping: Mapping[Any, Any], key: Any, path: KeyPath) -> Any:
        """Return a value of a mapping at ``path`` in the config, ``None`` if it is missing.

        One that its config library cannot resolve is a fault.
        """
        try:
            keys = mapping.keys()  # `in` is false for an OmegaConf key whose value is ???
            return mapping[key] if key in keys else None
        except Exception as error:
            self.add_in_config((*path, str(key)), unreadable(key, error))
            return None

    def mapping(self, mapping: Mapping[Any, Any], key: Any, path: KeyPath) -> Mapping[Any, Any]:
        """Return a mapping in a mapping, empty if it is missing; a value of another type is a fault."""
        value = self.value(mapping, key, path)
        if value is None or isinstance(value, Mapping):
            return value or {}
        help = RESOLVE if unresolved(value) else "write keys and values"
        self.add_in_config((*path, str(key)), not_a_mapping(f"`{key}`", value, help))
        return {}

    def number(self, value: Any, path: KeyPath, least: int) -> int | None:
        """Return the value at ``path`` in the config. One that is not an int of at least ``least`` is a fault."""
        number = as_int(value)
        if number is None or number < least:
            help = RESOLVE if unresolved(value) else f"write a number such as {max(least, 1)}"
            if isinstance(value, str) and re.fullmatch("[0-9]{1,20}", value):
                help = "remove the quotes"
            self.add_in_config(path, must_be(path, value, f"a whole number of {least} or more", help))
            return None
        return number

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
        here, position = self.content if self.config is None else self.config, []
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
    return must_be(name, value, "a mapping", help)


def unreadable(key: Any, error: Exception) -> Diagnostic:
    """Return the fault of a value that its config library cannot give: it is missing, or cannot be resolved."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    help = "write the value, or an interpolation that can be resolved"
    return Diagnostic("invalid-value", f"`{key}` cannot be read: {lines[0]}", help)
