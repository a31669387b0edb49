"""RLinf's ``cluster`` section: read once, key by key, with every fault."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rankplan._core import CLUSTER
from rankplan.dialects.keys.config import Config
from rankplan.dialects.keys.key import Key, read_value
from rankplan.errors import Diagnostic, Faults, KeyPath, PlacementError
from rankplan.frozen import frozen
from rankplan.nodes.inventory import Inventory
from rankplan.parallel import NO_SIZES, Parallel
from rankplan.plans.memory_settings import MemorySettings
from rankplan.plans.model import Model
from rankplan.plans.rules import component_names
from rankplan.read.cluster import StatedCluster
from rankplan.read.record import Field, Record
from rankplan.read.shared import SHARED_KEYS, Shared, read_shared
from rankplan.read.simple import RESERVED_LABELS, label_fault
from rankplan.read.text.invalid import CUT, RANKS, Invalid, missing, wrong_type
from rankplan.read.text.reader import Reader, misspelt_key, not_a_mapping
from rankplan.read.values import items_of, stated_values
from rankplan.rlinf import faults, keys
from rankplan.words import as_int, misspelt, nearest

INDENTED = "indent these keys under it:"

GROUPS = "node_groups"

_RENAMED = {"memory": "memory_binding"}
"""Keys of the section that have another name now."""

_LACKS = {
    keys.COMPONENTS.name: ("no component is placed", 0.6),
    GROUPS: ("no node group is defined", 0.85),
}
"""The consequence of a missing key, and how similar another key must be to be taken for it."""

_NAMES = (keys.NUM_NODES.name, keys.COMPONENTS.name, *SHARED_KEYS, *list(keys.SECTION_KEYS)[2:])
"""The keys of the section."""


@frozen
class Entry:
    """An entry of ``component_placement``: where its components run, and how."""

    placement: str
    node_group: tuple[str, ...] = (CLUSTER,)
    parallel: Parallel = NO_SIZES
    visibility: str = "own"
    binding: str | None = None
    memory_binding: str | None = None
    nics: str | None = None
    egl: bool = False
    cpus_per_process: float | None = None
    host_memory_per_process: int | None = None
    memory: MemorySettings | None = None


@frozen
class Section:
    """The valid part of a ``cluster`` section, and the config with the faults of the rest.

    ``reader`` has the section as its content, and the faults of ``config``. ``states_components``: it has the key
    ``component_placement`` with a value, valid or not. ``entries`` are the valid ones of
    ``component_placement``. ``short`` are all of its keys, valid or not, and whether their value is the placement
    itself; ``numbers`` are those whose placement is an int that YAML may have misread.
    """

    config: Config
    reader: Reader
    num_nodes: int
    num_nodes_known: bool
    states_components: bool
    entries: Mapping[str, Entry]
    short: Mapping[str, bool]
    numbers: frozenset[str]
    binding: str | None
    memory_binding: str | None
    nics: str | None
    model: Model | None
    shared: Shared
    groups_known: bool

    @property
    def faults(self) -> Faults:
        """The faults so far, of the whole config."""
        return self.config.faults

    def reporting(self, collector: Faults) -> Section:
        """Return the same section, whose faults another collector gets."""
        return replace(self, config=self.config.reporting(collector), reader=self.reader.reporting(collector))

    def fork(self) -> Section:
        """Return the same section with the same faults; neither gets the later faults of the other."""
        return self.reporting(self.faults.copy())

    def reject(self, path: KeyPath, fault: Diagnostic) -> None:
        """Record a fault at a path within the section."""
        self.reader.add(_placed(path, self.short), fault)

    def reject_all(self, path: KeyPath, error: PlacementError) -> None:
        """Record every fault of an error at a path within the section."""
        for fault in error.diagnostics:
            self.reject(path, fault)

    def lost(self, labels: Sequence[str]) -> bool:
        """Return whether any of these labels may belong to a node group that could not be read."""
        unread = set(labels) - RESERVED_LABELS.keys() if not self.groups_known else set()
        return bool(unread or self.shared.lost_groups.intersection(labels))

    @property
    def components(self) -> list[str]:
        """The names of the components, also of those with faults; one may be empty, or twice."""
        return [name for key in self.short for name in component_names(key)]

    def cluster(self) -> StatedCluster:
        """Return the cluster that the section states."""
        node_groups = {key: entry.node_group for key, entry in self.entries.items()}
        return StatedCluster(self.reader, self.num_nodes, self.shared, node_groups)


def read_section(config: Config) -> Section:
    """Read the ``cluster`` section of a config. Raises `PlacementError` if it is missing or cannot be read."""
    content = config.section
    reader = config.reader_of_section()
    if {"rankplan", "inventory", "components"} <= set(content):
        config.reject((), faults.saved_plan())
        config.faults.finish()
    stated = [keys.SECTION] if keys.SECTION in content else []
    section = dict(items_of(reader, content, stated, ())).get(keys.SECTION)
    config.faults.finish()
    if not stated:
        config.reject((), faults.no_section(content))
    elif section is None:
        help = f"{INDENTED} {keys.NUM_NODES.name} and {keys.COMPONENTS.name}"
        config.reject((keys.SECTION,), not_a_mapping(f"`{keys.SECTION}`", section, help))
    elif not isinstance(section, Mapping):
        config.reject((keys.SECTION,), not_a_mapping(f"`{keys.SECTION}`", section))
    config.faults.finish()
    return _SectionReader(config.under(keys.SECTION)).read()


def stated_cluster(section: Any) -> StatedCluster:
    """Return what a mapping states that is a ``cluster`` section. Raises `PlacementError` if it is no mapping."""
    reader = Reader({keys.SECTION: section})
    if not isinstance(section, Mapping):
        reader.add((keys.SECTION,), not_a_mapping(f"`{keys.SECTION}`", section))
        raise reader.refusal()
    return _SectionReader(Config(reader, reader.faults).under(keys.SECTION)).read().cluster()


def with_section(
    inventory: Inventory, cluster_section: Mapping[str, Any] | StatedCluster, *, planned: bool = False
) -> Inventory:
    """Return its first ``num_nodes`` nodes with the node groups, exclusions and levels of a ``cluster`` section.

    ``planned``: see `Inventory.with_facts`. Raises `PlacementError` for an invalid section, or one that needs more
    nodes.
    """
    stated = cluster_section if isinstance(cluster_section, StatedCluster) else stated_cluster(cluster_section)
    return stated.on(inventory, planned=planned)


class _SectionReader:
    """Reads the keys of a section one after the other. ``config`` has it as the section of its keys."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._reader = config.reader_of_section()
        self._short: dict[str, bool] = {}
        self._numbers: set[str] = set()

    def read(self) -> Section:
        content = self._reader.content
        own = [key for key in content if key in _NAMES]
        others = [str(key) for key in content if key not in _NAMES]
        values = stated_values(self._reader, own)
        stated = {key: value for key, value in values.items() if value is not None}
        lacks_group = self._check_keys(stated, own, others)
        num_nodes = self._num_nodes(values, others)
        model = self._value(keys.MODEL, stated)
        entries = self._entries(stated.get(keys.COMPONENTS.name, {}))
        self._check_ends(entries, model)
        names = [name for key in self._short for name in component_names(key)]
        shared = read_shared(self._reader, values, num_nodes, names)
        return Section(
            config=self._config.under(()),
            reader=self._reader,
            num_nodes=num_nodes or 1,
            num_nodes_known=num_nodes is not None,
            states_components=keys.COMPONENTS.name in stated,
            entries=entries,
            short=self._short,
            numbers=frozenset() if self._reader.is_file else frozenset(self._numbers),
            binding=self._value(keys.BINDING, stated),
            memory_binding=self._value(keys.MEMORY_BINDING, stated),
            nics=self._value(keys.NICS, stated),
            model=model,
            shared=shared,
            groups_known=shared.groups_known and not lacks_group,
        )

    def _add(self, path: KeyPath, fault: Diagnostic) -> None:
        self._reader.add(_placed(path, self._short), fault)

    def _value(self, key: Key[Any], values: Mapping[str, Any]) -> Any:
        """Return the value of a key as its type; its faults are recorded, and it counts as missing."""
        value = values.get(key.name)
        return key.default if value is None else self._read(key, value, (key.name,))

    def _read(self, key: Key[Any], value: Any, path: KeyPath) -> Any:
        result, located = read_value(key, value, path)
        for inner, fault in located:
            self._add(inner, fault)
        return key.default if located else result

    def _check_keys(self, stated: Mapping[str, Any], own: Sequence[Any], others: Sequence[str]) -> bool:
        """Record keys that are misspelt or renamed, and keys that are not indented under ``component_placement``.

        Return whether the node groups are under a misspelt key.
        """
        lacking = {key: nearest(key, others, likeness) for key, (_, likeness) in _LACKS.items() if key not in stated}
        for key, written in lacking.items():
            if written is not None:
                self._add((written,), faults.lacking_key(written, key, _LACKS[key][0]))
        missing_keys = [key for key in (keys.NUM_NODES.name, *_LACKS) if key not in own or key in lacking]
        known = [key for key in _NAMES if key not in missing_keys]  # any similar key may be a missing one
        for other in others:
            near = _RENAMED.get(other) or misspelt(other, known)
            if near is not None:
                self._add((other,), misspelt_key(other, near))
        is_empty = keys.COMPONENTS.name in own and keys.COMPONENTS.name not in stated
        if others and is_empty and not self._reader.faults:
            help = f"{INDENTED} {', '.join(others[:3])}"
            self._add((keys.COMPONENTS.name,), not_a_mapping(f"`{keys.COMPONENTS.name}`", None, help))
        return lacking.get(GROUPS) is not None

    def _num_nodes(self, values: Mapping[str, Any], others: Sequence[str]) -> int | None:
        """Return the number of nodes, ``None`` if it is missing or invalid, which is recorded."""
        name = keys.NUM_NODES.name
        if name not in values:
            self._add((), missing(name, nearest(name, others)))
            return None
        number, located = read_value(keys.NUM_NODES, values[name], (name,))
        for path, fault in located:
            self._add(path, fault)
        return None if located else number

    def _entries(self, stated: Any) -> dict[str, Entry]:
        """Return the valid entries of ``component_placement`` by their keys."""
        name = keys.COMPONENTS.name
        entries: dict[str, Entry] = {}
        if not isinstance(stated, dict):
            self._add((name,), wrong_type(f"`{name}`", stated, "dict"))
            return entries
        for key, value in stated.items():
            self._short[key] = not isinstance(value, dict)
            content = value if isinstance(value, dict) else {keys.PLACEMENT.name: value}
            if as_int(content.get(keys.PLACEMENT.name)) is not None:
                self._numbers.add(key)
            fault = label_fault(key)
            if fault is not None:
                self._add((name, key), fault)
                continue
            is_cut = value is None and RANKS.fullmatch(key) is not None
            try:
                entries[key] = Entry(**_ENTRY.read(content))
            except Invalid as error:
                for path, fault in error.below((name, key)):
                    self._add(path, replace(fault, help=CUT) if is_cut else fault)
        return entries

    def _check_ends(self, entries: Mapping[str, Entry], model: Model | None) -> None:
        """Record first and last pipeline stages with more layers than the model of the section."""
        for key, entry in entries.items():
            memory = entry.memory
            if memory is None or memory.model or memory.params:
                continue
            fault = memory.ends_fault(model)
            if fault is not None:
                self._add((keys.COMPONENTS.name, key, keys.MEMORY.name), fault)


_OPTIONAL = (
    keys.ENTRY_BINDING,
    keys.ENTRY_MEMORY_BINDING,
    keys.ENTRY_NICS,
    keys.CPUS_PER_PROCESS,
    keys.HOST_MEMORY_PER_PROCESS,
    keys.MEMORY,
)
"""The keys of an entry that may be there without a value."""

_ENTRY = Record(
    "ComponentEntry",
    "An entry of ``component_placement``: where its components run.",
    {
        name: Field(key.read, key.decides, optional=key in _OPTIONAL, needed=key is keys.PLACEMENT)
        for name, key in keys.ENTRY_KEYS.items()
    },
)


def _placed(path: KeyPath, short: Mapping[str, bool]) -> KeyPath:
    """Return a path within the section as the config has it: an entry may be the placement itself."""
    is_placement = path[:1] == (keys.COMPONENTS.name,) and path[2:] == (keys.PLACEMENT.name,)
    return path[:2] if is_placement and short.get(str(path[1])) else path
