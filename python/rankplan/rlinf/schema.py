"""The JSON schema of RLinf's ``cluster`` section."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rankplan.dialects.keys.key import Key
from rankplan.read.schemas import SHARED, definitions
from rankplan.rlinf import keys


def section_schema() -> dict[str, Any]:
    """Return the schema of the section, with those that it refers to under ``$defs``."""
    own = _properties(keys.SECTION_KEYS.values())
    first = {key.name: own.pop(key.name) for key in (keys.NUM_NODES, keys.COMPONENTS)}
    return {
        "title": "ClusterSection",
        "description": "The ``cluster`` section of a config. Other keys belong to the trainer and are ignored.",
        "type": "object",
        "properties": {**first, **SHARED, **own},
        "required": [keys.NUM_NODES.name],
        "$defs": {"ComponentEntry": _entry(), **definitions()},
    }


def _entry() -> dict[str, Any]:
    """Return the schema of an entry of ``component_placement``, which may be the placement itself."""
    entry = {
        "title": "ComponentEntry",
        "description": "An entry of ``component_placement``: where its components run.",
        "type": "object",
        "properties": _properties(keys.ENTRY_KEYS.values()),
        "required": [keys.PLACEMENT.name],
        "additionalProperties": False,
    }
    placement = keys.PLACEMENT.schema
    return {"anyOf": [{"type": placement["type"], "examples": placement["examples"]}, entry]}


def _properties(section_keys: Iterable[Key[Any]]) -> dict[str, Any]:
    return {key.name: _titled(key) for key in section_keys}


def _titled(key: Key[Any]) -> dict[str, Any]:
    """Return the schema of a key with its title, as pydantic gives one to the shared keys."""
    is_model = "$ref" in str(key.schema) and key is not keys.COMPONENTS
    return dict(key.schema) if is_model else {"title": key.name.replace("_", " ").title(), **key.schema}
