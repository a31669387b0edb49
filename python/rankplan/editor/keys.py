"""The keys that a config may have at a path, and the words that a key takes: for completion and hover."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from rankplan.dialects import DIALECTS, OWN, name_of, section_schema, with_guests
from rankplan.dialects.keys.key import ANY_ROLE, Kind
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
    found: dict[str, str] = _job_keys(path) if dialect is None else {}
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
    if dialect == JOB:
        return _job_words(path)
    words = dict.fromkeys(word for schema in _schemas(path) for word in schema.get("enum", ()))
    if dialect is None:
        words |= dict.fromkeys(_job_words(path))
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
    schema = job_schema(_section(), _section()["$defs"]["Topology"])["properties"].get(path[0], {}) if path else {}
    for part in path[1:]:
        schema = schema.get("properties", {}).get(part, {})
    words = [str(word) for word in schema.get("enum", ())]
    own = {str(word) for one in _schemas(("cluster", *path)) for word in one.get("enum", ())}
    return words or sorted(own if path[:1] and path[0] in OF_CLUSTER else ())


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
