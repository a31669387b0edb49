"""What AReaL asks Ray for in other sizes: one group of all workers of an engine, or a group for each of them."""

from __future__ import annotations

from rankplan import Plan, Requests
from rankplan.sdk.resizing import by_component, larger_group, more_groups, own_accelerators

_GENERATING = "rollout"
"""The engine whose workers are servers: each has a group of its own."""


def resized(plan: Plan, asked: Requests) -> Requests | None:
    """Return AReaL's requests for a plan; see `Resized`."""
    return by_component(plan, asked, _of_engine)


def _of_engine(plan: Plan, asked: Requests) -> Requests | None:
    """Return the requests of an engine; a single group with a single bundle does not tell which it is."""
    taken = own_accelerators(plan, asked)
    if asked[0].component == _GENERATING or len(asked) > 1:
        return more_groups(plan, asked, taken)
    if len(asked[0].accelerators) > 1:
        return larger_group(plan, asked, taken)
    return None
