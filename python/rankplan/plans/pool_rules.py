"""The rules within and between pools, which hold once each of them is valid on its own."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Mapping, Sequence

from rankplan.nodes.group_rules import Fault, node_rank_faults
from rankplan.plans import pool_faults
from rankplan.plans.rules import Pool


def stated_pool_faults(
    pools: Mapping[int, Pool], lost: Container[str], num_nodes: int | None, components: Sequence[str]
) -> Iterator[Fault]:
    """Yield the faults within each pool, by its index in the list, and between pools.

    ``lost`` are the names of pools that cannot be read. If unknown, ``num_nodes`` is ``None``, and ``components`` are
    empty.
    """
    earlier: list[Pool] = []
    for index, pool in pools.items():
        if any(pool.name == other.name for other in earlier):
            yield (index, "name"), pool_faults.pool_twice(pool.name)
        for at, name in enumerate(pool.components if components else ()):
            if name not in components:
                yield (index, "components", at), pool_faults.unknown_component(name, components)
        for part in (_bound_faults(pool), _reserve_faults(pool, pools.values(), lost)):
            yield from (((index, *path), fault) for path, fault in part)
        if pool.node_ranks:
            yield from (((index, *path), fault) for path, fault in node_rank_faults(pool.node_ranks, num_nodes))
        for other in earlier:
            if both := pool.node_ranks & other.node_ranks:
                yield (index, "node_ranks"), pool_faults.two_reserves(both, other.name, pool.name)
        earlier.append(pool)


def _bound_faults(pool: Pool) -> Iterator[Fault]:
    """Yield the faults of bounds, which only a pool with components has."""
    least, most = pool.min_accelerators, pool.max_accelerators
    for key, bound in (("min_accelerators", least), ("max_accelerators", most)):
        if bound is not None and pool.node_ranks and not pool.components:
            yield (key,), pool_faults.bound_of_reserve(key, pool.name)
    if least is not None and most is not None and least > most:
        yield ("min_accelerators",), pool_faults.bounds_reversed(least, most)


def _reserve_faults(pool: Pool, pools: Collection[Pool], lost: Container[str]) -> Iterator[Fault]:
    """Yield the faults of a pool that is neither one with components nor a reserve, and of what it protects."""
    reserving = [key for key in ("node_ranks", "protects") if getattr(pool, key)]
    if pool.components:
        yield from (((key,), pool_faults.reserve_with_components(pool.name, key)) for key in reserving)
    elif not reserving:
        yield (), pool_faults.empty_pool(pool.name)
    elif not pool.node_ranks:
        yield (), pool_faults.reserve_without_nodes(pool.name)
    elif not pool.protects:
        yield (), pool_faults.reserve_for_nobody(pool.name)
    yield from _protects_faults(pool, pools, lost)


def _protects_faults(pool: Pool, pools: Collection[Pool], lost: Container[str]) -> Iterator[Fault]:
    """Yield the faults of the names that a reserve protects: only other pools with components can be."""
    names = {other.name for other in pools}
    with_components = [other.name for other in pools if other.components and other is not pool]
    for index, name in enumerate(pool.protects):
        path = ("protects", index)
        if name == pool.name:
            yield path, pool_faults.protects_itself(name, with_components)
        elif name in names:
            if name not in with_components:
                yield path, pool_faults.protects_reserve(name, with_components)
        elif name not in lost:
            yield path, pool_faults.unknown_pool(name, with_components)
