"""Where the ranks of a plan run: told by the requests of its trainer, and the order in which that sorts its nodes.

Pure: it reads what runs (`Live`) and the plan, and asks nobody.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby, islice
from typing import Any, NamedTuple, TypeAlias

from rankplan_hook.patterns import Groups

from rankplan._core import RankSet, Requests
from rankplan.frozen import frozen
from rankplan.plans.plan import Plan
from rankplan.plans.requests import Request
from rankplan.runtime.live.model import Compared, Difference, Live, LiveActor, LiveGroup
from rankplan.words import counted, nodes_text

_Device: TypeAlias = tuple[int, int]
"""A node rank, and the local index of an accelerator."""

_Bundle: TypeAlias = tuple[int, int]
"""The index of a request, and of a bundle in it."""

Claims: TypeAlias = Mapping[int, LiveGroup | list[LiveActor]]
"""What took each request, by its index: a placement group, or actors without one."""

_BY_BUNDLE = ("number", "id", "topology-id")
"""Orders by which trainers sort bundles, on a node by their accelerators; by others they sort whole groups."""

_TENSOR = "tp"


_SMALLEST = 0.001
"""Ray counts shares of accelerators in ten-thousandths."""


@frozen
class Spot:
    """Where a planned accelerator is: its node and local index, as far as Ray tells them.

    ``place`` is the id of its group and the index of its bundle there, or the id of its actor and 0. ``up``: an actor
    is in it; if none is, ``why`` tells the reason.
    """

    node: int | None = None
    index: int | None = None
    up: bool = False
    why: str = ""
    place: tuple[str, int] | None = None


class RankSpots(NamedTuple):
    """The planned accelerators of a rank, and where each of them is."""

    devices: list[_Device]
    spots: list[Spot]

    @property
    def kind(self) -> str | None:
        """The kind of difference between where its accelerators are planned and where they are, if any."""
        if any(spot.node is None for spot in self.spots):
            return "not-running"
        if any(spot.node != node for (node, _), spot in zip(self.devices, self.spots, strict=True)):
            return "node"
        if any(spot.index not in (None, index) for (_, index), spot in zip(self.devices, self.spots, strict=True)):
            return "accelerators"
        return None if any(spot.up for spot in self.spots) else "not-running"

    @property
    def is_told(self) -> bool:
        """Whether Ray tells all of its accelerators."""
        return all(spot.index is not None for spot in self.spots)


_Table: TypeAlias = Mapping[str, Mapping[int, RankSpots]]
"""The spots of each rank that the requests tell, by component."""


def compare(live: Live, plan: Plan, name: str, job: str | None = None, claims: Claims | None = None) -> Live:
    """Return what runs with its comparison with a plan. ``live`` has the nodes in the order of the plan.

    ``job`` is the job to compare; by default the one whose requests match most of the plan. ``claims`` is what took
    each request, if that is known; by default it follows from the names and sizes of the job's groups.
    """
    requests = tuple(plan.requests)
    certain = sum(not request.optional for request in requests)
    chosen = asking(live, requests) if job is None else job
    if not certain:
        return _compare_places(live, plan, name, chosen)
    found = claims if claims is not None else {} if chosen is None else claimed(live, requests, chosen)
    spots, planned = _spots(live, plan, found)
    table = _ranks(plan, spots)
    differences = [*_misplaced(live, table), *_torn(plan, spots), *_unplanned(live, found, chosen)]
    differing: dict[str, RankSet] = {}
    for one in differences:
        if one.component and one.kind != "group-spans":
            differing[one.component] = differing.get(one.component, RankSet()) | one.ranks
    rows = [row for of_component in table.values() for row in of_component.values()]
    kinds = Counter((row.kind, row.is_told) for row in rows)
    compared = Compared(
        name=name,
        plan=plan,
        job=chosen,
        ranks=len(rows),
        up=_ranks_up(live, plan, table),
        on_nodes=sum(kinds[kind, is_told] for kind in (None, "accelerators") for is_told in (True, False)),
        on_accelerators=kinds[None, True],
        untold=kinds[None, False],
        groups=certain,
        claimed=sum(not requests[at].optional for at in found),
        differences=tuple(differences),
        differing=differing,
        places={name: {rank: _place(*row) for rank, row in ranks.items()} for name, ranks in table.items()},
    )
    return _labelled(replace(live, compared=compared), plan, found, planned)


def _ranks_up(live: Live, plan: Plan, table: _Table) -> int:
    """Return how many ranks have a process.

    The process of a rank is in the bundle of its first accelerator. Several roles may have processes there, and Ray
    does not tell which actor is of which role. But each role reserves its share: as many ranks of a bundle are up as
    have room in what its actors reserve. Ranks without a share run in the processes of others, and actors that reserve
    almost nothing of their bundle tell nothing: there, one actor counts for all.
    """
    reserved: Counter[tuple[str, int]] = Counter()
    marked = set()
    for actor in live.actors:
        place = (actor.actor_id, 0) if actor.group is None else (actor.group, actor.bundle or 0)
        if actor.node is not None and actor.reserved:
            reserved[place] += actor.amount  # type: ignore[assignment]
        elif actor.node is not None:
            marked.add(place)
    up = 0
    for name, rows in sorted(table.items(), key=lambda item: plan[item[0]].share or 0.0):
        share = plan[name].share or 0.0
        for row in rows.values():
            first = row.spots[0]
            if not first.up or first.place is None:
                continue
            if first.place in marked or reserved[first.place] >= share - _SMALLEST:
                up += 1
                reserved[first.place] -= share  # type: ignore[assignment]
    return up


def asking(live: Live, requests: Sequence[Request]) -> str | None:
    """Return the job whose requests match most accelerators of these requests; of several, the last one to ask."""
    jobs = dict.fromkeys([group.job for group in live.groups] + [one.job for one in live.actors if one.uses])

    def matching(job: str) -> int:
        return sum(sum(requests[at].accelerators) for at in claimed(live, requests, job))

    return max(reversed(jobs), key=matching, default=None)


def claimed(live: Live, requests: Sequence[Request], job: str) -> Claims:
    """Return what each request of a plan became in a job: the first free request that matches takes a group.

    A group matches by its name, if the request has a pattern, and by the accelerators of each bundle. Optional requests
    come last.
    """
    found: dict[int, LiveGroup | list[LiveActor]] = {}
    groups = Groups()
    alone: list[int] = []
    for at in sorted(range(len(requests)), key=lambda at: requests[at].optional):
        request = requests[at]
        if request.strategy is None:
            alone.append(at)
        else:
            groups.add(request.accelerators, request.name, range(at, at + 1), optional=request.optional)
    for group in live.groups:
        if group.job == job and any(group.bundles):
            found_at = groups.first(group.bundles, group.name, found.__contains__)
            if found_at is not None:
                found[found_at] = group
    classes: dict[str, list[LiveActor]] = defaultdict(list)
    for actor in live.actors:
        if actor.job == job and actor.group is None and actor.uses:
            classes[actor.class_name].append(actor)
    for actors in classes.values():
        sizes = tuple(int(actor.amount) for actor in actors)
        for at in alone:
            if requests[at].accelerators == sizes:
                found[at] = _nearest(requests[at], actors)
                alone.remove(at)
                break
    return found


def _nearest(request: Request, actors: Sequence[LiveActor]) -> list[LiveActor]:
    """Return actors in the order of a request: Ray does not tell theirs, so as many as possible are on their nodes."""
    left = list(actors)
    found: list[LiveActor | None] = []
    for node in request.nodes:
        here = next((actor for actor in left if actor.node == node), None)
        found.append(here)
        if here is not None:
            left.remove(here)
    rest = iter(left)
    return [next(rest) if actor is None else actor for actor in found]


def planned_bundles(plan: Plan) -> dict[_Bundle, list[_Device]]:
    """Return the accelerators of each bundle: on its node, those of the component that it is for, the lowest first.

    A bundle also has accelerators of others where it is larger than that component's part of the node.
    """
    owned = {name: {device for row in one for device in row.devices} for name, one in plan.items()}
    marks = plan.inventory.marks
    free: dict[int, RankSet] = {}
    found: dict[_Bundle, list[_Device]] = {}
    for at, request in enumerate(plan.requests):
        own = owned.get(request.component, set())
        bundles = list(zip(request.nodes, request.accelerators, strict=False))
        left: dict[int, Iterator[int]] = {}
        for node in dict.fromkeys(request.nodes):
            if node not in free:
                count, out = plan.inventory.node(node).num_accelerators, marks.get(node, RankSet())
                free[node] = RankSet() if out is None else RankSet(range(count)) - out
            wanted = sum(size for on, size in bundles if on == node)
            first = sorted(free[node], key=lambda index, node=node: ((node, index) not in own, index))  # type: ignore[misc]
            here = RankSet(first[:wanted])
            free[node] -= here
            left[node] = iter(here)
        for bundle, (node, size) in enumerate(bundles):
            found[at, bundle] = [(node, index) for index in islice(left[node], size)]
    return found


def _taken(live: Live, requests: Sequence[Request], found: Claims) -> dict[_Bundle, tuple[LiveGroup, int]]:
    """Return the bundle of a group that the trainer takes for each planned one: it may sort them by their nodes."""
    taken = {
        (at, index): (one, index)
        for at, one in found.items()
        if isinstance(one, LiveGroup)
        for index in range(len(one.nodes))
    }
    ids = [live.node[rank].node_id if rank in live.node else "" for rank in range(live.inventory.num_nodes)]
    for order, numbers in Requests(requests).pools():
        planned = [(at, index) for at in numbers for index in range(len(requests[at].nodes))]
        bundles = [taken[one] for one in planned if one in taken]
        nodes = [node for group, index in bundles if (node := group.nodes[index]) is not None]
        places = live.inventory.core.places(order, RankSet(nodes), ids)
        if len(nodes) < len(planned) or places is None:
            continue
        by_accelerator = order in _BY_BUNDLE

        def place(
            bundle: tuple[LiveGroup, int], places: Mapping[int, int] = places, *, inside: bool = by_accelerator
        ) -> tuple[int, int]:
            group, index = bundle
            held = group.held[index]
            return places[group.nodes[index] or 0], min(held) if inside and held else 0

        taken |= zip(planned, sorted(bundles, key=place), strict=True)
    return taken


def _spots(live: Live, plan: Plan, found: Claims) -> tuple[dict[_Device, Spot], dict[tuple[str, int], list[_Device]]]:
    """Return where each planned accelerator is, and those planned for each bundle of a group, by the group's id."""
    taken = _taken(live, plan.requests, found)
    running = {(actor.group, actor.bundle) for actor in live.actors if actor.node is not None}
    spots: dict[_Device, Spot] = {}
    planned: dict[tuple[str, int], list[_Device]] = {}
    for (at, bundle), devices in planned_bundles(plan).items():
        claimant = found.get(at)
        held: RankSet | None = None
        if claimant is None:
            spot = Spot(why="nothing asked for it")
        elif isinstance(claimant, list):
            spot = _spot_of_actor(claimant[bundle])
            held = claimant[bundle].accelerators
        else:
            group, index = taken[at, bundle]
            spot = _spot_in_group(group, index, running)
            held = group.held[index]
        if spot.place is not None:
            planned[spot.place] = devices
        as_planned = held is not None and devices == [(spot.node, local) for local in held]
        if as_planned:
            indices: list[int | None] = [index for _, index in devices]
        elif held is not None and len(held) == len(devices):
            indices = list(held)
        else:
            indices = [None] * len(devices)
        for device, local in zip(devices, indices, strict=True):
            spots[device] = replace(spot, index=local)
    return spots, planned


def _spot_of_actor(actor: LiveActor) -> Spot:
    """Return where an actor without a group is."""
    return Spot(actor.node, None, actor.node is not None, f"its actor is {actor.state}", (actor.actor_id, 0))


def _spot_in_group(group: LiveGroup, index: int, running: Collection[tuple[str | None, int | None]]) -> Spot:
    """Return where a bundle of a group is; ``running`` are the bundles with actors that have a node."""
    node = group.nodes[index] if group.state == "CREATED" else None
    place = (group.group_id, index)
    if node is None:
        return Spot(why=group.waits or group.state, place=place)
    return Spot(node, None, place in running, group.waits or "no actor is in its bundle", place)


def _ranks(plan: Plan, spots: Mapping[_Device, Spot]) -> dict[str, dict[int, RankSpots]]:
    """Return the planned accelerators of each rank that the requests tell, and where these are."""
    table: dict[str, dict[int, RankSpots]] = {}
    for name, component in plan.items():
        for row in component:
            told = [spots[device] for device in row.devices if device in spots]
            if told:
                # A predicted process may be on several nodes, which no bundle can be: the others are with the first.
                of_rank = [spots.get(device, replace(told[0], index=None)) for device in row.devices]
                table.setdefault(name, {})[row.rank] = RankSpots(list(row.devices), of_rank)
    return table


def _place(planned: Sequence[_Device], spots: Sequence[Spot]) -> tuple[_Device, ...]:
    """Return where accelerators are, or else where they are planned, if Ray does not tell all of them."""
    found = [(spot.node, spot.index) for spot in spots if spot.node is not None and spot.index is not None]
    return tuple((node, index) for node, index in (found if len(found) == len(planned) else planned))


def _misplaced(live: Live, table: _Table) -> Iterator[Difference]:
    """Yield the ranks that do not run where they are planned; consecutive ones on the same nodes are together."""
    for name, rows in table.items():

        def alike(at: tuple[int, int], rows: Mapping[int, RankSpots] = rows) -> Any:
            position, rank = at
            row = rows[rank]
            planned_on = frozenset(node for node, _ in row.devices)
            runs_on = frozenset(spot.node for spot in row.spots)
            return rank - position, row.kind, planned_on, runs_on, row.spots[0].why if row.kind == "not-running" else ""

        for (_, kind, _, _, why), run in groupby(enumerate(rows), alike):
            if kind is None:
                continue
            ranks = [rank for _, rank in run]
            planned = [device for rank in ranks for device in rows[rank].devices]
            spots = [spot for rank in ranks for spot in rows[rank].spots]
            places = _places(live, ((spot.node, spot.index) for spot in spots if spot.node is not None))
            yield Difference(kind, name, RankSet(ranks), _places(live, planned), why or places)


def _places(live: Live, devices: Iterable[tuple[int, int | None]]) -> str:
    """Return accelerators by node: ``node 2 (10.0.0.10): 0-1``; one by one if they are in another order: ``1,0``."""
    nodes: dict[int, list[int]] = {}
    for node, index in devices:
        nodes.setdefault(node, []).extend([] if index is None else [index])
    texts = []
    for node, indices in nodes.items():
        address = live.inventory.node(node).ip or live.inventory.node(node).hostname
        gone = "" if node in live.node else ", which is not in the cluster"
        named = f"node {node}" + (f" ({address})" if address else "") + gone
        runs = [RankSet(indices)] if indices == sorted(indices) else [RankSet([index]) for index in indices]
        texts.append(f"{named}: {','.join(live.ids(node, run) for run in runs)}" if indices else named)
    return "; ".join(texts)


def _torn(plan: Plan, spots: Mapping[_Device, Spot]) -> Iterator[Difference]:
    """Yield the tensor groups on several nodes that the plan has on one."""
    for name, component in plan.items():
        if not (component.parallel.stated and _TENSOR in component.layout.kinds):
            continue
        ranks_on: dict[RankSet, list[int]] = {}
        for group in component.groups(_TENSOR):
            places = [component.layout.place(slot) for slot in group]
            planned_on = {node for node, _ in places}
            devices = [(node, index) for node, index in places if index is not None]
            nodes = {spots[device].node for device in devices if device in spots}
            running_on = RankSet(node for node in nodes if node is not None)
            if len(planned_on) == 1 and len(running_on) > 1:
                ranks = [component.layout.process_of(slot) for slot in group]
                ranks_on.setdefault(running_on, []).extend(ranks)
        for torn_over, ranks in ranks_on.items():
            text = f"tensor group on {nodes_text(torn_over)}"
            yield Difference("group-spans", name, RankSet(ranks), "on one node", text)


def _unplanned(live: Live, found: Claims, job: str | None) -> Iterator[Difference]:
    """Yield the groups and the actors with accelerators that the plan does not have."""
    claimed_groups = {claimant.group_id for claimant in found.values() if isinstance(claimant, LiveGroup)}
    claimed_actors: set[str] = set()
    for claimant in found.values():
        if isinstance(claimant, list):
            claimed_actors.update(actor.actor_id for actor in claimant)
    for group in live.groups:
        if group.job == job and any(group.bundles) and group.group_id not in claimed_groups:
            text = f"placement group `{group.title}` with {counted(sum(group.bundles), 'accelerator')}"
            nodes = RankSet(node for node in group.nodes if node is not None)
            if nodes:
                text += f" on {nodes_text(nodes)}"
            yield Difference("not-planned", "", RankSet(), "", text)
    unclaimed = [actor for actor in live.actors if actor.job == job and actor.actor_id not in claimed_actors]
    alone = Counter(actor.class_name for actor in unclaimed if actor.group is None and actor.uses)
    for class_name, count in alone.items():
        text = f"{counted(count, 'actor')} of class {class_name} without a group"
        yield Difference("not-planned", "", RankSet(), "", text)


def _compare_places(live: Live, plan: Plan, name: str, job: str | None) -> Live:
    """Compare only which accelerators are in use: the plan does not know what its trainer asks for."""
    planned = {device for component in plan.values() for row in component for device in row.devices}
    used = {
        (actor.node, index)
        for actor in live.actors
        if actor.job == job and actor.node is not None
        for index in actor.accelerators or ()
    }
    found = []
    if unused := sorted(planned - used):
        found.append(Difference("unused", "", RankSet(), _places(live, unused), "no actor holds them"))
    if others := sorted(used - planned):
        found.append(Difference("not-planned", "", RankSet(), "", _places(live, others)))
    return replace(live, compared=Compared(name, plan, job, 0, 0, 0, 0, 0, 0, 0, tuple(found), {}, {}))


def _labelled(live: Live, plan: Plan, found: Claims, planned: Mapping[tuple[str, int], list[_Device]]) -> Live:
    """Return what runs with the component of each claimed group, and the ranks of each actor."""
    owners: dict[_Device, list[tuple[str, int]]] = {}
    for name, component in plan.items():
        for row in component:
            for device in row.devices:
                owners.setdefault(device, []).append((name, row.rank))
    components = {one.group_id: plan.requests[at].component for at, one in found.items() if isinstance(one, LiveGroup)}

    def ranks(actor: LiveActor) -> dict[str, RankSet]:
        key = (
            (actor.group, actor.bundle) if actor.group is not None and actor.bundle is not None else (actor.actor_id, 0)
        )
        ranks: dict[str, list[int]] = {}
        for device in planned.get(key, ()):
            for name, rank in owners.get(device, ()):
                ranks.setdefault(name, []).append(rank)
        return {name: RankSet(each) for name, each in ranks.items()}

    groups = tuple(replace(one, component=components.get(one.group_id)) for one in live.groups)
    return replace(live, groups=groups, actors=tuple(replace(actor, ranks=ranks(actor)) for actor in live.actors))
