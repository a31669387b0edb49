"""Measured peaks of memory, and what has to be the same for them to count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Protocol, TypeAlias

from rankplan.frozen import frozen
from rankplan.memory.slots import Bounds, Evaluation, Parts
from rankplan.parallel import Parallel
from rankplan.plans.component import Component
from rankplan.plans.memory_settings import MemorySettings

MEASURED = "measured"
_SAME_CARD = 0.03
"""A driver shows up to this much less than the nominal memory of its card."""


@frozen
class Peak:
    """The most memory of a component on an accelerator in a run, in bytes.

    PyTorch counts ``allocated`` and ``reserved`` by process; these are those of all processes of the component on the
    accelerator with the most. ``used`` is what the driver then counted on it, of every process; ``None``: unknown.
    ``whole_run``: that is the most of a run in which the components on the accelerator had their turns, and no phase
    needed more. The rest is what the numbers depend on: ``of`` is the size of the accelerator, ``beside`` the processes
    of other components on it, ``memory`` the key of that name without its ``length``.
    """

    call: str
    accelerators: int
    reserved: int | None = None
    allocated: int | None = None
    used: int | None = None
    of: int | None = None
    parallel: Mapping[str, Any] | None = None
    memory: Mapping[str, Any] | None = None
    length: int | None = None
    beside: Mapping[str, int] | None = None
    whole_run: bool = False

    def plain(self) -> dict[str, Any]:
        """Return the peak as plain values."""
        return {key: value for key, value in asdict(self).items() if value not in (None, {}, False)}

    def covers(self, evaluation: Evaluation, card: Bounds | None) -> bool:
        """Whether it was measured with these settings, but for the length of a sequence, which may be shorter."""
        length = evaluation.entry.length
        longer = self.length == length or (self.length is not None and length is not None and length < self.length)
        stated = stated_of(evaluation.component, evaluation.entry, evaluation.parallel)
        same = (self.accelerators, self.parallel or {}, self.memory or {}) == stated
        return same and longer and card is not None and self.of is not None and _alike(self.of, card)

    def parts(self, of_process: Parts, asleep: Parts, users: Mapping[str, int]) -> Parts | None:
        """Return what replaces the parts of a phase: those of the process, and those of others ``asleep``.

        ``None`` if the driver's number is unknown or of other processes, and what PyTorch does not count has no bound.
        """
        if self.used is not None and dict(self.beside or {}) == dict(users):
            return {MEASURED: (float(self.used), float(self.used))}
        if not of_process or self.reserved is None:
            return None
        return {MEASURED: (float(self.reserved), float(self.reserved)), **of_process, **asleep}


Peaks: TypeAlias = Mapping[str, Sequence[Peak]]
"""Measured peaks, by component."""


class HasPeaks(Protocol):
    """What has measured peaks: `rankplan.Costs`."""

    @property
    def peaks(self) -> Peaks:
        """Measured peaks, by component."""


def stated_of(
    component: Component, entry: MemorySettings | None = None, parallel: Parallel | None = None
) -> tuple[int, dict[str, Any], dict[str, Any]]:
    """Return what a peak depends on: the number of accelerators, the parallel sizes, and the memory that is stated."""
    entry, parallel = entry or component.memory, parallel or component.parallel
    sizes = {key: size for key, size in parallel.plain().items() if key != "dp"}
    accelerators = len(component.rows.accelerators()) or len(component)
    if entry is None:
        return accelerators, sizes, {}
    model = {} if entry.model is None else {"model": entry.model.name}
    others = {name: value for name, value in entry.stated() if name not in ("length", "model")}
    return accelerators, sizes, model | others


def _alike(size: int, card: Bounds) -> bool:
    return card[0] * (1 - _SAME_CARD) <= size <= card[1] * (1 + _SAME_CARD)
