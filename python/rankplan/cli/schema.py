"""``rankplan schema``: a JSON schema of configs and job files, for editors."""

from __future__ import annotations

import json
from typing import Any

import click

from rankplan.cli.output import faults_end_it
from rankplan.dialects import section_schema
from rankplan.dialects.keys.key import ANY_ROLE
from rankplan.dialects.schema import properties
from rankplan.hardware.types import HARDWARE_TYPES
from rankplan.jobs.drafting import SCHEMA
from rankplan.jobs.recognising import JOB
from rankplan.jobs.schema import job_schema
from rankplan.moving.schema import transition_schema
from rankplan.read.hardware import hardware_model
from rankplan.tuning.schema import splits_schema


@click.command()
@click.option("--transition", is_flag=True, help="Print the schema of what rankplan move --format json prints.")
@click.option("--splits", is_flag=True, help="Print the schema of what rankplan tune prints for asynchronous runs.")
def schema(*, transition: bool, splits: bool) -> None:
    """Print a JSON schema of configs and job files, for editors.

    A YAML language server applies it to a config that starts with "# yaml-language-server: $schema=FILE". It describes
    the keys of every dialect and the types of their values; rankplan check knows all rules.
    """
    with faults_end_it():
        content = config_schema
        if transition:
            content = transition_schema
        elif splits:
            content = splits_schema
        click.echo(json.dumps(content(), indent=2))


def config_schema() -> dict[str, Any]:
    """Return the schema of a file with the key ``job``, and of a config: the keys that place, and any other key."""
    section = section_schema()
    definitions = section.pop("$defs")
    definitions["Hardware"]["allOf"] = [_of_type(name) for name in HARDWARE_TYPES]
    job = job_schema(section, definitions["Topology"])
    keys = properties()
    others = [{"required": [key]} for key in ("gpus_per_node", "n_nodes", "n_gpus_per_node")]
    is_other = {"type": "object", "anyOf": others}
    cluster = {"if": is_other, "then": keys.pop("cluster"), "else": {"$ref": "#/$defs/ClusterSection"}}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",  # supported by every language server
        "$id": SCHEMA,
        "title": "rankplan",
        "type": "object",
        "if": {"required": [JOB]},
        "then": {"$ref": "#/$defs/JobFile"},
        "else": {
            "properties": {"cluster": cluster} | {key: schema for key, schema in keys.items() if key != ANY_ROLE},
            "additionalProperties": keys[ANY_ROLE],
        },
        "$defs": {"ClusterSection": section, "JobFile": job, **definitions},
    }


def _of_type(name: str) -> dict[str, Any]:
    """Return the keys of the configs of a hardware type."""
    fields = hardware_model(name).model_fields
    required = [key for key, field in fields.items() if field.is_required()]
    items = {"properties": dict.fromkeys(fields, True), "required": required}
    return {"if": {"properties": {"type": {"const": name}}}, "then": {"properties": {"configs": {"items": items}}}}
