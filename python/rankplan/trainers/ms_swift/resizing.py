"""What ms-swift asks Ray for in other sizes: a group on each of the nodes of a pool, of which all have as many."""

from __future__ import annotations

from itertools import groupby

from rankplan import Plan, Requests
from rankplan.sdk.resizing import by_component, more_groups, own_accelerators


def resized(plan: Plan, asked: Requests) -> Requests | None:
    """Return ms-swift's requests for a plan; see `Resized`. ``None`` if pools would have different ``nnodes``."""
    made = by_component(plan, asked, _of_pool)
    if made is None:
        return None
    nodes = {len(list(groups)) for _, groups in groupby(made, key=lambda request: request.component)}
    return made if len(nodes) == 1 else None


def _of_pool(plan: Plan, asked: Requests) -> Requests | None:
    """Return the groups of a pool: as many of another size if each is on one node, else more of this size."""
    taken = own_accelerators(plan, asked)
    core, first = plan.inventory.core, asked[0]
    each, rest = divmod(len(taken), len(asked))
    if each and not rest and taken.torn(core, each) is None:
        return Requests.of(
            core,
            first.component,
            taken,
            [1],
            each,
            strategy=first.strategy,
            order=first.order,
            amounts=[(first.cpus[0], None, [])],
        )
    return more_groups(plan, asked, taken)
