"""The keys that RLinf's ``cluster`` section and a job file share: what they state of the nodes, and the rules.

The core reads them, as it reads those of a plan. `read_shared` reads them in any mapping; the other keys of the mapping
are its reader's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from typing import Any

from rankplan._core import read_cluster
from rankplan.errors import Diagnostic, KeyPath
from rankplan.frozen import frozen
from rankplan.nodes.facts import NO_FACTS, ClusterFacts
from rankplan.nodes.groups import NodeGroup
from rankplan.plans.rules import NO_RULES, Pool, Rules
from rankplan.read.simple import RESERVED_LABELS
from rankplan.read.text.reader import Reader

TOPOLOGY, NODE_GROUPS, POOLS = "topology", "node_groups", "pools"
SHARED_KEYS = (NODE_GROUPS, TOPOLOGY, "exclude", POOLS, "accelerator_memory", "host_memory")
"""The keys, each with the meaning that it has in RLinf's ``cluster`` section."""

_NEEDED = {"label", "node_ranks", "type", "configs", "node_rank"}
"""The keys in a node group, and in its hardware, without which it is none."""

_Faults = list[tuple[KeyPath, Diagnostic]]


@frozen
class Shared:
    """What the shared keys of a mapping state: the valid part of it.

    ``lost_groups`` are the labels of node groups that could not be read. ``groups_known`` is false if nothing can be
    said about them: the list itself is invalid.
    """

    facts: ClusterFacts = NO_FACTS
    rules: Rules = NO_RULES
    lost_groups: frozenset[str] = frozenset()
    groups_known: bool = True


def read_shared(
    reader: Reader, values: Mapping[str, Any], num_nodes: int | None = None, components: Sequence[str] = ()
) -> Shared:
    """Read the shared keys among the `stated_values` of a reader's content, and record their faults there.

    ``num_nodes`` is the number of nodes, and ``components`` are the names of the job's components, of which pools have
    some; either may be unknown: ``None``, and no names. Rules have the places where they are stated.
    """
    shared = {key: values[key] for key in SHARED_KEYS if values.get(key) is not None}
    return _SharedReader(reader, shared, num_nodes).read(components) if shared else Shared()


class _SharedReader:
    """Reads the values of shared keys.

    If all are valid, the core reads them at once. Otherwise it says what is wrong with each of them; then those without
    faults are read again, a topology without its faulty values, and each group and pool by itself.
    """

    def __init__(self, reader: Reader, values: Mapping[str, Any], num_nodes: int | None) -> None:
        self._reader, self._values, self._num_nodes = reader, values, num_nodes
        self._lost_groups: set[str] = set()
        self._lost_pools: set[str] = set()

    def read(self, components: Sequence[str]) -> Shared:
        """Return what they state, and record every fault."""
        stated, faults = self._core(self._values)
        groups = self._numbered(stated, NODE_GROUPS)
        pools = self._numbered(stated, POOLS)
        for path, fault in faults:
            self._reader.add(path, fault)
        if stated is None:
            stated = self._valid_keys(faults)
            groups = dict(self._valid_groups(faults))
            pools = dict(self._valid_pools(faults))
        rules = Rules.of({**stated, POOLS: ()})
        stated_pools = self._checked_pools(pools, components)
        if stated_pools:
            rules = replace(rules, pools=stated_pools)
        node_groups = self._checked_groups(groups)
        facts = replace(ClusterFacts.of({**stated, NODE_GROUPS: ()}), node_groups=tuple(node_groups.values()))
        if rules:
            rules = rules.stated_at(lambda path: self._reader.where(self._reader.in_config(path)))
        groups_known = isinstance(self._values.get(NODE_GROUPS, []), list)
        return Shared(facts, rules or NO_RULES, frozenset(self._lost_groups), groups_known)

    def _core(self, values: Mapping[str, Any]) -> tuple[dict[str, Any] | None, _Faults]:
        """Return what the core reads in these values, or every fault."""
        return read_cluster({**values, "num_nodes": self._num_nodes or 1})

    def _numbered(self, stated: Mapping[str, Any] | None, key: str) -> dict[int, Any]:
        """Return the entries of a list by their numbers; none of one with faults."""
        return {} if stated is None else dict(enumerate(stated.get(key, ())))

    def _valid_keys(self, faults: _Faults) -> dict[str, Any]:
        """Return the values that are no lists of entries, without what is wrong in them."""
        faulty = {path[0] for path, _ in faults}
        values = {key: value for key, value in self._values.items() if key not in (NODE_GROUPS, POOLS)}
        topology = values.get(TOPOLOGY)
        left = {key: value for key, value in values.items() if key not in faulty}
        if TOPOLOGY in faulty and isinstance(topology, dict):
            for path, _ in faults:
                if path[0] == TOPOLOGY:
                    topology = _cut(topology, path[1:])
            with_topology, _ = self._core({**left, TOPOLOGY: topology})
            if with_topology is not None:
                return with_topology
        stated, _ = self._core(left)
        return stated or {}

    def _valid_groups(self, faults: _Faults) -> Iterator[tuple[int, Any]]:
        """Yield the valid node groups with their numbers; a faulty one without its faulty optional parts, if it can be.

        The label of one that is lost, or has lost more than an environment, is noted.
        """
        for index, entry, faulty in self._entries(NODE_GROUPS, faults):
            if faulty and isinstance(entry, dict):
                for path in faulty:
                    _remove(entry, path)
            stated, _ = self._core({NODE_GROUPS: [entry]})
            is_lost = stated is None or any(path[:1] != ("env_configs",) for path in faulty)
            if is_lost and faulty and isinstance(entry, dict) and "label" in entry:
                self._lost_groups |= {str(entry["label"])} - RESERVED_LABELS.keys()
            if stated is not None:
                yield index, stated[NODE_GROUPS][0]

    def _valid_pools(self, faults: _Faults) -> Iterator[tuple[int, Any]]:
        """Yield the valid pools with their numbers; the names of the others are noted."""
        for index, entry, faulty in self._entries(POOLS, faults):
            if not faulty:
                stated, _ = self._core({POOLS: [entry]})
                if stated is not None:
                    yield index, stated[POOLS][0]
            elif isinstance(entry, dict):
                self._lost_pools.add(str(entry.get("name")))

    def _entries(self, key: str, faults: _Faults) -> Iterator[tuple[int, Any, list[KeyPath]]]:
        """Yield the entries of a list with their numbers, and the paths within each to what is wrong there."""
        entries = self._values.get(key)
        for index, entry in enumerate(entries if isinstance(entries, list) else ()):
            yield index, entry, [path[2:] for path, _ in faults if path[:2] == (key, index)]

    def _checked_groups(self, entries: Mapping[int, Any]) -> dict[int, NodeGroup]:
        """Return node groups, and record what is wrong within them, and between them."""
        if not entries:
            return {}
        from rankplan.nodes.group_rules import group_faults

        groups = {index: NodeGroup.of(entry) for index, entry in entries.items()}
        faults = group_faults(groups, self._num_nodes)
        if any(group.hardware is not None for group in groups.values()):
            from rankplan.read.groups import piece_faults
            from rankplan.read.hardware import with_texts_as_written  # needs pydantic

            stated = self._values[NODE_GROUPS]
            groups = {index: with_texts_as_written(group, stated[index]) for index, group in groups.items()}
            faults = chain(group_faults(groups, self._num_nodes), piece_faults(groups))
        for (index, *path), fault in faults:
            self._reader.add((NODE_GROUPS, index, *path), fault)
            if path[0] != "env_configs":
                self._lost_groups.add(groups[int(index)].label)
        return groups

    def _checked_pools(self, entries: Mapping[int, Any], components: Sequence[str]) -> tuple[Pool, ...]:
        """Return pools, and record what is wrong within them, and between them."""
        if not entries:
            return ()
        from rankplan.plans.pool_rules import stated_pool_faults

        pools = {index: Pool.of(entry) for index, entry in entries.items()}
        for path, fault in stated_pool_faults(pools, self._lost_pools, self._num_nodes, components):
            self._reader.add((POOLS, *path), fault)
        return tuple(pools.values())


def _cut(mapping: dict[str, Any], path: KeyPath) -> dict[str, Any]:
    """Return a mapping without the value at a path, or around it, and without mappings that this leaves empty."""
    if not path or path[0] not in mapping:
        return mapping
    inner = mapping[path[0]]
    cut = _cut(inner, path[1:]) if isinstance(inner, dict) and len(path) > 1 else None
    rest = {key: value for key, value in mapping.items() if key != path[0]}
    return rest | {str(path[0]): cut} if cut else rest


def _remove(group: dict[str, Any], path: KeyPath) -> None:
    """Remove the smallest optional part that contains the fault, unless an earlier fault removed it."""
    if "env_vars" in path:
        path = path[: path.index("env_vars") + 1]  # all of them: they are one part
    for length in range(len(path) - 1, -1, -1):
        holder: Any = group
        with suppress(KeyError, IndexError, TypeError):
            for key in path[:length]:
                holder = holder[key]
            if isinstance(holder, dict) and path[length] not in _NEEDED:
                holder.pop(str(path[length]), None)
                return
