"""The JSON Schema of the keys of every dialect."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rankplan.dialects import OWN, with_guests
from rankplan.dialects.built_in import DIALECTS
from rankplan.dialects.keys.key import Entry, Kind
from rankplan.errors import KeyPath

_UNRESOLVED = {"type": "string", "pattern": r"\$\{"}
_NUMBER: dict[str, Any] = {"anyOf": [{"type": "number"}, {"type": "null"}, _UNRESOLVED]}
_KINDS: dict[Kind, dict[str, Any]] = {
    Kind.SIZE: {"anyOf": [{"type": "integer", "minimum": -1}, {"type": "null"}, _UNRESOLVED]},
    Kind.SWITCH: {"anyOf": [{"type": "boolean"}, {"type": "null"}, _UNRESOLVED]},
    Kind.TEXT: {"type": ["string", "null"]},
    Kind.NUMBER: _NUMBER,
    Kind.SHARE: _NUMBER,
    Kind.FRACTION: _NUMBER,
}
_NAME = {"type": ["string", "number", "null"]}
"""A text that tells the memory of a component may look like a number."""


def properties() -> dict[str, Any]:
    """Return the schema of each key at the top of a config; sections are nested, and may have other keys.

    The section `rankplan.dialects.keys.key.ANY_ROLE` stands for all keys that are not listed.
    """
    kinds: dict[KeyPath, list[Any]] = {}
    for entry in _entries():
        schema = _schema(entry)
        if schema is not None:
            known = kinds.setdefault(entry.path, [])
            known += [schema] if schema not in known else []
    sections: dict[KeyPath, dict[str, Any]] = {(): {}}
    for path in (one[:depth] for one in kinds for depth in range(1, len(one))):
        if path not in sections:
            sections[path] = sections[path[:-1]][str(path[-1])] = {"properties": {}}
            sections[path] = sections[path]["properties"]
    for path, known in kinds.items():
        here = sections[path[:-1]]
        inner = [{"properties": sections[path]}] if path in sections else []  # a section in another dialect
        here[str(path[-1])] = known[0] if len(known) == 1 and not inner else {"anyOf": [*known, *inner]}
    return sections[()]


def _entries() -> Iterator[Entry]:
    for dialect in with_guests():
        yield from dialect.keys.entries
    yield from DIALECTS[OWN].keys.remembering  # its other keys are the models of the `cluster` section


def _schema(entry: Entry) -> dict[str, Any] | None:
    """Return the schema of a key, ``None`` if it may have any value."""
    if entry.kind is Kind.TEXT and not entry.places:
        return _NAME
    return dict(entry.schema) or _KINDS.get(entry.kind)
