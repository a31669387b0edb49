"""The tables of a Ray head as what runs: nodes, groups and actors with their accelerators; idle and doubled ones."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from rankplan._core import RankSet
from rankplan.accelerators import NO_ACCEL, TYPES, VENDORS, vendor
from rankplan.errors import ClusterError
from rankplan.nodes.inventory import Inventory, NodeSpec
from rankplan.plans.diff import present_nodes
from rankplan.runtime.nodes.nodes import NODE_RANK_LABEL, FoundNode, by_address_key, in_order
from rankplan.runtime.nodes.probe import MODEL_LABEL, TYPE_LABEL, kept_labels
from rankplan.runtime.ray.tables import ActorEntry, GroupEntry, NodeEntry, Tables
from rankplan.runtime.usage.model import Doubled, Idle, Live, LiveActor, LiveGroup, LiveJob, LiveNode

_LITTLE = 0.05
"""A smaller share of a larger bundle is only a mark: its actor chooses accelerators itself, as ROLL's (0.01) do."""

_RESOURCES = dict.fromkeys(row.resource for row in VENDORS)
_WAITS = {"NO_RESOURCES": "no node has the resources free", "INFEASIBLE": "no node has the resources at all"}
_NONE = RankSet()


def look(tables: Tables, address: str = "", planned: Inventory | None = None, *, probed: bool = True) -> Live:
    """Return what runs, with the nodes in the order of ``planned`` if that is given.

    Without it, nodes are in the order of their rank labels, or else of their addresses, as in `Cluster`. ``probed``:
    ``planned`` has the ids that accelerators have on their nodes, and does not just count them.
    """
    inventory, ids = _numbered(_nodes([entry for entry in tables.nodes if entry.alive]), planned)
    ranks = {node_id: rank for rank, node_id in enumerate(ids) if node_id}
    places = _places(tables, inventory, ids)
    groups = [_group(entry, places, ranks) for entry in sorted(tables.groups, key=lambda entry: entry.asked)]
    by_id = {group.group_id: group for group in groups}
    actors = [_actor(entry, by_id, ranks) for entry in sorted(tables.actors, key=lambda entry: entry.started)]
    nodes = (
        LiveNode(
            rank=rank,
            node_id=node_id,
            spec=inventory.node(rank),
            ids_known=probed and planned is not None and rank < planned.num_nodes,
            free=places[node_id].available(),
            untold=places[node_id].untold,
        )
        for node_id, rank in ranks.items()
    )
    return Live(
        address=address,
        inventory=inventory,
        nodes=tuple(nodes),
        jobs=tuple(
            LiveJob(short(one.job_id), one.entrypoint, one.address, one.pid) for one in tables.jobs if not one.ended
        ),
        groups=tuple(groups),
        actors=tuple(actors),
        idle=tuple(one for node_id, rank in ranks.items() if (one := places[node_id].idle(rank)).accelerators),
        doubled=tuple(_doubled(actors)),
    )


def short(job_id: str) -> str:
    """Return the number of a job without the zeros at its end: ``02`` for ``02000000``."""
    while len(job_id) > 2 and job_id.endswith("00"):
        job_id = job_id[:-2]
    return job_id


def _nodes(entries: Iterable[NodeEntry]) -> list[FoundNode]:
    """Return the live nodes in their usual order."""
    found = [FoundNode(entry.node_id, _spec(entry), rank_label=entry.labels.get(NODE_RANK_LABEL)) for entry in entries]
    try:
        return in_order(found, None)[0]
    except ClusterError:  # a look must not fail because of labels
        return sorted(found, key=by_address_key)


def _spec(entry: NodeEntry) -> NodeSpec:
    """Return the record of a node, as far as the head knows it: accelerators count from 0."""
    stated = entry.labels.get(TYPE_LABEL)
    counted = {name: int(entry.resources.get(name, 0)) for name in _RESOURCES}
    row = vendor(stated) if stated in TYPES else None
    if row is None:
        row = next((row for row in VENDORS if counted[row.resource]), None)
    count = 0 if row is None else counted[row.resource]
    return NodeSpec(
        ranks=_NONE,
        ip=entry.address,
        hostname=entry.hostname,
        labels=kept_labels(entry.labels),
        accelerator_type=row.accelerator_type if row is not None and count else NO_ACCEL,
        accelerator_ids=tuple(map(str, range(count))),
        accelerator_model=entry.labels.get(MODEL_LABEL) if count else None,
    )


def _resource(spec: NodeSpec) -> str | None:
    row = vendor(spec.accelerator_type)
    return None if row is None else row.resource


def _numbered(found: Sequence[FoundNode], planned: Inventory | None) -> tuple[Inventory, list[str]]:
    """Return the nodes by rank, and Ray's id of each, ``""`` for a planned node that the cluster does not have."""
    if planned is None:
        specs = [node.spec.at(RankSet([rank])) for rank, node in enumerate(found)]
        return Inventory(specs), [node.node_id for node in found]
    present = Inventory([node.spec.at(RankSet([rank])) for rank, node in enumerate(found)])
    places = present_nodes(planned, present)
    specs, ids = [], []
    for rank, place in enumerate(places):
        known = planned.node(rank)
        if place is None or place >= len(found):
            specs.append(known.changed(healthy=False))
            ids.append("")
            continue
        spec = found[place].spec
        if spec.num_accelerators == known.num_accelerators:
            spec = spec.changed(accelerator_ids=known.accelerator_ids)
        specs.append(spec.at(RankSet([rank])))
        ids.append(found[place].node_id)
    for place, node in enumerate(found):
        if place not in places:
            specs.append(node.spec.at(RankSet([len(specs)])))
            ids.append(node.node_id)
    return Inventory(specs), ids


@dataclass(slots=True)
class _Bundle:
    """A bundle of accelerators: what its actors hold of it, and what Ray can still give of it.

    ``marked``: it has actors that reserve none of it, or almost none, and so may use all of it.
    """

    group: str
    index: int
    size: int
    free: float
    held: RankSet = _NONE
    amount: float = 0.0
    marked: bool = False

    @property
    def complete(self) -> bool:
        return len(self.held) == self.size


@dataclass(slots=True)
class _Place:
    """A node: its accelerators, those that actors hold, what actors without a bundle hold, and its bundles."""

    resource: str | None
    total: int
    free: Mapping[str, float]
    used: RankSet = _NONE
    alone: float = 0.0
    bundles: list[_Bundle] = field(default_factory=list)

    def available(self, of: str = "") -> float:
        """Return the free amount, of the node or of what a suffix names."""
        return float(self.free.get(f"{self.resource}{of}", 0))

    @property
    def untold(self) -> float:
        """The amount that tasks hold, outside of groups and in bundles."""
        outside = self.total - self.available() - self.alone - sum(bundle.size for bundle in self.bundles)
        inside = sum(max(one.size - one.free - one.amount, 0.0) for one in self.bundles)
        return round(max(outside, 0.0) + inside, 4)

    def enter(self, actor: ActorEntry) -> None:
        """Add what an actor holds."""
        indices, amount = _holds(actor)
        inside = [one for one in self.bundles if one.group == actor.group_id and one.index in actor.bundles]
        self.used |= indices
        if not actor.bundles:
            self.alone += amount
        for bundle in inside:
            bundle.amount += amount / len(inside)
            bundle.marked |= _only_marks(amount, bundle.size)
            if len(inside) == 1:
                bundle.held |= indices
        if len(inside) > 1 and len(indices) == sum(bundle.size for bundle in inside):
            left = list(indices)
            for bundle in inside:  # Ray gives the lowest accelerators to the first bundle
                bundle.held, left = RankSet(left[: bundle.size]), left[bundle.size :]

    def infer(self) -> None:
        """Tell the accelerators of a bundle that nothing else on the node can have."""
        unknown = [one for one in self.bundles if not one.complete]
        if len(unknown) == 1 and not self.available() and not self.untold:
            others = RankSet(range(self.total)) - (self.used - unknown[0].held)
            if len(others) == unknown[0].size:
                unknown[0].held = others

    def idle(self, rank: int) -> Idle:
        """Return the accelerators that no actor holds or may use."""
        used = self.used
        bundles: dict[str, list[int]] = {}
        kept = 0.0
        for one in self.bundles:
            if one.marked:
                used |= one.held
            elif (left := min(one.size - one.amount, one.free)) >= 1:
                bundles.setdefault(one.group, []).append(one.index)
                kept += left
        idle = RankSet(range(self.total)) - used
        within = {group: RankSet(indices) for group, indices in bundles.items()} if idle else {}
        return Idle(rank, idle, within, min(int(kept), len(idle)), self.untold)


def _holds(actor: ActorEntry) -> tuple[RankSet, float]:
    """Return the accelerators that an actor holds, and their amount."""
    held = [amounts for resource, amounts in actor.holds.items() if resource in _RESOURCES]
    return RankSet(index for amounts in held for index in amounts), sum(sum(amounts.values()) for amounts in held)


def _only_marks(amount: float, size: int) -> bool:
    """Whether an actor reserves so little of a bundle that it must choose accelerators itself."""
    return size > 0 and (amount == 0 or (size > 1 and amount < _LITTLE))


def _places(tables: Tables, inventory: Inventory, ids: Sequence[str]) -> dict[str, _Place]:
    """Return the books of each live node by Ray's id of it."""
    places = {
        node_id: _Place(_resource(spec), spec.num_accelerators, tables.free.get(node_id, {}))
        for rank, node_id in enumerate(ids)
        if node_id and (spec := inventory.node(rank))
    }
    for group in tables.groups:
        for index, node_id in enumerate(group.nodes):
            if (size := _size(group, index)) and (place := places.get(node_id)) and group.state == "CREATED":
                free = place.available(f"_group_{index}_{group.group_id}")
                place.bundles.append(_Bundle(group.group_id, index, size, free))
    for actor in tables.actors:
        if (place := places.get(actor.node_id)) is not None:
            place.enter(actor)
    for place in places.values():
        place.infer()
    return places


def _size(group: GroupEntry, bundle: int) -> int:
    return int(max((amount for name, amount in group.bundles[bundle].items() if name in _RESOURCES), default=0))


def _group(entry: GroupEntry, places: Mapping[str, _Place], ranks: Mapping[str, int]) -> LiveGroup:
    held: list[RankSet | None] = []
    for index, node_id in enumerate(entry.nodes):
        here = places[node_id].bundles if node_id in places else []
        found = next((one for one in here if (one.group, one.index) == (entry.group_id, index)), None)
        held.append(found.held if found is not None and found.complete else None if _size(entry, index) else _NONE)
    waits = _WAITS.get(entry.scheduling, "") if entry.state == "PENDING" else ""
    if entry.state == "RESCHEDULING":
        waits = "its node has left the cluster"
    return LiveGroup(
        group_id=entry.group_id,
        name=entry.name,
        job=short(entry.job_id),
        state=entry.state,
        strategy=entry.strategy,
        detached=entry.detached,
        bundles=tuple(_size(entry, index) for index in range(len(entry.bundles))),
        nodes=tuple(ranks.get(node_id) for node_id in entry.nodes),
        held=tuple(held),
        waits=waits,
    )


def _actor(entry: ActorEntry, groups: Mapping[str, LiveGroup], ranks: Mapping[str, int]) -> LiveActor:
    indices, amount = _holds(entry)
    group = groups.get(entry.group_id or "")
    bundles = [index for index in entry.bundles if group is not None and index < len(group.bundles)]
    reserved, accelerators = True, indices or None
    if group is not None and bundles and _only_marks(amount, group.bundles[bundles[0]]):
        reserved, accelerators = False, group.held[bundles[0]]
    elif not indices:
        accelerators = _NONE
        amount = max((entry.requires.get(name, 0.0) for name in _RESOURCES), default=0.0)  # it waits for these
    return LiveActor(
        actor_id=entry.actor_id,
        class_name=entry.class_name,
        name=entry.name,
        job=short(entry.job_id),
        state=entry.state,
        pid=entry.pid or None,
        node=ranks.get(entry.node_id),
        accelerators=accelerators,
        amount=amount,
        reserved=reserved,
        detached=entry.detached,
        group=None if group is None else group.group_id,
        bundle=bundles[0] if bundles else None,
    )


def _doubled(actors: Iterable[LiveActor]) -> Iterator[Doubled]:
    """Yield the accelerators that actors of several jobs hold: Ray lends parts of one to both."""
    users: dict[tuple[int, int], list[LiveActor]] = defaultdict(list)
    for actor in actors:
        if actor.node is not None and actor.reserved:
            for index in actor.accelerators or ():
                users[actor.node, index].append(actor)
    for (node, index), here in sorted(users.items(), key=lambda user: user[0]):
        if len({actor.job for actor in here}) > 1:
            yield Doubled(node, index, tuple(actor.title for actor in here))
