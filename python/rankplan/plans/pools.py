"""What pools mean for a plan: reserves, and bounds on the size of components."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rankplan._core import RankSet
from rankplan.errors import Diagnostic, KeyPath
from rankplan.plans.component import Component, used_nodes
from rankplan.plans.pool_faults import out_of_bounds, reserve_in_use, would_be_out_of_bounds
from rankplan.plans.rules import Pool


def reserves(pools: Sequence[Pool]) -> Iterator[tuple[RankSet, set[str]]]:
    """Yield the nodes of each reserve, and the components that may use them."""
    components = {pool.name: pool.components for pool in pools}
    for pool in pools:
        if pool.node_ranks:
            yield pool.node_ranks, {one for name in pool.protects for one in components.get(name, ())}


def strangers(parts: Mapping[str, Component], names: set[str]) -> RankSet:
    """Return the node ranks of components other than these."""
    return used_nodes(part for name, part in parts.items() if name not in names)


def pool_faults(pools: Sequence[Pool], parts: Mapping[str, Component]) -> Iterator[tuple[KeyPath, Diagnostic]]:
    """Yield the faults of reserves whose nodes run processes, and of sizes out of bounds, with paths in the rules.

    The size of a pool is checked if all of its components are among ``parts``.
    """
    nodes = {name: part.used_nodes() for name, part in parts.items()} if pools else {}
    used = RankSet().union(*nodes.values())
    for index, pool in enumerate(pools):
        if busy := pool.node_ranks & used:
            users = [name for name, ranks in nodes.items() if not ranks.isdisjoint(busy)]
            yield ("pools", index, "node_ranks"), reserve_in_use(pool.name, busy, users)
        size = size_of(pool, parts, {})
        if pool.components and parts.keys() >= set(pool.components) and (key := broken_bound(pool, size)) is not None:
            yield ("pools", index, key), out_of_bounds(pool.name, size, key, getattr(pool, key))


def size_faults(pools: Sequence[Pool], parts: Mapping[str, Component], more: Mapping[str, int]) -> Iterator[Diagnostic]:
    """Yield the fault of each pool that would be too small or too large.

    ``more`` has the accelerators that components get. Pools without any of its components are not checked.
    """
    for pool in pools:
        size = size_of(pool, parts, more)
        if more.keys().isdisjoint(pool.components) or (key := broken_bound(pool, size)) is None:
            continue
        yield would_be_out_of_bounds(pool.name, size, key, getattr(pool, key))


def size_of(pool: Pool, parts: Mapping[str, Component], more: Mapping[str, int]) -> int:
    """Return the number of different accelerators that the components of a pool use, and of those that they get."""
    names = set(pool.components)
    used = (parts[name].rows.accelerators() for name in names & parts.keys())
    return len(RankSet().union(*used)) + sum(more.get(name, 0) for name in names)


def broken_bound(pool: Pool, size: int) -> str | None:
    """Return the key of the bound that a size breaks."""
    if pool.min_accelerators is not None and size < pool.min_accelerators:
        return "min_accelerators"
    return "max_accelerators" if pool.max_accelerators is not None and size > pool.max_accelerators else None
