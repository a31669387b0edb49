"""Measured needs that a user hands in: the bytes of a phase, or the log of a trainer that prints its peak."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple, TypeAlias

from rankplan.errors import PlacementError
from rankplan.hardware.cards import SMALLEST_SIZE, size_in_bytes
from rankplan.memory import faults
from rankplan.memory.settings import GIB


class Phase(NamedTuple):
    """A phase of a component, such as ``actor.train``."""

    component: str
    phase: str

    def __str__(self) -> str:
        return ".".join(self)


Measured: TypeAlias = Mapping[Phase, float]
"""What the allocator of a component held at its peak in a phase, in bytes."""

_LARGEST_LOG = 1 << 28
_VERL = re.compile(r"perf/max_memory_allocated_gb['\"]?\s*[:=]\s*(?:np\.float\d+\()?([0-9]+(?:\.[0-9]+)?)")
"""verl: ``compute_data_metrics`` of the update of the actor, ``torch.cuda.max_memory_allocated() / 1024**3``."""


def read_measured(texts: Iterable[str]) -> dict[Phase, float]:
    """Return the measured bytes of phases that ``actor.train=57GiB`` states, or that the log of a trainer has.

    Raises `PlacementError` (``invalid-value``) for a text that is neither, ``OSError`` for a log that cannot be read.
    """
    if isinstance(texts, str) or not isinstance(texts, Iterable):
        raise PlacementError([faults.no_measured_list(texts)])
    measured: dict[Phase, float] = {}
    for text in texts:
        if not isinstance(text, str):
            raise PlacementError([faults.no_measured_size(text)])
        name, equals, size = text.partition("=")
        if Path(text).is_file():
            measured |= _of_log(text)
        elif equals:
            measured[_phase(name, text)] = _bytes(size, text)
        else:
            raise PlacementError([faults.no_measured_size(text)])
    return measured


def _phase(name: str, text: str) -> Phase:
    component, dot, phase = name.strip().rpartition(".")
    if not dot or not component or not phase:
        raise PlacementError([faults.no_measured_size(text)])
    return Phase(component, phase)


def _bytes(size: str, text: str) -> float:
    try:
        measured = float(size_in_bytes(size.strip()))
    except ValueError:
        measured = 0.0
    if measured < SMALLEST_SIZE:
        raise PlacementError([faults.no_measured_size(text)])
    return measured


def _of_log(path: str) -> dict[Phase, float]:
    """Return the largest peak of a log of verl: that of its actor, which also computes log-probabilities."""
    with Path(path).open(encoding="utf-8", errors="replace") as file:
        peaks = [float(number) for number in _VERL.findall(file.read(_LARGEST_LOG))]
    if not peaks:
        raise PlacementError([faults.no_peak_in_log(path)])
    return {Phase("actor", "train"): max(peaks) * GIB}
