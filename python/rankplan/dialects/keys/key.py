"""A key of a trainer's config, declared once: where it is, its type, its default, and what it decides.

Recognition, the detection of typos, reading, the schema, the guide and the helps about memory use the same keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from enum import Enum
from functools import cache, lru_cache
from typing import Any, Generic, Literal, TypeVar, overload

from rankplan.errors import KeyPath, PlacementError
from rankplan.frozen import frozen
from rankplan.read.text.invalid import Invalid, Located
from rankplan.read.text.reader import LARGEST

T = TypeVar("T")

SECTION = "@"
"""The first part of a path below the section of a component."""

ANY_ROLE = "*"
"""The section of any role, which may have any name."""

Recognition = Literal["", "tells", "alone", "others"]
"""What a key says about the dialect of a config that has it.

``tells``: the config is of this dialect. ``alone``: the same, and a config of another dialect may not have the key.
``others``: only the latter.
"""


class Kind(Enum):
    """The type of a key. Its value is the word in the guide."""

    SIZE = "size"
    """A whole number."""
    SWITCH = "switch"
    TEXT = "text"
    NUMBER = "number"
    SHARE = "share"
    """A number above 0, up to 1."""
    FRACTION = "fraction"
    """A number from 0 to 1."""
    ANY = "any"
    """A value of any type, or a section."""
    FACT = "fact"
    """No key of a config: what a plan says about a component, or what is true of all jobs of a system."""


@frozen(slots=False, eq=False)
class Key(Generic[T]):
    """A key of a config. Make one with `size`, `switch`, `text`, ... and read it with ``config[key]``.

    ``path`` is dotted: ``trainer.nnodes``. ``@.nnodes`` stands in each section of ``at``, which may be ``*``, that
    of any role. ``fallbacks`` are read in this order if ``path`` has no value: the names in older versions, or the
    section that the value is inherited from. ``default`` is the value that the trainer uses if no path has one, or
    a function of the config. ``like`` is the path of the key of another system in whose place a fork of it has this one
    (`Dialect.like`). ``tells`` is about ``path``, ``older_tells`` about the fallbacks. ``decides`` completes "decides
    ..." in the guide and in an editor; it is empty if settings of ``memory`` tell. ``least`` and ``most`` are the least
    and the largest size; ``None`` is no limit. The value is the name of one of the ``sections`` at the top of a config,
    if there are any. ``reads`` makes the value of what is written, if its type is none of the kinds; it raises
    `Invalid`, or `PlacementError`. ``schema`` is the JSON schema of such a value, or of any. ``absent`` are texts that
    count as no value. ``takes_null``: for the memory, a null in a config is a value of its own, and does not stand for
    the default.
    """

    path: str
    kind: Kind
    decides: str = ""
    default: T | Callable[[Any], T] | None = None
    fallbacks: tuple[str, ...] = ()
    at: tuple[str, ...] = ()
    tells: Recognition = ""
    older_tells: Recognition = ""
    least: int = 1
    most: int | None = LARGEST
    sections: tuple[str, ...] = ()
    like: str = ""
    reads: Callable[[Any], T] | None = None
    schema: Mapping[str, Any] = field(default_factory=dict)
    absent: tuple[str, ...] = ()
    takes_null: bool = False

    @staticmethod
    def among(names: Mapping[str, Any]) -> tuple[Key[Any], ...]:
        """Return the keys among the names of a module, in the order written; also those in its tuples and dicts.

        Facts are left out, except for those that say what they decide.
        """
        return tuple(dict.fromkeys(_listed(names.values())))

    @property
    def name(self) -> str:
        """The last part of its path."""
        return self.path.rpartition(".")[2]

    @property
    def is_switch(self) -> bool:
        """Whether it is true or false."""
        return self.kind is Kind.SWITCH

    @property
    def paths(self) -> tuple[str, ...]:
        """Its path and its fallbacks."""
        return self.path, *self.fallbacks

    def read(self, stated: Any) -> T | Any:
        """Return what it ``reads`` in a value, else the value itself. Raises `Invalid`, or `PlacementError`."""
        return stated if self.reads is None else self.reads(stated)

    def path_in(self, section: str) -> str:
        """Return its dotted path in a section, which takes the place of its ``@``."""
        return below(section, self.path)

    def places(self) -> Iterator[str]:
        """Yield every dotted path that it may have in a config."""
        for dotted in self.paths:
            yield from self._places_of(dotted)

    def by_section(self) -> Iterator[tuple[str, ...]]:
        """Yield, for each section that has it, its dotted path there and those of its fallbacks, in their order."""
        for section in self.at or ("",):
            yield tuple(below(section, dotted) for dotted in self.paths)

    def telling(self, *tells: Recognition) -> Iterator[str]:
        """Yield the dotted paths that say one of these about the dialect of a config."""
        for dotted in self.paths:
            recognition = self.tells if dotted == self.path else self.older_tells
            if recognition in tells:
                yield from self._places_of(dotted)

    def _places_of(self, dotted: str) -> Iterator[str]:
        if in_section(dotted):
            yield from (below(section, dotted) for section in self.at)
        else:
            yield dotted


def in_section(dotted: str) -> bool:
    """Return whether a path is below the section of a component."""
    return dotted == SECTION or dotted.startswith(f"{SECTION}.")


def below(section: str, dotted: str) -> str:
    """Return a path with a section in place of its ``@``; any other path is returned unchanged."""
    if dotted == SECTION:
        return section
    if not in_section(dotted):
        return dotted
    inner = dotted.removeprefix(f"{SECTION}.")
    return f"{section}.{inner}" if section else inner


@overload
def size(
    path: str, decides: str = "", *, default: int | Callable[[Any], int], least: int = 1, **more: Any
) -> Key[int]: ...
@overload
def size(path: str, decides: str = "", *, least: int = 1, **more: Any) -> Key[int | None]: ...
def size(path: str, decides: str = "", *, default: Any = None, least: int = 1, **more: Any) -> Key[Any]:
    """Return the key of a whole number of ``least`` or more."""
    return Key(path, Kind.SIZE, decides, default, least=least, **more)


@overload
def switch(path: str, decides: str = "", *, default: None, **more: Any) -> Key[bool | None]: ...
@overload
def switch(path: str, decides: str = "", *, default: bool | Callable[[Any], bool] = ..., **more: Any) -> Key[bool]: ...
def switch(path: str, decides: str = "", *, default: Any = False, **more: Any) -> Key[Any]:
    """Return the key of true or false."""
    return Key(path, Kind.SWITCH, decides, default, **more)


@overload
def text(path: str, decides: str = "", *, default: str | Callable[[Any], str], **more: Any) -> Key[str]: ...
@overload
def text(path: str, decides: str = "", **more: Any) -> Key[str | None]: ...
def text(path: str, decides: str = "", *, default: Any = None, **more: Any) -> Key[Any]:
    """Return the key of a text, which may look like a number."""
    return Key(path, Kind.TEXT, decides, default, **more)


@overload
def number(path: str, decides: str = "", *, default: float, **more: Any) -> Key[float]: ...
@overload
def number(path: str, decides: str = "", **more: Any) -> Key[float | None]: ...
def number(path: str, decides: str = "", *, default: Any = None, **more: Any) -> Key[Any]:
    """Return the key of a number."""
    return Key(path, Kind.NUMBER, decides, default, **more)


def share(path: str, decides: str = "", *, default: float | None = None, **more: Any) -> Key[float | None]:
    """Return the key of a number above 0, up to 1."""
    return Key(path, Kind.SHARE, decides, default, **more)


def fraction(path: str, decides: str = "", *, default: float | None = None, **more: Any) -> Key[float | None]:
    """Return the key of a number from 0 to 1."""
    return Key(path, Kind.FRACTION, decides, default, **more)


def anything(path: str, decides: str = "", *, default: Any = None, **more: Any) -> Key[Any]:
    """Return the key of a value of any type, or of a section."""
    return Key(path, Kind.ANY, decides, default, **more)


@overload
def value(path: str, reads: Callable[[Any], T], decides: str = "", *, default: T, **more: Any) -> Key[T]: ...
@overload
def value(path: str, reads: Callable[[Any], T], decides: str = "", **more: Any) -> Key[T | None]: ...
def value(path: str, reads: Callable[[Any], Any], decides: str = "", *, default: Any = None, **more: Any) -> Key[Any]:
    """Return the key of a value that a function reads; see `Key`."""
    return Key(path, Kind.ANY, decides, default, reads=reads, **more)


def fact(name: str, decides: str = "", *, default: Any = None) -> Key[Any]:
    """Return a fact: a named value that no key of a config states.

    Without ``decides``, the plan or the dialect knows it about a component. With ``decides``, it is true of all jobs
    of a system, as a value or a function of the config, and a fork may state another one.
    """
    return Key(name, Kind.FACT, decides, default)


def _listed(values: Iterable[Any]) -> Iterator[Key[Any]]:
    for value in values:
        if isinstance(value, Key):
            if value.kind is not Kind.FACT or value.decides:
                yield value
        elif isinstance(value, tuple):
            yield from _listed(value)
        elif isinstance(value, dict):
            yield from _listed(value.values())


def read_value(key: Key[Any], stated: Any, path: KeyPath) -> tuple[Any, list[Located]]:
    """Return what a key reads from the value at a path, and the faults. With a fault, the value is ``None``."""
    try:
        return key.read(stated), []
    except Invalid as error:
        return None, list(error.below(path))
    except PlacementError as error:
        return None, [(path, fault) for fault in error.diagnostics]


@frozen(slots=False)
class Entry:
    """A place where a config may have a key: its type there, and what it decides.

    ``places``: it decides the placement. Otherwise it only tells what a component keeps in memory.
    """

    path: KeyPath
    kind: Kind
    decides: str
    places: bool = True
    schema: Mapping[str, Any] = field(default_factory=dict, compare=False)


@lru_cache(maxsize=4096)
def path_of(dotted: str) -> KeyPath:
    """Return the parts of a dotted path. Paths are cached, because every config is read by the same ones."""
    return tuple(dotted.split("."))


def flag_name(written: str) -> str:
    """Return the name of a flag, which may be written as on a command line."""
    return written.removeprefix("--").replace("-", "_")


@cache
def path_below(section: str, dotted: str) -> KeyPath:
    """Return the parts of a path with a section in place of its ``@``."""
    return path_of(below(section, dotted))
