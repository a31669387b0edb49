"""From what the drivers of a plan's nodes have counted during a program to the peaks in a file of costs."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

from rankplan.errors import PlacementError
from rankplan.frozen import frozen
from rankplan.memory.peaks import Peak
from rankplan.memory.settings import GIB
from rankplan.plans.plan import Plan
from rankplan.runtime.live import faults
from rankplan.runtime.live.binding import Binding
from rankplan.runtime.live.spots import Device
from rankplan.runtime.nodes.sampler import Metered
from rankplan.runtime.usage.model import Live
from rankplan.tuning.measurements import DriverPeak, Measurement, Run, add_measurements, driver_peaks
from rankplan.words import listed

ComponentPeaks: TypeAlias = Mapping[str, tuple[Peak, ...]]
"""The peaks of components: one for each combination of components that share accelerators."""

NO_PEAKS: ComponentPeaks = MappingProxyType({})
_CALL = "pin"
_INTERRUPTING = frozenset({signal.SIGHUP, signal.SIGINT, signal.SIGTERM})


@frozen
class Ending:
    """How a command ended: its exit code, and the seconds that it ran.

    ``is_over``: its jobs have ended, too. ``live`` is what ran when all ranks were up as planned; ``None``: they never
    were. ``signals`` are those that were passed on to it: programs of Ray end with a code of their own after one.
    """

    code: int
    seconds: float
    is_over: bool
    live: Live | None
    signals: tuple[int, ...] = ()

    @property
    def was_interrupted(self) -> bool:
        """Whether a signal of a user or a scheduler ended it."""
        return not _INTERRUPTING.isdisjoint(self.signals)

    @property
    def why_no_peaks(self) -> str | None:
        """Why the readings say nothing about a step of the plan; ``None`` if they do.

        A program that fails for lack of memory has used less than it needs.
        """
        if not self.is_over:
            return "a job of the command is still running"
        if self.live is None:
            return "the ranks of the plan were not seen as planned"
        if self.live.compared is not None and self.live.compared.untold:
            return "Ray does not tell which accelerators some ranks have"
        if self.code and not self.was_interrupted:
            return f"the command failed with exit code {self.code}, and may have needed more than it used"
        return None


def write_peaks(
    file: Path, binding: Binding, cards: Mapping[Device, Metered], ending: Ending, tell: Callable[[str], None]
) -> ComponentPeaks:
    """Add the peaks of the components of a plan to a file of costs, and return them.

    Only what is known is written: nothing after a failure, and nothing of a component if an accelerator of it has
    processes that Ray did not start, or its driver has fallen silent. ``tell`` gets a note on everything left out, and
    on a file that cannot be written.
    """
    plan = binding.plan
    peaks = NO_PEAKS
    problem = ending.why_no_peaks
    if problem is None:
        peaks = driver_peaks(plan, _CALL, _known(binding, cards, ending.live, tell))
        if not peaks:
            problem = "no peak is known"
    if problem is None:
        measurements = {
            name: Measurement(of_component[0].accelerators, None, plan[name].parallel, of_component)
            for name, of_component in peaks.items()
        }
        try:
            add_measurements(file, measurements, Run.of(plan, None))
        except (PlacementError, OSError) as error:  # the program has run, and its report comes next
            problem = str(error)
    if problem is not None:
        tell(faults.unchanged_costs(str(file), problem))
        return NO_PEAKS
    if ending.was_interrupted:
        tell(faults.interrupted_peaks(str(file), ending.seconds))
    return peaks


def _known(
    binding: Binding, cards: Mapping[Device, Metered], live: Live | None, tell: Callable[[str], None]
) -> dict[Device, DriverPeak]:
    """Return the peak of each planned accelerator, read from the one that its ranks were given."""
    users: dict[Device, dict[str, None]] = {}
    actual: dict[Device, Device] = {}
    for name, planned, device in _devices(binding.plan, live):
        users.setdefault(planned, {})[name] = None
        actual[planned] = device
    peaks: dict[Device, DriverPeak] = {}
    for planned, names in users.items():
        rank, index = actual[planned]
        place = f"accelerator {index} of {binding.name(rank)}"
        card = cards.get(actual[planned])
        if card is None:
            tell(faults.lost_driver(place, list(names)))
        elif card.strangers:
            tell(faults.strange_processes(place, card.strangers, list(names)))
        else:
            peaks[planned] = DriverPeak(card.used, card.total)
    return peaks


def _devices(plan: Plan, live: Live | None) -> Iterator[tuple[str, Device, Device]]:
    """Yield the components with their planned accelerators, and those that their ranks were given."""
    places = {} if live is None or live.compared is None else live.compared.places
    for name, component in plan.items():
        of_component = places.get(name, {})
        for row in component:
            for planned, device in zip(row.devices, of_component.get(row.rank, row.devices), strict=True):
                yield name, planned, device


def peak_lines(peaks: ComponentPeaks) -> Iterator[str]:
    """Yield a line for each combination of components that share accelerators, with the most that one of them held."""
    lines: dict[tuple[str, ...], Peak] = {}
    for name, of_component in peaks.items():
        for peak in of_component:
            names = tuple(sorted({name, *(peak.beside or {})}))
            before = lines.get(names)
            if before is None or (before.used or 0) < (peak.used or 0):
                lines[names] = peak
    for names, peak in lines.items():
        used, total = (peak.used or 0) / GIB, (peak.of or 0) / GIB
        yield f"memory of {listed(names)}: at most {used:.1f} of {total:.1f} GiB of an accelerator"
