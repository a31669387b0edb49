"""The keys that a config may have at a path, and the words that a key takes: for completion and hover."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from rankplan.dialects import OWN, name_of, with_guests
from rankplan.dialects.keys.key import ANY_ROLE, Kind
from rankplan.errors import KeyPath
from rankplan.read.models import ClusterSection


def dialect_at(config: Mapping[Any, Any] | None, named: str | None = None) -> str | None:
    """Return the dialect of a config; ``None`` if nothing in it tells."""
    if named is not None:
        return named
    if config is None:
        return None
    name = name_of(config)
    return name if name != OWN or "cluster" in config else None


def keys_at(dialect: str | None, path: KeyPath) -> dict[str, str]:
    """Return the keys of the section at a path, each with what it decides; of all dialects if it is ``None``."""
    found: dict[str, str] = {}
    if dialect in (None, OWN):
        found |= _model_keys(path)
    for one in with_guests():
        if dialect in (None, one.name):
            for entry in one.keys.entries:
                inner = _inside(entry.path, path)
                if inner:
                    decides = entry.decides if len(inner) == 1 else ""
                    found[str(inner[0])] = found.get(str(inner[0])) or decides
    found.pop(ANY_ROLE, None)
    return found


def words_at(dialect: str | None, path: KeyPath) -> list[str]:
    """Return the words that the key at a path takes, if they are few."""
    words = dict.fromkeys(word for schema in _schemas(path) for word in schema.get("enum", ()))
    switch = any(schema.get("type") == "boolean" for schema in _schemas(path))
    for one in with_guests():
        if dialect in (None, one.name) and not switch:
            switches = (entry.path for entry in one.keys.entries if entry.kind is Kind.SWITCH)
            switch = any(_inside(key, path[:-1]) == path[-1:] for key in switches)
    return [*map(str, words), *(["true", "false"] if switch else [])]


def sections_at(dialect: str | None, path: KeyPath) -> tuple[str, ...]:
    """Return the sections of a config whose names the key at a path takes; none for any other key."""
    dotted = ".".join(map(str, path))
    for one in with_guests():
        if dialect in (None, one.name):
            for key in one.keys.keys:
                if key.sections and dotted in key.places():
                    return key.sections
    return ()


def _inside(key: KeyPath, path: KeyPath) -> KeyPath:
    """Return what follows a path in the path of a key, empty if the key is elsewhere; a role has any name."""
    matches = all(part in (own, ANY_ROLE) for part, own in zip(key, path, strict=False))
    return key[len(path) :] if matches else ()


@cache
def _section() -> dict[str, Any]:
    return ClusterSection.model_json_schema()


def _model_keys(path: KeyPath) -> dict[str, str]:
    if not path:
        return {"cluster": "the nodes of the job, and the placement of each component"}
    return {
        key: value.get("description", "") if isinstance(value, Mapping) else ""
        for schema in _schemas(path)
        for key, value in schema.get("properties", {}).items()
    }


def _schemas(path: KeyPath) -> list[Mapping[str, Any]]:
    """Return the schemas of the value at a path of rankplan's own section; none elsewhere."""
    if path[:1] != ("cluster",):
        return []
    here = [*_variants(_section())]
    for part in path[1:]:
        inner: list[Any] = []
        for schema in here:
            if isinstance(part, int):
                inner.append(schema.get("items"))
            else:
                inner.append(schema.get("properties", {}).get(part, schema.get("additionalProperties")))
        here = [one for each in inner if isinstance(each, Mapping) for one in _variants(each)]
    return here


def _variants(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield a schema, and those that it refers to or chooses from."""
    yield schema
    if "$ref" in schema:
        yield from _variants(_section()["$defs"][schema["$ref"].rpartition("/")[2]])
    for one in (*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())):
        yield from _variants(one)
