"""What the pools of a cluster section mean for a plan: reserves, and bounds on growing and shrinking."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rankplan._core import RankSet
from rankplan.config.models import ClusterSection
from rankplan.errors import Diagnostic
from rankplan.plans.component import Component
from rankplan.words import counted


def reserves(section: ClusterSection | None) -> Iterator[tuple[RankSet, set[str]]]:
    """Yield the nodes of each reserve that protects pools, and the components that may use them."""
    pools = section.pools if section is not None else ()
    components = {pool.name: pool.components for pool in pools}
    for pool in pools:
        if pool.protects and pool.node_ranks:
            yield pool.node_ranks, {one for name in pool.protects for one in components[name]}


def strangers(parts: Mapping[str, Component], names: set[str]) -> RankSet:
    """Return the node ranks of components other than these."""
    return RankSet().union(*(part.used_nodes() for name, part in parts.items() if name not in names))


def size_faults(
    section: ClusterSection | None, parts: Mapping[str, Component], more: Mapping[str, int]
) -> Iterator[Diagnostic]:
    """Yield the fault of each pool that would be too small or too large.

    ``more`` has the accelerators that components get. Pools without any of its components are not checked.
    """
    for pool in section.pools if section is not None else ():
        if more.keys().isdisjoint(pool.components):
            continue
        used = (parts[name].rows.accelerators() for name in pool.components if name in parts)
        size = len(RankSet().union(*used)) + sum(more.get(name, 0) for name in pool.components)
        least, most = pool.min_accelerators or 0, pool.max_accelerators
        if size < least or (most is not None and size > most):
            bound = f"at least {least} must stay" if size < least else f"at most {most} are allowed"
            message = f"pool `{pool.name}` would have {counted(size, 'accelerator')}; {bound}"
            help = f"{'shrink' if size < least else 'grow'} by less, or plan again with other bounds of the pool"
            yield Diagnostic("invalid-value", message, help)
