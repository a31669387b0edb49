"""Reads the cluster section of a config: validates it once, entry by entry, and collects every fault."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

from rankplan.errors import Diagnostic, KeyPath, PlacementError
from rankplan.nodes.facts import ClusterFacts
from rankplan.nodes.inventory import Inventory, configured
from rankplan.plans.rules import Rules, component_names, with_named_levels
from rankplan.read.models import ClusterSection, ComponentEntry
from rankplan.read.ranks import RESERVED_LABELS, label_fault
from rankplan.read.shared import SHARED_KEYS, Shared, read_shared
from rankplan.read.text.faults import CUT, RANKS, diagnostics, missing, wrong_type
from rankplan.read.text.load import load_config
from rankplan.read.text.reader import Config as Config
from rankplan.read.text.reader import Reader, misspelt_key, not_a_mapping
from rankplan.read.values import items_of, stated_values
from rankplan.words import as_int, misspelt, nearest

if TYPE_CHECKING:
    from rankplan.plans.model import Model

_INDENTED = "indent these keys under it:"
_OWN_KEYS = ("num_nodes", "component_placement")

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
        self.shared = Shared()
        self.num_nodes_known = self.groups_known = True
        self.keys: dict[str, bool] = {}
        self._numbers: set[str] = set()

    @property
    def facts(self) -> ClusterFacts:
        """What the section states of the nodes."""
        return self.shared.facts

    @property
    def rules(self) -> Rules:
        """What the section states about the components, each rule where it is written."""
        return self.shared.rules

    def lost(self, labels: Sequence[str]) -> bool:
        """Return whether any of these labels may belong to a node group that could not be read."""
        unread = set(labels) - RESERVED_LABELS.keys() if not self.groups_known else set()
        return bool(unread or self.shared.lost_groups.intersection(labels))

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
        values = stated_values(self, own)
        raw = {key: value for key, value in values.items() if value is not None or key == "num_nodes"}
        self._check_keys(raw, own, others)
        section = self._settings(raw, others)
        components = self._components(raw.get("component_placement", {}))
        self.section = section.model_copy(update={"component_placement": components})
        self._check_ends(components, section.model)
        names = [name for key in self.keys for name in component_names(key)]
        self.shared = read_shared(self, values, section.num_nodes if self.num_nodes_known else None, names)
        self.groups_known = self.groups_known and self.shared.groups_known

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

    def _settings(self, raw: Mapping[str, Any], others: Sequence[str]) -> ClusterSection:
        """Return the section without groups and components; a faulty setting has its default."""
        own = {key: value for key, value in raw.items() if key not in (*SHARED_KEYS, "component_placement")}
        settings = {"num_nodes": 1} | own
        self.num_nodes_known = "num_nodes" in raw
        if not self.num_nodes_known:
            self.add((), missing("num_nodes", nearest("num_nodes", others)))
        try:
            return ClusterSection.model_validate(settings)
        except ValidationError as error:
            self._add_invalid(error, ())
            faulty = {fault["loc"][0] for fault in error.errors(include_url=False)}
        self.num_nodes_known = self.num_nodes_known and "num_nodes" not in faulty
        rest = {key: value for key, value in settings.items() if key not in faulty}
        return ClusterSection.model_validate({"num_nodes": 1} | rest)

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


def _models() -> dict[str, type[BaseModel]]:
    """Return the model of each mapping, by the last key in its path."""
    from rankplan.read.memory import MemoryEntry
    from rankplan.read.parallel import ParallelEntry

    return {
        "": ClusterSection,
        "component_placement": ComponentEntry,
        "parallel": ParallelEntry,
        "memory": MemoryEntry,
    }


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
    section = dict(items_of(outer, config, ["cluster"] if "cluster" in config else [], ())).get("cluster")
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
