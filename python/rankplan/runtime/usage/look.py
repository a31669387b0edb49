"""The tables of a Ray head as what runs: nodes, groups and actors with their accelerators; idle and doubled ones."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice

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
    nodes = []
    idle = []
    for node_id, rank in ranks.items():
        place = places[node_id]
        ids_known = probed and planned is not None and rank < planned.num_nodes
        nodes.append(LiveNode(rank, node_id, inventory.node(rank), ids_known, place.available(), place.untold))
        idle_there = place.idle(rank)
        if idle_there.accelerators:
            idle.append(idle_there)
    running = [job for job in tables.jobs if not job.ended]
    return Live(
        address=address,
        inventory=inventory,
        nodes=tuple(nodes),
        jobs=tuple(LiveJob(short(job.job_id), job.entrypoint, job.address, job.pid) for job in running),
        groups=tuple(groups),
        actors=tuple(actors),
        idle=tuple(idle),
        doubled=tuple(_doubled(actors)),
    )


def short(job_id: str) -> str:
    """Return the number of a job without the zeros at its end: ``02`` for ``02000000``."""
    while len(job_id) > 2 and job_id.endswith("00"):
        job_id = job_id[:-2]
    return job_id


def _nodes(entries: Iterable[NodeEntry]) -> list[FoundNode]:
    """Return the live nodes in their usual order."""
    nodes = [FoundNode(entry.node_id, _spec(entry), rank_label=entry.labels.get(NODE_RANK_LABEL)) for entry in entries]
    try:
        return in_order(nodes, None)[0]
    except ClusterError:  # a look must not fail because of labels
        return sorted(nodes, key=by_address_key)


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


def _numbered(nodes: Sequence[FoundNode], planned: Inventory | None) -> tuple[Inventory, list[str]]:
    """Return the nodes by rank, and Ray's id of each, ``""`` for a planned node that the cluster does not have."""
    present = Inventory([node.spec.at(RankSet([rank])) for rank, node in enumerate(nodes)])
    if planned is None:
        return present, [node.node_id for node in nodes]
    places = present_nodes(planned, present)
    specs = []
    ids = []
    for rank, place in enumerate(places):
        planned_spec = planned.node(rank)
        if place is None or place >= len(nodes):
            specs.append(planned_spec.changed(healthy=False))
            ids.append("")
            continue
        spec = nodes[place].spec
        if spec.num_accelerators == planned_spec.num_accelerators:
            spec = spec.changed(accelerator_ids=planned_spec.accelerator_ids)
        specs.append(spec.at(RankSet([rank])))
        ids.append(nodes[place].node_id)
    for place, node in enumerate(nodes):
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
        in_bundles = sum(max(bundle.size - bundle.free - bundle.amount, 0.0) for bundle in self.bundles)
        return round(max(outside, 0.0) + in_bundles, 4)

    def enter(self, actor: ActorEntry) -> None:
        """Add what an actor holds."""
        indices, amount = _holds(actor)
        own = [bundle for bundle in self.bundles if bundle.group == actor.group_id and bundle.index in actor.bundles]
        self.used |= indices
        if not actor.bundles:
            self.alone += amount
        for bundle in own:
            bundle.amount += amount / len(own)
            bundle.marked |= _only_marks(amount, bundle.size)
            if len(own) == 1:
                bundle.held |= indices
        if len(own) > 1 and len(indices) == sum(bundle.size for bundle in own):
            lowest_first = iter(indices)
            for bundle in own:  # Ray gives the lowest accelerators to the first bundle
                bundle.held = RankSet(islice(lowest_first, bundle.size))

    def infer(self) -> None:
        """Tell the accelerators of a bundle that nothing else on the node can have."""
        incomplete = [bundle for bundle in self.bundles if not bundle.complete]
        if len(incomplete) != 1 or self.available() or self.untold:
            return
        bundle = incomplete[0]
        used_by_others = self.used - bundle.held
        left = RankSet(range(self.total)) - used_by_others
        if len(left) == bundle.size:
            bundle.held = left

    def idle(self, rank: int) -> Idle:
        """Return the accelerators that no actor holds or may use."""
        used = self.used
        idle_bundles: dict[str, list[int]] = {}
        in_bundles = 0.0
        for bundle in self.bundles:
            if bundle.marked:
                used |= bundle.held
                continue
            idle_in_bundle = min(bundle.size - bundle.amount, bundle.free)
            if idle_in_bundle >= 1:
                idle_bundles.setdefault(bundle.group, []).append(bundle.index)
                in_bundles += idle_in_bundle
        idle = RankSet(range(self.total)) - used
        if not idle:
            return Idle(rank, idle, {}, 0, self.untold)
        bundles = {group: RankSet(indices) for group, indices in idle_bundles.items()}
        return Idle(rank, idle, bundles, min(int(in_bundles), len(idle)), self.untold)


def _holds(actor: ActorEntry) -> tuple[RankSet, float]:
    """Return the accelerators that an actor holds, and their amount."""
    by_resource = [amounts for resource, amounts in actor.holds.items() if resource in _RESOURCES]
    return RankSet(chain.from_iterable(by_resource)), sum(sum(amounts.values()) for amounts in by_resource)


def _only_marks(amount: float, size: int) -> bool:
    """Whether an actor reserves so little of a bundle that it must choose accelerators itself."""
    return size > 0 and (amount == 0 or (size > 1 and amount < _LITTLE))


def _places(tables: Tables, inventory: Inventory, ids: Sequence[str]) -> dict[str, _Place]:
    """Return the books of each live node by Ray's id of it."""
    places: dict[str, _Place] = {}
    for rank, node_id in enumerate(ids):
        if node_id:
            spec = inventory.node(rank)
            places[node_id] = _Place(_resource(spec), spec.num_accelerators, tables.free.get(node_id, {}))
    for group in tables.groups:
        if group.state != "CREATED":
            continue
        for index, node_id in enumerate(group.nodes):
            size = _size(group, index)
            if size and node_id in places:
                place = places[node_id]
                free = place.available(f"_group_{index}_{group.group_id}")
                place.bundles.append(_Bundle(group.group_id, index, size, free))
    for actor in tables.actors:
        if actor.node_id in places:
            places[actor.node_id].enter(actor)
    for place in places.values():
        place.infer()
    return places


def _size(group: GroupEntry, bundle: int) -> int:
    return int(max((amount for name, amount in group.bundles[bundle].items() if name in _RESOURCES), default=0))


def _group(entry: GroupEntry, places: Mapping[str, _Place], ranks: Mapping[str, int]) -> LiveGroup:
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
        held=tuple(_held(entry, index, places.get(node_id)) for index, node_id in enumerate(entry.nodes)),
        waits=waits,
    )


def _held(group: GroupEntry, index: int, place: _Place | None) -> RankSet | None:
    """Return the accelerators that a bundle of a group holds on its node, ``None`` if Ray does not tell all of them."""
    if not _size(group, index):
        return _NONE
    bundles = [] if place is None else place.bundles
    for bundle in bundles:
        if (bundle.group, bundle.index) == (group.group_id, index):
            return bundle.held if bundle.complete else None
    return None


def _actor(entry: ActorEntry, groups: Mapping[str, LiveGroup], ranks: Mapping[str, int]) -> LiveActor:
    indices, amount = _holds(entry)
    group = groups.get(entry.group_id or "")
    bundle = None
    if group is not None:
        bundle = next((index for index in entry.bundles if index < len(group.bundles)), None)
    reserved = True
    accelerators: RankSet | None = indices
    if group is not None and bundle is not None and _only_marks(amount, group.bundles[bundle]):
        reserved = False
        accelerators = group.held[bundle]
    elif not indices:
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
        bundle=bundle,
    )


def _doubled(actors: Iterable[LiveActor]) -> Iterator[Doubled]:
    """Yield the accelerators that actors of several jobs hold: Ray lends parts of one to both."""
    users: dict[tuple[int, int], list[LiveActor]] = defaultdict(list)
    for actor in actors:
        if actor.node is not None and actor.reserved:
            for index in actor.accelerators or ():
                users[actor.node, index].append(actor)
    for node, index in sorted(users):
        holders = users[node, index]
        if len({actor.job for actor in holders}) > 1:
            yield Doubled(node, index, tuple(actor.title for actor in holders))
