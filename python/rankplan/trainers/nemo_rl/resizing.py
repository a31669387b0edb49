"""What NeMo-RL asks Ray for in other sizes: a group for each node of a cluster, or a unified one for all of them."""

from __future__ import annotations

from rankplan import Plan, Requests
from rankplan.sdk.resizing import by_component, larger_group, more_groups, own_accelerators


def resized(plan: Plan, asked: Requests) -> Requests | None:
    """Return NeMo-RL's requests for a plan (``RayVirtualCluster``); see `Resized`."""
    return by_component(plan, asked, _of_cluster)


def has_segments(plan: Plan) -> bool:
    """Return whether a config states segments, which are parts of its own nodes."""
    return any(order == "topology" for order, _ in plan.requests.pools())


def _of_cluster(plan: Plan, asked: Requests) -> Requests | None:
    taken = own_accelerators(plan, asked)
    is_unified = str(asked[0].name).endswith("-unified")
    return larger_group(plan, asked, taken) if is_unified else more_groups(plan, asked, taken)
