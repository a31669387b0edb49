"""Weights that no actor rank could send: RLinf sends them slot by slot, other trainers gather whole tensors first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rankplan.errors import KeyPath, PlacementError
from rankplan.plans.weights import senderless
from rankplan.read.sources import Planned
from rankplan.read.text.reader import Reader

_TENSOR_SIZES = ("tp", "tensor_parallel_size", "tp_size")


def reject_senderless(planned: Planned, reader: Reader) -> None:
    """Raise `PlacementError` for weights without a sender, at the tensor size of the receiver."""
    faults = []
    for name, fault in senderless(planned.plan):
        path = planned.sources.sizes_of(name, reader.where(())).path
        faults.append(reader.located(_tensor_size(reader, path), fault))
    if faults:
        raise PlacementError(faults)


def _tensor_size(reader: Reader, path: KeyPath) -> KeyPath:
    """Return the path of the tensor size in the sizes at a path of the config, or that path."""
    section: Any = reader.content if reader.config is None else reader.config
    for part in path:
        section = section.get(part) if isinstance(section, Mapping) else None
    keys = [key for key in _TENSOR_SIZES if isinstance(section, Mapping) and key in section]
    return (*path, *keys[:1])
