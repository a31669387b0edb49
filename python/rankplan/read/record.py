"""Mappings as records: a table of keys, each with the function that reads its value, and its JSON schema.

Pydantic would take as long to build the models of a small config as rankplan takes to check it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field, replace
from typing import Any, TypeVar

from rankplan.errors import PlacementError
from rankplan.frozen import frozen
from rankplan.read.text.invalid import CUT, EXPECTED, RANKS, THIS, Invalid, Located, invalid, missing
from rankplan.words import must_be, nearest, unknown

T = TypeVar("T")


@frozen(slots=False)
class Key:
    """A key of a mapping: what it decides, and the JSON schema of what may be written.

    An ``optional`` key may be there without a value; one that is ``needed`` must be there.
    """

    description: str
    schema: Mapping[str, Any] = field(default_factory=dict)
    optional: bool = field(default=False, kw_only=True)
    needed: bool = field(default=False, kw_only=True)

    def described(self, name: str) -> dict[str, Any]:
        """Return the JSON schema of the key."""
        schema: dict[str, Any] = {} if "$ref" in self.schema else {"title": name.replace("_", " ").title()}
        if self.optional:
            schema |= {"anyOf": [*self.schema.get("anyOf", [self.schema]), {"type": "null"}], "default": None}
        else:
            schema |= self.schema
        return schema | {"description": self.description}


def record_schema(title: str, description: str, keys: Mapping[str, Key]) -> dict[str, Any]:
    """Return the JSON schema of a mapping with these keys, and no others."""
    schema: dict[str, Any] = {
        "title": title,
        "description": description,
        "type": "object",
        "properties": {name: key.described(name) for name, key in keys.items()},
        "additionalProperties": False,
    }
    needed = [name for name, key in keys.items() if key.needed]
    return schema | ({"required": needed} if needed else {})


@frozen(slots=False)
class Field:
    """A key of a record. ``reads`` makes its value of what is written; it raises `Invalid`, or `PlacementError`.

    See `Key` for the others.
    """

    reads: Callable[[Any], Any]
    description: str
    schema: Mapping[str, Any] = field(default_factory=dict)
    optional: bool = False
    needed: bool = False

    @property
    def key(self) -> Key:
        """The key, as its schema describes it."""
        return Key(self.description, self.schema, optional=self.optional, needed=self.needed)


@frozen(slots=False)
class Record:
    """The keys of a mapping by their names; it has no others. ``title`` is its name in the JSON schema."""

    title: str
    description: str
    fields: Mapping[str, Field]

    def read(self, value: Any) -> dict[str, Any]:
        """Return the values of the keys that a mapping has. Raises `Invalid` with every fault."""
        if not isinstance(value, Mapping):
            raise invalid(must_be(THIS, value, "a mapping", f"write keys and values: {', '.join(self.fields)}"))
        values: dict[str, Any] = {}
        faults = list(self._missing(value))
        for name, its_field in self.fields.items():
            if name not in value:
                continue
            if value[name] is None and its_field.optional:
                values[name] = None
                continue
            try:
                values[name] = its_field.reads(value[name])
            except (Invalid, PlacementError) as error:
                faults += faults_of(error, name)
        faults += self._unknown(value)
        if faults:
            raise Invalid(faults)
        return values

    def _missing(self, value: Mapping[Any, Any]) -> Iterator[Located]:
        """Yield a fault for each missing key, unless an unknown one is a typo of it, which is reported as that."""
        others = [str(name) for name in value if name not in self.fields]
        for name, its_field in self.fields.items():
            if its_field.needed and name not in value and nearest(name, others, 0.8) is None:
                yield (), missing(name, None)

    def _unknown(self, value: Mapping[Any, Any]) -> Iterator[Located]:
        for name in value:
            if name not in self.fields:
                fault = unknown("key", name, self.fields)
                is_cut = value[name] is None and RANKS.fullmatch(str(name)) is not None
                yield (name,), replace(fault, help=CUT) if is_cut else fault

    def schema(self) -> dict[str, Any]:
        """Return its JSON schema."""
        return record_schema(self.title, self.description, {name: one.key for name, one in self.fields.items()})


def faults_of(error: Invalid | PlacementError, *path: str | int) -> Iterator[Located]:
    """Yield the faults of a value at a path."""
    if isinstance(error, Invalid):
        yield from error.below(path)
    else:
        yield from ((path, fault) for fault in error.diagnostics)


def list_of(reads: Callable[[Any], T]) -> Callable[[Any], tuple[T, ...]]:
    """Return the function that reads a list whose items a function reads. It raises `Invalid` with every fault."""

    def read(value: Any) -> tuple[T, ...]:
        if not isinstance(value, (list, tuple)):
            raise invalid(must_be(THIS, value, *EXPECTED["list"]))
        items: list[T] = []
        faults: list[Located] = []
        for index, item in enumerate(value):
            try:
                items.append(reads(item))
            except (Invalid, PlacementError) as error:
                faults += faults_of(error, index)
        if faults:
            raise Invalid(faults)
        return tuple(items)

    return read


def one_of(words: Iterable[Any], **more: Any) -> dict[str, Any]:
    """Return the JSON schema of a key that takes one of these words."""
    return {"type": "string", "enum": list(words), **more}
