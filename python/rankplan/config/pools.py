"""Pools in a cluster section: bounds on growing and shrinking, and nodes reserved for some components."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field, SerializerFunctionWrapHandler, WithJsonSchema, model_serializer

from rankplan._core import RankSet
from rankplan.config.base import Model
from rankplan.config.ranks import Count, Label, Ranks
from rankplan.config.text.faults import as_pydantic, fault
from rankplan.words import unknown

_Size = Annotated[Count, Field(ge=1), WithJsonSchema({"type": "integer", "minimum": 1})]


class PoolEntry(Model):
    """A pool with components, or a reserve: nodes without processes, for the components of the pools it protects."""

    name: Label = Field(description="Name of the pool; `protects` of a reserve refers to it.")
    components: tuple[Label, ...] = Field(default=(), description="Components of the pool.")
    min_accelerators: _Size | None = Field(default=None, description="Fewest accelerators after shrinking.")
    max_accelerators: _Size | None = Field(default=None, description="Most accelerators after growing.")
    node_ranks: Ranks = Field(default_factory=RankSet, description="Nodes of a reserve: a range such as 4-5.")
    protects: tuple[Label, ...] = Field(
        default=(), description="Pools whose components may use the nodes of a reserve."
    )

    @model_serializer(mode="wrap")
    def _only_stated(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        plain: dict[str, Any] = handler(self)
        return {key: value for key, value in plain.items() if value not in (None, "", [], ())}


def _joined(pools: tuple[PoolEntry, ...]) -> tuple[PoolEntry, ...]:
    """Reject a name that two pools have, an unknown pool in ``protects``, and a lower bound above the upper one."""
    names = [pool.name for pool in pools]
    for index, pool in enumerate(pools):
        if pool.name in names[:index]:
            message, help = f"two pools are named `{pool.name}`", "give each pool a name of its own"
            raise fault("invalid-value", message, help, (index, "name"))
        for at, other in enumerate(pool.protects):
            if other not in names:
                found = unknown("pool", other, names, "the pools are", code="invalid-value")
                raise as_pydantic(found, (index, "protects", at))
        least, most = pool.min_accelerators or 1, pool.max_accelerators
        if most is not None and least > most:
            message = f"min_accelerators {least} is more than max_accelerators {most}"
            help = f"use at most {most}, or a larger max_accelerators"
            raise fault("invalid-value", message, help, (index, "min_accelerators"))
    return pools


PoolEntries = Annotated[tuple[PoolEntry, ...], AfterValidator(_joined)]
