"""A trainer's config as its dialect reads it: values by their keys, each with its place, and their faults."""

from __future__ import annotations

from collections.abc import Collection, Iterator, KeysView, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, overload

from rankplan.dialects.keys.key import SECTION, Key, Kind, flag_name, path_of, read_value
from rankplan.dialects.keys.sisters import is_size, same_size
from rankplan.dialects.keys.system import NO_SYSTEM, System
from rankplan.errors import Diagnostic, Faults, KeyPath, Where
from rankplan.parallel import NO_SIZES, Parallel
from rankplan.read.text.reader import Reader, misspelt_key, number_fault
from rankplan.read.text.sizes import Sizes
from rankplan.read.text.unresolved import RESOLVE, unresolved
from rankplan.words import as_int, misspelt, must_be, path_text

if TYPE_CHECKING:
    from rankplan.read.text.started import Started

T = TypeVar("T")

_UNSET: Any = object()

SizeKeys: TypeAlias = Mapping[str, Key[Any] | Sequence[Key[Any]]]
"""The key, or the keys, of each kind of parallel size (``tp``)."""


class Config:
    """The values of a config, by the keys of its dialect.

    ``config[KEY]`` is the value at a key, or its default. A value of a wrong type is a fault, and counts as missing.
    Keys that start with ``@`` are read in a section: see `under`. ``faults`` collects what is wrong with the whole
    config.
    """

    def __init__(
        self,
        reader: Reader,
        faults: Faults,
        section: KeyPath = (),
        *,
        overrides: Sequence[KeyPath] = (),
        flags: Mapping[str, str] = MappingProxyType({}),
        of: System = NO_SYSTEM,
    ) -> None:
        """``flags`` are the names at the top as they are written, by the names of their keys."""
        self._reader = reader
        self._section = section
        self._overrides = overrides
        self._of = of
        self._fork = None if of.keys is None else of.keys.fork
        self.flags = flags
        self.faults = faults

    def _other(
        self,
        reader: Reader,
        faults: Faults,
        section: KeyPath = (),
        *,
        overrides: Sequence[KeyPath] = (),
        flags: Mapping[str, str] = MappingProxyType({}),
    ) -> Config:
        """Return a config of the same system."""
        return Config(reader, faults, section, overrides=overrides, flags=flags, of=self._of)

    def _own(self, key: Key[Any]) -> Key[Any]:
        """Return the key that a fork has instead of one of its parent's; any other key is returned unchanged."""
        if self._fork is None:
            return key
        return self._fork.key(key, ".".join(map(str, self._section)))

    def _lacks(self, path: KeyPath) -> bool:
        """Return whether the system is a fork without the key, or the section, that its parent has at a path."""
        return self._fork is not None and not self._fork.has(path)

    def __getitem__(self, key: Key[T]) -> T:
        return self.get(key)

    @overload
    def get(self, key: Key[T], *, least: int | None = ...) -> T: ...
    @overload
    def get(self, key: Key[T] | Key[T | None], default: T, *, least: int | None = ...) -> T: ...
    def get(self, key: Key[Any], default: Any = _UNSET, *, least: int | None = None) -> Any:
        """Return the value at a key; ``default`` and ``least`` take the place of the key's own."""
        key = self._own(key)
        path = self.path(key)
        value = None if key.kind is Kind.FACT else self.at(path)
        if value is not None and value not in key.absent:
            faults = len(self.faults)
            result = self._converted(key, value, path, key.least if least is None else least)
            if len(self.faults) == faults:
                return result
        if default is _UNSET:
            default = key.default(self) if callable(key.default) else key.default
        return default

    def _converted(self, key: Key[Any], value: Any, path: KeyPath, least: int) -> Any:
        """Return a value as the type of its key. One of another type is a fault, which is recorded."""
        if key.reads is not None:
            result, located = read_value(key, value, path)
            for inner, fault in located:
                self.reject(inner, fault)
            return result
        wrong_type = _type_fault(key, value, path, least)
        if wrong_type is None:
            return _converted(key, value)
        self.faults.add(self._reader.where(path), wrong_type)
        return None

    def stated(self, key: Key[Any]) -> bool:
        """Return whether the config has a value at a key, of whatever type."""
        return self.at(self.path(key)) is not None

    def is_known_when_run(self, key: Key[Any]) -> bool:
        """Return whether only a run of the launch script tells the value at a key."""
        path = path_text(self.path(key))
        return any(warning.path == path for warning in self._reader.warnings)

    def has(self, key: Key[Any]) -> bool:
        """Return whether the config has a key at the top, even without a value."""
        return any(path[0] in self.section for path in self.paths(key))

    def raw(self, key: Key[Any]) -> Any:
        """Return the value at a key as written, of whatever type; ``None`` without one."""
        return self.at(self.path(key))

    def entry(self, key: Key[Any], mapping: Mapping[Any, Any], name: str) -> Any:
        """Return a value of a mapping that is at a key, ``None`` if it is missing."""
        return self._reader.value(mapping, name, self.path(key))

    def path(self, key: Key[Any]) -> KeyPath:
        """Return the path of a key in this config: the first one with a value, else its own."""
        paths = self.paths(key)
        usual = self.path_at(self._own(key).path)
        if paths and self._lacks(usual):
            usual = paths[0]
        return next(filter(self._reader.has, paths), usual)

    def paths(self, key: Key[Any]) -> list[KeyPath]:
        """Return the path of a key in this config, and those of its fallbacks, without those that a fork lacks."""
        paths = []
        for dotted in self._own(key).paths:
            paths += self._paths_of(dotted)
        return paths if self._fork is None else [path for path in paths if self._fork.has(path)]

    def _paths_of(self, dotted: str) -> list[KeyPath]:
        """Return where a dotted path may be in this config: in the section last, after those that override it."""
        path = path_of(dotted)
        if path[0] != SECTION:
            return [self._written(path)]
        return [self._written((*section, *path[1:])) for section in (*self._overrides, self._section)]

    def older_values(self, key: Key[Any]) -> Iterator[Any]:
        """Yield the value at each fallback of a key as written, ``None`` without one."""
        for dotted in key.fallbacks:
            yield from map(self.at, self._paths_of(dotted))

    @staticmethod
    def flag_name(written: str) -> str:
        """Return the name of the key of a flag, which may be written as on a command line."""
        return flag_name(written)

    def _written(self, path: KeyPath) -> KeyPath:
        name = self.flags.get(str(path[0])) if path and self.flags else None
        return path if name is None else (name, *path[1:])

    def at(self, path: KeyPath) -> Any:
        """Return the value at a path of `paths` as written; ``None`` without one."""
        return None if self._lacks(path) else self._reader.at(path)

    def partial_text(self, path: KeyPath) -> str | None:
        """Return the text at a path of `paths` of which a launch script leaves a part open, ``None`` without one."""
        return self._reader.partial_text(path)

    def path_at(self, dotted: str) -> KeyPath:
        """Return where a dotted path is in the section of this config, or the whole config."""
        return self._paths_of(dotted)[-1]

    def names_in(self, path: KeyPath) -> KeysView[Any]:
        """Return the names of the keys in the section at a path, as they are called in the table of the dialect."""
        if not path and self.flags:
            return self.flags.keys()
        return self._reader.section_at(self._written(path)).keys()

    def place_of(self, path: KeyPath) -> Where:
        """Return the place of the value at a path of `paths`."""
        return self._reader.where(path)

    def where(self, *keys: Key[Any]) -> Where:
        """Return the place of the first of these keys that has a value, else of the first one."""
        key = next(filter(self.stated, keys), keys[0])
        return self._reader.where(self.path(key))

    def key_place(self, key: Key[Any]) -> Where:
        """Return the place of a key, for a fault of the key rather than of its value."""
        return self._reader.where(self.path(key), key=True)

    def value_place(self, name: str | int) -> Where:
        """Return the place of a value of the section by the name of its key; of an item of a list, by its number."""
        return self._reader.where((*self._section, name))

    def named(self, name: str) -> Where:
        """Return the place of a key of the section by its name, for a fault of the key rather than of its value."""
        return self._reader.where((*self._section, name), key=True)

    def under(self, section: str | KeyPath, *, overrides: Sequence[KeyPath] = ()) -> Config:
        """Return the config with a section in which keys that start with ``@`` are read.

        A value in a section of ``overrides`` counts instead, that of the first one most.
        """
        path = path_of(section) if isinstance(section, str) else section
        return self._other(self._reader, self.faults, path, overrides=overrides, flags=self.flags)

    def inside(self, path: KeyPath, section: Mapping[Any, Any]) -> Config:
        """Return the config with a section that was found at a path, as `under` does.

        A walk over the config also finds sections in lists, and those whose keys are no texts.
        """
        return self._other(self._reader.within(path, section), self.faults, path, flags=self.flags)

    def reject_misspelt(self, name: str, known: Collection[str]) -> None:
        """Record the fault of a key of the section that looks like a typo of one of these."""
        near = misspelt(name, known)
        if near is not None:
            self.faults.add(self.named(name), misspelt_key(name, near))

    def reject_sisters(self, known: Collection[str]) -> None:
        """Record the faults of sizes in the section under names that other systems have for one of these."""
        section = self.section
        missing = [name for name in known if name not in section]
        for name in map(str, section):
            meant = None if name in known else same_size(name, missing)
            if meant is not None and is_size(section[name]):
                self.faults.add(self.named(name), misspelt_key(name, meant))

    def reject(self, path: KeyPath, fault: Diagnostic) -> None:
        """Record a fault at a path of the whole config: at the key if it is about the key, else at the value."""
        self._reader.add_in_config(path, fault)

    def reject_once(self, path: KeyPath, fault: Diagnostic) -> None:
        """Record a fault at a path of the whole config, unless it is recorded already: two components may share it."""
        self._reader.add_once(path, fault)

    def reporting(self, faults: Faults) -> Config:
        """Return the same config, whose faults another collector gets."""
        reader = self._reader.reporting(faults)
        return self._other(reader, faults, self._section, overrides=self._overrides, flags=self.flags)

    def fork(self) -> Config:
        """Return the same config with the same faults; neither gets the later faults of the other."""
        return self.reporting(self.faults.copy())

    def reader_of_section(self) -> Reader:
        """Return the reader of the section alone, for what reads mappings of any config; it has the same faults."""
        return self._reader.inside(self._section)

    def aside(self) -> Config:
        """Return the same config for values that decide no placement: their sections may be of any type."""
        reader = self._reader.aside()
        return self._other(reader, reader.faults, self._section, overrides=self._overrides, flags=self.flags)

    def with_values(self, values: Mapping[KeyPath, Any]) -> Config:
        """Return the config with other values at some paths of `paths`; its faults are its own."""
        reader = self._reader.with_values(values)
        added = {flag_name(str(path[0])): str(path[0]) for path in values} if self.flags else {}
        return self._other(
            reader, reader.faults, self._section, overrides=self._overrides, flags={**added, **self.flags}
        )

    def section_at(self, key: Key[Any]) -> Config:
        """Return the config with the section that is at a key, as `under` does."""
        return self.under(self.path(key))

    def inner(self, name: str) -> Config:
        """Return the config with a section inside this one, in which keys that start with ``@`` are read."""
        return self.under((*self._section, name))

    @property
    def name(self) -> str:
        """The dotted path of the section, empty for the whole config."""
        return path_text(self._section)

    @property
    def section_path(self) -> KeyPath:
        """The path of the section, empty for the whole config."""
        return self._section

    @property
    def exists(self) -> bool:
        """Whether there is a value at the path of the section, of whatever type."""
        return not self._section or self.at(self._section) is not None

    @property
    def section(self) -> Mapping[Any, Any]:
        """The section in which keys that start with ``@`` are read, empty if it is missing; or the whole config."""
        if self._lacks(self._section):
            return {}
        return self._reader.section_at(self._section)

    @property
    def place(self) -> Where:
        """The place of the section, or of the part of its path that exists."""
        return self._reader.where(self._section)

    @property
    def system(self) -> str:
        """What messages call the system that the config is written for."""
        return self._of.title

    @property
    def keys(self) -> Sequence[Key[Any]]:
        """The keys by which the system places."""
        return () if self._of.keys is None else self._of.keys.keys

    @property
    def starts_program_of_fork(self) -> bool:
        """Whether the system is a fork of another one, and the launch script starts one of its own programs."""
        return self._fork is not None and self._reader.program_dialect == self._of.dialect

    @property
    def program(self) -> str:
        """The module that a launch script starts, with dots; empty if it is unknown, or the config is no script."""
        return self._reader.program

    @property
    def program_file(self) -> str:
        """The file of the program, empty if the repository of the launch script does not have it."""
        return self._reader.program_file

    def module_file(self, name: str) -> Path | None:
        """Return the file of a module that the program imports, ``None`` if its repository does not have it.

        A name that starts with dots is relative to the program.
        """
        from rankplan.read.text.nearby import is_file, nearest_file  # only a launch script has a program

        program = self.program_file
        inner = name.lstrip(".").replace(".", "/")
        if name.startswith("."):
            above = len(name) - len(name.lstrip(".")) - 1
            folders = [*Path(program).parents][above : above + 1]  # none, if the name leads above the root
            return next(filter(is_file, [folder / f"{inner}.py" for folder in folders]), None)
        return nearest_file(f"{inner}.py", program)

    def file_near(self, name: str) -> Path | None:
        """Return the file with a name beside that of the config, or in the nearest folder above in its repository."""
        from rankplan.read.text.nearby import nearest_file  # few dialects look for other files

        return nearest_file(name, self.file) if self.file else None

    @property
    def file(self) -> str:
        """The path of the config's file, empty for a mapping."""
        return self._reader.file

    @property
    def programs(self) -> Sequence[Started]:
        """The programs of the job that a launch script starts, in the order of their commands."""
        return self._reader.programs

    def of(self, program: Started) -> Config:
        """Return the values of one of the `programs`, with the faults of this config."""
        return self._other(Reader(program.values), self.faults)

    def part(self, name: str) -> Config | None:
        """Return the values of a program that is another part of the job (`Program.part`), ``None`` without one."""
        programs = [program for program in self.programs if program.part == name]
        return self.of(programs[-1]) if programs else None

    def parallel(self, keys: SizeKeys, *, order: str = Parallel.ORDER, at: Key[Any] | None = None) -> Sizes:
        """Return the parallel sizes at these keys, by kind; no sizes if any is invalid.

        The place of all of them is the section, or that of the key ``at``.

        A kind may have several keys, of which the last one with a value counts. Experts are divided like other tensors
        unless an expert-tensor size is stated (Megatron-LM: ``ModelParallelConfig.__post_init__``).
        """
        faults = len(self.faults)
        stated: dict[str, int] = {}
        places: dict[str, Where] = {}
        paths: dict[str, KeyPath] = {}
        for kind, each in keys.items():
            several = (each,) if isinstance(each, Key) else each
            paths[kind] = self.path(several[0])
            for key in several:
                size = self.get(key, None)
                if size is not None:
                    stated[kind] = size
                    places[kind] = self.where(key)
                    paths[kind] = self.path(key)
        place = self.place if at is None else self.where(at)
        if len(self.faults) > faults:
            return Sizes(NO_SIZES, place, places, paths)
        if stated.get("ep", 1) > 1:
            stated.setdefault("etp", stated.get("tp", 1))
        return Sizes(Parallel(**stated, order=order), place, places, paths)


def _type_fault(key: Key[Any], value: Any, path: KeyPath, least: int) -> Diagnostic | None:
    """Return the fault of a value of another type than its key has."""
    if key.kind is Kind.SIZE:
        fault = number_fault(value, path, least)
        number = as_int(value)
        if fault is None and number is not None and key.most is not None and number > key.most:
            return must_be(path, value, f"{key.most:,} or less", f"use {key.most:,} or less")
        return fault
    if key.kind is Kind.SWITCH and not isinstance(value, bool):
        return must_be(path, value, "true or false", "write true or false")
    if key.kind in (Kind.NUMBER, Kind.SHARE, Kind.FRACTION) and not _is_number(value):
        help = RESOLVE if unresolved(value) else f"write a number such as {key.default}"
        return must_be(path, value, "a number", help)
    return None


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _converted(key: Key[Any], value: Any) -> Any:
    """Return a value as the type of its key."""
    if key.kind is Kind.SIZE:
        return as_int(value)
    if key.kind is Kind.TEXT:
        return str(value)
    if key.kind in (Kind.NUMBER, Kind.SHARE, Kind.FRACTION):
        return float(value)
    return value
