"""A fork: a system that is like another one, its parent. It has some keys of its own, and lacks others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any

from rankplan.dialects.keys.key import Key, Kind, below, flag_name, in_section
from rankplan.errors import KeyPath
from rankplan.frozen import frozen


@frozen(slots=False, eq=False)
class Fork:
    """How the keys of a fork differ from the ``parents`` keys.

    ``own`` are its keys. One replaces the key of the parent that it is ``like``, or that has its path. ``lacks`` are
    the paths of keys, and of sections with all their keys, that only the parent has.
    """

    parents: tuple[Key[Any], ...]
    own: tuple[Key[Any], ...]
    lacks: tuple[str, ...]

    @cached_property
    def _own_places(self) -> frozenset[str]:
        return frozenset(place for key in self.own for place in key.places())

    @cached_property
    def _replacing(self) -> dict[str, Key[Any]]:
        """The keys of the fork, by the path of the key of the parent that each replaces."""
        return {key.like or key.path: key for key in self.own}

    def key(self, key: Key[Any], section: str) -> Key[Any]:
        """Return the key that the fork has instead of one of its parent's in a section, else this key itself."""
        return self._replacing.get(below(section, key.path), key)

    def place(self, dotted: str) -> str:
        """Return the path that the fork has for the key of its parent at a path, which is returned if it lacks it."""
        key = next((key for key in self.parents if key.path == dotted), None)
        if key is None:
            return dotted
        own = self.key(key, "")
        return own.path if own is not key else next(filter(self._keeps, key.paths), dotted)

    def has(self, path: KeyPath) -> bool:
        """Return whether a key at a path means something in the fork, if it does in the parent."""
        if not path:
            return True
        dotted = ".".join([flag_name(str(path[0])), *map(str, path[1:])])
        if dotted in self._own_places:
            return True
        if dotted in self._replacing:
            return False
        return not any(dotted == lacked or dotted.startswith(f"{lacked}.") for lacked in self.lacks)

    @cached_property
    def inherited(self) -> tuple[Key[Any], ...]:
        """The keys of the parent that the fork has, too. None of them tells that a config is of the fork."""
        return tuple(self._inherited())

    def _inherited(self) -> Iterator[Key[Any]]:
        for key in self.parents:
            if key.kind is Kind.FACT:
                continue
            paths, sections = key.paths, key.at
            if in_section(key.path):
                sections = tuple(section for section in key.at if self._keeps(below(section, key.path)))
            else:
                paths = tuple(dotted for dotted in key.paths if self._keeps(dotted))
            if not paths or (key.at and not sections):
                continue
            is_same = (paths, sections, key.tells, key.older_tells) == (key.paths, key.at, "", "")
            yield (
                key
                if is_same
                else replace(key, path=paths[0], fallbacks=paths[1:], at=sections, tells="", older_tells="")
            )

    def _keeps(self, dotted: str) -> bool:
        return dotted not in self._own_places and self.has(tuple(dotted.split(".")))

    def unknown(self) -> list[str]:
        """Return the paths and the facts that the keys of the fork replace, and that the parent does not have."""
        facts = {key.path for key in self.parents if key.kind is Kind.FACT}
        places = {place for key in self.parents if key.kind is not Kind.FACT for place in key.places()}
        missing = [key.like for key in self.own if key.like and key.kind is not Kind.FACT and key.like not in places]
        missing += [key.path for key in self.own if key.kind is Kind.FACT and key.path not in facts]
        return missing
