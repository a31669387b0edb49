"""Reading the cluster section out of whatever holds it, with every fault that is in it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import BaseModel, ValidationError

from rankplan.config.faults import CUT, RANKS, KeyPath, diagnostics
from rankplan.config.hardware import HardwareConfig
from rankplan.config.load import Document, Section, load_config
from rankplan.config.models import (
    RESERVED_LABELS,
    ClusterSection,
    ComponentEntry,
    EnvConfig,
    Hardware,
    NodeGroup,
    as_int,
    group_faults,
)
from rankplan.errors import Diagnostic, PlacementError, refusal
from rankplan.words import nearest, path_text, shown

Config = Mapping[str, Any] | str | os.PathLike[str]
"""A mapping (a dict, an OmegaConf object) or the path of a YAML file."""

_DEEPEST = 50

_INDENTED = "write in it, further to the right than its key:"

_MODELS: dict[str, type[BaseModel]] = {
    "": ClusterSection,
    "component_placement": ComponentEntry,
    "node_groups": NodeGroup,
    "env_configs": EnvConfig,
    "hardware": Hardware,
    "configs": HardwareConfig,
}

_KNOWN = {key for model in (NodeGroup, EnvConfig, Hardware, HardwareConfig) for key in model.model_fields}
_OPTIONAL = {"env_configs", "env_vars", "python_interpreter_path", "hardware", "ignore_hardware"}

# What it means that a key is not there, and how like it another one must be to stand for it.
_LACKS = {
    "component_placement": ("no component is placed", 0.6),
    "node_groups": ("there is no node group", 0.85),
}


@dataclass
class Reading:
    """A cluster section as far as it could be read, and what is wrong with the rest."""

    section: ClusterSection
    num_nodes_known: bool = True
    groups_known: bool = True
    """Whether ``node_groups`` could be read, but for the groups that are lost."""
    lost_groups: set[str] = field(default_factory=set)
    """Labels of node groups that could not be read, so that who selects them is not blamed."""
    keys: dict[str, bool] = field(default_factory=dict)
    """Every key of ``component_placement``, and whether its value is the placement itself."""
    document: Document | None = None
    prefix: KeyPath = ("cluster",)
    numbers: set[str] = field(default_factory=set)
    """Keys of ``component_placement`` whose placement is a number and not text."""
    top: list[str] = field(default_factory=list)
    """The keys of the section that are ours, in its order."""
    faults: list[tuple[KeyPath, Diagnostic]] = field(default_factory=list)
    """What is wrong, by its path inside the section."""

    def lost(self, labels: Iterable[str]) -> bool:
        """Whether any node group of these labels may be one that could not be read."""
        return any(label in self.lost_groups or not (self.groups_known or label in RESERVED_LABELS) for label in labels)

    def add(self, path: KeyPath, diagnostic: Diagnostic) -> None:
        """Take note of a fault at a path inside the section."""
        if path[:1] == ("component_placement",) and path[2:] == ("placement",) and self.keys.get(str(path[1])):
            path = path[:2]
        whole = self.prefix + path
        diagnostic = replace(diagnostic, path=path_text(whole))
        if self.document is not None:
            diagnostic = self.document.locate(whole, diagnostic)
        self.faults.append((path, diagnostic))

    def finish(self) -> None:
        """Raise `PlacementError` with every fault, in the order of the file or the mapping; do nothing without any."""
        if not self.faults:
            return
        top = {key: index for index, key in enumerate(self.top)}
        components = {key: index for index, key in enumerate(self.keys)}

        def position(found: tuple[KeyPath, Diagnostic]) -> tuple[int, ...]:
            path, diagnostic = found
            if self.document is not None:
                return diagnostic.line or 0, diagnostic.column or 0
            if not path or path[0] not in top:
                return ()
            inner = (part if isinstance(part, int) else components.get(part, -1) for part in path[1:2])
            return top[str(path[0])], *inner

        raise refusal([diagnostic for _, diagnostic in sorted(self.faults, key=position)])


def read_config(config: Config) -> Reading:
    """Read the ``cluster`` section of a config. Raises `PlacementError` when there is none that could be looked at."""
    if isinstance(config, (str, os.PathLike)):
        config = load_config(config)
    document = config.document if isinstance(config, Section) else None
    prefix: KeyPath = config.path if isinstance(config, Section) else ()
    if not isinstance(config, Mapping):
        raise PlacementError([not_a_mapping("the config", config)])
    outer = Reading(ClusterSection.model_construct(num_nodes=1), document=document, prefix=prefix)
    if {"rankplan", "inventory", "components"} <= set(config):
        help = "Plan.load reads it, and rankplan plan, show, diff and env take such a file (not a pipe)"
        outer.add((), Diagnostic("invalid-value", "this is a saved plan and no config", help))
        outer.finish()
    section = dict(_items(config, ["cluster"] if "cluster" in config else [], (), outer)).get("cluster")
    outer.finish()
    if section is None and "cluster" in config:
        outer.add(("cluster",), not_a_mapping("`cluster`", section, f"{_INDENTED} num_nodes and component_placement"))
        outer.finish()
    if section is None:
        help = (
            "add `cluster:` with num_nodes and component_placement; configs of ROLL are known by roles with a "
            "device_mapping, those of slime by flags such as actor_num_nodes"
        )
        if "component_placement" in config:
            help = "give the whole config, whose key `cluster` holds this mapping"
        elif (near := nearest("cluster", [str(key) for key in config if key != "cluster"], 0.8)) is not None:
            help = f"rename `{near}` to `cluster`"
        elif "defaults" in config:
            help = "give the config that Hydra has put together: its `defaults` are not read"
        elif "nodes" in config:
            help = "this is an inventory: give a config, and this file with --inventory"
        outer.add((), Diagnostic("missing-key", "the config has no `cluster` section", help))
        outer.finish()
    return read_section(section, document, (*prefix, "cluster"))


def read_section(section: Any, document: Document | None = None, prefix: KeyPath = ("cluster",)) -> Reading:
    """Read a ``cluster`` section. Raises `PlacementError` when it is not a mapping."""
    if isinstance(section, Section):
        document, prefix = section.document, section.path
    reading = Reading(ClusterSection.model_construct(num_nodes=1), document=document, prefix=prefix)
    if not isinstance(section, Mapping):
        reading.add((), not_a_mapping("`cluster`", section))
        reading.finish()
    keys = ClusterSection.model_fields
    reading.top = [key for key in section if key in keys]
    items = _items(section, reading.top, (), reading)
    raw = {key: _plain(value, (key,), reading) for key, value in items if value is not None or key == "num_nodes"}
    others = [str(key) for key in section if key not in keys]
    for key, (lack, likeness) in _LACKS.items():
        if key not in raw and (written := nearest(key, others, likeness)) is not None:
            message, help = f"`{written}` is not known, and {lack}", f"rename it to `{key}`"
            reading.add((written,), Diagnostic("unknown-key", message, help))
            reading.groups_known = reading.groups_known and key != "node_groups"
    if others and "component_placement" in section and "component_placement" not in raw and not reading.faults:
        nothing = not_a_mapping("`component_placement`", None, f"{_INDENTED} {', '.join(others[:3])}")
        reading.add(("component_placement",), nothing)
    groups = list(range(len(raw["node_groups"]))) if isinstance(raw.get("node_groups"), list) else []
    components = raw.get("component_placement")
    if isinstance(components, dict):
        reading.keys = {key: not isinstance(entry, dict) for key, entry in components.items()}
        texts = {key: entry.get("placement") if isinstance(entry, dict) else entry for key, entry in components.items()}
        reading.numbers = {key for key, text in texts.items() if as_int(text) is not None}
    try:
        reading.section = ClusterSection.model_validate(raw)
    except ValidationError as error:
        for path, diagnostic in diagnostics(error, _MODELS):
            if diagnostic.code == "missing-key" and path == () and (near := nearest("num_nodes", others)):
                diagnostic = replace(diagnostic, help=f"rename `{near}` to `num_nodes`")
            if path[:1] == ("component_placement",) and isinstance(components, dict) and len(path) > 1:
                cut = components[str(path[1])] is None and RANKS.fullmatch(str(path[1]))
                diagnostic = replace(diagnostic, help=CUT) if cut else diagnostic
            reading.add(path, diagnostic)
        groups = _without(raw, [item["loc"] for item in error.errors()], groups, reading)
        reading.section = ClusterSection.model_validate(raw)
    num_nodes = reading.section.num_nodes if reading.num_nodes_known else None
    readable = dict(zip(groups, reading.section.node_groups, strict=True))
    for index, found in group_faults(readable, num_nodes):
        context: Mapping[str, Any] = found.context or {}
        diagnostic = Diagnostic(found.type, context["text"], context["help"])
        reading.add(("node_groups", index, *context["path"]), diagnostic)
        if context["path"][0] != "env_configs":  # what is counted in the group is known then
            reading.lost_groups.add(readable[index].label)
    return reading


def _without(raw: dict[str, Any], faulty: Iterable[KeyPath], groups: list[int], reading: Reading) -> list[int]:
    """Take what cannot be read out of ``raw``; return which node groups are left."""
    for path in faulty:
        if path[0] == "num_nodes":
            raw["num_nodes"], reading.num_nodes_known = 1, False
        elif len(path) == 1 or not isinstance(raw.get(str(path[0])), (dict, list)):
            raw.pop(str(path[0]), None)
            groups = [] if path[0] == "node_groups" else groups
            reading.groups_known = reading.groups_known and path[0] != "node_groups"
        elif path[0] == "component_placement":
            raw["component_placement"].pop(path[1], None)
        elif path[1] in groups:
            at = groups.index(int(path[1]))
            group = raw["node_groups"][at]
            if not isinstance(group, dict) or not _cut(group, path[2:]):
                raw["node_groups"].pop(at)
                groups.pop(at)
            elif path[2] == "env_configs":
                continue
            if isinstance(group, dict):
                reading.lost_groups.add(str(group.get("label")))
    # A faulty group that takes a reserved label takes nothing from the real one.
    reading.lost_groups -= RESERVED_LABELS.keys()
    return groups


def _cut(group: dict[str, Any], path: KeyPath) -> bool:
    """Take the smallest part that a fault lies in out of a node group; return whether the rest can do without it."""
    holders: list[tuple[Any, str | int]] = []
    value: Any = group
    for key in path:
        if not isinstance(value, (dict, list)) or (isinstance(value, dict) and key not in value):
            break
        holders.append((value, key))
        value = value[key]  # type: ignore[index]  # a list has indexes in a path
    for holder, last in reversed(holders):
        if isinstance(holder, dict) and (last in _OPTIONAL or last not in _KNOWN):
            del holder[last]
            return True
    return not holders and not _OPTIONAL.isdisjoint(path[:1])  # taken out before


def _plain(value: Any, path: KeyPath, reading: Reading) -> Any:
    """Return mappings and sequences of any kind as dicts and lists; OmegaConf resolves interpolations on the way."""
    mapping = isinstance(value, Mapping)
    if not mapping and (not isinstance(value, Sequence) or isinstance(value, (str, bytes))):
        return value
    if len(path) > _DEEPEST:
        reading.add(path[:1], Diagnostic("invalid-value", f"`{path[0]}` is nested without end", "take the loop out"))
        return None
    if not mapping:
        items = _items(value, range(len(value)), path, reading)
        return [_plain(item, (*path, index), reading) for index, item in items]
    result: dict[str, Any] = {}
    for key, item in _items(value, value, path, reading):
        surrogates = any("\ud800" <= letter <= "\udfff" for letter in str(key))
        if not isinstance(key, (str, int)) or isinstance(key, bool) or surrogates:
            reading.add(path, Diagnostic("invalid-value", f"the key {shown(key)} is not text", "write the key as text"))
        elif str(key) in result:
            reading.add(path, Diagnostic("duplicate-key", f"key `{key}` is there as number and as text", "keep one"))
        else:
            result[str(key)] = _plain(item, (*path, str(key)), reading)
    return result


def _items(value: Any, keys: Iterable[Any], path: KeyPath, reading: Reading) -> Iterable[tuple[Any, Any]]:
    for key in keys:
        try:
            yield key, value[key]
        except Exception as error:
            reading.add((*path, key), unreadable(key, error))


def unreadable(key: Any, error: Exception) -> Diagnostic:
    """Return the fault of a value for which its config library raised this: it is missing, or cannot be resolved."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    help = "give the value, or an interpolation that can be resolved"
    return Diagnostic("invalid-value", f"`{key}` cannot be read: {lines[0]}", help)


def not_a_mapping(name: str, value: Any, help: str = "write num_nodes and component_placement in it") -> Diagnostic:
    """Return the fault of a value that had to be a mapping."""
    return Diagnostic("invalid-value", f"{name} is {shown(value)}; it must be a mapping", help)
