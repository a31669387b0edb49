"""The memory that a plan needs, with what its job file, or a command, states about the accelerators."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rankplan.errors import PlacementError
from rankplan.frozen import frozen
from rankplan.hardware.cards import size_in_bytes
from rankplan.read.sources import Planned

if TYPE_CHECKING:
    from rankplan.jobs.reader import JobFile
    from rankplan.memory.need import Measured
    from rankplan.memory.needs import Needs
    from rankplan.memory.peaks import Peaks
    from rankplan.tuning.costs import Costs


@frozen
class UsedMemory:
    """What other programs use of each accelerator, in bytes, and measured peaks; ``None`` where it is not stated.

    ``measured`` are the bytes of phases that a user hands in.
    """

    reserve: float | None = None
    peaks: Peaks | None = None
    measured: Measured | None = None

    def or_stated(self, stated: JobFile | None) -> UsedMemory:
        """Return what is stated here, and else in a job file. Raises `PlacementError` for a wrong file of costs."""
        if stated is None:
            return self
        reserve, peaks, memory = self.reserve, self.peaks, stated.memory
        if reserve is None and memory.reserve is not None:
            reserve = size_in_bytes(memory.reserve)
        if peaks is None and memory.costs is not None:
            try:
                peaks = peaks_of(memory.costs)
            except OSError as error:
                from rankplan.jobs.faults import no_file  # for a wrong job file

                fault = no_file("costs", memory.costs, error.strerror or str(error))
                raise PlacementError([stated.where("memory", "costs").locate(fault)]) from None
        return UsedMemory(reserve, peaks, self.measured)


def needs_of(planned: Planned, used: UsedMemory, *, always: bool = False) -> Needs | None:
    """Return what the phases of a plan need; ``None`` if no component states its memory, unless ``always``."""
    plan, sources = planned
    if not always and all(component.memory is None for component in plan.values()):
        return None
    from rankplan.memory.needs import Needs  # many configs say nothing about memory

    reserve = used.reserve or 0.0
    stated = sources.spellings, used.measured, sources.uncounted, sources.state_instead
    return Needs(plan.inventory, plan, reserve, used.peaks, *stated)


def peaks_of(costs: Costs | Mapping[str, Any] | str | os.PathLike[str] | None) -> Peaks | None:
    """Return the measured peaks of costs. Raises `PlacementError` with every fault, ``OSError``."""
    if costs is None:
        return None
    from rankplan.tuning.search import read_costs  # most programs never tune

    return read_costs(costs).peaks
