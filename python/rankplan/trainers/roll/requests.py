"""What ROLL asks Ray for: a bundle of ``num_gpus_per_node`` on each node (``ResourceManager.__init__``)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from rankplan import Inventory, Plan, RankSet, Requests
from rankplan.sdk import NodeOrder


class Nodes(NamedTuple):
    """Nodes on which a role, or none, has accelerators."""

    role: str
    ranks: RankSet


class _Equal(NamedTuple):
    """Nodes in a row with as many accelerators and CPUs each, which belong to a role."""

    first: int
    last: int
    accelerators: int
    cpus: float | None
    role: str


def requests_on(inventory: Inventory, nodes_of_roles: Iterable[Nodes], gpus_per_node: int | None) -> Requests:
    """Return the requests for nodes, whatever roles use; ``gpus_per_node`` is ``None`` for all that a node has.

    A node belongs to the first role that has accelerators there, or to none. One request is for nodes in a row with the
    same role and as many accelerators and CPUs. A bundle has half of the CPUs of its node, at least one;
    ROLL asks for the smallest first, and sorts them by ``NODE_RANK`` after that, if the nodes have one.
    """
    rows = sorted(_equal_nodes(inventory, nodes_of_roles))
    order: NodeOrder | None = "rank-cpus"
    if all(row.cpus is not None for row in rows):
        by_cpus = sorted(rows, key=lambda row: row.cpus or 0)
        if by_cpus != rows and inventory.core.order("rank") is not None:
            rows, order = by_cpus, None  # ranks decide, which the nodes are sorted by already
    requests = Requests()
    for row in rows:
        bundle = row.accelerators if gpus_per_node is None else gpus_per_node
        if bundle:
            count = row.last - row.first + 1
            cpus = None if row.cpus is None else max(int(row.cpus) / 2, 1)
            bundles = [(1, bundle, (cpus, None, ()))]
            requests += Requests.of_rows(
                [(row.role, "PACK", False, order, bundles, None, count, [(row.first, count, 1)])]
            )
    return requests


def resized(plan: Plan, asked: Requests) -> Requests | None:
    """Return ROLL's requests for a plan, given those for another size; see `Resized`.

    Bundles of one size are ``num_gpus_per_node``, others all that a node has.
    """
    sizes = {row[4][0][1] for row in asked.rows}
    roles = [Nodes(name, part.used_nodes()) for name, part in plan.items() if part.rows.accelerators()]
    return requests_on(plan.inventory, roles, sizes.pop() if len(sizes) == 1 else None)


def has_own_nodes(plan: Plan) -> bool:
    """Return true: a plan of ROLL has the nodes up to the one of its highest accelerator."""
    return True


def _equal_nodes(inventory: Inventory, nodes_of_roles: Iterable[Nodes]) -> Iterator[_Equal]:
    """Yield the nodes with accelerators, those of each role first, then the others."""
    core = inventory.core
    nodes_by_size = {each: nodes for each, nodes in core.nodes_by_size().items() if each}
    nodes_by_cpus = core.nodes_by_cpus()
    left = RankSet().union(*nodes_by_size.values())
    owned: list[Nodes] = []
    for role, ranks in nodes_of_roles:
        owned.append(Nodes(role, ranks & left))
        left -= ranks
    for role, ranks in (*owned, Nodes("", left)):
        for each, of_size in nodes_by_size.items():
            for cpus, of_cpus in nodes_by_cpus:
                for first, last in (ranks & of_size & of_cpus).ranges:
                    yield _Equal(first, last, each, cpus, role)
