"""Reads the cluster section of a config: validates it once, entry by entry, and collects every fault."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

from rankplan.errors import Diagnostic, KeyPath, PlacementError
from rankplan.nodes.facts import ClusterFacts
from rankplan.nodes.inventory import Inventory, configured
from rankplan.plans.rules import Rules, component_names, with_named_levels
from rankplan.read.facts import facts_of, node_group, pool_of, rules_of
from rankplan.read.models import ClusterSection, ComponentEntry
from rankplan.read.ranks import RESERVED_LABELS, label_fault, with_all
from rankplan.read.text.faults import CUT, RANKS, diagnostics, missing, wrong_type
from rankplan.read.text.load import load_config
from rankplan.read.text.reader import Config as Config
from rankplan.read.text.reader import Reader, misspelt_key, not_a_mapping, unreadable
from rankplan.words import as_int, misspelt, nearest, shown

if TYPE_CHECKING:
    from rankplan.plans.model import Model
    from rankplan.read.network import Topology
    from rankplan.read.node_groups import NodeGroup
    from rankplan.read.pools import PoolEntry

_DEEPEST = 50
_INDENTED = "indent these keys under it:"
_OWN_KEYS = ("num_nodes", "component_placement")

_OPTIONAL = {"env_configs", "env_vars", "python_interpreter_path", "path_env", "hardware", "ignore_hardware"}

_RENAMED = {"memory": "memory_binding"}
"""Keys of the section that have another name now."""

# The consequence of a missing key, and how similar another key must be to be taken for it.
_LACKS = {
    "component_placement": ("no component is placed", 0.6),
    "node_groups": ("no node group is defined", 0.85),
}

_UNREAD = ClusterSection(num_nodes=1)
"""The section before anything of it is read."""


class Reading(Reader):
    """The valid part of a cluster section, and the faults of the rest.

    ``keys`` are all keys of ``component_placement``, valid or not, and whether their value is the placement itself.
    """

    def __init__(
        self,
        content: Any,
        prefix: KeyPath = ("cluster",),
        config: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(content, prefix, config)
        self.section = _UNREAD
        self.num_nodes_known = self.groups_known = True
        self.keys: dict[str, bool] = {}
        self._lost_groups: set[str] = set()
        self._lost_pools: set[str] = set()
        self._numbers: set[str] = set()

    @property
    def facts(self) -> ClusterFacts:
        """What the section states of the nodes."""
        return facts_of(self.section)

    @property
    def rules(self) -> Rules:
        """What the section states about the components, each rule where it is written."""
        rules = rules_of(self.section)
        return rules.stated_at(lambda path: self.where(self.in_config(path))) if rules else rules

    def lost(self, labels: Sequence[str]) -> bool:
        """Return whether any of these labels may belong to a node group that could not be read."""
        unread = set(labels) - RESERVED_LABELS.keys() if not self.groups_known else set()
        return bool(unread or self._lost_groups.intersection(labels))

    def is_number(self, key: str) -> bool:
        """Return whether a placement came as an int from a loader that may have misread it."""
        return key in self._numbers and self._document is None

    def add(self, path: KeyPath, diagnostic: Diagnostic) -> None:
        """Record a fault at a path within the section."""
        if path[:1] == ("component_placement",) and path[2:] == ("placement",) and self.keys.get(str(path[1])):
            path = path[:2]  # the short form
        super().add(path, diagnostic)

    def add_unfit(self, faults: Iterable[tuple[KeyPath, Diagnostic]]) -> None:
        """Record why the facts of the section do not suit an inventory."""
        for path, fault in faults:
            self.add(("topology", *path) if path[0] == "levels" else path, fault)

    def read(self) -> None:
        """Validate the content."""
        own = [key for key in self.content if key in ClusterSection.model_fields]
        others = [str(key) for key in self.content if key not in own]
        raw = self._raw(own)
        self._check_keys(raw, own, others)
        section = self._settings(raw, others)
        groups = self._groups(raw.get("node_groups", []), section.num_nodes)
        components = self._components(raw.get("component_placement", {}))
        pools = self._pools(raw.get("pools", []))
        lists = {"node_groups": list(groups.values()), "pools": tuple(pools.values())}
        self.section = section.model_copy(update={"component_placement": components, **lists})
        self._check_ends(components, section.model)
        num_nodes = section.num_nodes if self.num_nodes_known else None
        if groups:
            self._check_groups(groups, num_nodes)
        if pools:
            self._check_pools(pools, num_nodes)

    def _raw(self, keys: Iterable[Any]) -> dict[str, Any]:
        """Return the values of these keys as dicts and lists. Only ``num_nodes`` may lack its value."""
        items = self._items(self.content, keys, ())
        return {key: self._plain(value, (key,)) for key, value in items if value is not None or key == "num_nodes"}

    def _check_keys(self, raw: Mapping[str, Any], own: Sequence[Any], others: Sequence[str]) -> None:
        """Record keys that are misspelt or renamed, and keys that are not indented under ``component_placement``."""
        for key, (lack, likeness) in _LACKS.items():
            written = None if key in raw else nearest(key, others, likeness)
            if written is not None:
                message, help = f"unknown key `{written}`, and {lack}", f"rename it to `{key}`"
                self.add((written,), Diagnostic("unknown-key", message, help))
                if key == "node_groups":
                    self.groups_known = False
        missing_keys = [key for key in ("num_nodes", *_LACKS) if key not in raw]  # any similar key may be one of these
        known = [key for key in ClusterSection.model_fields if key not in missing_keys]
        for other in others:
            near = _RENAMED.get(other) or misspelt(other, known)
            if near is not None:
                self.add((other,), misspelt_key(other, near))
        if others and "component_placement" in own and "component_placement" not in raw and not self.faults:
            nothing = not_a_mapping("`component_placement`", None, f"{_INDENTED} {', '.join(others[:3])}")
            self.add(("component_placement",), nothing)

    def _check_ends(self, components: Mapping[str, ComponentEntry], model: Model | None) -> None:
        """Record first and last pipeline stages with more layers than the model of the section."""
        for key, entry in components.items():
            memory = entry.memory
            if memory is None or memory.model or memory.params:
                continue
            if (fault := memory.value().ends_fault(model)) is not None:
                self.add(("component_placement", key, "memory"), fault)

    def _check_groups(self, groups: Mapping[int, NodeGroup], num_nodes: int | None) -> None:
        """Record what is wrong within node groups, and between them."""
        from rankplan.nodes.group_rules import group_faults
        from rankplan.read.groups import piece_faults

        plain_groups = {index: node_group(group) for index, group in groups.items()}
        for (index, *path), fault in chain(group_faults(plain_groups, num_nodes), piece_faults(plain_groups)):
            self.add(("node_groups", index, *path), fault)
            if path[0] != "env_configs":
                self._lost_groups.add(groups[int(index)].label)

    def _check_pools(self, pools: Mapping[int, PoolEntry], num_nodes: int | None) -> None:
        """Record what is wrong within pools, and between them."""
        from rankplan.plans.pool_rules import stated_pool_faults

        names = [name for key in self.keys for name in component_names(key)]
        plain_pools = {index: pool_of(pool) for index, pool in pools.items()}
        for path, fault in stated_pool_faults(plain_pools, self._lost_pools, num_nodes, names):
            self.add(("pools", *path), fault)

    def _settings(self, raw: Mapping[str, Any], others: Sequence[str]) -> ClusterSection:
        """Return the section without groups and components; a faulty setting has its default."""
        settings = {"num_nodes": 1} | {key: value for key, value in raw.items() if key not in (*_LACKS, "pools")}
        self.num_nodes_known = "num_nodes" in raw
        if not self.num_nodes_known:
            self.add((), missing("num_nodes", nearest("num_nodes", others)))
        try:
            return ClusterSection.model_validate(settings)
        except ValidationError as error:
            self._add_invalid(error, ())
            faulty = {found["loc"][0] for found in error.errors(include_url=False)}
            paths = [
                (*found["loc"], *found.get("ctx", {}).get("path", ())) for found in error.errors(include_url=False)
            ]
        self.num_nodes_known = self.num_nodes_known and "num_nodes" not in faulty
        rest = {key: value for key, value in settings.items() if key not in faulty}
        if "topology" in faulty:  # its other names and sizes are checked, too
            places = [path[1:] for path in paths if path[0] == "topology"]
            if (topology := _valid_topology(settings["topology"], places)) is not None:
                rest["topology"] = topology
        return ClusterSection.model_validate({"num_nodes": 1} | rest)

    def _groups(self, raw: Any, num_nodes: int) -> dict[int, NodeGroup]:
        """Return the valid node groups by index; a faulty one stays without its faulty optional parts, if it can."""
        if not isinstance(raw, list):
            self.add(("node_groups",), wrong_type("`node_groups`", raw, "list"))
            self.groups_known = False
            return {}
        groups: dict[int, NodeGroup] = {}
        if not raw:
            return groups
        from rankplan.read.node_groups import NodeGroup

        for index, value in enumerate(raw):
            group = with_all(value, f"0-{num_nodes - 1}")
            try:
                groups[index] = NodeGroup.model_validate(group)
                continue
            except ValidationError as error:
                self._add_invalid(error, ("node_groups", index))
                paths = [found["loc"] for found in error.errors(include_url=False)]
            rest = _without(group, paths)
            if rest is not None:
                groups[index] = rest
            if isinstance(group, dict) and (rest is None or any(path[0] != "env_configs" for path in paths)):
                self._lost_groups |= {str(group.get("label"))} - RESERVED_LABELS.keys()
        return groups

    def _pools(self, raw: Any) -> dict[int, PoolEntry]:
        """Return the valid pools by index."""
        if not isinstance(raw, list):
            self.add(("pools",), wrong_type("`pools`", raw, "list"))
            return {}
        pools: dict[int, PoolEntry] = {}
        if not raw:
            return pools
        from rankplan.read.pools import PoolEntry

        for index, value in enumerate(raw):
            try:
                pools[index] = PoolEntry.model_validate(value)
            except ValidationError as error:
                self._add_invalid(error, ("pools", index))
                self._lost_pools |= {str(value.get("name"))} if isinstance(value, dict) else set()
        return pools

    def _components(self, raw: Any) -> dict[str, ComponentEntry]:
        if not isinstance(raw, dict):
            self.add(("component_placement",), wrong_type("`component_placement`", raw, "dict"))
            return {}
        entries = {}
        for key, value in raw.items():
            self.keys[key] = not isinstance(value, dict)
            if as_int(value["placement"] if isinstance(value, dict) and "placement" in value else value) is not None:
                self._numbers.add(key)
            if (fault := label_fault(key)) is not None:
                self.add(("component_placement", key), fault)
                continue
            try:
                entries[key] = ComponentEntry.model_validate(value)
            except ValidationError as error:
                cut = value is None and RANKS.fullmatch(key) is not None
                self._add_invalid(error, ("component_placement", key), CUT if cut else None)
        return entries

    def _add_invalid(self, error: ValidationError, path: KeyPath, help: str | None = None) -> None:
        for where, diagnostic in diagnostics(error, _models(), path):
            self.add(where, replace(diagnostic, help=help) if help else diagnostic)

    def _plain(self, value: Any, path: KeyPath) -> Any:
        """Return mappings and sequences of any type as dicts and lists, with OmegaConf's interpolations resolved."""
        mapping = isinstance(value, Mapping)
        if not mapping and (not isinstance(value, Sequence) or isinstance(value, (str, bytes))):
            return self.resolved(value, self.in_config(path[:-1]))
        if len(path) > _DEEPEST:
            message = f"`{path[0]}` is nested more than {_DEEPEST} levels deep"
            self.add(path[:1], Diagnostic("invalid-value", message, "remove the loop"))
            return None
        if not mapping:
            return [self._plain(item, (*path, index)) for index, item in self._items(value, range(len(value)), path)]
        result: dict[str, Any] = {}
        for key, item in self._items(value, value, path):
            surrogates = any("\ud800" <= letter <= "\udfff" for letter in str(key))
            if not isinstance(key, (str, int)) or isinstance(key, bool) or surrogates:
                fault = Diagnostic("invalid-value", f"the key {shown(key)} is not text", "write the key as text")
                self.add(path, fault)
            elif str(key) in result:
                fault = Diagnostic("duplicate-key", f"key `{key}` is given as a number and as text", "remove one")
                self.add(path, fault)
            else:
                result[str(key)] = self._plain(item, (*path, str(key)))
        return result

    def _items(self, value: Any, keys: Iterable[Any], path: KeyPath) -> Iterable[tuple[Any, Any]]:
        for key in keys:
            try:
                yield key, value[key]
            except Exception as error:
                self.add((*path, key), unreadable(key, error))


def _models() -> dict[str, type[BaseModel]]:
    """Return the model of each mapping, by the last key in its path."""
    from rankplan.read.hardware import Hardware, HardwareConfig
    from rankplan.read.memory import MemoryEntry
    from rankplan.read.network import Topology
    from rankplan.read.node_groups import EnvConfig, NodeGroup
    from rankplan.read.parallel import ParallelEntry
    from rankplan.read.pools import PoolEntry

    return {
        "": ClusterSection,
        "component_placement": ComponentEntry,
        "parallel": ParallelEntry,
        "memory": MemoryEntry,
        "node_groups": NodeGroup,
        "env_configs": EnvConfig,
        "hardware": Hardware,
        "configs": HardwareConfig,
        "topology": Topology,
        "pools": PoolEntry,
    }


def _valid_topology(topology: Any, faulty: Sequence[KeyPath]) -> Topology | None:
    """Return a topology without the values at fault; ``None`` if nothing valid is left."""
    from rankplan.read.network import Topology

    kept = topology if isinstance(topology, dict) else {}
    for path in faulty:
        kept = _cut(kept, path)
    try:
        return Topology.model_validate(kept)
    except ValidationError:
        return None


def _cut(mapping: dict[str, Any], path: KeyPath) -> dict[str, Any]:
    """Return a mapping without the value at a path, or around it, and without mappings that this leaves empty."""
    if not path or path[0] not in mapping:
        return mapping
    inner = mapping[path[0]]
    found = _cut(inner, path[1:]) if isinstance(inner, dict) and len(path) > 1 else None
    rest = {key: value for key, value in mapping.items() if key != path[0]}
    return rest | {str(path[0]): found} if found else rest


def _without(group: Any, faulty: Sequence[KeyPath]) -> NodeGroup | None:
    """Return a node group without the smallest optional parts that contain its faults, if that is valid."""
    if not isinstance(group, dict):
        return None
    from rankplan.read.node_groups import NodeGroup

    for path in faulty:
        _remove(group, path)
    try:
        return NodeGroup.model_validate(group)
    except ValidationError:
        return None


def _remove(group: dict[str, Any], path: KeyPath) -> None:
    """Remove the smallest optional part that contains the fault, unless an earlier fault removed it."""
    models = _models()
    known = {key for name in ("node_groups", "env_configs", "hardware", "configs") for key in models[name].model_fields}
    for length in range(len(path) - 1, -1, -1):
        holder: Any = group
        with suppress(KeyError, IndexError, TypeError):
            for key in path[:length]:
                holder = holder[key]
            if isinstance(holder, dict) and (path[length] in _OPTIONAL or path[length] not in known):
                holder.pop(str(path[length]), None)
                return


def read_config(config: Config | Reading) -> Reading:
    """Read the ``cluster`` section of a config; one that is already read is returned.

    Raises `PlacementError` if the config has no section that could be read.
    """
    if isinstance(config, Reading):
        return config
    if isinstance(config, (str, os.PathLike)):
        config = load_config(config)
    if not isinstance(config, Mapping):
        raise PlacementError([not_a_mapping("the config", config)])
    outer = Reading(config, ())
    if {"rankplan", "inventory", "components"} <= set(config):
        help = "read it with Plan.load, or pass the file to rankplan plan, show, diff or env"
        outer.add((), Diagnostic("invalid-value", "this is a saved plan, not a config", help))
        raise outer.refusal()
    section = dict(outer._items(config, ["cluster"] if "cluster" in config else [], ())).get("cluster")
    outer.finish()
    if "cluster" not in config:
        outer.add((), Diagnostic("missing-key", "the config has no `cluster` section", _no_section(config)))
    elif section is None:
        outer.add(("cluster",), not_a_mapping("`cluster`", section, f"{_INDENTED} {' and '.join(_OWN_KEYS)}"))
    elif not isinstance(section, Mapping):
        outer.add(("cluster",), not_a_mapping("`cluster`", section))
    outer.finish()
    return _read(section, config)


def _no_section(config: Mapping[str, Any]) -> str:
    """Return the help for a config without a ``cluster`` section."""
    if "component_placement" in config:
        return "pass the whole config: this mapping belongs under its key `cluster`"
    if (near := nearest("cluster", [str(key) for key in config if key != "cluster"], 0.8)) is not None:
        return f"rename `{near}` to `cluster`"
    if "defaults" in config:
        from rankplan.read.text.hydra import compose

        return compose(config)
    if "nodes" in config:
        return "this is an inventory: pass a config, and this file with --inventory"
    if "components" in config:
        return "these look like costs: pass them to `rankplan tune` with --costs"
    return (
        "add `cluster:` with num_nodes and component_placement, or name the system that the config is for with "
        "--dialect"
    )


def read_section(section: Any) -> Reading:
    """Read a ``cluster`` section; one that is already read is returned.

    Raises `PlacementError` if it is not a mapping.
    """
    return section if isinstance(section, Reading) else _read(section)


def with_section(
    inventory: Inventory, cluster_section: Mapping[str, Any] | Reading, *, planned: bool = False
) -> Inventory:
    """Return its first ``num_nodes`` nodes with the node groups, exclusions and levels of a ``cluster`` section.

    ``planned``: see `Inventory.with_facts`. Raises `PlacementError` for an invalid section, or one that needs more
    nodes.
    """
    reading = read_section(cluster_section).fork()
    facts = with_named_levels(reading.facts, reading.rules, inventory)
    found, faults = configured(inventory, facts, reading.section.num_nodes, planned=planned)
    reading.add_unfit(faults)
    reading.finish()
    return found


def _read(section: Any, config: Mapping[str, Any] | None = None) -> Reading:
    reading = Reading(section, config=config)
    if not isinstance(section, Mapping):
        reading.add((), not_a_mapping("`cluster`", section))
        raise reading.refusal()
    reading.read()
    return reading
