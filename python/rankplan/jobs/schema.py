"""The JSON schema of a job file, for editors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rankplan.hardware.policies import POLICIES, VISIBILITIES
from rankplan.jobs.keys import COMPONENTS, GIVEN, KEYS, OF_CLUSTER, OF_MEMORY
from rankplan.jobs.recognising import JOB
from rankplan.launchers.options import Form, option_names
from rankplan.launchers.table import LAUNCHERS
from rankplan.nodes.facts import ORDERS
from rankplan.plans.plan_job import TO
from rankplan.read.schemas import GROUP
from rankplan.read.simple import CPUS_SCHEMA, HOST_MEMORY_SCHEMA

_TEXT = {"type": "string", "minLength": 1}
_TEXTS = {"type": "array", "items": _TEXT}
_VARIABLES = {"type": "object", "additionalProperties": {"type": ["string", "number"]}}


def job_schema(section: Mapping[str, Any], topology: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of a job file.

    ``section`` is that of the ``cluster`` section, whose keys it shares, and ``topology`` that of its ``topology``.
    """
    shared = {key: section["properties"][key] for key in OF_CLUSTER}
    shared["topology"] = _with_given_order(topology)
    shared["node_groups"] = _with_components(shared["node_groups"])
    own: dict[str, dict[str, Any]] = {
        JOB: _TEXT,
        "dialect": _TEXT,
        "overrides": _TEXTS,
        "nodes": {"anyOf": [_TEXT, _closed({"ray": _TEXT}, ["ray"])]},
        "beside": _TEXTS,
        "memory": _closed({key: {"type": ["string", "number"], "description": OF_MEMORY[key]} for key in OF_MEMORY}),
        "visibility": {"enum": list(VISIBILITIES)},
        "binding": {"enum": list(POLICIES)},
        "cpus_per_process": CPUS_SCHEMA,
        "host_memory_per_process": HOST_MEMORY_SCHEMA,
        "environment": _VARIABLES,
        "command": _TEXT,
        "emit": {"type": "object", "properties": _emit()},
    }
    values = own | shared
    properties = {key: {**values[key], "description": KEYS[key].decides} for key in KEYS}
    return {**_closed(properties, [JOB]), "title": "A job file"}


def _with_given_order(topology: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of ``topology`` with the order that only a job file states."""
    order = topology["properties"]["order"]
    meaning = f"{order['description']} given: rules do not change the order of the inventory."
    properties = {**topology["properties"], "order": {**order, "enum": [GIVEN, *ORDERS], "description": meaning}}
    return {**topology, "properties": properties}


def _with_components(node_groups: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of ``node_groups`` with the components of a group, which only a job file states."""
    meaning = "The components that run on the nodes of the group."
    properties = {**GROUP["properties"], COMPONENTS: {**_TEXTS, "minItems": 1, "description": meaning}}
    return {**node_groups, "items": {**GROUP, "properties": properties}}


def _closed(properties: Mapping[str, Any], required: list[str] | None = None) -> dict[str, Any]:
    """Return the schema of a mapping without other keys."""
    schema = {"type": "object", "properties": dict(properties), "additionalProperties": False}
    return schema if required is None else schema | {"required": required}


def _emit() -> dict[str, Any]:
    """Return the schema of each option of ``emit``; a launcher of another package may have more."""
    options = {name: _option(form) for name, (_, form) in option_names().items()}
    return {TO: {"type": "string", "examples": list(LAUNCHERS.builtin)}, **options}


def _option(form: Form) -> dict[str, Any]:
    if form.types is bool:
        return {"type": "boolean", "description": form.help}
    if form.choices:
        return {"enum": list(form.choices), "description": form.help}
    if form.bounds is not None:
        return {"type": "integer", "minimum": form.bounds[0], "maximum": form.bounds[1], "description": form.help}
    return {"type": ["string", "number", "object"], "description": form.help}
