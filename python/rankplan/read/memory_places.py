"""Where a config states what decides an answer about memory."""

from __future__ import annotations

from rankplan.errors import Diagnostic, PlacementError
from rankplan.memory.needs import Needs
from rankplan.memory.verdicts import memory_faults
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
    setting = _DECIDES.get(found.code, "model")
    if name in sources.memory:
        path = sources.memory[name]
        inner = (*path, setting)
        return reader.located(inner if setting != "model" and reader.has(inner) else path, found)
    spelling = sources.spellings.get(name)
    stated_at = None if spelling is None else spelling.place(setting)
    return reader.located(stated_at or (), found)
