"""The shared keys as pydantic models, for the JSON schema. Those of larger keys are in files of their own."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, Field, WithJsonSchema
from pydantic.json_schema import models_json_schema

from rankplan.read.base import or_nothing
from rankplan.read.memory import MemoryEntry
from rankplan.read.network import Topology
from rankplan.read.node_groups import NodeGroup
from rankplan.read.parallel import ParallelEntry
from rankplan.read.pools import PoolEntry
from rankplan.read.sizes import Bytes

Excluded = Annotated[tuple[str, ...], WithJsonSchema({"type": ["array", "string"], "items": {"type": "string"}})]
"""Names of nodes, accelerators and domains."""


class SharedKeys(BaseModel):
    """The keys of `SHARED_KEYS`."""

    node_groups: list[NodeGroup] = Field(
        default_factory=list, description="Labelled sets of nodes.", json_schema_extra=or_nothing
    )
    topology: Topology = Field(
        default_factory=Topology, description="Levels of the network, and what must stay within them."
    )
    exclude: Excluded = Field(default=(), description="Nodes, accelerators and domains that no component may use.")
    pools: tuple[PoolEntry, ...] = Field(
        default=(), description="Bounds on growing and shrinking, and nodes reserved for some components."
    )
    accelerator_memory: Bytes | None = Field(default=None, description="Memory of each accelerator: 80 GiB.")
    host_memory: Bytes | None = Field(default=None, description="Memory of each node: 2 TiB.")


def definitions() -> dict[str, Any]:
    """Return the JSON schemas of the shared keys, under `SharedKeys`, and of all models of values, by their names."""
    models: Any = [(model, "validation") for model in (SharedKeys, ParallelEntry, MemoryEntry)]
    schemas: dict[str, Any] = models_json_schema(models)[1]["$defs"]
    return schemas
