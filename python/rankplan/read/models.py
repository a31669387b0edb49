"""The ``cluster`` section as pydantic models, with the rules within and between its node groups."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from rankplan._core import CLUSTER, MAX_NODES, MAX_RANK, NODE, RankSet, check_hardware_type
from rankplan.environment import NODE_RANK_VARIABLES, PATH_MODE, PATH_MODES, reserved_variables
from rankplan.nodes.groups import PATH_MODES as GROUP_PATH_MODES
from rankplan.read.base import DESCRIPTIONS, BindingWord, MemoryWord, Model, NicsWord, VisibilityWord
from rankplan.read.hardware import HardwareConfig, hardware_model
from rankplan.read.memory import Bytes, MemoryEntry, ModelName
from rankplan.read.network import USUAL_TOPOLOGY, Excluded, Topology
from rankplan.read.parallel import ParallelEntry
from rankplan.read.pools import PoolEntry
from rankplan.read.ranks import TEXT_OR_NUMBER, Count, Label, Ranks, with_all
from rankplan.read.text.faults import RANKS, as_pydantic, fault
from rankplan.words import as_int, must_be, shown

RESERVED_LABELS = {CLUSTER: "all nodes", NODE: "all nodes, counted as nodes"}


_ONE_KEY = 'write one-key entries: - NAME: "value"'

_VALUES = {"additionalProperties": {"type": ["string", "number"]}}
_ONE_VARIABLE = {"type": "object", **_VALUES, "minProperties": 1, "maxProperties": 1}
_VARIABLES = {"type": ["array", "object", "null"], "items": _ONE_VARIABLE, **_VALUES}
_FILLED_IN = {"type": "string", "pattern": r"^[0-9]+$|\$\{"}
"""For editors: a number as text, or an interpolation."""


def _or_nothing(schema: JsonSchemaValue) -> None:
    """Allow a key without a value."""
    schema["type"] = [schema["type"], "null"]


def _or_filled_in(schema: JsonSchemaValue) -> None:
    """Allow a number written as text, or an interpolation."""
    number = {key: schema.pop(key) for key in ("type", "minimum", "maximum")}
    schema["anyOf"] = [number, _FILLED_IN]


class ComponentEntry(Model):
    """An entry of ``component_placement``: where its components run."""

    node_group: Annotated[
        tuple[Label, ...],
        WithJsonSchema({"type": ["string", "integer", "array"], "items": TEXT_OR_NUMBER}),
    ] = Field(default=(CLUSTER,), description="Label of the node group, or several: a list, or separated by commas.")
    placement: Annotated[
        str, WithJsonSchema({**TEXT_OR_NUMBER, "examples": ["all", "0-7", "0-1:0-3", "0-7:0-1,8"]})
    ] = Field(description="resources[:processes], ...: resource ranks and the process ranks that use them.")
    parallel: ParallelEntry = Field(default=ParallelEntry(), description="Sizes of the parallel groups.")
    visibility: VisibilityWord = Field(default="own", description=DESCRIPTIONS["visibility"])
    binding: BindingWord | None = Field(default=None, description=DESCRIPTIONS["binding"])
    memory_binding: MemoryWord | None = Field(default=None, description=DESCRIPTIONS["memory_binding"])
    nics: NicsWord | None = Field(default=None, description=DESCRIPTIONS["nics"])
    egl: bool = Field(default=False, description=DESCRIPTIONS["egl"])
    memory: MemoryEntry | None = Field(default=None, description="What it keeps in memory.")

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Allow the short form: only the placement."""
        described = handler.resolve_ref_schema(handler(schema))
        short = described["properties"]["placement"]
        return {"anyOf": [{"type": short["type"], "examples": short["examples"]}, described]}

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
        return value if isinstance(value, Mapping) else {"placement": value}

    @field_validator("node_group", mode="before")
    @classmethod
    def _labels(cls, value: Any) -> Any:
        if isinstance(value, str) and "," in value:
            return [label.strip() for label in value.split(",")]
        labels = list(value) if isinstance(value, (list, tuple)) else [value]
        if value in (None, "") or not labels:
            raise fault("invalid-value", "node_group is empty", "write the label of a node group, or remove the key")
        return labels

    @field_validator("placement", mode="before")
    @classmethod
    def _text(cls, value: Any) -> Any:
        number = as_int(value)
        if number is None and not isinstance(value, str):
            help = "write text such as 0-7, 0-1:0-3 or all"
            if isinstance(value, (list, tuple)) and (ranks := _listed(value)):
                help = f"write the placement as text, not as a list: {ranks}"
            raise as_pydantic(must_be("placement", value, "text", help))
        return value if number is None else str(number)


def _listed(parts: Sequence[Any]) -> str | None:
    """Return a list of ranks or of ranges as one text, or ``None`` for a list of anything else."""
    if all(isinstance(part, str) and RANKS.fullmatch(part) for part in parts):
        return ",".join(parts)
    numbers = [n for part in parts if (n := as_int(part)) is not None and 0 <= n <= MAX_RANK]
    return str(RankSet(numbers)) if len(numbers) == len(parts) else None


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


def _text(value: Any) -> str | list[str] | None:
    """Return a text, a list of texts, or ``None`` for anything else."""
    if isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value):
        return list(value)
    return value if isinstance(value, str) else None


def _hardware_type(value: str) -> str:
    check_hardware_type(value)
    return value


HardwareType = Annotated[str, AfterValidator(_hardware_type)]


class Hardware(Model):
    """Hardware other than accelerators, such as robots: a type, and one config per piece."""

    type: HardwareType = Field(description="Hardware type, e.g. Franka.")
    configs: list[HardwareConfig] | None = Field(
        default=None, description="One entry per piece, with its node_rank (default: as many as the inventory states)."
    )

    @field_validator("configs")
    @classmethod
    def _texts_as_written(
        cls, configs: list[HardwareConfig] | None, info: ValidationInfo
    ) -> list[HardwareConfig] | None:
        """Keep fields that the registered model reads as text as written: a saved serial 0322 must not become 322."""
        if configs is None:
            return None
        model = hardware_model(info.data.get("type"))
        kept = []
        for config in configs:
            with suppress(ValidationError):
                read = model.model_validate(config.model_dump()).model_dump(include=set(config.model_extra or ()))
                texts = {key: _text(value) for key, value in read.items()}
                config = config.model_copy(update={key: text for key, text in texts.items() if text is not None})
            kept.append(config)
        return kept

    def counts(self) -> list[tuple[int, int]]:
        """Return (node rank, number of pieces) for every node with hardware, ascending."""
        return sorted(Counter(config.node_rank for config in self.configs or ()).items())


class NodeGroup(Model):
    """A labelled set of nodes."""

    label: Label = Field(description="Name that components select the group by.")
    node_ranks: Ranks = Field(description="Nodes of the group: a range such as 0-7, or all.")
    env_configs: list[EnvConfig] = Field(
        default_factory=list, description="Variables and interpreters of the nodes.", json_schema_extra=_or_nothing
    )
    hardware: Hardware | None = Field(default=None, description="Hardware to count in place of accelerators.")
    ignore_hardware: bool = Field(default=False, description="Count nodes, whatever hardware they have.")

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


class ClusterSection(BaseModel):
    """The ``cluster`` section of a config. Other keys belong to the trainer and are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    num_nodes: Count = Field(
        ge=1, le=MAX_NODES, description="Number of nodes of the job.", json_schema_extra=_or_filled_in
    )
    component_placement: dict[Label, ComponentEntry] = Field(
        default_factory=dict,
        description="Placement of each component; a key may name several components.",
        json_schema_extra=_or_nothing,
    )
    node_groups: list[NodeGroup] = Field(
        default_factory=list, description="Labelled sets of nodes.", json_schema_extra=_or_nothing
    )
    topology: Topology = Field(
        default_factory=lambda: USUAL_TOPOLOGY, description="Levels of the network, and what must stay within them."
    )
    exclude: Excluded = Field(default=(), description="Nodes, accelerators and domains that no component may use.")
    pools: tuple[PoolEntry, ...] = Field(
        default=(), description="Bounds on growing and shrinking, and nodes reserved for some components."
    )
    accelerator_memory: Bytes | None = Field(default=None, description="Memory of each accelerator: 80 GiB.")
    host_memory: Bytes | None = Field(default=None, description="Memory of each node: 2 TiB.")
    # for components that do not state them; a saved plan has them with each component
    binding: BindingWord | None = Field(default=None, exclude=True, description=DESCRIPTIONS["binding"])
    memory_binding: MemoryWord | None = Field(default=None, exclude=True, description=DESCRIPTIONS["memory_binding"])
    nics: NicsWord | None = Field(default=None, exclude=True, description=DESCRIPTIONS["nics"])
    model: ModelName | None = Field(
        default=None, exclude=True, description="The model of every `memory`: its name, or the path of its config.json."
    )
