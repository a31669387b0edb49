"""What open-instruct asks Ray for in other sizes: a bundle for each engine in one group; learners keep their nodes."""

from __future__ import annotations

from rankplan import Plan, Requests
from rankplan.sdk.resizing import as_larger_groups


def resized(plan: Plan, asked: Requests) -> Requests | None:
    """Return open-instruct's requests for a plan; see `Resized`."""
    return as_larger_groups(plan, asked)
