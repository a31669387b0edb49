"""What verl asks Ray for in other sizes: a group for each node of a pool, whose name tells the sizes of all of them."""

from __future__ import annotations

import re

from rankplan import Plan, Requests
from rankplan.sdk.resizing import by_component, more_groups, own_accelerators
from rankplan.trainers.verl.pools import group_name

_NAME = re.compile(r"(?P<prefix>.*?)(?P<engine>\d*)(?P<sizes>verl_group_(?P<gpus>\d+).*:)\d+")
"""The name of a group. A pool of a single engine has a number before its sizes."""


def resized(plan: Plan, asked: Requests) -> Requests | None:
    """Return verl's requests for a plan; see `Resized`."""
    return by_component(plan, asked, _of_pool)


def _of_pool(plan: Plan, asked: Requests) -> Requests | None:
    name = _NAME.fullmatch(str(asked[0].name))
    if name is None:
        return None
    prefix, taken = name["prefix"], own_accelerators(plan, asked)
    if name["engine"]:
        pools = name["sizes"], plan[asked[0].component].engines
        return more_groups(plan, asked, taken, name=prefix, pools=pools)
    gpus = int(name["gpus"])
    sizes = group_name(len(taken) // gpus, gpus)
    return more_groups(plan, asked, taken, name=f"{prefix}{sizes}")
