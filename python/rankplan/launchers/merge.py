"""Fields that rankplan writes over those of the user, and where the two contradict each other.

A tree of plain values stands for what rankplan writes. `USER` marks the place of a field that is the user's, and
`ABSENT` a field that must not be there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any

from rankplan.errors import KeyPath
from rankplan.frozen import frozen
from rankplan.read.inventories.quantities import quantity


class Mark(Enum):
    """A field without a value of its own."""

    USER = "user"
    ABSENT = "absent"


USER, ABSENT = Mark.USER, Mark.ABSENT


@frozen
class AtLeast:
    """A quantity that is the user's, but not below a least one.

    ``value`` is written unless the user has another; ``None``: nothing is. ``least`` is a number of units.
    """

    value: str | None
    least: float = 0


@frozen
class Default:
    """A field that the user may set to anything; ``value`` is the default."""

    value: Any


class Least(str):
    """What a field that is too small must be."""

    __slots__ = ()


class Optional(dict[str, Any]):
    """A mapping that is left out if nothing is in it."""


class Closed(list[Any]):
    """Named objects, all of which rankplan writes: the user's file has no others."""


NAMES = ("mountPath", "groupName", "name")
"""Keys that name the objects of a list: lists of named objects are merged element by element, as Kubernetes does it.

A container may mount a volume twice, but nothing twice at one path.
"""

EVERY = "*"
"""In a list of the user, an object of this name stands for every object of rankplan's list."""


@frozen
class Contradiction:
    """A field that differs: its path in the user's file, rankplan's value, and the user's.

    Either value is `ABSENT` if its side has no such field.
    """

    path: KeyPath
    ours: Any
    users: Any


def merged(ours: Any, users: Any) -> Any:
    """Return rankplan's tree with the fields of the user, in rankplan's order first. rankplan's values win."""
    if ours is USER:
        return users
    if isinstance(ours, AtLeast):
        default = ABSENT if ours.value is None else ours.value
        return default if users is ABSENT else users
    if isinstance(ours, Default):
        return ours.value if users is ABSENT else users
    if isinstance(ours, Mapping):
        fields = _merged_fields(ours, users if isinstance(users, Mapping) else {})
        return ABSENT if not fields and isinstance(ours, Optional) else fields
    if isinstance(ours, list):
        key = key_of(ours)
        if key is None or not isinstance(users, list):
            return [merged(value, ABSENT) for value in ours]
        return _merged_objects(ours, users, key)
    return ours


def _merged_fields(ours: Mapping[str, Any], users: Mapping[str, Any]) -> dict[str, Any]:
    fields = {key: merged(value, users.get(key, ABSENT)) for key, value in ours.items()}
    for key, value in users.items():
        if key not in ours:
            fields[key] = value
    return {key: value for key, value in fields.items() if value is not ABSENT}


def _merged_objects(ours: list[Any], users: list[Any], key: str) -> list[Any]:
    """Return rankplan's named objects, each with the fields of the user's one, and then the user's others."""
    objects = [value for value in users if isinstance(value, Mapping)]
    by_name = {_name(value, key): value for value in objects}
    every = by_name.pop(EVERY, ABSENT)
    result = [merged(mine, overlaid(every, by_name.get(mine[key], ABSENT), key)) for mine in ours]
    if not isinstance(ours, Closed):
        names = {mine[key] for mine in ours} | {EVERY}
        result += [value for value in objects if _name(value, key) not in names]
    return result


def overlaid(every: Any, own: Any, name: str) -> Any:
    """Return the user's fields of one object over those for every object."""
    if every is ABSENT:
        return own
    fields = {key: value for key, value in every.items() if key != name}
    return merged(own if own is not ABSENT else {}, fields)


def contradictions(ours: Any, users: Any, path: KeyPath = ()) -> Iterator[Contradiction]:
    """Yield where the user's fields differ from rankplan's, also those that are missing; see `Contradiction`."""
    match ours:
        case Mark.USER | Default():
            return
        case AtLeast():
            yield from _too_small(ours, users, path)
        case Mapping() if isinstance(users, Mapping) or users is ABSENT:
            fields = users if isinstance(users, Mapping) else {}
            for key, value in ours.items():
                yield from contradictions(value, fields.get(key, ABSENT), (*path, key))
        case list() if isinstance(users, list):
            yield from _in_lists(ours, users, path)
        case list() if users is ABSENT and key_of(ours) is not None:
            yield from _in_lists(ours, [], path)
        case _:
            if ours is not users and _plain(ours) != _plain(users):
                yield Contradiction(path, ours, users)


def _too_small(ours: AtLeast, users: Any, path: KeyPath) -> Iterator[Contradiction]:
    """Yield a quantity of the user that is below the least one."""
    number = quantity(users)
    if number is not None and number < ours.least:
        yield Contradiction(path, Least(f"{_quantity_text(ours.least)} or more"), users)


def released(ours: Any, users: Any) -> Any:
    """Return the user's fields without the quantities that rankplan has written: another plan may need others."""
    if isinstance(ours, Mapping) and isinstance(users, Mapping):
        fields = {}
        for key, value in users.items():
            mine = ours.get(key, USER)
            is_ours = isinstance(mine, AtLeast) and mine.value is not None and _plain(value) == mine.value
            if not is_ours:
                fields[key] = released(mine, value)
        return fields
    if isinstance(ours, list) and isinstance(users, list) and (key := key_of(ours)) is not None:
        by_name = {mine[key]: mine for mine in ours}
        return [released(by_name.get(_name(value, key), USER), value) for value in users]
    return users


def _quantity_text(number: float) -> str:
    """Return a number of CPUs, or of bytes, as a quantity."""
    return f"{int(number) >> 20}Mi" if number >= 1 << 20 else f"{number:g}"


def _in_lists(ours: list[Any], users: list[Any], path: KeyPath) -> Iterator[Contradiction]:
    key = key_of(ours)
    if key is not None:
        yield from _in_named_objects(ours, users, key, path)
    elif len(ours) != len(users):
        yield Contradiction(path, ours, users)
    else:
        for index, (value, theirs) in enumerate(zip(ours, users, strict=True)):
            yield from contradictions(value, theirs, (*path, index))


def _in_named_objects(ours: list[Any], users: list[Any], key: str, path: KeyPath) -> Iterator[Contradiction]:
    """Yield what contradicts in objects of the same name, in the user's order, and then the names that it lacks."""
    by_name = {mine[key]: mine for mine in ours}
    for index, theirs in enumerate(users):
        name = _name(theirs, key)
        if name == EVERY:
            for mine in ours:
                yield from contradictions({**mine, key: EVERY}, theirs, (*path, index))
        elif name in by_name:
            yield from contradictions(by_name[name], theirs, (*path, index))
        elif isinstance(ours, Closed):
            yield Contradiction((*path, index), ABSENT, theirs)
    names = {_name(theirs, key) for theirs in users}
    for mine in ours:
        if mine[key] not in names:
            yield Contradiction((*path, f"{key}={mine[key]}"), mine, ABSENT)


def key_of(objects: list[Any]) -> str | None:
    """Return the key that names the objects of a list, ``None`` if they have no names."""
    if not objects:
        return None
    for key in NAMES:
        if all(isinstance(value, Mapping) and key in value for value in objects):
            return key
    return None


def _name(value: Any, key: str) -> str | None:
    name = value.get(key) if isinstance(value, Mapping) else None
    return name if isinstance(name, str) else None


def _plain(value: Any) -> Any:
    """Return a value so that a quantity is the same as text and as a number."""
    return str(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else value
