"""Where each planned accelerator is, as Ray tells it: by the bundle or the actor that was planned to have it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import NamedTuple, TypeAlias

from rankplan._core import RankSet, Requests
from rankplan.frozen import frozen
from rankplan.plans.plan import Plan
from rankplan.plans.requests import Request
from rankplan.runtime.live.claims import Claims
from rankplan.runtime.usage.model import Live, LiveActor, LiveGroup

Device: TypeAlias = tuple[int, int]
"""A node rank, and the local index of an accelerator."""

Bundle: TypeAlias = tuple[int, int]
"""The index of a request, and of a bundle in it."""

Place: TypeAlias = tuple[str, int]
"""The id of a group and the index of its bundle there, or the id of an actor without a group and 0."""

_BY_BUNDLE = ("number", "id", "topology-id")
"""Orders by which trainers sort bundles, on a node by their accelerators; by others they sort whole groups."""

_SMALLEST = 0.001
"""Ray counts shares of accelerators in ten-thousandths."""


@frozen
class Spot:
    """Where a planned accelerator is: its node and local index, as far as Ray tells them.

    ``up``: an actor is in its bundle; if none is, ``why`` tells the reason.
    """

    node: int | None = None
    index: int | None = None
    up: bool = False
    why: str = ""
    place: Place | None = None


class RankSpots(NamedTuple):
    """The planned accelerators of a rank, and where each of them is."""

    devices: list[Device]
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

    @property
    def places(self) -> tuple[Device, ...]:
        """Where its accelerators are, or else where they are planned, if Ray does not tell all of them."""
        known = [(spot.node, spot.index) for spot in self.spots if spot.node is not None and spot.index is not None]
        return tuple(known) if len(known) == len(self.devices) else tuple(self.devices)


RankTable: TypeAlias = Mapping[str, Mapping[int, RankSpots]]
"""The spots of each rank that the requests tell, by component."""


class Spots(NamedTuple):
    """Where planned accelerators are, and those that were planned for each bundle or actor."""

    of: Mapping[Device, Spot]
    planned: Mapping[Place, list[Device]]


def spots_of(live: Live, plan: Plan, claims: Claims) -> Spots:
    """Return where the planned accelerators are, given what took each request of the plan."""
    bundles = _bundles_in_order(live, plan.requests, claims)
    running = {(actor.group, actor.bundle) for actor in live.actors if actor.node is not None}
    spots: dict[Device, Spot] = {}
    planned: dict[Place, list[Device]] = {}
    for (at, bundle), devices in planned_bundles(plan).items():
        taker = claims.get(at)
        held: RankSet | None = None
        if taker is None:
            spot = Spot(why="nothing asked for it")
        elif isinstance(taker, list):
            spot = _spot_of_actor(taker[bundle])
            held = taker[bundle].accelerators
        else:
            group, index = bundles[at, bundle]
            spot = _spot_in_group(group, index, running)
            held = group.held[index]
        if spot.place is not None:
            planned[spot.place] = devices
        for device, local in zip(devices, _local_indices(devices, spot.node, held), strict=True):
            spots[device] = replace(spot, index=local)
    return Spots(spots, planned)


def planned_bundles(plan: Plan) -> dict[Bundle, list[Device]]:
    """Return the accelerators of each bundle: on its node, those of the component that it is for, the lowest first.

    A bundle also has accelerators of others where it is larger than that component's part of the node.
    """
    own_devices = {name: {device for row in component for device in row.devices} for name, component in plan.items()}
    marks = plan.inventory.marks
    free: dict[int, RankSet] = {}
    planned: dict[Bundle, list[Device]] = {}
    for at, request in enumerate(plan.requests):
        own = own_devices.get(request.component, set())
        bundles = list(zip(request.nodes, request.accelerators, strict=False))
        left: dict[int, Iterator[int]] = {}
        for node in dict.fromkeys(request.nodes):
            if node not in free:
                free[node] = _usable(plan, node, marks.get(node, RankSet()))
            size_on_node = sum(size for bundle_node, size in bundles if bundle_node == node)
            free_own = [index for index in free[node] if (node, index) in own]
            free_others = [index for index in free[node] if (node, index) not in own]
            taken = RankSet([*free_own, *free_others][:size_on_node])
            free[node] -= taken
            left[node] = iter(taken)
        for bundle, (node, size) in enumerate(bundles):
            planned[at, bundle] = [(node, index) for index in islice(left[node], size)]
    return planned


def _usable(plan: Plan, node: int, marked: RankSet | None) -> RankSet:
    """Return the accelerators of a node without the marked ones; a mark of ``None`` means the whole node."""
    if marked is None:
        return RankSet()
    return RankSet(range(plan.inventory.node(node).num_accelerators)) - marked


def _bundles_in_order(live: Live, requests: Sequence[Request], claims: Claims) -> dict[Bundle, tuple[LiveGroup, int]]:
    """Return the bundle of a group that the trainer takes for each planned one: it may sort them by their nodes."""
    taken = {
        (at, index): (group, index)
        for at, group in claims.items()
        if isinstance(group, LiveGroup)
        for index in range(len(group.nodes))
    }
    ids = [live.node[rank].node_id if rank in live.node else "" for rank in range(live.inventory.num_nodes)]
    for order, numbers in Requests(requests).pools():
        planned = [(at, index) for at in numbers for index in range(len(requests[at].nodes))]
        bundles = [taken[bundle] for bundle in planned if bundle in taken]
        nodes = [node for group, index in bundles if (node := group.nodes[index]) is not None]
        places = live.inventory.core.places(order, RankSet(nodes), ids)
        if len(nodes) < len(planned) or places is None:
            continue
        in_turn = sorted(bundles, key=lambda bundle: _position(bundle, places, inside=order in _BY_BUNDLE))
        taken |= zip(planned, in_turn, strict=True)
    return taken


def _position(bundle: tuple[LiveGroup, int], places: Mapping[int, int], *, inside: bool) -> tuple[int, int]:
    """Return what a trainer sorts a bundle by: the place of its node, and ``inside`` one, its first accelerator."""
    group, index = bundle
    held = group.held[index]
    return places[group.nodes[index] or 0], min(held) if inside and held else 0


def _local_indices(devices: Sequence[Device], node: int | None, held: RankSet | None) -> Sequence[int | None]:
    """Return the local index where each of these accelerators is, given those that its bundle holds on a node."""
    if held is not None and list(devices) == [(node, index) for index in held]:
        return [index for _, index in devices]
    if held is not None and len(held) == len(devices):
        return list(held)
    return [None] * len(devices)


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


def ranks_of(plan: Plan, spots: Mapping[Device, Spot]) -> RankTable:
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


def ranks_up(live: Live, plan: Plan, table: RankTable) -> int:
    """Return how many ranks have a process.

    The process of a rank is in the bundle of its first accelerator. Several roles may have processes there, and Ray
    does not tell which actor is of which role. But each role reserves its share: as many ranks of a bundle are up as
    have room in what its actors reserve. Ranks without a share run in the processes of others, and actors that reserve
    almost nothing of their bundle tell nothing: there, one actor counts for all.
    """
    reserved: dict[Place, float] = Counter()  # type: ignore[assignment]
    with_any_actor = set()
    for actor in live.actors:
        if actor.node is None:
            continue
        place = (actor.actor_id, 0) if actor.group is None else (actor.group, actor.bundle or 0)
        if actor.reserved:
            reserved[place] += actor.amount
        else:
            with_any_actor.add(place)
    up = 0
    for name in sorted(table, key=lambda name: plan[name].share or 0.0):
        share = plan[name].share or 0.0
        for row in table[name].values():
            first = row.spots[0]
            if not first.up or first.place is None:
                continue
            if first.place in with_any_actor or reserved[first.place] >= share - _SMALLEST:
                up += 1
                reserved[first.place] -= share
    return up
