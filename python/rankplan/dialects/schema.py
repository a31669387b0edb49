"""The JSON Schema of the keys of every dialect."""

from __future__ import annotations

from itertools import chain
from typing import Any

from rankplan.dialects.keys import TABLES, Keys
from rankplan.dialects.memory.tables import MEMORY
from rankplan.errors import KeyPath

_RLINF = Keys((), MEMORY["rlinf"])
"""RLinf's keys of memory; it is recognised by its models."""
_UNRESOLVED = {"type": "string", "pattern": r"\$\{"}
_KINDS: dict[str, Any] = {
    "size": {"anyOf": [{"type": "integer", "minimum": -1}, {"type": "null"}, _UNRESOLVED]},
    "switch": {"anyOf": [{"type": "boolean"}, {"type": "null"}, _UNRESOLVED]},
    "text": {"type": ["string", "null"]},
    "name": {"type": ["string", "number", "null"]},
    "number": {"anyOf": [{"type": "number"}, {"type": "null"}, _UNRESOLVED]},
    "devices": {"type": ["string", "array", "null"]},
}


def properties() -> dict[str, Any]:
    """Return the schema of each key at the top of a config; sections are nested, and may have other keys.

    The section `rankplan.dialects.keys.ROLE` stands for all keys that are not listed.
    """
    kinds: dict[KeyPath, list[Any]] = {}
    for row in chain.from_iterable((*table.rows, *table.memory_rows) for table in (*TABLES.values(), _RLINF)):
        for path in row.paths if row.kind in _KINDS else ():
            known = kinds.setdefault(path, [])
            known += [_KINDS[row.kind]] if _KINDS[row.kind] not in known else []
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
