"""What slime asks Ray for in other sizes: a bundle for each GPU in one group, those of the rollout last."""

from __future__ import annotations

from rankplan import Plan, Requests
from rankplan.sdk.resizing import accelerators, larger_group


def resized(plan: Plan, asked: Requests) -> Requests | None:
    """Return slime's requests for a plan (``create_placement_groups``); see `Resized`."""
    return larger_group(plan, asked, accelerators(plan.values()))
