"""A plan to pin with the nodes of each pool in the order in which its trainer sorts them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from rankplan.front.arranged import PlacedJob
from rankplan.plans.node_order import in_pools_order
from rankplan.plans.requests import NodeOrder
from rankplan.read.sources import Planned

_Job = TypeVar("_Job", bound=PlacedJob)


def with_sorted_pools(
    job: _Job, planned: Planned, node_ids: Sequence[str], order: NodeOrder | None, *, isolate: bool | None
) -> tuple[_Job, Planned]:
    """Return a job on its nodes in an order in which the trainer sorts no pool of its plan otherwise, and that plan.

    The plan has chosen its nodes in the order of the inventory. The trainer decides their order: the nodes of each pool
    are sorted, and the config is planned on them again. Where nodes of different sizes give the pools other nodes than
    before, all nodes in use are sorted, or else all of the inventory, by ``order``, that of the trainer.
    """
    attempt, ids = job, list(node_ids)
    for together in (False, True):
        ranks = in_pools_order(planned.plan, ids, together=together)
        if ranks is None:
            return attempt, planned
        attempt = attempt.reordered(ranks)
        ids = [ids[node] for node in ranks] if ids else []
        planned = attempt.placed(isolate=isolate, pinned=True)
    if in_pools_order(planned.plan, ids) is None:
        return attempt, planned
    every = None if order is None else job.inventory.core.other_order(order, list(node_ids))
    attempt = job if every is None else job.reordered(every)
    return attempt, attempt.placed(isolate=isolate, pinned=True)
