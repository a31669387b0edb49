"""What is not where the plan has it: ranks, tensor groups, and what the plan does not have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from rankplan._core import RankSet
from rankplan.plans.plan import Plan
from rankplan.runtime.live.claims import Claims
from rankplan.runtime.live.spots import Device, RankSpots, RankTable, Spot
from rankplan.runtime.usage.model import Difference, Live, LiveGroup
from rankplan.words import counted, nodes_text

_TENSOR = "tp"


def misplaced(live: Live, table: RankTable) -> Iterator[Difference]:
    """Yield the ranks that do not run where they are planned; consecutive ones on the same nodes are together."""
    for name, rows in table.items():
        alike = [_Alike.of(position, rank, row) for position, (rank, row) in enumerate(rows.items())]
        for first, run in groupby(zip(alike, rows, strict=True), lambda pair: pair[0]):
            if first.kind is None:
                continue
            ranks = [rank for _, rank in run]
            planned = [device for rank in ranks for device in rows[rank].devices]
            spots = [spot for rank in ranks for spot in rows[rank].spots]
            running = _on_nodes(live, ((spot.node, spot.index) for spot in spots if spot.node is not None))
            yield Difference(first.kind, name, RankSet(ranks), _on_nodes(live, planned), first.why or running)


class _Alike(NamedTuple):
    """What is equal of ranks that are told together; ``offset`` is so if they are consecutive."""

    offset: int
    kind: str | None
    planned_on: frozenset[int]
    runs_on: frozenset[int | None]
    why: str

    @classmethod
    def of(cls, position: int, rank: int, row: RankSpots) -> _Alike:
        planned_on = frozenset(node for node, _ in row.devices)
        runs_on = frozenset(spot.node for spot in row.spots)
        why = row.spots[0].why if row.kind == "not-running" else ""
        return cls(rank - position, row.kind, planned_on, runs_on, why)


def torn(plan: Plan, spots: Mapping[Device, Spot]) -> Iterator[Difference]:
    """Yield the tensor groups on several nodes that the plan has on one."""
    for name, component in plan.items():
        if not (component.parallel.stated and _TENSOR in component.layout.kinds):
            continue
        ranks_on: dict[RankSet, list[int]] = {}
        for group in component.groups(_TENSOR):
            places = [component.layout.place(slot) for slot in group]
            planned_on = {node for node, _ in places}
            running_on = _running_on(places, spots)
            if len(planned_on) == 1 and len(running_on) > 1:
                ranks = [component.layout.process_of(slot) for slot in group]
                ranks_on.setdefault(running_on, []).extend(ranks)
        for nodes, ranks in ranks_on.items():
            text = f"tensor group on {nodes_text(nodes)}"
            yield Difference("group-spans", name, RankSet(ranks), "on one node", text)


def _running_on(places: Iterable[tuple[int, int | None]], spots: Mapping[Device, Spot]) -> RankSet:
    """Return the nodes on which what is planned at some places runs, as far as they are known."""
    nodes = []
    for node, index in places:
        spot = None if index is None else spots.get((node, index))
        if spot is not None and spot.node is not None:
            nodes.append(spot.node)
    return RankSet(nodes)


def unplanned(live: Live, claims: Claims, job: str | None) -> Iterator[Difference]:
    """Yield the groups and the actors with accelerators that the plan does not have."""
    claimed = _claimed_ids(claims)
    for group in live.groups:
        if group.job == job and any(group.bundles) and group.group_id not in claimed:
            text = f"placement group `{group.title}` with {counted(sum(group.bundles), 'accelerator')}"
            nodes = RankSet(node for node in group.nodes if node is not None)
            if nodes:
                text += f" on {nodes_text(nodes)}"
            yield _not_planned(text)
    lone_actors: Counter[str] = Counter()
    for actor in live.actors:
        if actor.job == job and actor.group is None and actor.uses and actor.actor_id not in claimed:
            lone_actors[actor.class_name] += 1
    for class_name, count in lone_actors.items():
        yield _not_planned(f"{counted(count, 'actor')} of class {class_name} without a group")


def _claimed_ids(claims: Claims) -> set[str]:
    """Return the ids of the groups and the actors that took requests of the plan."""
    claimed: set[str] = set()
    for taker in claims.values():
        if isinstance(taker, LiveGroup):
            claimed.add(taker.group_id)
        else:
            claimed.update(actor.actor_id for actor in taker)
    return claimed


def _not_planned(text: str) -> Difference:
    """Return the difference of something with accelerators that the plan does not have."""
    return Difference("not-planned", "", RankSet(), "", text)


def other_accelerators(live: Live, plan: Plan, job: str | None) -> Iterator[Difference]:
    """Yield the planned accelerators that no actor of a job holds, and those that it holds besides."""
    planned = {device for component in plan.values() for row in component for device in row.devices}
    used = {
        (actor.node, index)
        for actor in live.actors
        if actor.job == job and actor.node is not None
        for index in actor.accelerators or ()
    }
    if unused := sorted(planned - used):
        yield Difference("unused", "", RankSet(), _on_nodes(live, unused), "no actor holds them")
    if others := sorted(used - planned):
        yield _not_planned(_on_nodes(live, others))


def _on_nodes(live: Live, devices: Iterable[tuple[int, int | None]]) -> str:
    """Return accelerators by node: ``node 2 (10.0.0.10): 0-1``; one by one if they are in another order: ``1,0``."""
    by_node: dict[int, list[int]] = {}
    for node, index in devices:
        indices = by_node.setdefault(node, [])
        if index is not None:
            indices.append(index)
    texts = []
    for node, indices in by_node.items():
        address = live.inventory.node(node).ip or live.inventory.node(node).hostname
        text = f"node {node}"
        if address:
            text += f" ({address})"
        if node not in live.node:
            text += ", which is not in the cluster"
        if indices:
            text += f": {_in_order(live, node, indices)}"
        texts.append(text)
    return "; ".join(texts)


def _in_order(live: Live, node: int, indices: Sequence[int]) -> str:
    """Return the ids of accelerators of a node in this order; as ranges if they ascend."""
    if list(indices) == sorted(indices):
        return live.ids(node, RankSet(indices))
    return ",".join(live.ids(node, RankSet([index])) for index in indices)
