"""The memory of the accelerators of a node while a program runs, read by a process of Ray there."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field

from rankplan.frozen import frozen
from rankplan.hardware import nvml
from rankplan.runtime.nodes.processes import ancestors
from rankplan.runtime.ray import timeouts


@frozen
class Metered:
    """The most bytes that were used of an accelerator at once, and its size.

    ``strangers`` are processes on it that Ray has not started, whose bytes are part of it.
    """

    used: int
    total: int
    strangers: tuple[int, ...]


@dataclass
class _Card:
    """What has been read of an accelerator. ``told``: by every reading so far."""

    used: int = 0
    total: int = 0
    told: bool = True
    strangers: set[int] = field(default_factory=set)


class Sampler:
    """Reads the drivers of the accelerators of its node, in a thread, until its process ends."""

    def __init__(self, ids: Sequence[str]) -> None:
        """``ids`` are those of the accelerators on this node. What computes on them now is a stranger."""
        self._ids = list(ids)
        self._cards = [_Card() for _ in ids]
        self._is_strange: dict[int, bool] = {}
        self._raylet = os.getppid()
        self._lock = threading.Lock()
        self._readings = nvml.loads(self._ids)
        self._enter(next(self._readings, None), is_first=True)
        threading.Thread(target=self._run, name="rankplan-memory", daemon=True).start()

    def problem(self) -> str:
        """Return why the driver does not tell what is used, an empty text if it does."""
        with self._lock:
            silent = [name for name, card in zip(self._ids, self._cards, strict=True) if not card.told]
        if not silent:
            return ""
        problems = [gpu.problem for gpu in nvml.read(silent) if gpu.problem is not None]
        return problems[0] if problems else "NVML is not installed there, or has no driver"

    def cards(self) -> list[Metered | None]:
        """Return what was read of each accelerator; ``None`` for one that the driver has stopped to tell of."""
        with self._lock:
            return [
                Metered(card.used, card.total, tuple(sorted(card.strangers))) if card.told else None
                for card in self._cards
            ]

    def _run(self) -> None:
        pause = threading.Event()
        with closing(self._readings) as readings:
            for reading in readings:
                self._enter(reading)
                pause.wait(timeouts.SAMPLE)
        self._enter(None)

    def _enter(self, reading: list[nvml.Load | None] | None, *, is_first: bool = False) -> None:
        """Add a reading of all accelerators; ``None``: NVML has stopped to answer."""
        for index, card in enumerate(self._cards):
            load = None if reading is None else reading[index]
            pids = () if load is None else load.pids
            for pid in pids:
                if pid not in self._is_strange:
                    self._is_strange[pid] = is_first or self._is_stranger(pid)
            with self._lock:
                if load is None:
                    card.told = False
                    continue
                card.used, card.total = max(card.used, load.used), load.total
                card.strangers.update(pid for pid in pids if self._is_strange[pid])

    def _is_stranger(self, pid: int) -> bool:
        """Whether a process, as this one sees it, does not descend from the raylet of this node."""
        lineage = ancestors(pid)
        return lineage is not None and self._raylet not in lineage
