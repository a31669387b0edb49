"""What is stated about the components of a plan: where their nodes must, or should, be, and pools of them."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import field, replace
from typing import Any, TypeAlias

from rankplan._core import RankSet
from rankplan.errors import Diagnostic, KeyPath, Where
from rankplan.frozen import frozen
from rankplan.nodes.facts import NODE_LEVEL, ClusterFacts
from rankplan.nodes.inventory import Inventory
from rankplan.words import path_text

GROUP_KINDS = ("tp", "cp", "dp", "fsdp", "replica", "pp", "etp", "ep", "edp")
"""The kinds of parallel groups."""

WORLD = "world"
KEPT_KINDS = (*GROUP_KINDS, WORLD)
"""What ``keep`` and ``prefer`` accept: a kind of groups, or all nodes of a component."""

ALL = "all"
"""Takes the place of a component in ``segment`` and ``balance``: all nodes of the plan."""

TOPOLOGY_RULES = ("keep", "segment", "prefer", "balance", "cap")
"""The keys of ``topology`` that are rules about components; its other keys are facts of nodes."""

TOGETHER = "+"
"""Joins the components whose nodes ``world`` means together."""

Segments: TypeAlias = int | Mapping[str, int | Mapping[str, int]]
"""The number of nodes that must be in one domain together: of the innermost level, or by level; by component."""

Keep: TypeAlias = Mapping[str, Mapping[str, str | Mapping[str, int]]]
"""Levels, or most numbers of domains by level, by component and kind of group."""

Prefer: TypeAlias = Mapping[str, Mapping[str, str]]
"""Levels by component and kind of group."""

Balance: TypeAlias = str | Mapping[str, str]
"""A level, or levels by component."""

Cap: TypeAlias = Mapping[str, int]
"""The most nodes in use of a domain, by level."""

Places: TypeAlias = Mapping[KeyPath, Where]
"""Where the parts of a value are stated; one that is not listed is where the part around it is."""


def component_names(key: str) -> list[str]:
    """Return the component names in a key: ``actor, rollout``."""
    return [name.strip() for name in key.split(",")]


@frozen
class Pool:
    """A pool with components and bounds on their accelerators, or a reserve: nodes without processes.

    A reserve is for the components of the pools that it ``protects``.
    """

    name: str
    components: tuple[str, ...] = ()
    min_accelerators: int | None = None
    max_accelerators: int | None = None
    node_ranks: RankSet = field(default_factory=RankSet)
    protects: tuple[str, ...] = ()
    places: Places = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Pool:
        """Return the pool of an entry of ``pools`` that the core has read."""
        lists = {key: tuple(values.get(key, ())) for key in ("components", "protects")}
        return cls(**{**values, **lists})

    @property
    def decides(self) -> bool:
        """Whether it has bounds or nodes; another one is only a name for components."""
        return bool(self.min_accelerators or self.max_accelerators or self.node_ranks)

    def plain(self) -> dict[str, Any]:
        """Return the keys that it states, and their values."""
        stated = {
            "name": self.name,
            "components": list(self.components),
            "min_accelerators": self.min_accelerators,
            "max_accelerators": self.max_accelerators,
            "node_ranks": str(self.node_ranks),
            "protects": list(self.protects),
        }
        return {key: value for key, value in stated.items() if value not in (None, "", [])}

    def __reduce__(self) -> tuple[Any, ...]:
        bounds = self.min_accelerators, self.max_accelerators
        return Pool, (self.name, self.components, *bounds, self.node_ranks, self.protects)


@frozen
class Rules:
    """What is stated about the components of a plan; see `rankplan.arrange` for all but the ``pools``.

    ``places`` has where each rule is stated: by ``("keep", "actor", "tp")``, for example.
    """

    keep: Keep = field(default_factory=dict)
    segment: Segments | None = None
    prefer: Prefer = field(default_factory=dict)
    balance: Balance = field(default_factory=dict)
    cap: Cap = field(default_factory=dict)
    pools: tuple[Pool, ...] = ()
    places: Places = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Rules:
        """Return the rules of a ``cluster`` section that the core has read, without their places."""
        topology = values.get("topology", {})
        stated = {key: topology[key] for key in TOPOLOGY_RULES if key in topology}
        return cls(**stated, pools=tuple(map(Pool.of, values.get("pools", ()))))

    @property
    def about_nodes(self) -> bool:
        """Whether anything is stated about the places of nodes in the network."""
        return any(value not in (None, {}) for value in self.topology().values())

    def topology(self) -> dict[str, Any]:
        """Return the rules about nodes and the network by their keys, also those that state nothing."""
        return {
            "keep": _plain(self.keep),
            "segment": _plain(self.segment),
            "prefer": _plain(self.prefer),
            "balance": _plain(self.balance),
            "cap": _plain(self.cap),
        }

    @property
    def plain_segments(self) -> list[str]:
        """The components with segments that are stated without a level: they are those of the innermost one."""
        if isinstance(self.segment, int):
            return ["all components"]
        return [name for name, size in (self.segment or {}).items() if isinstance(size, int)]

    def named_levels(self) -> set[str]:
        """Return the levels that the rules name, without ``node``."""
        named: set[str] = set()
        for kinds in self.keep.values():
            for level in kinds.values():
                named.update([level] if isinstance(level, str) else level)
        for preferred in self.prefer.values():
            named.update(preferred.values())
        for size in self.segment.values() if isinstance(self.segment, Mapping) else ():
            named.update(() if isinstance(size, int) else size)
        named.update([self.balance] if isinstance(self.balance, str) else self.balance.values())
        return named.union(self.cap) - {NODE_LEVEL}

    def where(self, *path: str | int) -> Where:
        """Return where a part of the rules is stated; without a known place, its path in a ``cluster`` section."""
        places, inner = self.places, path
        outer: KeyPath = ("cluster", "topology")
        if path[0] == "pools":
            places, inner, outer = self.pools[int(path[1])].places, path[2:], ("cluster",)
        for length in range(len(inner), -1, -1):
            if (found := places.get(inner[:length])) is not None:
                return found
        return Where(path_text((*outer, *path)))

    def located(self, path: KeyPath, fault: Diagnostic) -> Diagnostic:
        """Return the fault, with the place of its rule if a file states that rule."""
        place = self.where(*path)
        return fault if place.file is None else place.locate(fault)

    def stated_at(self, place: Callable[[KeyPath], Where]) -> Rules:
        """Return the same rules, each part at the place of its path in a ``cluster`` section."""
        places = {path: place(("topology", *path)) for path in _paths(self.topology()) if path}
        pools = []
        for index, pool in enumerate(self.pools):
            parts = {path: place(("pools", index, *path)) for path in _paths(pool.plain())}
            pools.append(replace(pool, places=parts))
        return replace(self, places=places, pools=tuple(pools))

    def renumbered(self, ranks: Mapping[int, int]) -> Rules:
        """Return the rules with reserves of the same nodes with other ranks, by their ranks before."""
        pools = []
        for pool in self.pools:
            nodes = RankSet(ranks[node] for node in pool.node_ranks if node in ranks)
            pools.append(replace(pool, node_ranks=nodes) if pool.node_ranks else pool)
        return replace(self, pools=tuple(pools))

    def with_pools_on(self, nodes: RankSet) -> Rules:
        """Return the rules with reserves of these nodes only; a reserve that loses all of its nodes is left out."""
        pools = []
        for pool in self.pools:
            left = replace(pool, node_ranks=pool.node_ranks & nodes) if pool.node_ranks else pool
            pools += [left] if left.node_ranks or left.components else []
        return replace(self, pools=tuple(pools))

    def with_pools_of(self, names: Container[str]) -> Rules:
        """Return the rules with pools of these components only, and without reserves for none of them."""
        components = {pool.name: tuple(name for name in pool.components if name in names) for pool in self.pools}
        pools = []
        for pool in self.pools:
            protects = tuple(other for other in pool.protects if components.get(other))
            if components[pool.name] or protects:
                pools.append(replace(pool, components=components[pool.name], protects=protects))
        return replace(self, pools=tuple(pools))

    def __bool__(self) -> bool:
        return self.about_nodes or bool(self.pools)

    def __reduce__(self) -> tuple[Any, ...]:
        return Rules, (self.keep, self.segment, self.prefer, self.balance, self.cap, self.pools)


NO_RULES = Rules()


def with_named_levels(facts: ClusterFacts, rules: Rules, inventory: Inventory) -> ClusterFacts:
    """Return facts that state the levels of an inventory if rules depend on them.

    These levels count when a plan is made: its nodes, and later ones, may lack their labels.
    """
    if facts.levels is not None or not inventory.levels:
        return facts
    named = rules.named_levels()
    if (named or rules.plain_segments) and named.issubset(inventory.levels):
        return replace(facts, levels=inventory.levels)
    return facts


def _plain(value: Any) -> Any:
    """Return nested mappings as dicts."""
    return {key: _plain(inner) for key, inner in value.items()} if isinstance(value, Mapping) else value


def _paths(value: Any, path: KeyPath = ()) -> Iterator[KeyPath]:
    """Yield the path of a value, and those of all values in it."""
    yield path
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _paths(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _paths(inner, (*path, index))
