"""The keys that RLinf's ``cluster`` section and a job file share: what they state of the nodes, and the rules.

`read_shared` reads them in any mapping; the other keys of the mapping are its reader's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from rankplan.errors import KeyPath
from rankplan.frozen import frozen
from rankplan.nodes.facts import BY_ADDRESS, NO_FACTS, ClusterFacts
from rankplan.nodes.groups import NodeGroup
from rankplan.plans.rules import NO_RULES, Pool, Rules
from rankplan.read.simple import RESERVED_LABELS, excluded_names, size_in, with_all
from rankplan.read.text.invalid import Invalid, wrong_type
from rankplan.read.text.reader import Reader

if TYPE_CHECKING:
    from rankplan.read.network import Topology

T = TypeVar("T")

SHARED_KEYS = ("node_groups", "topology", "exclude", "pools", "accelerator_memory", "host_memory")
"""The keys, each with the meaning that it has in RLinf's ``cluster`` section."""

_OPTIONAL = {"env_configs", "env_vars", "python_interpreter_path", "path_env", "hardware", "ignore_hardware"}
"""The parts of a node group without which it is one, too."""


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
    """Reads the values of shared keys one after the other."""

    def __init__(self, reader: Reader, values: Mapping[str, Any], num_nodes: int | None) -> None:
        self._reader, self._values, self._num_nodes = reader, values, num_nodes
        self._lost_groups: set[str] = set()
        self._groups_known = True

    def read(self, components: Sequence[str]) -> Shared:
        topology = self._topology()
        pools = self._pools(components)
        facts = ClusterFacts(
            node_groups=self._node_groups(),
            exclude=self._value("exclude", excluded_names, ()),
            levels=None if topology is None else topology.levels,
            order=BY_ADDRESS if topology is None else topology.order,
            accelerator_memory=self._value("accelerator_memory", size_in, None),
            host_memory=self._value("host_memory", size_in, None),
        )
        stated = {} if topology is None else topology.rules()
        rules = Rules(**stated, pools=pools) if stated or pools else NO_RULES
        if rules:
            rules = rules.stated_at(lambda path: self._reader.where(self._reader.in_config(path)))
        return Shared(facts, rules, frozenset(self._lost_groups), self._groups_known)

    def _value(self, key: str, read: Callable[[Any], T], default: T) -> T:
        """Return what a function reads in the value of a key; its faults are recorded."""
        if key not in self._values:
            return default
        try:
            return read(self._values[key])
        except Invalid as error:
            self._reject(error, key)
            return default

    def _list(self, key: str) -> list[Any] | None:
        """Return the list at a key, empty without one; ``None`` for a value of another type, which is a fault."""
        value = self._values.get(key, [])
        if isinstance(value, list):
            return value
        self._reader.add((key,), wrong_type(f"`{key}`", value, "list"))
        return None

    def _reject(self, error: Invalid, *path: str | int) -> list[KeyPath]:
        """Record the faults of the value at a path, and return the path of each within the value."""
        for whole, fault in error.below(path):
            self._reader.add(whole, fault)
        return [inner for inner, _ in error.faults]

    def _topology(self) -> Topology | None:
        """Return the network; of one with faults, the part that is valid."""
        if "topology" not in self._values:
            return None
        from rankplan.read.network import read_topology

        content = self._values["topology"]
        try:
            return read_topology(content)
        except Invalid as error:
            faulty = self._reject(error, "topology")
        rest = content if isinstance(content, dict) else {}
        for path in faulty:
            rest = _cut(rest, path)
        try:
            return read_topology(rest)
        except Invalid:
            return None

    def _node_groups(self) -> tuple[NodeGroup, ...]:
        """Return the valid node groups; a faulty one stays without its faulty optional parts, if it can."""
        entries = self._list("node_groups")
        if entries is None:
            self._groups_known = False
        groups = {}
        for index, value in enumerate(entries or ()):
            group = self._group(value, index)
            if group is not None:
                groups[index] = group
        if groups:
            self._check_groups(groups)
        return tuple(groups.values())

    def _group(self, value: Any, index: int) -> NodeGroup | None:
        from rankplan.read.node_groups import read_group

        content = with_all(value, f"0-{(self._num_nodes or 1) - 1}")
        try:
            return read_group(content)
        except Invalid as error:
            faulty = self._reject(error, "node_groups", index)
        rest = _without(content, faulty)
        is_lost = rest is None or any(path[:1] != ("env_configs",) for path in faulty)
        if is_lost and isinstance(content, dict) and "label" in content:
            self._lost_groups |= {str(content["label"])} - RESERVED_LABELS.keys()
        return rest

    def _check_groups(self, groups: Mapping[int, NodeGroup]) -> None:
        """Record what is wrong within node groups, and between them."""
        from rankplan.nodes.group_rules import group_faults
        from rankplan.read.groups import piece_faults

        for (index, *path), fault in chain(group_faults(groups, self._num_nodes), piece_faults(groups)):
            self._reader.add(("node_groups", index, *path), fault)
            if path[0] != "env_configs":
                self._lost_groups.add(groups[int(index)].label)

    def _pools(self, components: Sequence[str]) -> tuple[Pool, ...]:
        """Return the valid pools, and record what is wrong within them, and between them."""
        entries = self._list("pools")
        if not entries:
            return ()
        from rankplan.plans.pool_rules import stated_pool_faults
        from rankplan.read.pools import read_pool

        pools: dict[int, Pool] = {}
        lost: set[str] = set()
        for index, value in enumerate(entries):
            try:
                pools[index] = read_pool(value)
            except Invalid as error:
                self._reject(error, "pools", index)
                lost |= {str(value.get("name"))} if isinstance(value, dict) else set()
        for path, fault in stated_pool_faults(pools, lost, self._num_nodes, components):
            self._reader.add(("pools", *path), fault)
        return tuple(pools.values())


def _cut(mapping: dict[str, Any], path: KeyPath) -> dict[str, Any]:
    """Return a mapping without the value at a path, or around it, and without mappings that this leaves empty."""
    if not path or path[0] not in mapping:
        return mapping
    inner = mapping[path[0]]
    cut = _cut(inner, path[1:]) if isinstance(inner, dict) and len(path) > 1 else None
    rest = {key: value for key, value in mapping.items() if key != path[0]}
    return rest | {str(path[0]): cut} if cut else rest


def _without(group: Any, faulty: Iterable[KeyPath]) -> NodeGroup | None:
    """Return a node group without the smallest optional parts that contain its faults, if that is valid."""
    if not isinstance(group, dict):
        return None
    from rankplan.read.node_groups import read_group

    for path in faulty:
        _remove(group, path)
    try:
        return read_group(group)
    except Invalid:
        return None


def _remove(group: dict[str, Any], path: KeyPath) -> None:
    """Remove the smallest optional part that contains the fault, unless an earlier fault removed it."""
    from rankplan.read.node_groups import KEYS, VARIABLES

    if VARIABLES in path:
        path = path[: path.index(VARIABLES) + 1]  # all of them: they are one part
    for length in range(len(path) - 1, -1, -1):
        holder: Any = group
        with suppress(KeyError, IndexError, TypeError):
            for key in path[:length]:
                holder = holder[key]
            if isinstance(holder, dict) and (path[length] in _OPTIONAL or path[length] not in KEYS):
                holder.pop(str(path[length]), None)
                return
