"""The reader of every config: a value at a path, its place in the file, and all faults, raised together."""

from __future__ import annotations

import os
import re
from collections import ChainMap
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rankplan.errors import Diagnostic, Faults, KeyPath, PlacementError, Where
from rankplan.kinds import CONFIG, Kind
from rankplan.read.text.document import Section
from rankplan.read.text.load import load_config
from rankplan.read.text.places import Places
from rankplan.read.text.programs import started
from rankplan.read.text.scalars import plain_scalar
from rankplan.read.text.unresolved import RESOLVE, unresolved
from rankplan.words import as_int, misspelt, must_be, path_text

if TYPE_CHECKING:
    from typing_extensions import Self

    from rankplan.read.text.allocation import Allocation
    from rankplan.read.text.started import Started

Config = Mapping[str, Any] | str | os.PathLike[str]
"""A mapping (a dict, an OmegaConf object) or the path of a YAML file or a launch script."""

LARGEST = 2**20
"""The largest size: more is a typo, and would fill the memory before a check could say so."""
_INTERPOLATION = re.compile(
    r"\$\{(?:(?:oc\.select:)?(?P<dots>\.*)(?P<path>[A-Za-z_][\w.]*)(?:,(?P<default>[^{}]*))?"
    r"|oc\.env:[^{},]+,(?P<unset>[^{}]*))\}"
)
_DEEPEST = 20


class Reader:
    """A config, the values at its paths, and the faults found in it so far.

    ``prefix`` is the path of ``content`` in its config. The mapping of a file knows its own path and its document.
    ``config`` is the config that ``content`` is a section of, or ``None`` if the content is all that is known. Paths
    are those within the config, except for `add`. An interpolation of another value of the config
    (``${trainer.nnodes}``, ``${..nnodes}``, ``${oc.select:trainer.nnodes,1}``) is resolved, also inside a text; one of
    the environment has its default (``${oc.env:NNODES,1}``).
    """

    def __init__(self, content: Any, prefix: KeyPath = (), config: Any = None) -> None:
        self.content = content
        self.config = config
        self.faults = Faults()
        self._paths_read: set[KeyPath] = set()
        self._document = content.document if isinstance(content, Section) else None
        self._prefix = content.path if isinstance(content, Section) else prefix
        self._outer = self._prefix if config is None else config.path if isinstance(config, Section) else ()
        self._whole_file = config is None or isinstance(config, Section)
        self._keys: dict[KeyPath, dict[Any, int]] = {}
        whole = {} if self._prefix else content
        self._sections: dict[KeyPath, Mapping[Any, Any]] = {(): whole if config is None else config}

    @classmethod
    def load(cls, config: Any, kind: Kind = CONFIG) -> Self:
        """Return the reader of a whole config: a mapping, or the path of a file.

        Raises `PlacementError` if it is not a mapping, ``OSError`` if its file cannot be read.
        """
        content = load_config(config, kind=kind) if isinstance(config, (str, os.PathLike)) else config
        if not isinstance(content, Mapping):
            raise PlacementError([not_a_mapping("the config", content, "write keys and values")])
        return cls(content)

    def fork(self) -> Self:
        """Return a reader with the same content and faults; neither sees the later faults of the other."""
        other = type(self).__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.faults, other._sections = self.faults.copy(), {**self._sections}
        return other

    def reporting(self, faults: Faults) -> Self:
        """Return a reader of the same config, whose faults another collector gets."""
        other = self.fork()
        other.faults = faults
        return other

    def inside(self, path: KeyPath) -> Reader:
        """Return the reader of the section at a path as its content; both share their faults."""
        other = Reader(self.section_at(path), self._outer + path, self._sections[()])
        other.faults, other._paths_read = self.faults, self._paths_read
        return other

    def within(self, path: KeyPath, section: Mapping[Any, Any]) -> Self:
        """Return a reader of the same config that has a section at a path already; both share their faults."""
        other = type(self).__new__(type(self))
        other.__dict__.update(self.__dict__)
        other._sections = {**self._sections, path: section}
        return other

    def aside(self) -> Self:
        """Return a fork that has read nothing so far: what it reads decides no placement."""
        other = self.fork()
        other._paths_read = set()
        return other

    def with_values(self, values: Mapping[KeyPath, Any]) -> Self:
        """Return a fork with other values at some paths within the config."""
        other = self.fork()
        config = other._sections[()]
        for path, value in values.items():
            config = _with_value(config, path, value)
        if self.content is self._sections[()]:
            other.content = config
        other._sections = {(): config}
        return other

    @property
    def warnings(self) -> list[Diagnostic]:
        """Values of a launch script that are known only when it runs, and what the reader of a dialect warns of."""
        return [*(self._document.warnings if self._document is not None else ()), *self.faults.warnings]

    @property
    def program(self) -> str:
        """The module that a launch script starts, with dots; empty if it is unknown, or the config is no script."""
        program = started(self._document)
        return "" if program is None else program.module

    @property
    def program_dialect(self) -> str:
        """The dialect whose program a launch script starts; empty if none has it, or the config is no script."""
        program = started(self._document)
        return "" if program is None else program.dialect

    @property
    def program_file(self) -> str:
        """The file of the program, empty if the repository of the launch script does not have it."""
        program = started(self._document)
        return "" if program is None else program.file

    @property
    def allocation(self) -> Allocation | None:
        """What a batch script asks Slurm for; ``None`` if the config is of none."""
        return self._document.allocation if isinstance(self._document, Places) else None

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables of this process that a script reads."""
        return self._document.environment if isinstance(self._document, Places) else {}

    @property
    def file(self) -> str:
        """The path of the file, empty if the content is of none."""
        return "" if self._document is None else str(self._document.file or "")

    @property
    def is_file(self) -> bool:
        """Whether the content is that of a file, or of a part of one, whose faults have a place there."""
        return self._document is not None

    @property
    def programs(self) -> Sequence[Started]:
        """The programs of the job that a launch script starts, in the order of their commands."""
        return getattr(self._document, "programs", ())

    def partial_text(self, path: KeyPath) -> str | None:
        """Return the text at a path of which a launch script leaves a part open, ``None`` without one."""
        partial: Mapping[KeyPath, str] = getattr(self._document, "partial", {})
        return partial.get(self._prefix + path)

    @property
    def paths_read(self) -> frozenset[KeyPath]:
        """The paths of the values that this reader and its forks have read so far."""
        return frozenset(self._paths_read)

    def add(self, path: KeyPath, diagnostic: Diagnostic) -> None:
        """Record a fault at a path within the content."""
        self._add(self._prefix + path, diagnostic)

    def warn(self, path: KeyPath, diagnostic: Diagnostic) -> None:
        """Record a warning at a path within the config, once."""
        self.faults.note(self.located(path, diagnostic))

    def add_in_config(self, path: KeyPath, diagnostic: Diagnostic) -> None:
        """Record a fault at a path within the config."""
        self._add(self._outer + path, diagnostic)

    def add_once(self, path: KeyPath, diagnostic: Diagnostic) -> None:
        """Record a fault at a path within the config, unless it is recorded already: two components may share it."""
        if self.located(path, diagnostic) not in self.faults:
            self.add_in_config(path, diagnostic)

    def _add(self, whole: KeyPath, diagnostic: Diagnostic) -> None:
        diagnostic = self._located(whole, diagnostic)
        self.faults.record(self._position(whole[len(self._outer) :], diagnostic), diagnostic)

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

    def where(self, path: KeyPath, *, key: bool = False) -> Where:
        """Return the place of the value at a path within the config, or of its ``key``."""
        located = self.located(path, Diagnostic("unknown-key" if key else "", ""))
        return replace(Where.at(located), order=self._position(path, located))

    def value(self, mapping: Mapping[Any, Any], key: Any, path: KeyPath) -> Any:
        """Return a value of a mapping at ``path`` in the config, ``None`` if it is missing.

        One that its config library cannot resolve is a fault.
        """
        self._paths_read.add((*path, key))
        try:
            keys = mapping.keys()  # `in` is false for an OmegaConf key whose value is ???
            return self.resolved(mapping[key], path) if key in keys else None
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
        fault = number_fault(value, path, least)
        if fault is not None:
            self.add_in_config(path, fault)
            return None
        return as_int(value)

    def section_at(self, path: KeyPath) -> Mapping[Any, Any]:
        """Return the mapping at a path, empty if it is missing; a value of another type is a fault, recorded once."""
        if path not in self._sections:
            self._sections[path] = self.mapping(self.section_at(path[:-1]), path[-1], path[:-1])
        return self._sections[path]

    def has(self, path: KeyPath) -> bool:
        """Return whether the config has a value at a path."""
        here: Any = self._sections[()]
        try:
            for key in path:
                here = here[key]
        except Exception:  # no such key, no section, or an interpolation that the config library cannot resolve
            return False
        return here is not None

    def at(self, path: KeyPath) -> Any:
        """Return the value at a path, ``None`` if it is missing."""
        return self.value(self.section_at(path[:-1]), path[-1], path[:-1])

    def resolved(self, value: Any, path: KeyPath, depth: int = 0) -> Any:
        """Return a value of the section at ``path`` in the config, with its interpolations that can be resolved."""
        if not isinstance(value, str) or "${" not in value or depth > _DEEPEST:
            return value
        if (whole := _INTERPOLATION.fullmatch(value)) is not None:
            return self._selected(whole, path, depth)

        def part(found: re.Match[str]) -> str:
            selected = self._selected(found, path, depth)
            return found[0] if isinstance(selected, (Mapping, list, type(None))) else str(selected)

        return _INTERPOLATION.sub(part, value)

    def _selected(self, found: re.Match[str], path: KeyPath, depth: int) -> Any:
        """Return the value that an interpolation selects, or its text if there is none."""
        if found["unset"] is not None:
            return plain_scalar(found["unset"].strip())
        inner = path[: len(path) + 1 - len(found["dots"])] if found["dots"] else ()
        here: Any = self._sections[()]
        sections: KeyPath = (*inner, *str(found["path"]).split("."))
        self._paths_read.add(sections)
        for key in sections[:-1]:
            here = self.resolved(here.get(key) if isinstance(here, Mapping) else None, (), depth + 1)
        selected = here.get(sections[-1]) if isinstance(here, Mapping) else None
        if selected is None:
            return found[0] if found["default"] is None else plain_scalar(found["default"].strip())
        return self.resolved(selected, sections[:-1], depth + 1)

    def reject_misspelt(self, key: str, known: Collection[str], path: KeyPath) -> bool:
        """Record a fault if a key, at a path within the content, looks like a typo of one of these; return whether."""
        if (near := misspelt(key, known)) is None:
            return False
        self.add(path, misspelt_key(path[-1], near))
        return True

    def add_all(self, path: KeyPath, error: PlacementError) -> None:
        """Record every fault of an error at a path."""
        for diagnostic in error.diagnostics:
            self.add(path, diagnostic)

    def finish(self) -> None:
        """Raise `PlacementError` with every fault if there is any."""
        self.faults.finish()

    def refusal(self) -> PlacementError:
        """Return the exception with every fault (at least one)."""
        return self.faults.refusal()

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


def _with_value(section: Any, path: KeyPath, value: Any) -> Mapping[Any, Any]:
    """Return a copy of a section with this value at the path."""
    name, *rest = path
    unchanged: Any = section if isinstance(section, Mapping) else {}
    if rest:
        value = _with_value(unchanged.get(name), tuple(rest), value)
    return ChainMap({name: value}, unchanged)


def number_fault(value: Any, path: KeyPath, least: int) -> Diagnostic | None:
    """Return the fault of a value that is not an int of at least ``least``."""
    number = as_int(value)
    if number is not None and number >= least:
        return None
    help = RESOLVE if unresolved(value) else f"write a number such as {max(least, 1)}"
    if isinstance(value, str) and re.fullmatch("[0-9]{1,20}", value):
        help = "remove the quotes"
    return must_be(path, value, f"a whole number of {least} or more", help)


def misspelt_key(name: str | int, near: str) -> Diagnostic:
    """Return the fault of a key that looks like a typo of another one."""
    return Diagnostic("unknown-key", f"unknown key `{name}`", f"did you mean `{near}`?")


def not_a_mapping(name: str, value: Any, help: str = "write num_nodes and component_placement in it") -> Diagnostic:
    """Return the fault of a value that must be a mapping."""
    return must_be(name, value, "a mapping", help)


def unreadable(key: Any, error: Exception) -> Diagnostic:
    """Return the fault of a value that its config library cannot give: it is missing, or cannot be resolved."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    help = "write the value, or an interpolation that can be resolved"
    return Diagnostic("invalid-value", f"`{key}` cannot be read: {lines[0]}", help)
