"""Detects the dialect of a config. Each dialect is one value, imported when it is first used."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from rankplan.dialects import faults
from rankplan.dialects.built_in import DIALECTS
from rankplan.dialects.interface.cluster import ClusterForms, ReadsCluster, ReadsSection
from rankplan.dialects.interface.dialect import Dialect
from rankplan.dialects.no_job import description
from rankplan.errors import Diagnostic, KeyPath, PlacementError
from rankplan.guests.built_in import ASKED, FORKS, OWN
from rankplan.guests.doors import GuestError
from rankplan.read.text.document import Section
from rankplan.read.text.programs import StartedProgram, started
from rankplan.references import resolved

if TYPE_CHECKING:
    from rankplan.nodes.inventory import Inventory
    from rankplan.read.cluster import StatedCluster

__all__ = [
    "ASKED",
    "DIALECTS",
    "OWN",
    "Dialect",
    "dialect_of",
    "family_of",
    "inventory_of",
    "is_trainers_key",
    "mixed",
    "name_of",
    "no_job",
    "recognised",
    "recognisers",
    "resembled",
    "section_schema",
    "stated_cluster",
    "with_guests",
    "writers",
]


SECTION = "cluster"
"""The section that every config of rankplan's own language has."""


class Recognised(NamedTuple):
    """The dialect of a config, ``None`` if it is unknown, and warnings about guests that failed."""

    name: str | None
    warnings: list[Diagnostic]


def recognisers() -> Iterator[Dialect]:
    """Yield rankplan's own dialects that recognise a config by its keys. A fork precedes its parent."""
    for name in ASKED:
        for fork in FORKS.get(name, ()):
            yield DIALECTS[fork]
        yield DIALECTS[name]


def with_guests() -> list[Dialect]:
    """Return rankplan's own dialects that recognise a config, and the usable ones of other packages."""
    return [*recognisers(), *DIALECTS.usable()[0]]


def stated_cluster(section: Any) -> StatedCluster:
    """Return what a ``cluster`` section states. Raises `PlacementError` if it is no mapping."""
    read: ReadsSection = resolved(_forms().read)
    return read(section)


def section_schema() -> dict[str, Any]:
    """Return the JSON schema of a ``cluster`` section."""
    schema: Callable[[], dict[str, Any]] = resolved(_forms().schema)
    return schema()


def inventory_of(cluster: Any) -> Inventory:
    """Return the inventory of an object: of an inventory itself, of a cluster of rankplan, or of RLinf's.

    Raises ``TypeError`` for any other object.
    """
    read: ReadsCluster = resolved(_forms().inventory)
    return read(cluster)


def _forms() -> ClusterForms:
    """Return the forms in which rankplan's own language states a cluster."""
    forms = DIALECTS[OWN].cluster
    if forms is None:
        raise TypeError(f"{OWN} has no form of a cluster")
    return forms


def writers(form: str = "") -> list[str]:
    """Return the names of the dialects that `convert` can write in a form, by default their usual one."""
    dialects = [DIALECTS[name] for name in DIALECTS.builtin]
    dialects += DIALECTS.usable()[0]
    return [dialect.name for dialect in dialects if form in dialect.writers]


def name_of(config: Mapping[Any, Any]) -> str:
    """Return the name of a config's dialect, RLinf's by default; raises as `recognised` does."""
    return recognised(config).name or OWN


def recognised(config: Mapping[Any, Any]) -> Recognised:
    """Return the dialect of the program that gets a config, else the first dialect whose keys the config has.

    A fork shares programs and keys with its parent. A config is of the fork if it has a key that only the fork has.
    Guests are asked only if no dialect of rankplan recognises the config. Raises `PlacementError` if several guests
    recognise it.
    """
    program = _program(config)
    system = None if program is None else program.system
    if system is not None:
        return Recognised(_fork_of(system, config) or system, [])
    for name in ASKED:
        if DIALECTS[name].keys.recognises(config):
            return Recognised(_fork_of(name, config) or name, [])
    if any(_has(config, path) for path in DIALECTS[OWN].keys.alone):
        return Recognised(None, [])
    return _recognised_by_guests(config)


def _fork_of(system: str, config: Mapping[Any, Any]) -> str | None:
    """Return the fork of a system whose own keys a config has, ``None`` if there is no such fork."""
    return next((fork for fork in FORKS.get(system, ()) if DIALECTS[fork].keys.recognises(config)), None)


def _recognised_by_guests(config: Mapping[Any, Any]) -> Recognised:
    dialects, warnings = DIALECTS.usable()
    names = []
    for dialect in dialects:
        try:
            if dialect.keys.recognises(config):
                names.append(dialect.name)
        except PlacementError as error:
            warnings += [replace(fault, warning=True) for fault in error.diagnostics]
    if len(names) > 1:
        raise PlacementError([_placed(config, faults.several_recognise(names))])
    return Recognised(names[0] if names else None, warnings)


def _program(config: Mapping[Any, Any]) -> StartedProgram | None:
    return started(config.document) if isinstance(config, Section) else None


def _placed(config: Mapping[Any, Any], fault: Diagnostic) -> Diagnostic:
    """Return a fault of a whole config, with its file."""
    return config.document.locate((), fault) if isinstance(config, Section) else fault


def no_job(config: Mapping[Any, Any]) -> Diagnostic | None:
    """Return the fault of a config that is no training job, as its program or its keys show; else ``None``."""
    program, name = _program(config), recognised(config).name
    if program is not None and program.task and program.system in (None, name):
        return program.fault
    if name is None and program is not None and isinstance(config.get(SECTION), str):
        return program.fault  # `--cluster NAME` of a program that rankplan does not know
    if name is None:
        text = description(config, config.document.file if isinstance(config, Section) else None)
    else:
        text = DIALECTS[name].unplaced_text(config)
    if text is None:
        return None
    return _placed(config, Diagnostic("no-components", *text)) if program is None else program.fault


def dialect_of(config: Mapping[Any, Any]) -> Dialect:
    """Return the dialect of a config, detected from its keys."""
    return DIALECTS[name_of(config)]


def family_of(name: str) -> list[str]:
    """Return the name of a dialect, then the name of its parent, then that of the parent's parent, and so on."""
    names = [name]
    with suppress(KeyError, GuestError):
        parent = DIALECTS[name].parent
        while parent is not None:
            names.append(parent.name)
            parent = parent.parent
    return names


def resembled(keys: Collection[str]) -> str | None:
    """Return the dialect that has one of these keys at the top of its configs or in their ``cluster`` section."""
    dialects = with_guests()
    for dialect in dialects:
        if any(key in keys for key in dialect.resembles):
            return dialect.name
    for dialect in dialects:
        for path in (*dialect.keys.telling, *dialect.keys.alone):
            if path[:-1] in ((), ("cluster",)) and path[-1] in keys:
                return dialect.name
    return None


_OF_HYDRA = ("defaults", "hydra")


def is_trainers_key(key: str) -> bool:
    """Return whether any dialect has a key at the top of its configs."""
    if key in _OF_HYDRA:
        return True
    return any(str(entry.path[0]) == key for one in (*with_guests(), DIALECTS[OWN]) for entry in one.keys.entries)


def mixed(config: Mapping[Any, Any]) -> list[tuple[KeyPath, Diagnostic]]:
    """Return a fault, with its path, for each key of a config that only another dialect has.

    If the config has a ``cluster`` section that places nothing, the other keys decide the dialect, and the section is
    the fault.
    """
    stranger = _system_beside_section(config)
    if stranger is not None:
        return [((SECTION,), faults.key_of_another((SECTION,), OWN, stranger))]
    name = name_of(config)
    own = DIALECTS[name].keys.known
    of_others: list[tuple[KeyPath, Diagnostic]] = []
    others = [DIALECTS[asked] for asked in ASKED]
    if SECTION in config:
        others.insert(0, DIALECTS[OWN])
    for other in others:
        if other.name == name:
            continue
        for path in other.keys.alone:
            is_common = path[-1] in own.get(path[:-1], ())
            if not is_common and _has(config, path):
                of_others.append((path, faults.key_of_another(path, other.name, name)))
    return of_others


def _system_beside_section(config: Mapping[Any, Any]) -> str | None:
    """Return the system of the keys beside a ``cluster`` section that places nothing, ``None`` in any other config."""
    section = config.get(SECTION)
    if not isinstance(section, Mapping) or name_of(config) != OWN or not _PLACING.isdisjoint(section):
        return None
    return recognised({key: value for key, value in config.items() if key != SECTION}).name


_PLACING = frozenset({"num_nodes", "component_placement"})
"""A ``cluster`` section without these keys places nothing."""


def _has(config: Any, path: KeyPath) -> bool:
    """Return whether a config has a value at a path."""
    for key in path:
        config = config.get(key) if isinstance(config, Mapping) else None
    return config is not None
