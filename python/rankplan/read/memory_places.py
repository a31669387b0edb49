"""Where a config states what decides an answer about memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rankplan.errors import Diagnostic, KeyPath, PlacementError
from rankplan.memory.faults import memory_faults
from rankplan.memory.needs import Needs
from rankplan.plans.rules import component_names
from rankplan.read.sources import Sources
from rankplan.read.text.reader import Reader

_DECIDES = {"engine-share": "share", "memory-shared": "share", "host-memory": "optimizer_on_host"}
"""The setting that decides an answer, by its code: its place is that of the answer, if it is stated."""


def reject_memory(needs: Needs, reader: Reader, sources: Sources) -> None:
    """Raise `PlacementError` if a component cannot fit, at its ``memory`` in a config."""
    found = [located(reader, sources, name, fault) for name, fault in memory_faults(needs)]
    if found:
        raise PlacementError(found)


def located(reader: Reader, sources: Sources, name: str, found: Diagnostic) -> Diagnostic:
    """Return a diagnostic at what a component states about its memory in a config, or else at its model's name."""
    here: Any = reader.content if reader.config is None else reader.config
    for part in ("cluster", "component_placement"):
        here = here.get(part) if isinstance(here, Mapping) else None
    setting, spelling = _DECIDES.get(found.code, "model"), sources.spellings.get(name)
    path: KeyPath = (spelling.place(setting) if spelling is not None else None) or ()
    for key, entry in here.items() if isinstance(here, Mapping) else ():
        if isinstance(entry, Mapping) and "memory" in entry and name in component_names(str(key)):
            path = "cluster", "component_placement", str(key), "memory"
            stated = entry["memory"]
            path = (*path, setting) if setting != "model" and setting in stated else path
    return reader.located(path, found)
