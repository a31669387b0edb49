"""Shares of accelerators, in Ray's own counting, and what a component needs on one node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import TYPE_CHECKING, Any

from rankplan.accelerators import vendor
from rankplan.errors import LaunchError
from rankplan.runtime.seats import Seat

if TYPE_CHECKING:
    from rankplan.runtime.cluster import Cluster

UNIT = 10_000
"""Ray counts in ten-thousandths; so do the whole numbers here, to add up without rounding."""

_NEAR = 1e-3  # of a unit: NumPy's float32(0.8) is 0.8


@dataclass(slots=True)
class Demand:
    """What a component needs on one node: CPUs, and a share of each of these accelerators (by local index).

    ``resource`` is the name under which Ray counts the accelerators.
    """

    node_rank: int
    node_id: str
    resource: str | None
    cpus: int = 0
    shares: dict[int, int] = field(default_factory=dict)

    def bundles(self) -> list[dict[str, float]]:
        """Return one bundle an accelerator, ascending, and one for the CPUs: shares must not be cut in pieces."""
        accelerators = [{str(self.resource): share / UNIT} for _, share in sorted(self.shares.items())]
        return [*accelerators, {"CPU": self.cpus / UNIT}] if self.cpus else accelerators

    def totals(self) -> dict[str, int]:
        """Return how much of each of Ray's resources it needs."""
        accelerators = {str(self.resource): sum(self.shares.values())} if self.shares else {}
        return {**accelerators, "CPU": self.cpus}


def accelerators_of(seat: Seat) -> list[tuple[int, int]]:
    """Return the accelerators of a rank's own, as (node rank, local index)."""
    return seat.placement.devices if seat.placement.num_accelerators else []


def demands_of(cluster: Cluster, component: str, seats: Sequence[Seat], share: int) -> list[Demand]:
    """Return what a component needs on each of its nodes when each rank has this share of its accelerators, and a CPU.

    Raises ``LaunchError`` when ranks that share an accelerator need more than there is of it.
    """
    demands: dict[int, Demand] = {}
    users: dict[tuple[int, int], int] = {}

    def on(node: int) -> Demand:
        if node not in demands:
            row = vendor(cluster.inventory.node(node).accelerator_type)
            demands[node] = Demand(node, cluster.node_ids[node], row.resource if row else None)
        return demands[node]

    for seat in seats:
        on(seat.placement.cluster_node_rank).cpus += share
        for node, index in accelerators_of(seat):
            shares = on(node).shares
            shares[index] = shares.get(index, 0) + share
            users[node, index] = users.get((node, index), 0) + 1
    for (node, index), count in users.items():
        if count * share > UNIT:
            raise LaunchError(
                f"{component}: {count} processes share accelerator {index} of node {node}, and each is to reserve "
                f"{amount(share)} of it (reserve); use {amount(UNIT // count)} or less, or give each process an "
                "accelerator of its own",
                component,
                next(seat.placement.rank for seat in seats if (node, index) in accelerators_of(seat)),
                node,
            )
    return [demands[node] for node in sorted(demands)]


def as_share(value: Any) -> float | None:
    """Return a share that can be reserved, or ``None`` when this is none."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) <= 1:
        return None
    units = round(float(value) * UNIT)
    return units / UNIT if units and abs(float(value) * UNIT - units) < _NEAR else None


def amount(units: int) -> str:
    """Return an amount as a message has it: ``0.2``."""
    return f"{units / UNIT:g}"
