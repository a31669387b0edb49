"""Reading the cluster section out of whatever holds it, with every fault that is in it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import BaseModel, ValidationError

from rankplan.config.faults import Path, diagnostics, did_you_mean, path_text, shown
from rankplan.config.load import Document, Section, load_config
from rankplan.config.models import (
    RESERVED_LABELS,
    ClusterSection,
    ComponentEntry,
    EnvConfig,
    Hardware,
    NodeGroup,
    group_faults,
)
from rankplan.errors import Diagnostic, PlacementError, refusal

Config = Mapping[str, Any] | str | os.PathLike[str]
"""A mapping (a dict, an OmegaConf object) or the path of a YAML file."""

_MODELS: dict[str, type[BaseModel]] = {
    "": ClusterSection,
    "component_placement": ComponentEntry,
    "node_groups": NodeGroup,
    "env_configs": EnvConfig,
    "hardware": Hardware,
}


@dataclass
class Reading:
    """A cluster section as far as it could be read, and what is wrong with the rest."""

    section: ClusterSection
    num_nodes_known: bool = True
    lost_groups: set[str] = field(default_factory=set)
    """Labels of node groups that could not be read, so that who selects them is not blamed."""
    keys: dict[str, bool] = field(default_factory=dict)
    """Every key of ``component_placement``, and whether its value is the placement itself."""
    document: Document | None = None
    prefix: Path = ("cluster",)
    faults: list[Diagnostic] = field(default_factory=list)

    def add(self, path: Path, diagnostic: Diagnostic) -> None:
        """Take note of a fault at a path inside the section."""
        if path[:1] == ("component_placement",) and path[2:] == ("placement",) and self.keys.get(str(path[1])):
            path = path[:2]
        whole = self.prefix + path
        diagnostic = replace(diagnostic, path=path_text(whole))
        if self.document is not None:
            diagnostic = self.document.locate(whole, diagnostic)
        self.faults.append(diagnostic)

    def error(self) -> PlacementError | None:
        """Return the exception for what was found, in the order of the file."""
        if not self.faults:
            return None
        return refusal(sorted(self.faults, key=lambda found: (found.line or 0, found.column or 0)))


def read_config(config: Config) -> Reading:
    """Read the ``cluster`` section of a config. Raises `PlacementError` when there is none that could be looked at."""
    if isinstance(config, (str, os.PathLike)):
        config = load_config(config)
    document = config.document if isinstance(config, Section) else None
    prefix: Path = config.path if isinstance(config, Section) else ()
    if not isinstance(config, Mapping):
        raise PlacementError([not_a_mapping("the config", config)])
    section = _get(config, "cluster")
    if section is None:
        help = "add `cluster:` with num_nodes and component_placement"
        if "component_placement" in config:
            help = "give the whole config, whose key `cluster` holds this mapping"
        reading = Reading(ClusterSection(num_nodes=1), document=document, prefix=prefix)
        reading.add((), Diagnostic("missing-key", "the config has no `cluster` section", help))
        raise refusal(reading.faults)
    return read_section(section, document, (*prefix, "cluster"))


def read_section(section: Any, document: Document | None = None, prefix: Path = ("cluster",)) -> Reading:
    """Read a ``cluster`` section. Raises `PlacementError` when it is not a mapping."""
    if isinstance(section, Section):
        document, prefix = section.document, section.path
    reading = Reading(ClusterSection.model_construct(num_nodes=1), document=document, prefix=prefix)
    if not isinstance(section, Mapping):
        reading.add((), not_a_mapping("`cluster`", section))
        raise refusal(reading.faults)
    keys = ClusterSection.model_fields
    raw = {key: _plain(_get(section, key), (key,), reading) for key in keys if key in section}
    groups = list(range(len(raw["node_groups"]))) if isinstance(raw.get("node_groups"), list) else []
    components = raw.get("component_placement")
    if isinstance(components, dict):
        reading.keys = {str(key): not isinstance(entry, dict) for key, entry in components.items()}
    try:
        reading.section = ClusterSection.model_validate(raw)
    except ValidationError as error:
        for path, diagnostic in diagnostics(error, _MODELS):
            if diagnostic.code == "missing-key" and path == ():
                near = did_you_mean("num_nodes", (str(key) for key in section if key not in keys))
                if near.startswith("did you mean"):
                    diagnostic = replace(diagnostic, help=f"rename {near.split()[-1].rstrip('?')} to `num_nodes`")
            reading.add(path, diagnostic)
        groups = _without(raw, [tuple(part for part in item["loc"]) for item in error.errors()], groups, reading)
        reading.section = ClusterSection.model_validate(raw)
    num_nodes = reading.section.num_nodes if reading.num_nodes_known else None
    readable = dict(zip(groups, reading.section.node_groups, strict=True))
    for index, found in group_faults(readable, num_nodes):
        context: Mapping[str, Any] = found.context or {}
        diagnostic = Diagnostic(found.type, context["text"], context["help"])
        reading.add(("node_groups", index, *context["path"]), diagnostic)
        reading.lost_groups.add(readable[index].label)
    return reading


def _without(raw: dict[str, Any], faulty: Iterable[Path], groups: list[int], reading: Reading) -> list[int]:
    """Take what cannot be read out of ``raw``; return which node groups are left."""
    for path in faulty:
        if path[0] == "num_nodes":
            raw["num_nodes"], reading.num_nodes_known = 1, False
        elif len(path) == 1 or not isinstance(raw.get(str(path[0])), (dict, list)):
            raw.pop(str(path[0]), None)
            groups = [] if path[0] == "node_groups" else groups
        elif path[0] == "component_placement":
            raw["component_placement"].pop(path[1], None)
        elif path[1] in groups:
            at = groups.index(int(path[1]))
            group = raw["node_groups"].pop(at)
            groups.pop(at)
            if isinstance(group, dict):
                reading.lost_groups.add(str(group.get("label")))
    # A faulty group that takes a reserved label takes nothing from the real one.
    reading.lost_groups -= RESERVED_LABELS.keys()
    return groups


def _get(config: Mapping[str, Any], key: str) -> Any:
    # `get` of OmegaConf would say None for a value that is missing ("???") instead of complaining.
    return config[key] if key in config else None  # noqa: SIM401


def _plain(value: Any, path: Path, reading: Reading) -> Any:
    """Return mappings and sequences of any kind as dicts and lists; OmegaConf resolves interpolations on the way."""
    if isinstance(value, Mapping):
        return {key: _plain(item, (*path, key), reading) for key, item in _items(value, value, path, reading)}
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return [
            _plain(item, (*path, index), reading) for index, item in _items(value, range(len(value)), path, reading)
        ]
    return value


def _items(value: Any, keys: Iterable[Any], path: Path, reading: Reading) -> Iterable[tuple[Any, Any]]:
    for key in keys:
        try:
            yield key, value[key]
        except Exception as error:  # whatever a config library raises for a value that is missing or cannot be resolved
            lines = str(error).strip().splitlines() or [type(error).__name__]
            help = "give the value, or an interpolation that can be resolved"
            reading.add((*path, key), Diagnostic("invalid-value", f"`{key}` cannot be read: {lines[0]}", help))


def not_a_mapping(name: str, value: Any, help: str = "write num_nodes and component_placement in it") -> Diagnostic:
    """Return the fault of a value that had to be a mapping."""
    found = "nothing" if value is None else shown(value)
    return Diagnostic("invalid-value", f"{name} is {found}; it must be a mapping", help)
