"""Pools in a cluster section: bounds on growing and shrinking, and nodes reserved for some components."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from typing import Annotated, TypeAlias

from pydantic import Field, WithJsonSchema

from rankplan._core import RankSet
from rankplan.errors import Diagnostic, KeyPath
from rankplan.read.base import Model
from rankplan.read.ranks import Count, Label, Ranks, node_rank_faults
from rankplan.words import nodes_text, unknown

Fault: TypeAlias = tuple[KeyPath, Diagnostic]
"""A fault and its path within the list of pools."""

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


def pool_faults(
    pools: Mapping[int, PoolEntry], lost: Container[str], num_nodes: int | None, components: Sequence[str]
) -> Iterator[Fault]:
    """Yield the faults within each pool, by its index in the list, and between pools.

    ``lost`` are the names of pools that cannot be read. If unknown, ``num_nodes`` is ``None``, and ``components`` are
    empty.
    """
    earlier: list[PoolEntry] = []
    for index, pool in pools.items():
        if any(pool.name == other.name for other in earlier):
            message, help = f"two pools are named `{pool.name}`", "give each pool a name of its own"
            yield (index, "name"), Diagnostic("invalid-value", message, help)
        for at, name in enumerate(pool.components if components else ()):
            if name not in components:
                yield (index, "components", at), unknown("component", name, components, "the components are")
        for found in (_bound_faults(pool), _reserve_faults(pool, pools.values(), lost)):
            yield from (((index, *path), fault) for path, fault in found)
        if pool.node_ranks:
            yield from (((index, *path), fault) for path, fault in node_rank_faults(pool.node_ranks, num_nodes))
        for other in earlier:
            if both := pool.node_ranks & other.node_ranks:
                verb = "is" if len(both) == 1 else "are"
                message = f"{nodes_text(both)} {verb} in two reserves, `{other.name}` and `{pool.name}`"
                yield (index, "node_ranks"), Diagnostic("invalid-value", message, "give each reserve nodes of its own")
        earlier.append(pool)


def _bound_faults(pool: PoolEntry) -> Iterator[Fault]:
    """Yield the faults of bounds, which only a pool with components has."""
    least, most = pool.min_accelerators, pool.max_accelerators
    for key, bound in (("min_accelerators", least), ("max_accelerators", most)):
        if bound is not None and pool.node_ranks and not pool.components:
            message = f"`{key}` has no effect: pool `{pool.name}` is a reserve"
            yield (key,), Diagnostic("invalid-value", message, f"remove {key}")
    if least is not None and most is not None and least > most:
        message = f"min_accelerators {least} is more than max_accelerators {most}"
        help = f"use at most {most}, or a larger max_accelerators"
        yield ("min_accelerators",), Diagnostic("invalid-value", message, help)


def _reserve_faults(pool: PoolEntry, pools: Collection[PoolEntry], lost: Container[str]) -> Iterator[Fault]:
    """Yield the faults of a pool that is neither one with components nor a reserve, and of what it protects."""
    keys = [key for key in ("node_ranks", "protects") if getattr(pool, key)]
    filled = [one.name for one in pools if one.components and one is not pool]
    if pool.components:
        for key in keys:
            message = f"pool `{pool.name}` has components; only a reserve without components has {key}"
            yield (key,), Diagnostic("invalid-value", message, "state the reserve as a pool of its own")
    elif not keys:
        message = f"pool `{pool.name}` has neither components nor node_ranks"
        help = "add the names of its components, or node_ranks and protects for a reserve"
        yield (), Diagnostic("missing-key", message, help)
    elif not pool.node_ranks:
        message = f"`node_ranks` is missing: pool `{pool.name}` protects others, but reserves no node"
        yield (), Diagnostic("missing-key", message, "add node_ranks, nodes without processes")
    elif not pool.protects:
        message = f"`protects` is missing: pool `{pool.name}` reserves nodes for no other pool"
        help = "add `protects` with the names of pools, or remove the pool: other spares are for every component"
        yield (), Diagnostic("missing-key", message, help)
    help = f"name pools with components: {', '.join(filled)}" if filled else "add a pool with components"
    for at, other in enumerate(pool.protects):
        path = ("protects", at)
        if other == pool.name:
            yield path, Diagnostic("invalid-value", f"pool `{other}` protects itself", help)
        elif any(one.name == other for one in pools):
            if other not in filled:
                message = f"pool `{other}` has no components that a reserve could protect"
                yield path, Diagnostic("invalid-value", message, help)
        elif other not in lost:
            yield path, unknown("pool", other, filled, "the pools are", code="invalid-value")
