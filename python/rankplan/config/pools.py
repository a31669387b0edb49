"""Pools in a cluster section: bounds on growing and shrinking, and nodes reserved for some components."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Annotated, Any

from pydantic import Field, SerializerFunctionWrapHandler, WithJsonSchema, model_serializer

from rankplan._core import RankSet
from rankplan.config.base import Model
from rankplan.config.ranks import Count, Label, Ranks

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

    @property
    def decides(self) -> bool:
        """Whether it has bounds or nodes; another one is only a name for components."""
        return bool(self.min_accelerators or self.max_accelerators or self.node_ranks)

    @model_serializer(mode="wrap")
    def _only_stated(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        plain: dict[str, Any] = handler(self)
        return {key: value for key, value in plain.items() if value not in (None, "", [], ())}


def with_nodes(pools: Iterable[PoolEntry], nodes: RankSet) -> tuple[PoolEntry, ...]:
    """Return the pools, with reserves of these nodes only; a reserve that loses all of its nodes is left out."""
    cut = [one.model_copy(update={"node_ranks": one.node_ranks & nodes}) if one.node_ranks else one for one in pools]
    return tuple(one for one in cut if one.node_ranks or one.components)


def with_components(pools: Iterable[PoolEntry], names: Container[str]) -> tuple[PoolEntry, ...]:
    """Return the pools with these components only, without those that have none left and reserves for no other."""
    pools = list(pools)
    kept = {pool.name: tuple(one for one in pool.components if one in names) for pool in pools}
    cut = [
        pool.model_copy(
            update={"components": kept[pool.name], "protects": tuple(one for one in pool.protects if kept.get(one))}
        )
        for pool in pools
    ]
    return tuple(pool for pool in cut if pool.components or pool.protects)
