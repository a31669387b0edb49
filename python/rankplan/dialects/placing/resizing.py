"""The requests of a trainer whose components grow or shrink, derived from its present requests.

A request says which bundles a group has, but not how many groups there would be for more accelerators. The trainer
decides that: it makes a larger group, or more groups. So each dialect says which, and these functions do it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import TypeAlias

from rankplan._core import Request, Requests, Taken
from rankplan.plans.component import Component
from rankplan.plans.plan import Plan

Remade: TypeAlias = Callable[[Plan, Requests], Requests | None]
"""Returns the requests of a part of a plan, given those that the trainer made for this part in another size.

``None`` if these do not tell.
"""


def by_component(plan: Plan, asked: Requests, remade: Remade) -> Requests | None:
    """Return what a trainer asks Ray for that makes the groups of each component by themselves.

    Requests that do not tell how they are made stay as they are if they have all accelerators of their component.
    """
    made = Requests()
    for part in _parts(asked):
        is_of_plan = part[0].component in plan
        again = remade(plan, part) if is_of_plan else part
        if again is None:
            if sum(sum(request.accelerators) for request in part) != len(own_accelerators(plan, part)):
                return None
            again = part
        made += again
    return made


def as_larger_groups(plan: Plan, asked: Requests) -> Requests | None:
    """Return what a trainer asks Ray for that makes one group for each component."""

    def remade(plan: Plan, part: Requests) -> Requests | None:
        return larger_group(plan, part, own_accelerators(plan, part))

    return by_component(plan, asked, remade)


def _parts(asked: Requests) -> Iterator[Requests]:
    """Yield the requests for each component that come one after the other."""
    start = 0
    for _, rows in groupby(asked.rows, key=lambda row: row[0]):
        stop = start + sum(row[6] for row in rows)
        yield asked[start:stop]
        start = stop


def accelerators(parts: Iterable[Component]) -> Taken:
    """Return the accelerators of components, process by process; one that several have counts for the first."""
    order: dict[int, None] = {}
    for part in parts:
        resource = part.inventory.core.resource
        for row in part.rows:
            order.update((resource(node, device), None) for node, device in row.devices)
    ranges: list[tuple[int, int]] = []
    for accelerator in order:
        if ranges and ranges[-1][1] == accelerator - 1:
            ranges[-1] = ranges[-1][0], accelerator
        else:
            ranges.append((accelerator, accelerator))
    return Taken(ranges)


def own_accelerators(plan: Plan, asked: Requests) -> Taken:
    """Return the accelerators of the component that requests are for."""
    return accelerators([plan[asked[0].component]])


def more_groups(
    plan: Plan, asked: Requests, taken: Taken, *, name: str | None = None, pools: tuple[str, int] | None = None
) -> Requests | None:
    """Return groups like the first of the requests, as many as there are accelerators for.

    They are named as `Placer.ask` names them, by default like the requests. ``None`` if a group would be smaller.
    """
    first = asked[0]
    if name is None and first.name is not None:
        name = re.sub(r"\d+$", "", first.name)
    size = sum(first.accelerators)
    if not size or len(taken) % size:
        return None
    return _asked(plan, first, taken, list(first.accelerators), size, name=name, pools=pools)


def larger_group(plan: Plan, asked: Requests, taken: Taken) -> Requests | None:
    """Return the requests with a last group that has as many more or fewer of its bundles as there are accelerators.

    ``None`` if the bundles of the last group are not equal, or the accelerators no whole number of them.
    """
    others, last = list(asked[:-1]), asked[-1]
    stays = sum(sum(request.accelerators) for request in others)
    size, rest = last.accelerators[0], taken.slice(stays, len(taken))
    if set(last.accelerators) != {size} or len(rest) % size or not rest:
        return None
    return Requests(others) + _asked(plan, last, rest, [size], None, name=last.name)


def _asked(
    plan: Plan,
    like: Request,
    taken: Taken,
    bundles: list[int],
    per_group: int | None,
    *,
    name: str | None,
    pools: tuple[str, int] | None = None,
) -> Requests:
    """Return requests on these accelerators whose bundles reserve besides them what those of another request do."""
    amounts = [
        (like.cpus[bundle], like.memory[bundle], sorted(like.resources[bundle].items()))
        for bundle in range(len(bundles))
    ]
    return Requests.of(
        plan.inventory.core,
        like.component,
        taken,
        bundles,
        per_group,
        name=name,
        pools=pools,
        strategy=like.strategy,
        order=like.order,
        amounts=amounts,
    )
