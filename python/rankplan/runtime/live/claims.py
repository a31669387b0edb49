"""What took each request of a plan: a placement group, or actors without one, by their names and sizes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from rankplan_hook.patterns import Groups

from rankplan.plans.requests import Request
from rankplan.runtime.usage.model import Live, LiveActor, LiveGroup

Claims: TypeAlias = Mapping[int, LiveGroup | list[LiveActor]]
"""What took each request, by its index: a placement group, or actors without one."""


def asking(live: Live, requests: Sequence[Request]) -> str | None:
    """Return the job whose requests match most accelerators of these requests; of several, the last one to ask."""
    jobs = [group.job for group in live.groups]
    jobs += [actor.job for actor in live.actors if actor.uses]

    def matching(job: str) -> int:
        return sum(sum(requests[at].accelerators) for at in claimed(live, requests, job))

    return max(reversed(dict.fromkeys(jobs)), key=matching, default=None)


def claimed(live: Live, requests: Sequence[Request], job: str) -> Claims:
    """Return what each request of a plan became in a job: the first free request that matches takes a group.

    A group matches by its name, if the request has a pattern, and by the accelerators of each bundle. Optional requests
    come last.
    """
    in_order = sorted(range(len(requests)), key=lambda at: requests[at].optional)
    return _groups(live, requests, job, in_order) | _lone_actors(live, requests, job, in_order)


def _groups(live: Live, requests: Sequence[Request], job: str, in_order: Sequence[int]) -> dict[int, LiveGroup]:
    """Return the group of a job that takes each request for one."""
    patterns = Groups()
    for at in in_order:
        request = requests[at]
        if request.strategy is not None:
            patterns.add(request.accelerators, request.name, range(at, at + 1), optional=request.optional)
    takers: dict[int, LiveGroup] = {}
    for group in live.groups:
        if group.job != job or not any(group.bundles):
            continue
        at_first = patterns.first(group.bundles, group.name, takers.__contains__)
        if at_first is not None:
            takers[at_first] = group
    return takers


def _lone_actors(
    live: Live, requests: Sequence[Request], job: str, in_order: Sequence[int]
) -> dict[int, list[LiveActor]]:
    """Return the actors of a job, all of one class, that take each request without a group."""
    of_class: dict[str, list[LiveActor]] = defaultdict(list)
    for actor in live.actors:
        if actor.job == job and actor.group is None and actor.uses:
            of_class[actor.class_name].append(actor)
    open_requests = [at for at in in_order if requests[at].strategy is None]
    takers: dict[int, list[LiveActor]] = {}
    for actors in of_class.values():
        sizes = tuple(int(actor.amount) for actor in actors)
        taken_at = next((at for at in open_requests if requests[at].accelerators == sizes), None)
        if taken_at is not None:
            takers[taken_at] = _by_nodes(requests[taken_at], actors)
            open_requests.remove(taken_at)
    return takers


def _by_nodes(request: Request, actors: Sequence[LiveActor]) -> list[LiveActor]:
    """Return actors in the order of a request: Ray does not tell theirs, so as many as possible are on their nodes."""
    left = list(actors)
    on_its_node: list[LiveActor | None] = []
    for node in request.nodes:
        actor = next((actor for actor in left if actor.node == node), None)
        on_its_node.append(actor)
        if actor is not None:
            left.remove(actor)
    others = iter(left)
    return [next(others) if actor is None else actor for actor in on_its_node]
