"""The ``cluster`` section as pydantic models. Those of its larger keys are in files of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from rankplan._core import CLUSTER, MAX_NODES, MAX_RANK, RankSet
from rankplan.parallel import NO_SIZES
from rankplan.read.base import DESCRIPTIONS, BindingWord, MemoryWord, Model, NicsWord, VisibilityWord, or_nothing
from rankplan.read.exclusion import Excluded
from rankplan.read.later import Later
from rankplan.read.ranks import TEXT_OR_NUMBER, Count, Label
from rankplan.read.sizes import Bytes, ModelName
from rankplan.read.text.faults import RANKS, as_pydantic, fault
from rankplan.words import as_int, must_be

if TYPE_CHECKING:
    from rankplan.read.memory import MemoryEntry
    from rankplan.read.network import Topology
    from rankplan.read.node_groups import NodeGroup
    from rankplan.read.parallel import ParallelEntry
    from rankplan.read.pools import PoolEntry


def _parallel() -> type[ParallelEntry]:
    from rankplan.read.parallel import ParallelEntry

    return ParallelEntry


def _memory() -> type[MemoryEntry]:
    from rankplan.read.memory import MemoryEntry

    return MemoryEntry


def _component() -> type[ComponentEntry]:
    return ComponentEntry


def _node_group() -> type[NodeGroup]:
    from rankplan.read.node_groups import NodeGroup

    return NodeGroup


def _topology() -> type[Topology]:
    from rankplan.read.network import Topology

    return Topology


def _pool() -> type[PoolEntry]:
    from rankplan.read.pools import PoolEntry

    return PoolEntry


if TYPE_CHECKING:
    Sizes: TypeAlias = ParallelEntry | None
    Memory: TypeAlias = MemoryEntry
    Component: TypeAlias = "ComponentEntry"
    Group: TypeAlias = NodeGroup
    Network: TypeAlias = Topology | None
    Pool: TypeAlias = PoolEntry
else:
    Sizes = Annotated[Any, Later(_parallel)]
    Memory = Annotated[Any, Later(_memory)]
    Component = Annotated[Any, Later(_component)]
    Group = Annotated[Any, Later(_node_group)]
    Network = Annotated[Any, Later(_topology)]
    Pool = Annotated[Any, Later(_pool)]

_FILLED_IN = {"type": "string", "pattern": r"^[0-9]+$|\$\{"}
"""For editors: a number as text, or an interpolation."""


def _or_filled_in(schema: JsonSchemaValue) -> None:
    """Allow a number written as text, or an interpolation."""
    number = {key: schema.pop(key) for key in ("type", "minimum", "maximum")}
    schema["anyOf"] = [number, _FILLED_IN]


def _no_sizes(schema: JsonSchemaValue) -> None:
    """State the default."""
    schema["default"] = {name: getattr(NO_SIZES, name) for name in _parallel().model_fields}


class ComponentEntry(Model):
    """An entry of ``component_placement``: where its components run."""

    node_group: Annotated[
        tuple[Label, ...],
        WithJsonSchema({"type": ["string", "integer", "array"], "items": TEXT_OR_NUMBER}),
    ] = Field(default=(CLUSTER,), description="Label of the node group, or several: a list, or separated by commas.")
    placement: Annotated[
        str, WithJsonSchema({**TEXT_OR_NUMBER, "examples": ["all", "0-7", "0-1:0-3", "0-7:0-1,8"]})
    ] = Field(description="resources[:processes], ...: resource ranks and the process ranks that use them.")
    parallel: Sizes = Field(
        default_factory=lambda: None, description="Sizes of the parallel groups.", json_schema_extra=_no_sizes
    )
    visibility: VisibilityWord = Field(default="own", description=DESCRIPTIONS["visibility"])
    binding: BindingWord | None = Field(default=None, description=DESCRIPTIONS["binding"])
    memory_binding: MemoryWord | None = Field(default=None, description=DESCRIPTIONS["memory_binding"])
    nics: NicsWord | None = Field(default=None, description=DESCRIPTIONS["nics"])
    egl: bool = Field(default=False, description=DESCRIPTIONS["egl"])
    memory: Memory | None = Field(default=None, description="What it keeps in memory.")

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Allow the short form: only the placement."""
        described = handler.resolve_ref_schema(handler(schema))
        for key in ("parallel", "memory"):
            described["properties"][key].pop("title", None)  # that of a model is enough
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


class ClusterSection(BaseModel):
    """The ``cluster`` section of a config. Other keys belong to the trainer and are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    num_nodes: Count = Field(
        ge=1, le=MAX_NODES, description="Number of nodes of the job.", json_schema_extra=_or_filled_in
    )
    component_placement: dict[Label, Component] = Field(
        default_factory=dict,
        description="Placement of each component; a key may name several components.",
        json_schema_extra=or_nothing,
    )
    node_groups: list[Group] = Field(
        default_factory=list, description="Labelled sets of nodes.", json_schema_extra=or_nothing
    )
    topology: Network = Field(
        default_factory=lambda: None, description="Levels of the network, and what must stay within them."
    )
    exclude: Excluded = Field(default=(), description="Nodes, accelerators and domains that no component may use.")
    pools: tuple[Pool, ...] = Field(
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
