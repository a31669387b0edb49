"""verl's draft of a placement block: clusters, pools of their accelerators, and models on the pools.

    topology:
      clusters: [{name: all, nnodes: 3, n_gpus_per_node: 8}]
      device_pools:
        - {name: train, cluster: all, nnodes: 2, n_gpus_per_node: 8}
        - {name: spare, cluster: all, nnodes: 1, n_gpus_per_node: 8, attributes: {standby: true}}
      models:
        - {name: actor, worker: actor, config_key: actor_rollout_ref, resource_pool: train}
        - {name: rollout, worker: rollout, config_key: actor_rollout_ref, resource_pool: train}

A cluster is the next ``nnodes`` nodes of the inventory. A pool takes the first nodes of its cluster with enough free
accelerators. Each model is a component, in their order. The workers ``actor``, ``critic`` and ``ref`` have one process
per accelerator; ``rollout``, ``reward`` and ``teacher`` have engines of the sizes in the section ``config_key``. A pool
with ``standby`` stays free: its nodes are spares; with ``protects``, only for the models of these pools. ``rankplan
replan --grow`` and ``--shrink`` keep elastic pools within their bounds. The plan has both as ``pools`` of its cluster
section.

Follows RFC #7269 of verl as of 2026-08-05, a draft, which may change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

from rankplan import Diagnostic, Inventory, RankSet
from rankplan.sdk import Config, Job, Key, NodeOrder, Placer, Taken, Where
from rankplan.sdk.placing import Free, Pool
from rankplan.sdk.words import misspelt
from rankplan.trainers.verl import faults, keys
from rankplan.trainers.verl.engines import SECTIONS, Engines, read_engines
from rankplan.trainers.verl.pools import USERS
from rankplan.trainers.verl.training import TRAINED, Training, read_training

_WORKERS = (*TRAINED, *SECTIONS)

_ENTRIES: dict[Key[Any], tuple[Key[Any], ...]] = {
    keys.CLUSTERS: (keys.ENTRY_NAME, *keys.ENTRY_POOL),
    keys.DEVICE_POOLS: (keys.ENTRY_NAME, keys.POOL_CLUSTER, *keys.ENTRY_POOL, keys.POOL_ATTRIBUTES),
    keys.MODELS: (keys.ENTRY_NAME, keys.WORKER, keys.CONFIG_KEY, keys.RESOURCE_POOL),
}
"""The keys of an entry of each list."""
_ATTRIBUTES = (
    keys.STANDBY,
    keys.ELASTIC,
    keys.FAULT_TOLERANT,
    keys.LEAST_GPUS,
    keys.MOST_GPUS,
    keys.PROTECTS,
)


class _Cluster(NamedTuple):
    """A cluster: its nodes, and the accelerators of each, with their places."""

    nodes: int
    gpus_per_node: int
    nodes_at: Where
    gpus_at: Where


class _DevicePool(NamedTuple):
    """A pool of a cluster: with ``is_standby``, a reserve for the models of the pools that it protects.

    An elastic one has at least and at most so many accelerators. ``entry`` and ``attributes`` are its sections.
    """

    cluster: str
    nodes: int
    gpus_per_node: int
    is_standby: bool
    protects: Sequence[str]
    least_gpus: int | None
    most_gpus: int | None
    entry: Config
    attributes: Config

    @property
    def gpus(self) -> int:
        """All its accelerators."""
        return self.nodes * self.gpus_per_node


class _Model(NamedTuple):
    """A model on a pool: engines, or processes that train or compute, one per accelerator."""

    name: str
    worker: str
    pool: str
    runs: Engines | Training


class TopologyJob(Job):
    """The clusters, pools and models of a ``topology`` section.

    It states no memory: the draft does not say which keys a model has.
    """

    states_memory = False

    def __init__(self, config: Config) -> None:
        clusters = dict(_named_entries(config, keys.CLUSTERS))
        self.clusters = {name: _read_cluster(entry) for name, entry in clusters.items()}
        pools = dict(_named_entries(config, keys.DEVICE_POOLS))
        self.pools = {name: self._read_pool(entry, name) for name, entry in pools.items()}
        self.models: list[_Model] = []
        for name, entry in _named_entries(config, keys.MODELS):
            self._read_model(config, entry, name)
        self._check_pools(config)

    def _read_pool(self, entry: Config, name: str) -> _DevicePool:
        """Return a pool."""
        cluster = _read_name(entry, keys.POOL_CLUSTER)
        nodes, gpus = _read_size(entry)
        if cluster is not None:
            self._check_cluster_of_pool(entry, name, cluster, gpus)
        attributes = entry.inner(keys.POOL_ATTRIBUTES.name)
        _check_names(attributes, _ATTRIBUTES)
        is_standby = attributes[keys.STANDBY]
        is_elastic = attributes[keys.ELASTIC]
        attributes.get(keys.FAULT_TOLERANT)  # which may be a fault
        least, most = None, None
        if nodes * gpus and isinstance(attributes.raw(keys.ELASTIC), bool | None):
            least, most = _read_bounds(attributes, nodes * gpus, is_standby=is_standby, is_elastic=is_elastic)
        protects = _read_protects(attributes)
        return _DevicePool(cluster or "", nodes, gpus, is_standby, protects, least, most, entry, attributes)

    def _check_cluster_of_pool(self, entry: Config, name: str, cluster: str, gpus: int) -> None:
        """Record the fault of a pool whose cluster is unknown, or has smaller nodes."""
        if cluster not in self.clusters:
            fault = faults.unknown_name("cluster", cluster, self.clusters)
            entry.faults.add(entry.where(keys.POOL_CLUSTER), fault)
        elif gpus > self.clusters[cluster].gpus_per_node > 0:
            fault = faults.pool_wider_than_nodes(name, gpus, cluster, self.clusters[cluster].gpus_per_node)
            entry.faults.add(entry.where(keys.ENTRY_POOL.gpus), fault)

    def _read_model(self, config: Config, entry: Config, name: str) -> None:
        """Read a model, and record the fault of a worker or a pool that it cannot have."""
        worker = _read_name(entry, keys.WORKER)
        pool = _read_name(entry, keys.RESOURCE_POOL)
        section = _read_name(entry, keys.CONFIG_KEY)
        if worker is not None and worker not in _WORKERS:
            fault = faults.unknown_name("worker", worker, _WORKERS)
            entry.faults.add(entry.where(keys.WORKER), fault)
        elif pool is not None and pool not in self.pools:
            fault = faults.unknown_name("pool", pool, self.pools)
            entry.faults.add(entry.where(keys.RESOURCE_POOL), fault)
        elif pool is not None and self.pools[pool].is_standby:
            fault = faults.model_on_reserve(name, pool, self._pools_of_models())
            entry.faults.add(entry.where(keys.RESOURCE_POOL), fault)
        elif worker is not None and pool is not None and section is not None:
            runs = _read_worker(config, worker, section, self.pools[pool].gpus)
            self.models.append(_Model(name, worker, pool, runs))

    def _pools_of_models(self, besides: str = "") -> list[str]:
        """Return the pools that may have models, without one of them."""
        return [name for name, pool in self.pools.items() if name != besides and not pool.is_standby]

    def _check_pools(self, config: Config) -> None:
        """Check what a standby pool protects, and that every pool has a use."""
        has_faults = bool(config.faults)
        used = {model.pool for model in self.models}
        for name, pool in self.pools.items():
            for index, other in enumerate(pool.protects):
                fault = self._protection_fault(name, other)
                if fault is not None:
                    where = pool.attributes.inner(keys.PROTECTS.name).value_place(index)
                    config.faults.add(where, fault)
            if pool.protects and not pool.is_standby:
                config.faults.add(pool.attributes.where(keys.PROTECTS), faults.no_reserve(name))
            if not has_faults and name not in used and not pool.is_standby:
                config.faults.warn(pool.entry.where(keys.ENTRY_NAME), faults.unused_pool(name, pool.gpus))

    def _protection_fault(self, name: str, protected: str) -> Diagnostic | None:
        """Return the fault of a pool that protects another one, ``None`` if it may."""
        others = self._pools_of_models(besides=name)
        if protected == name:
            return faults.own_reserve(name, others)
        if protected not in self.pools:
            return faults.unknown_name("pool", protected, others)
        if self.pools[protected].is_standby:
            return faults.reserve_of_reserve(protected, others)
        return None

    def node_order(self) -> NodeOrder:
        """Return addresses as text (``sort_placement_group_by_node_ip``)."""
        return "text"

    def size(self) -> tuple[int, int]:
        """Return the nodes of all clusters, each with as many accelerators as a node of the largest cluster."""
        clusters = self.clusters.values()
        return sum(cluster.nodes for cluster in clusters), max(cluster.gpus_per_node for cluster in clusters)

    def assumed(self) -> Inventory:
        """Return the nodes of all clusters."""
        nodes = []
        for name, ranks in self._node_ranks().items():
            nodes.append({"ranks": list(ranks), "accelerators": self.clusters[name].gpus_per_node})
        return Inventory.from_dict({"nodes": nodes})

    def _node_ranks(self) -> dict[str, range]:
        """Return the node ranks of each cluster: those after the nodes of the clusters before it."""
        ends = accumulate((cluster.nodes for cluster in self.clusters.values()), initial=0)
        spans = zip(self.clusters, pairwise(ends), strict=True)
        return {name: range(start, stop) for name, (start, stop) in spans}

    def place(self, placer: Placer) -> None:
        """Place every model on its pool."""
        core = placer.inventory.core
        free: dict[str, Free] = {}
        for name, ranks in self._node_ranks().items():
            self._check_cluster(placer, name, ranks)
            free[name] = Free.first_of(core, ranks.start, ranks.stop, self.clusters[name].gpus_per_node)
        if placer.faults:
            return
        taken = {name: _take(placer, name, pool, free[pool.cluster]) for name, pool in self.pools.items()}
        if not placer.faults:
            rules = self._rules(placer, taken)
            if any(rule.decides for rule in rules):
                placer.require(pools=rules)
        for model in self.models:
            if taken[model.pool]:
                self._place_model(placer, model, taken[model.pool])

    def _check_cluster(self, placer: Placer, name: str, ranks: range) -> None:
        """Record the fault of a cluster whose nodes do not exist, or have too few accelerators."""
        core = placer.inventory.core
        cluster = self.clusters[name]
        gpus = cluster.gpus_per_node
        smaller = RankSet().union(*(nodes for size, nodes in core.nodes_by_size().items() if size < gpus))
        first_small = next(iter(smaller & RankSet(ranks)), None)
        if first_small is not None:
            present = core.num_accelerators(first_small)
            fault = faults.small_node_of_cluster(name, ranks, gpus, first_small, present)
            placer.reject(cluster.gpus_at, fault)
        elif ranks.stop > core.num_nodes:
            fault = faults.missing_nodes_of_cluster(name, ranks, gpus, core.num_nodes)
            placer.reject(cluster.nodes_at, fault)

    def _rules(self, placer: Placer, taken: Mapping[str, Taken]) -> tuple[Pool, ...]:
        """Return the pools of models, with their bounds, and the reserves.

        The node of a reserve is whole: one that other pools use, too, is reserved for none of them.
        """
        core = placer.inventory.core
        nodes = {name: of_pool.used_nodes(core) for name, of_pool in taken.items()}
        shared_nodes = _shared_nodes(nodes.values())
        used = {model.pool for model in self.models}

        def start(name: str) -> tuple[int, int]:
            """Return where a pool starts; of those on one node, the last one taken comes first."""
            node, index = core.place(taken[name].first)
            return node, -index

        rules: list[Pool] = []
        for name in sorted(self.pools, key=start):
            pool = self.pools[name]
            protects = tuple(dict.fromkeys(other for other in pool.protects if other in used))
            if name in used:
                models = tuple(model.name for model in self.models if model.pool == name)
                rules.append(Pool(name, models, pool.least_gpus, pool.most_gpus, places={(): pool.entry.place}))
            elif protects:
                whole = nodes[name] - shared_nodes
                if whole:
                    rules.append(Pool(name, node_ranks=whole, protects=protects, places={(): pool.entry.place}))
                shared = nodes[name] & shared_nodes
                if shared:
                    placer.faults.warn(pool.attributes.where(keys.PROTECTS), faults.shared_reserve(name, shared))
        return tuple(rules)

    def _place_model(self, placer: Placer, model: _Model, taken: Taken) -> None:
        """Place a model on its pool; those that train share its accelerators (verl: one Ray actor)."""
        if isinstance(model.runs, Engines):
            share = None if model.worker == "rollout" else placer.share(USERS)
            model.runs.place(placer, model.name, taken, self.pools[model.pool].gpus_per_node, share)
            return
        trained = sum(other.worker in TRAINED for other in self.models if other.pool == model.pool)
        sizes = model.runs.sizes
        placer.component(model.name, taken, sizes.where, sizes=sizes, share=placer.share(USERS * trained))


def _named_entries(config: Config, key: Key[Any]) -> Iterator[tuple[str, Config]]:
    """Yield the names of the entries of a list, with their sections; unknown keys are warnings."""
    names = [of_entry.name for of_entry in _ENTRIES[key]]
    entries = config.raw(key)
    if not isinstance(entries, list) or not entries:
        fault = faults.missing_list(key.name, names) if entries is None else faults.no_list(key.name, names)
        config.faults.add(config.where(key), fault)
        return
    seen: set[str] = set()
    for index, entry in enumerate(entries):
        path = (*config.path(key), index)
        if not isinstance(entry, Mapping):
            config.faults.add(config.under(path).place, faults.no_entry(path, entry, names))
            continue
        section = config.inside(path, entry)
        _check_names(section, _ENTRIES[key])
        name = _read_name(section, keys.ENTRY_NAME)
        if name in seen:
            config.faults.add(section.where(keys.ENTRY_NAME), faults.double_name(key.name, str(name)))
        elif name is not None:
            seen.add(name)
            yield name, section


def _check_names(section: Config, known: Sequence[Key[Any]]) -> None:
    """Warn of the keys of a section that the draft does not have; one that looks like a typo is a fault."""
    names = [key.name for key in known]
    for name in section.section:
        if name in names:
            continue
        if misspelt(str(name), names) is None:
            section.faults.warn(section.named(str(name)), faults.extra_key(name, names))
        else:
            section.reject_misspelt(str(name), names)


def _read_name(entry: Config, key: Key[Any]) -> str | None:
    """Return the name at a key of an entry; a missing one is a fault."""
    value = entry.raw(key)
    if isinstance(value, str) and value:
        return value
    if value is None:
        entry.faults.add(entry.place, faults.missing_key(key.name))
    else:
        entry.faults.add(entry.where(key), faults.no_name(key.name, value))
    return None


def _read_size(entry: Config) -> tuple[int, int]:
    """Return the nodes and the accelerators of each that an entry states; a missing number is a fault, and 0."""
    sizes = []
    for key in keys.ENTRY_POOL:
        is_misspelt = any(misspelt(str(name), (key.name,)) for name in entry.section)
        if not entry.stated(key) and not is_misspelt:
            entry.faults.add(entry.place, faults.missing_key(key.name, ": 1"))
        sizes.append(entry[key] or 0)
    nodes, gpus = sizes
    return nodes, gpus


def _read_cluster(entry: Config) -> _Cluster:
    nodes, gpus = _read_size(entry)
    return _Cluster(nodes, gpus, entry.where(keys.ENTRY_POOL.nodes), entry.where(keys.ENTRY_POOL.gpus))


def _read_protects(attributes: Config) -> list[str]:
    """Return the names of the pools that a pool protects."""
    names = attributes.raw(keys.PROTECTS)
    if not isinstance(names, list | None):
        attributes.faults.add(attributes.where(keys.PROTECTS), faults.no_names(keys.PROTECTS.name, names))
        return []
    return [str(name) for name in names or ()]


def _read_bounds(attributes: Config, gpus: int, *, is_standby: bool, is_elastic: bool) -> tuple[int | None, int | None]:
    """Return how few and how many accelerators an elastic pool may have, and record bounds without effect or sense."""
    stated = [key for key in (keys.LEAST_GPUS, keys.MOST_GPUS) if attributes.stated(key)]
    least, most = attributes[keys.LEAST_GPUS], attributes[keys.MOST_GPUS]
    if not stated:
        return None, None
    name = stated[0].name
    if is_standby:
        attributes.faults.add(attributes.where(*stated), faults.bounds_of_reserve(name))
    elif not is_elastic:
        attributes.faults.add(attributes.where(*stated), faults.bounds_of_rigid_pool(name))
    elif least is not None and most is not None and least > most:
        attributes.faults.add(attributes.where(keys.LEAST_GPUS), faults.crossed_bounds(least, most))
    elif least is not None and gpus < least:
        fault = faults.pool_out_of_bounds(gpus, keys.LEAST_GPUS.name, least)
        attributes.faults.add(attributes.where(keys.LEAST_GPUS), fault)
    elif most is not None and gpus > most:
        fault = faults.pool_out_of_bounds(gpus, keys.MOST_GPUS.name, most)
        attributes.faults.add(attributes.where(keys.MOST_GPUS), fault)
    return least, most


def _read_worker(config: Config, worker: str, section: str, gpus: int) -> Engines | Training:
    """Return what a worker runs, as the section of its model says, on so many accelerators."""
    if worker in SECTIONS:
        return read_engines(config.under(f"{section}.{SECTIONS[worker]}"))
    role = section if section.rpartition(".")[2] == worker else f"{section}.{worker}"
    return read_training(config, role, gpus)


def _take(placer: Placer, name: str, pool: _DevicePool, free: Free) -> Taken:
    """Take the nodes of a pool: the first ones of its cluster with enough free accelerators."""
    room = min(free.bundles(pool.gpus_per_node), pool.nodes)
    taken = free.in_bundles(room * pool.gpus_per_node, [pool.gpus_per_node])
    if room == pool.nodes and isinstance(taken, Taken):
        return taken
    fault = faults.small_cluster(name, pool.nodes, pool.gpus_per_node, pool.cluster, room, free.left)
    placer.reject(pool.entry.where(keys.ENTRY_POOL.nodes), fault)
    return Taken()


def _shared_nodes(nodes_of_pools: Iterable[RankSet]) -> RankSet:
    """Return the nodes that several pools use."""
    used, shared = RankSet(), RankSet()
    for nodes in nodes_of_pools:
        shared |= used & nodes
        used |= nodes
    return shared
