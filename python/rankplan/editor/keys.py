"""The keys that a config may have at a path, and the words that a key takes: for completion and hover."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from rankplan.dialects import DIALECTS, OWN, name_of, section_schema, with_guests
from rankplan.dialects.keys.key import ANY_ROLE, Entry, Kind
from rankplan.errors import KeyPath
from rankplan.jobs.keys import COMPONENTS, KEYS, OF_CLUSTER, OF_MEMORY
from rankplan.jobs.recognising import JOB
from rankplan.jobs.schema import job_schema
from rankplan.launchers.options import option_names
from rankplan.launchers.table import LAUNCHERS
from rankplan.plans.plan_job import TO


def dialect_at(config: Mapping[Any, Any] | None, named: str | None = None) -> str | None:
    """Return the dialect of a config, or `JOB` for a job file; ``None`` if nothing in it tells."""
    if named is not None and (config is None or JOB not in config):
        return named
    if config is None:
        return None
    if JOB in config:
        return JOB
    name = name_of(config)
    return name if name != OWN or "cluster" in config else None


def keys_at(dialect: str | None, path: KeyPath) -> dict[str, str]:
    """Return the keys of the section at a path, each with what it decides; of all dialects if it is ``None``."""
    if dialect == JOB:
        return _job_keys(path)
    keys: dict[str, str] = _job_keys(path) if dialect is None else {}
    if dialect in (None, OWN):
        keys |= _model_keys(path)
    for entry in _entries(dialect):
        inner = _inside(entry.path, path)
        if inner:
            name = str(inner[0])
            decides = entry.decides if len(inner) == 1 else ""
            keys[name] = keys.get(name) or decides
    keys.pop(ANY_ROLE, None)
    return keys


def _entries(dialect: str | None) -> Iterator[Entry]:
    """Yield the keys of the configs of a dialect; of all dialects if it is ``None``."""
    for candidate in with_guests():
        if dialect in (None, candidate.name):
            yield from candidate.keys.entries


def words_at(dialect: str | None, path: KeyPath) -> list[str]:
    """Return the words that the key at a path takes, if they are few."""
    if dialect == JOB:
        return _job_words(path)
    words = {str(word): None for schema in _schemas(path) for word in schema.get("enum", ())}
    if dialect is None:
        words |= dict.fromkeys(_job_words(path))
    return [*words, "true", "false"] if _is_switch(dialect, path) else list(words)


def _is_switch(dialect: str | None, path: KeyPath) -> bool:
    """Whether the key at a path is true or false."""
    if any(schema.get("type") == "boolean" for schema in _schemas(path)):
        return True
    switches = (entry.path for entry in _entries(dialect) if entry.kind is Kind.SWITCH)
    return any(_inside(switch, path[:-1]) == path[-1:] for switch in switches)


def sections_at(dialect: str | None, path: KeyPath) -> tuple[str, ...]:
    """Return the sections of a config whose names the key at a path takes; none for any other key."""
    dotted = ".".join(map(str, path))
    for candidate in with_guests():
        if dialect in (None, candidate.name):
            for key in candidate.keys.keys:
                if key.sections and dotted in key.places():
                    return key.sections
    return ()


def _job_keys(path: KeyPath) -> dict[str, str]:
    """Return the keys of a section of a job file, each with what it decides."""
    if not path:
        return {key: known.decides for key, known in KEYS.items()}
    if path == ("memory",):
        return dict(OF_MEMORY)
    if path == ("emit",):
        options = {name: form.help for name, (_, form) in option_names().items()}
        return {TO: "Launcher to write for.", **options}
    keys = _model_keys(("cluster", *path)) if path[0] in OF_CLUSTER else {}
    if path[0] == "node_groups" and len(path) == 2:
        keys[COMPONENTS] = "The components that run on the nodes of the group."
    return keys


def _job_words(path: KeyPath) -> list[str]:
    """Return the words that a key of a job file takes, if they are few."""
    if path == ("emit", TO):
        return list(LAUNCHERS)
    if path == ("dialect",):
        return list(DIALECTS)
    schema: Mapping[str, Any] = job_schema(_section(), _section()["$defs"]["Topology"])
    for part in path:
        schema = schema.get("properties", {}).get(part, {})
    words = [str(word) for word in schema.get("enum", ())]
    if not words and path and path[0] in OF_CLUSTER:
        own = {str(word) for own_schema in _schemas(("cluster", *path)) for word in own_schema.get("enum", ())}
        return sorted(own)
    return words


def _inside(key: KeyPath, path: KeyPath) -> KeyPath:
    """Return what follows a path in the path of a key, empty if the key is elsewhere; a role has any name."""
    matches = all(part in (own, ANY_ROLE) for part, own in zip(key, path, strict=False))
    return key[len(path) :] if matches else ()


@cache
def _section() -> dict[str, Any]:
    return section_schema()


def _model_keys(path: KeyPath) -> dict[str, str]:
    if not path:
        return {"cluster": "the nodes of the job, and the placement of each component"}
    keys: dict[str, str] = {}
    for schema in _schemas(path):
        for key, value in schema.get("properties", {}).items():
            keys[key] = value.get("description", "") if isinstance(value, Mapping) else ""
        for key in schema.get("propertyNames", {}).get("enum", ()):
            keys.setdefault(str(key), "")
    return keys


def _schemas(path: KeyPath) -> list[Mapping[str, Any]]:
    """Return the schemas of the value at a path of rankplan's own section; none elsewhere."""
    if path[:1] != ("cluster",):
        return []
    schemas = list(_variants(_section()))
    for part in path[1:]:
        outer = schemas
        schemas = []
        for schema in outer:
            inner = _schema_in(schema, part)
            if isinstance(inner, Mapping):
                schemas += _variants(inner)
    return schemas


def _schema_in(schema: Mapping[str, Any], part: str | int) -> Any:
    """Return the schema of an item, or of the value of a key."""
    if isinstance(part, int):
        return schema.get("items")
    return schema.get("properties", {}).get(part, schema.get("additionalProperties"))


def _variants(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield a schema, and those that it refers to or chooses from."""
    yield schema
    if "$ref" in schema:
        yield from _variants(_section()["$defs"][schema["$ref"].rpartition("/")[2]])
    for part in (*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())):
        yield from _variants(part)
