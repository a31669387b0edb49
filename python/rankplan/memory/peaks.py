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
"""A driver shows less than the nominal memory of its card, by at most this share."""


@frozen
class Peak:
    """The most memory of a component on an accelerator in a run, in bytes.

    The accelerator is the one with the most. ``allocated`` and ``reserved`` are what PyTorch counted there, summed over
    the processes of the component. ``used`` is what the driver counted there for every process; ``None``: unknown.
    ``whole_run``: ``used`` is the most of a run in which the components on the accelerator had their turns, so no phase
    needs more. The other fields are what the numbers depend on: ``of`` is the size of the accelerator, ``beside`` the
    processes of other components on it, ``memory`` the key of that name without its ``length``.
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
        """Whether it was measured with the settings of a component, and with sequences as long or longer."""
        length = evaluation.entry.length
        longer = self.length == length or (self.length is not None and length is not None and length < self.length)
        stated = stated_of(evaluation.component, evaluation.entry, evaluation.parallel)
        same = (self.accelerators, self.parallel or {}, self.memory or {}) == stated
        return same and longer and card is not None and self.of is not None and _alike(self.of, card)

    def parts(self, of_process: Parts, asleep: Parts, users: Mapping[str, int]) -> Parts | None:
        """Return the parts that replace those of a phase: of the process, and of others ``asleep``.

        The number of the driver counts if it was measured beside the same processes, else that of PyTorch, with the
        parts that PyTorch does not count. ``None`` if there is neither.
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
    """Return what a peak depends on: the number of accelerators, the parallel sizes and the settings of memory."""
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
