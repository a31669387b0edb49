"""Where the ranks of a plan run: told by the requests of its trainer, and the order in which that sorts its nodes.

Pure: it reads what runs (`Live`) and the plan, and asks nobody.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from rankplan._core import RankSet
from rankplan.plans.plan import Plan
from rankplan.runtime.live.claims import Claims, asking, claimed
from rankplan.runtime.live.differences import misplaced, other_accelerators, torn, unplanned
from rankplan.runtime.live.spots import Device, Place, ranks_of, ranks_up, spots_of
from rankplan.runtime.usage.model import Compared, Difference, Live, LiveActor, LiveGroup


def compare(live: Live, plan: Plan, name: str, job: str | None = None, claims: Claims | None = None) -> Live:
    """Return what runs with its comparison with a plan. ``live`` has the nodes in the order of the plan.

    ``job`` is the job to compare; by default the one whose requests match most of the plan. ``claims`` is what took
    each request, if that is known; by default it follows from the names and sizes of the job's groups.
    """
    requests = tuple(plan.requests)
    certain = sum(not request.optional for request in requests)
    if job is None:
        job = asking(live, requests)
    if not certain:
        return _without_requests(live, plan, name, job)
    if claims is None:
        claims = {} if job is None else claimed(live, requests, job)
    spots = spots_of(live, plan, claims)
    table = ranks_of(plan, spots.of)
    differences = (*misplaced(live, table), *torn(plan, spots.of), *unplanned(live, claims, job))
    rows = [row for of_component in table.values() for row in of_component.values()]
    kinds = Counter(row.kind for row in rows)
    as_planned = [row for row in rows if row.kind is None]
    on_accelerators = sum(row.is_told for row in as_planned)
    compared = Compared(
        name=name,
        plan=plan,
        job=job,
        ranks=len(rows),
        up=ranks_up(live, plan, table),
        on_nodes=kinds[None] + kinds["accelerators"],
        on_accelerators=on_accelerators,
        untold=len(as_planned) - on_accelerators,
        groups=certain,
        claimed=sum(not requests[at].optional for at in claims),
        differences=differences,
        differing=_differing(differences),
        places={name: {rank: row.places for rank, row in rows.items()} for name, rows in table.items()},
    )
    return _labelled(replace(live, compared=compared), plan, claims, spots.planned)


def _differing(differences: Iterable[Difference]) -> dict[str, RankSet]:
    """Return the ranks of each component that run otherwise; a group on several nodes says nothing of one rank."""
    differing: dict[str, RankSet] = {}
    for difference in differences:
        if difference.component and difference.kind != "group-spans":
            earlier = differing.get(difference.component, RankSet())
            differing[difference.component] = earlier | difference.ranks
    return differing


def _without_requests(live: Live, plan: Plan, name: str, job: str | None) -> Live:
    """Compare only which accelerators are in use: the plan does not know what its trainer asks for."""
    differences = tuple(other_accelerators(live, plan, job))
    return replace(live, compared=Compared(name, plan, job, 0, 0, 0, 0, 0, 0, 0, differences, {}, {}))


def _labelled(live: Live, plan: Plan, claims: Claims, planned: Mapping[Place, list[Device]]) -> Live:
    """Return what runs with the component of each claimed group, and the ranks of each actor."""
    owners: dict[Device, list[tuple[str, int]]] = {}
    for name, component in plan.items():
        for row in component:
            for device in row.devices:
                owners.setdefault(device, []).append((name, row.rank))
    components: dict[str, str] = {}
    for at, taker in claims.items():
        if isinstance(taker, LiveGroup):
            components[taker.group_id] = plan.requests[at].component

    def ranks(actor: LiveActor) -> dict[str, RankSet]:
        place = (actor.actor_id, 0)
        if actor.group is not None and actor.bundle is not None:
            place = (actor.group, actor.bundle)
        ranks: dict[str, list[int]] = {}
        for device in planned.get(place, ()):
            for name, rank in owners.get(device, ()):
                ranks.setdefault(name, []).append(rank)
        return {name: RankSet(of_component) for name, of_component in ranks.items()}

    groups = tuple(replace(group, component=components.get(group.group_id)) for group in live.groups)
    return replace(live, groups=groups, actors=tuple(replace(actor, ranks=ranks(actor)) for actor in live.actors))
