"""The faults of pools, as they are stated."""

from __future__ import annotations

from collections.abc import Sequence

from rankplan._core import RankSet
from rankplan.errors import Diagnostic
from rankplan.words import counted, nodes_text, unknown


def pool_twice(name: str) -> Diagnostic:
    """Two pools have one name."""
    return Diagnostic("invalid-value", f"two pools are named `{name}`", "give each pool a name of its own")


def two_reserves(nodes: RankSet, first: str, second: str) -> Diagnostic:
    """Nodes are in two reserves."""
    verb = "is" if len(nodes) == 1 else "are"
    message = f"{nodes_text(nodes)} {verb} in two reserves, `{first}` and `{second}`"
    return Diagnostic("invalid-value", message, "give each reserve nodes of its own")


def bound_of_reserve(key: str, pool: str) -> Diagnostic:
    """A reserve states a bound on the size of components, but reserves have no components."""
    return Diagnostic("invalid-value", f"`{key}` has no effect: pool `{pool}` is a reserve", f"remove {key}")


def bounds_reversed(least: int, most: int) -> Diagnostic:
    """The least size of a pool is larger than its largest."""
    message = f"min_accelerators {least} is more than max_accelerators {most}"
    return Diagnostic("invalid-value", message, f"use at most {most}, or a larger max_accelerators")


def reserve_with_components(pool: str, key: str) -> Diagnostic:
    """A pool with components has a key of reserves."""
    message = f"pool `{pool}` has components; only a reserve without components has {key}"
    return Diagnostic("invalid-value", message, "state the reserve as a pool of its own")


def empty_pool(pool: str) -> Diagnostic:
    """A pool states neither components nor nodes."""
    message = f"pool `{pool}` has neither components nor node_ranks"
    help = "add the names of its components, or node_ranks and protects for a reserve"
    return Diagnostic("missing-key", message, help)


def reserve_without_nodes(pool: str) -> Diagnostic:
    """A reserve has no nodes."""
    message = f"`node_ranks` is missing: pool `{pool}` protects others, but reserves no node"
    return Diagnostic("missing-key", message, "add node_ranks, nodes without processes")


def reserve_for_nobody(pool: str) -> Diagnostic:
    """A reserve protects no pool."""
    message = f"`protects` is missing: pool `{pool}` reserves nodes for no other pool"
    help = "add `protects` with the names of pools, or remove the pool: other spares are for every component"
    return Diagnostic("missing-key", message, help)


def _pools_with_components(names: Sequence[str]) -> str:
    return f"name pools with components: {', '.join(names)}" if names else "add a pool with components"


def protects_itself(pool: str, with_components: Sequence[str]) -> Diagnostic:
    """A reserve protects itself."""
    return Diagnostic("invalid-value", f"pool `{pool}` protects itself", _pools_with_components(with_components))


def protects_reserve(pool: str, with_components: Sequence[str]) -> Diagnostic:
    """A reserve protects a pool without components."""
    message = f"pool `{pool}` has no components that a reserve could protect"
    return Diagnostic("invalid-value", message, _pools_with_components(with_components))


def unknown_pool(pool: str, with_components: Sequence[str]) -> Diagnostic:
    """A reserve protects a pool that nobody states."""
    return unknown("pool", pool, with_components, "the pools are", code="invalid-value")


def unknown_component(name: str, components: Sequence[str]) -> Diagnostic:
    """A pool names a component that nobody states."""
    return unknown("component", name, components, "the components are")


# Pools of a plan


def reserve_in_use(pool: str, busy: RankSet, users: Sequence[str]) -> Diagnostic:
    """Return the fault of a reserve with nodes that run processes of these components."""
    message = f"pool `{pool}` reserves {nodes_text(busy)}, in use by {', '.join(users)}"
    return Diagnostic("invalid-value", message, "reserve nodes without processes, or add nodes to the cluster")


def out_of_bounds(pool: str, size: int, key: str, bound: int) -> Diagnostic:
    """Return the fault of a pool whose number of accelerators breaks a bound; ``key`` is that of the bound."""
    than, other, change = _BOUNDS[key]
    message = f"pool `{pool}` has {counted(size, 'accelerator')}, {than} than {key} {bound}"
    cure = f"{change} {key} to {size}" if size else f"remove {key}"
    return Diagnostic(
        "invalid-value", message, f"give its components {other} {counted(bound, 'accelerator')}, or {cure}"
    )


def would_be_out_of_bounds(pool: str, size: int, key: str, bound: int) -> Diagnostic:
    """Return the fault of a change after which the size of a pool would break a bound."""
    if key == "min_accelerators":
        limit, less = f"at least {bound} must stay", "shrink"
    else:
        limit, less = f"at most {bound} are allowed", "grow"
    message = f"pool `{pool}` would have {counted(size, 'accelerator')}; {limit}"
    return Diagnostic("invalid-value", message, f"{less} by less, or plan again with other bounds of the pool")


_BOUNDS = {"min_accelerators": ("less", "at least", "lower"), "max_accelerators": ("more", "at most", "raise")}
"""The words for a size that breaks a bound, for those that keep it, and for the change of the bound."""
