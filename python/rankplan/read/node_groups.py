"""The node groups of the ``cluster`` section: their environments and their hardware."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from pydantic import Field, GetJsonSchemaHandler, WithJsonSchema, field_validator, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from rankplan.environment import NODE_RANK_VARIABLES, PATH_MODE, PATH_MODES, reserved_variables
from rankplan.nodes.groups import PATH_MODES as GROUP_PATH_MODES
from rankplan.read.base import Model, or_nothing
from rankplan.read.later import Later
from rankplan.read.ranks import Label, Ranks
from rankplan.read.simple import RESERVED_LABELS, with_all
from rankplan.read.text.faults import as_pydantic, fault
from rankplan.words import must_be, shown

_ONE_KEY = 'write one-key entries: - NAME: "value"'

_VALUES = {"additionalProperties": {"type": ["string", "number"]}}
_ONE_VARIABLE = {"type": "object", **_VALUES, "minProperties": 1, "maxProperties": 1}
_VARIABLES = {"type": ["array", "object", "null"], "items": _ONE_VARIABLE, **_VALUES}


class EnvConfig(Model):
    """Variables and interpreter of some nodes of a group."""

    node_ranks: Ranks = Field(description="Nodes of the group: a range such as 0-7, or all.")
    env_vars: Annotated[dict[str, str], WithJsonSchema(_VARIABLES)] = Field(
        default_factory=dict, description='Environment variables, one per line: - NAME: "value".'
    )
    python_interpreter_path: str | None = Field(
        default=None, min_length=1, description="Absolute path of the interpreter on these nodes."
    )
    path_env: Literal["prepend", "replace"] = Field(
        default="prepend", description="Whether PATH and other lists of folders are added to the node's, or replace it."
    )

    @field_validator("python_interpreter_path")
    @classmethod
    def _absolute(cls, value: str | None) -> str | None:
        if value is not None and not (value.startswith("/") and value.isprintable()):
            help = "write the path on the node, e.g. /opt/venv/bin/python3"
            raise as_pydantic(must_be("`python_interpreter_path`", value, "an absolute path", help))
        return value

    @field_validator("path_env", mode="before")
    @classmethod
    def _prepend_or_replace(cls, value: Any) -> Any:
        if value not in GROUP_PATH_MODES:
            help = "remove it: PATH and other lists of folders are then prepended"
            raise as_pydantic(must_be("`path_env`", value, "prepend or replace", help))
        return value

    @field_validator("env_vars", mode="before")
    @classmethod
    def _one_key_dicts(cls, value: Any) -> Any:
        variables: dict[str, str] = {}
        if value is None:
            return variables
        entries = [{key: item} for key, item in value.items()] if isinstance(value, Mapping) else value
        if not isinstance(entries, (list, tuple)):
            raise as_pydantic(must_be("env_vars", value, "a list of variables", _ONE_KEY))
        for index, entry in enumerate(entries):
            path: list[str | int] = [] if isinstance(value, Mapping) else [index]
            if not isinstance(entry, Mapping) or len(entry) != 1:
                raise fault("invalid-value", f"{shown(entry)} is not a single variable", _ONE_KEY, path)
            ((name, content),) = entry.items()
            name = str(name)
            if re.fullmatch(r"[^\s=]+", name) is None or not name.isprintable():
                message = f"{shown(name)} is not the name of an environment variable"
                raise fault("invalid-value", message, "write a name such as GLOO_SOCKET_IFNAME", path)
            if name in variables:
                message = f"variable `{name}` is set twice for the same nodes"
                raise fault("duplicate-env-var", message, "remove one of the two", [*path, name])
            variables[name] = _variable_text(name, content, [*path, name])
        return variables


def _variable_text(name: str, content: Any, path: list[str | int]) -> str:
    """Return the text of a variable, or reject one that a node group cannot set."""
    if name in reserved_variables():
        help = "remove it: placements decide ranks and devices"
        raise fault("reserved-env-var", f"variable `{name}` is set by the plan", help, path)
    if name in NODE_RANK_VARIABLES:
        message = f"variable `{name}` orders the nodes and is read before any process starts"
        raise fault("reserved-env-var", message, "set it on the node before `ray start`", path)
    if isinstance(content, bool) or not isinstance(content, (str, int, float)):
        raise as_pydantic(must_be(f"variable `{name}`", content, "text", 'write its text in quotes, e.g. "1"'), path)
    text = str(content)
    if name == PATH_MODE and text.lower() not in PATH_MODES:
        help = "write override to replace PATH and other lists of folders"
        raise as_pydantic(must_be(f"variable `{name}`", text, " or ".join(PATH_MODES), help), path)
    if "\0" in text or text.encode("utf-8", "ignore").decode() != text:
        message = (
            f"variable `{name}` is {shown(text)}; environment variables cannot contain NUL bytes or lone surrogates"
        )
        raise fault("invalid-value", message, "write plain text", path)
    return text


def _hardware() -> type[Hardware]:
    from rankplan.read.hardware import Hardware

    return Hardware


if TYPE_CHECKING:
    from rankplan.read.hardware import Hardware

    Pieces: TypeAlias = Hardware
else:
    Pieces = Annotated[Any, Later(_hardware)]


class NodeGroup(Model):
    """A labelled set of nodes."""

    label: Label = Field(description="Name that components select the group by.")
    node_ranks: Ranks = Field(description="Nodes of the group: a range such as 0-7, or all.")
    env_configs: list[EnvConfig] = Field(
        default_factory=list, description="Variables and interpreters of the nodes.", json_schema_extra=or_nothing
    )
    hardware: Pieces | None = Field(default=None, description="Hardware to count in place of accelerators.")
    ignore_hardware: bool = Field(default=False, description="Count nodes, whatever hardware they have.")

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        described = handler.resolve_ref_schema(handler(schema))
        described["properties"]["hardware"].pop("title", None)  # that of the model is enough
        return described

    @field_validator("label")
    @classmethod
    def _not_reserved(cls, value: str) -> str:
        if value in RESERVED_LABELS:
            message = f"the label `{value}` is reserved: it always means {RESERVED_LABELS[value]}"
            raise fault("reserved-label", message, "choose another label")
        if not value.strip():
            raise fault("empty-name", "a node group has no label", "give it a label, e.g. a800")
        if "," in value:
            raise fault(
                "invalid-value", f"the label `{value}` contains a comma", "remove the comma: commas separate labels"
            )
        if value != value.strip():
            message = f"the label {shown(value)} starts or ends with a blank"
            raise fault("invalid-value", message, "remove the blank")
        return value

    @model_validator(mode="before")
    @classmethod
    def _all_its_nodes(cls, value: Any) -> Any:
        """Replace ``all`` in env_configs by the nodes of the group, and a missing list by an empty one."""
        if not isinstance(value, Mapping) or "env_configs" not in value:
            return value
        configs = value["env_configs"]
        if isinstance(configs, (list, tuple)):
            configs = [with_all(config, value.get("node_ranks")) for config in configs]
        return {**value, "env_configs": [] if configs is None else configs}
