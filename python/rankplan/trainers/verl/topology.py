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
from typing import Any

from rankplan._core import Free, RankSet, Taken
from rankplan._core import Inventory as Core
from rankplan.dialects.placing.placer import Placer
from rankplan.errors import Diagnostic, KeyPath
from rankplan.frozen import frozen
from rankplan.nodes.facts import NO_FACTS
from rankplan.nodes.inventory import Inventory
from rankplan.plans.rules import NO_RULES, Places, Pool, Rules
from rankplan.read.text.reader import Reader
from rankplan.trainers.verl.sizes import ENGINE_SECTIONS, engine_at, training_at
from rankplan.words import counted, misspelt, must_be, nodes_text, unknown

_BLOCK: KeyPath = ("topology",)
_SHARED = 3
"""``max_colocate_count`` of verl's pools."""

_SIZE = ("nnodes", "n_gpus_per_node")
_KEYS = {
    "clusters": ("name", *_SIZE),
    "device_pools": ("name", "cluster", *_SIZE, "attributes"),
    "models": ("name", "worker", "config_key", "resource_pool"),
}
_SWITCHES = ("standby", "elastic", "fault_tolerant")
_BOUNDS = ("min_gpus", "max_gpus")
_ATTRIBUTES = (*_SWITCHES, *_BOUNDS, "protects")

_TRAINED = ("actor", "ref", "critic")


@frozen
class _Cluster:
    nodes: int
    each: int


@frozen
class _DevicePool:
    path: KeyPath
    cluster: str
    nodes: int
    each: int
    standby: bool
    protects: Sequence[str]
    bounds: tuple[int | None, int | None] = (None, None)


@frozen
class _Model:
    name: str
    worker: str
    pool: str
    path: KeyPath
    section: KeyPath


class Topology:
    """The clusters, pools and models of a ``topology`` section; its faults are recorded when it is read."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.clusters: dict[str, _Cluster] = {}
        self.pools: dict[str, _DevicePool] = {}
        self.models: list[_Model] = []
        for path, entry, name in self._named("clusters"):
            self.clusters[name] = _Cluster(*self._size(entry, path))
        for path, entry, name in self._named("device_pools"):
            self._read_pool(path, entry, name)
        for path, entry, name in self._named("models"):
            self._read_model(path, entry, name)
        self._check()

    @classmethod
    def read(cls, reader: Reader) -> Topology | None:
        """Return the topology that a config states, if any."""
        return cls(reader) if reader.section_at(_BLOCK) else None

    def _named(self, key: str) -> Iterator[tuple[KeyPath, Mapping[Any, Any], str]]:
        """Yield the entries of a list with their paths and names; unknown keys are carried through with a warning."""
        entries, path = self.reader.at((*_BLOCK, key)), (*_BLOCK, key)
        if not isinstance(entries, list) or not entries:
            code = "missing-key" if entries is None else "invalid-value"
            message = f"`{key}` is missing" if entries is None else f"`{key}` must be a list with at least one entry"
            self.reader.add(path, Diagnostic(code, message, f"write a list of {{{', '.join(_KEYS[key][:4])}}}"))
            return
        seen: set[str] = set()
        for index, entry in enumerate(entries):
            here = (*path, index)
            if not isinstance(entry, Mapping):
                self.reader.add(here, must_be(here, entry, "a mapping", f"write {{{', '.join(_KEYS[key][:4])}}}"))
                continue
            self._warn_unknown(entry, _KEYS[key], here)
            name = self._text(entry, "name", here)
            if name in seen:
                message = f"`{key}` has two entries named `{name}`"
                self.reader.add((*here, "name"), Diagnostic("duplicate-key", message, "choose another name"))
            elif name is not None:
                seen.add(name)
                yield here, entry, name

    def _warn_unknown(self, entry: Mapping[Any, Any], known: Sequence[str], path: KeyPath) -> None:
        for key in entry:
            if key not in known and not self.reader.reject_misspelt(str(key), known, (*path, str(key))):
                message = f"`{key}` is not a key of verl's draft: it is carried through, and places nothing"
                fault = Diagnostic("unknown-key", message, f"known: {', '.join(known)}")
                self.reader.warn((*path, str(key)), fault)

    def _text(self, entry: Mapping[Any, Any], key: str, path: KeyPath) -> str | None:
        """Return a text of an entry; a missing one is a fault."""
        value = self.reader.value(entry, key, path)
        if isinstance(value, str) and value:
            return value
        if value is None:
            self.reader.add(path, Diagnostic("missing-key", f"`{key}` is missing", f"add `{key}`"))
        else:
            self.reader.add((*path, key), must_be((key,), value, "a text", "write a name"))
        return None

    def _size(self, entry: Mapping[Any, Any], path: KeyPath) -> tuple[int, int]:
        nodes, each = (self._count(entry, key, path) for key in _SIZE)
        return nodes or 0, each or 0

    def _count(self, entry: Mapping[Any, Any], key: str, path: KeyPath) -> int | None:
        if self.reader.value(entry, key, path) is None:
            if not any(misspelt(str(other), (key,)) for other in entry):
                self.reader.add(path, Diagnostic("missing-key", f"`{key}` is missing", f"add `{key}: 1`"))
            return None
        return self.reader.number(entry[key], (*path, key), 1)

    def _read_pool(self, path: KeyPath, entry: Mapping[Any, Any], name: str) -> None:
        cluster, (nodes, each) = self._text(entry, "cluster", path), self._size(entry, path)
        attributes = self.reader.mapping(entry, "attributes", path)
        where = (*path, "attributes")
        self._warn_unknown(attributes, _ATTRIBUTES, where)
        switches = {key: self._switch(attributes, key, where) for key in _SWITCHES}
        bounds: tuple[int | None, int | None] = None, None
        if nodes * each and switches["elastic"] is not None:
            bounds = self._bounds(attributes, where, nodes * each, switches)
        protects, standby = self._protects(attributes, where), bool(switches["standby"])
        self.pools[name] = _DevicePool(path, cluster or "", nodes, each, standby, protects, bounds)
        if cluster is not None and cluster not in self.clusters:
            self.reader.add((*path, "cluster"), _unknown("cluster", cluster, self.clusters))
        elif cluster is not None and each > self.clusters[cluster].each > 0:
            message = f"pool `{name}` takes {each} accelerators of a node, but nodes of cluster `{cluster}` have "
            message += str(self.clusters[cluster].each)
            help = f"use {self.clusters[cluster].each}, and more nodes"
            self.reader.add((*path, "n_gpus_per_node"), Diagnostic("resource-out-of-range", message, help))

    def _protects(self, attributes: Mapping[Any, Any], path: KeyPath) -> list[str]:
        names = self.reader.value(attributes, "protects", path)
        if not isinstance(names, list | None):
            help = "write the names of pools in brackets"
            self.reader.add((*path, "protects"), must_be(("protects",), names, "a list", help))
            return []
        return [str(name) for name in names or ()]

    def _switch(self, attributes: Mapping[Any, Any], key: str, path: KeyPath) -> bool | None:
        value = self.reader.value(attributes, key, path)
        if isinstance(value, bool | None):
            return bool(value)
        self.reader.add((*path, key), must_be((key,), value, "true or false", "write true or false"))
        return None

    def _bounds(
        self, attributes: Mapping[Any, Any], path: KeyPath, total: int, switches: Mapping[str, bool | None]
    ) -> tuple[int | None, int | None]:
        """Return how few and how many accelerators an elastic pool may have."""
        given = {
            key: self.reader.number(attributes[key], (*path, key), 1)
            for key in _BOUNDS
            if self.reader.value(attributes, key, path) is not None
        }
        least, most = given.get("min_gpus") or 1, given.get("max_gpus") or total
        if given and switches["standby"]:
            key = next(iter(given))
            message = f"`{key}` has no effect: the pool is standby, and bounds are about its models"
            self.reader.add((*path, key), Diagnostic("invalid-value", message, f"remove {key}, or standby"))
        elif given and not switches["elastic"]:
            key = next(iter(given))
            message = f"`{key}` has no effect: the pool is not elastic"
            self.reader.add((*path, key), Diagnostic("invalid-value", message, f"add `elastic: true`, or remove {key}"))
        elif "max_gpus" in given and least > most:
            message = f"min_gpus {least} is more than max_gpus {most}"
            help = f"use at most {most}, or a larger max_gpus"
            self.reader.add((*path, "min_gpus"), Diagnostic("invalid-value", message, help))
        elif given and not least <= total <= most:
            key, bound = ("min_gpus", "less") if total < least else ("max_gpus", "more")
            message = f"the pool has {total} accelerators, {bound} than {key} {given[key]}"
            help = f"use {total}, or change nnodes or n_gpus_per_node"
            self.reader.add((*path, key), Diagnostic("invalid-value", message, help))
        return given.get("min_gpus"), given.get("max_gpus")

    def _read_model(self, path: KeyPath, entry: Mapping[Any, Any], name: str) -> None:
        worker, pool = self._text(entry, "worker", path), self._text(entry, "resource_pool", path)
        key = self._text(entry, "config_key", path)
        if worker is not None and worker not in (*_TRAINED, *ENGINE_SECTIONS):
            self.reader.add((*path, "worker"), _unknown("worker", worker, [*_TRAINED, *ENGINE_SECTIONS]))
        elif pool is not None and pool not in self.pools:
            self.reader.add((*path, "resource_pool"), _unknown("pool", pool, self.pools))
        elif pool is not None and self.pools[pool].standby:
            message = f"model `{name}` is on pool `{pool}`, which is standby: it is a reserve without models"
            free = [other for other, one in self.pools.items() if not one.standby]
            help = f"use {' or '.join(free) or 'another pool'}, or remove standby"
            self.reader.add((*path, "resource_pool"), Diagnostic("invalid-value", message, help))
        elif worker is not None and pool is not None and key is not None:
            self.models.append(_Model(name, worker, pool, path, tuple(key.split("."))))

    def _check(self) -> None:
        """Check what a standby pool protects, and that every pool has a use."""
        broken, used = bool(self.reader.faults), {model.pool for model in self.models}
        for name, pool in self.pools.items():
            where, protects = (*pool.path, "attributes"), pool.protects
            others = [one for one, other in self.pools.items() if one != name and not other.standby]
            for index, other in enumerate(protects):
                if other == name:
                    found = Diagnostic("invalid-value", f"pool `{name}` protects itself", _named(others))
                elif other not in self.pools:
                    found = _unknown("pool", other, others)
                elif self.pools[other].standby:
                    message = f"pool `{other}` is standby: it has no models to protect"
                    found = Diagnostic("invalid-value", message, _named(others))
                else:
                    continue
                self.reader.add((*where, "protects", index), found)
            if protects and not pool.standby:
                message = f"pool `{name}` protects others, but is no reserve"
                self.reader.add((*where, "protects"), Diagnostic("invalid-value", message, "add `standby: true`"))
            if not broken and name not in used and not pool.standby:
                message = f"no model is on pool `{name}`: its {pool.nodes * pool.each} accelerators stay idle"
                help = "remove the pool, or add `attributes: {standby: true}`"
                self.reader.warn((*pool.path, "name"), Diagnostic("idle-accelerators", message, help))

    def size(self) -> tuple[int, int]:
        """Return the nodes of all clusters, each with as many accelerators as a node of the largest cluster."""
        return sum(one.nodes for one in self.clusters.values()), max(one.each for one in self.clusters.values())

    def assumed(self) -> Inventory:
        """Return the nodes of all clusters."""
        nodes = [
            {"ranks": list(ranks), "accelerators": one.each}
            for one, ranks in zip(self.clusters.values(), self._ranks().values(), strict=True)
        ]
        return Inventory.from_dict({"nodes": nodes})

    def _ranks(self) -> dict[str, range]:
        """Return the node ranks of each cluster: those after the nodes of the clusters before it."""
        ends = list(accumulate((one.nodes for one in self.clusters.values()), initial=0))
        return {name: range(*span) for name, span in zip(self.clusters, pairwise(ends), strict=True)}

    def place(self, placer: Placer) -> None:
        """Place every model on its pool."""
        reader, core = placer.reader, placer.inventory.core
        free: dict[str, Free] = {}
        for index, (name, ranks) in enumerate(self._ranks().items()):
            each = self.clusters[name].each
            smaller = RankSet().union(*(nodes for size, nodes in core.nodes_by_size().items() if size < each))
            small = next(iter(smaller & RankSet(ranks)), None)
            if ranks.stop > core.num_nodes or small is not None:
                has = f"{core.num_nodes} nodes exist"
                if small is not None:
                    has = f"node {small} has {core.num_accelerators(small)}"
                message = f"cluster `{name}` needs nodes {ranks.start}-{ranks.stop - 1} with {each} accelerators, but "
                help = "use a larger cluster, or fewer nodes or accelerators per node"
                path = (*_BLOCK, "clusters", index, "nnodes" if small is None else "n_gpus_per_node")
                reader.add(path, Diagnostic("resource-out-of-range", message + has, help))
            free[name] = Free.first_of(core, ranks.start, ranks.stop, each)
        if reader.faults:
            return
        places = {name: self._take(reader, name, pool, free[pool.cluster]) for name, pool in self.pools.items()}
        if not reader.faults:
            placer.rules = self._rules(reader, core, places)
            if placer.rules:
                placer.inventory = placer.inventory.with_facts(NO_FACTS, planned=True)
        for model in self.models:
            if places[model.pool]:
                self._place_model(placer, model, places[model.pool])

    def _rules(self, reader: Reader, core: Core, places: Mapping[str, Taken]) -> Rules:
        """Return the reserves and bounds of the pools, if they state any.

        The node of a reserve is whole: one that other pools use, too, is reserved for none of them.
        """
        used_nodes = {name: taken.used_nodes(core) for name, taken in places.items()}
        known, shared_nodes = RankSet(), RankSet()
        for nodes in used_nodes.values():
            shared_nodes |= known & nodes
            known |= nodes
        used = {model.pool for model in self.models}
        entries: list[Pool] = []

        def place(name: str) -> tuple[int, int]:
            """Return where a pool starts; of those on one node, the last one taken comes first."""
            node, index = core.place(places[name].first)
            return node, -index

        for name in sorted(self.pools, key=place):
            pool = self.pools[name]
            protects = tuple(dict.fromkeys(other for other in pool.protects if other in used))
            least, most = pool.bounds
            where: Places = {(): reader.where(pool.path)}
            if name in used:
                components = tuple(model.name for model in self.models if model.pool == name)
                entries.append(Pool(name, components, least, most, places=where))
            elif protects:
                whole = used_nodes[name] - shared_nodes
                entries += [Pool(name, node_ranks=whole, protects=protects, places=where)] if whole else []
                if shared := used_nodes[name] & shared_nodes:
                    message = f"pool `{name}` reserves a part of {nodes_text(shared)}: replan takes only whole nodes"
                    found = Diagnostic("idle-accelerators", message, "give the pool nodes of its own")
                    reader.warn((*pool.path, "attributes", "protects"), found)
        return Rules(pools=tuple(entries)) if any(pool.decides for pool in entries) else NO_RULES

    def _take(self, reader: Reader, name: str, pool: _DevicePool, free: Free) -> Taken:
        """Take the nodes of a pool: the first ones of its cluster with enough free accelerators."""
        room = min(free.bundles(pool.each), pool.nodes)
        taken = free.in_bundles(room * pool.each, [pool.each])
        if room == pool.nodes and isinstance(taken, Taken):
            return taken
        message = f"pool `{name}` needs {counted(pool.nodes, 'node')} with {pool.each} free accelerators each; "
        message += f"cluster `{pool.cluster}` has room for {room}; {counted(free.left, 'accelerator')} left"
        help = "use fewer nodes or accelerators per node, or more nodes in the cluster"
        reader.add((*pool.path, "nnodes"), Diagnostic("resource-out-of-range", message, help))
        return Taken()

    def _place_model(self, placer: Placer, model: _Model, taken: Taken) -> None:
        """Place a model on its pool; those that train share its accelerators (verl: one Ray actor)."""
        if model.worker in _TRAINED:
            trained = sum(one.worker in _TRAINED for one in self.models if one.pool == model.pool)
            role = model.section if model.section[-1] == model.worker else (*model.section, model.worker)
            sizes, where = training_at(placer.reader, role, len(taken), None)
            placer.component(model.name, taken, where, sizes=sizes, share=placer.share(_SHARED * trained))
            return
        engine = engine_at(placer.reader, (*model.section, ENGINE_SECTIONS[model.worker]))
        share = None if model.worker == "rollout" else placer.share(_SHARED)
        placer.engines(model.name, taken, self.pools[model.pool].each, engine, share)


def _named(pools: Sequence[str]) -> str:
    return f"name pools with models: {', '.join(pools)}" if pools else "add a pool with models"


def _unknown(kind: str, name: str, known: Iterable[str]) -> Diagnostic:
    return unknown(kind, name, known, f"the {kind}s are", code="invalid-value")
