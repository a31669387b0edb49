"""The doors: groups of entry points by which other packages add dialects, launchers and commands.

What rankplan has itself comes first, from a table that needs no search. The metadata of the installed packages is read
once a process, and only when a name is unknown, nothing built in recognises a file, or a help text lists guests. The
code of a guest runs when its object is needed. An error in that code is a fault that names the package of the guest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from enum import Enum
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from rankplan.errors import Diagnostic, PlacementError
from rankplan.frozen import frozen
from rankplan.guests import faults

if TYPE_CHECKING:
    from importlib.metadata import Distribution, EntryPoint

T = TypeVar("T")

_SEPARATORS = re.compile(r"[-_.]+")
"""What may stand between the words of a package's name; PyPA: "Names and normalization"."""


class Door(str, Enum):
    """A group of entry points."""

    DIALECTS = "rankplan.dialects"
    LAUNCHERS = "rankplan.launchers"
    COMMANDS = "rankplan.commands"

    @property
    def noun(self) -> str:
        """The word for one guest that comes through this door."""
        return self.value.removeprefix("rankplan.").removesuffix("s")


class GuestError(PlacementError):
    """A guest cannot be used: it cannot be imported, it raised an error, or others have its name."""

    @property
    def warning(self) -> Diagnostic:
        """The warning for users who have not chosen the guest."""
        return replace(self.diagnostics[0], warning=True)


@frozen
class Guest:
    """An entry point of another package, whose code has not been imported."""

    door: Door
    name: str
    package: str
    entry: EntryPoint

    def __str__(self) -> str:
        return f"the {self.door.noun} `{self.name}` of the package {self.package}"

    def load(self, kind: type[T]) -> T:
        """Return the object, which is imported once a process.

        Raises `GuestError` if it cannot be imported or is not of this kind.
        """
        loaded = _loaded(self)
        if isinstance(loaded, _Failed):
            raise GuestError([loaded.fault]) from loaded.error
        if not isinstance(loaded, kind):
            raise GuestError([faults.of_wrong_type(str(self), self.package, loaded, kind)])
        return loaded

    @contextmanager
    def running(self) -> Iterator[None]:
        """Turn what the guest's code raises into a `GuestError`, but for faults of the input and of files."""
        try:
            yield
        except (PlacementError, OSError):
            raise
        except (Exception, SystemExit) as error:
            raise GuestError([faults.raised(str(self), self.package, error)]) from error


class _Failed(NamedTuple):
    """The fault of a guest that cannot be imported, and the error that its import raised."""

    fault: Diagnostic
    error: BaseException


@frozen(slots=False)
class Loaded(Generic[T]):
    """The guests that can be used, with the object of each, and a warning for each of the others."""

    guests: dict[Guest, T]
    warnings: list[Diagnostic]


class Table(Mapping[str, T]):
    """What has come through a door, by name: first what is built in, then guests.

    ``builtin`` has the texts of entry points (``module:object``). A guest cannot replace what is built in. To iterate
    over a table, or to look up an unknown name, searches for guests; only ``table[name]`` imports an object.
    """

    def __init__(self, door: Door, kind: type[T], builtin: Mapping[str, str]) -> None:
        self.door = door
        self.kind = kind
        self.builtin = builtin

    def __getitem__(self, name: str) -> T:
        """Return an object. Raises ``KeyError`` for an unknown name, `GuestError` for a guest that fails."""
        if name in self.builtin:
            module, _, attribute = self.builtin[name].partition(":")
            value: T = getattr(import_module(module), attribute)
            return value
        guest = self.guest(name)
        if guest is None:
            raise KeyError(name)
        return guest.load(self.kind)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (name in self.builtin or name in guests(self.door))

    def __iter__(self) -> Iterator[str]:
        yield from self.builtin
        yield from self.guest_names()

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def guest_names(self) -> list[str]:
        """Return the names that only guests have, sorted."""
        return sorted(guests(self.door).keys() - self.builtin.keys())

    def guest(self, name: str) -> Guest | None:
        """Return the guest of a name, ``None`` for an unknown one or one that is built in.

        Raises `GuestError` if several packages have the name.
        """
        if name in self.builtin:
            return None
        same = guests(self.door).get(name, ())
        if len(same) > 1:
            packages = [guest.package for guest in same]
            raise GuestError([faults.same_name(self.door.noun, name, packages)])
        return same[0] if same else None

    def loaded(self) -> Loaded[T]:
        """Import all guests."""
        loaded: Loaded[T] = Loaded({}, [])
        for name, same in guests(self.door).items():
            if name in self.builtin:
                noun = self.door.noun
                loaded.warnings.extend(faults.name_taken(str(guest), guest.package, noun) for guest in same)
                continue
            try:
                guest = self.guest(name)
                if guest is not None:
                    loaded.guests[guest] = guest.load(self.kind)
            except GuestError as error:
                loaded.warnings.append(error.warning)
        return loaded


_without: set[object] = set()
"""A mark for each caller that keeps guests out: threads enter and leave without a lock."""


@contextmanager
def without_guests() -> Iterator[None]:
    """Keep the code of other packages out: unknown files are then read by rankplan's own code only.

    This holds for the whole process, also in threads, until every caller has left the context.
    """
    mark = object()
    _without.add(mark)
    try:
        yield
    finally:
        _without.discard(mark)


def guests(door: Door) -> Mapping[str, tuple[Guest, ...]]:
    """Return the guests of a door by name, none while they are kept out. Their code is not imported."""
    return {} if _without else installed()[door]


@cache
def installed() -> Mapping[Door, Mapping[str, tuple[Guest, ...]]]:
    """Return all guests of this process, by door and name: the metadata of all installed packages is read once."""
    from importlib.metadata import distributions  # its import takes ten times as long as the search

    by_door: dict[Door, dict[str, tuple[Guest, ...]]] = {door: {} for door in Door}
    packages: set[str] = set()
    for distribution in distributions():
        with suppress(Exception):  # a broken package, which pip would complain about
            entries = _entries(distribution)
            if not entries:
                continue
            package = _SEPARATORS.sub("-", distribution.name).lower()
            if package in packages:
                continue  # a folder further back on the path has the same package
            packages.add(package)
            for entry in entries:
                by_name = by_door[Door(entry.group)]
                guest = Guest(Door(entry.group), entry.name, package, entry)
                by_name[entry.name] = (*by_name.get(entry.name, ()), guest)
    return by_door


def _entries(distribution: Distribution) -> list[EntryPoint]:
    """Return the entry points of a package that are guests; most packages have none, and are not parsed."""
    text = distribution.read_text("entry_points.txt") or ""
    if not any(door in text for door in Door):
        return []
    return [entry for entry in distribution.entry_points if entry.group in list(Door)]


@cache
def _loaded(guest: Guest) -> Any:
    """Return the object of a guest, or why it cannot be imported."""
    try:
        return guest.entry.load()
    except (Exception, SystemExit) as error:
        return _Failed(
            faults.not_imported(str(guest), guest.package, guest.entry.value.partition(":")[0], error), error
        )
