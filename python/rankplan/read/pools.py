"""Pools in a cluster section: bounds on growing and shrinking, and nodes reserved for some components."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, WithJsonSchema

from rankplan._core import RankSet
from rankplan.read.base import Model
from rankplan.read.ranks import Count, Label, Ranks

_Size = Annotated[Count, Field(ge=1), WithJsonSchema({"type": "integer", "minimum": 1})]


class PoolEntry(Model):
    """A pool with components, or a reserve: nodes without processes, for the components of the pools it protects."""

    name: Label = Field(description="Name of the pool; `protects` of a reserve refers to it.")
    components: tuple[Label, ...] = Field(default=(), description="Components of the pool.")
    min_accelerators: _Size | None = Field(default=None, description="Fewest accelerators of the components.")
    max_accelerators: _Size | None = Field(default=None, description="Most accelerators of the components.")
    node_ranks: Ranks = Field(default_factory=RankSet, description="Nodes of a reserve: a range such as 4-5.")
    protects: tuple[Label, ...] = Field(
        default=(), description="Pools whose components may use the nodes of a reserve."
    )
