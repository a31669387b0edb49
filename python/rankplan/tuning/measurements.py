"""Measurements of a run, and the costs file that they make."""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import yaml

from rankplan.files import write_whole
from rankplan.frozen import frozen
from rankplan.memory.peaks import Peak, stated_of
from rankplan.parallel import Parallel
from rankplan.plans.plan import Plan
from rankplan.read.read_config import ReadConfig
from rankplan.read.text.load import load_config
from rankplan.tuning.costs import Costs
from rankplan.tuning.profile import batches_of
from rankplan.tuning.roles import stage_of
from rankplan.words import as_int


@frozen(slots=False)
class Measurement:
    """What was measured of a component on a number of accelerators.

    ``seconds`` are those of one iteration; ``None``: unknown. ``peaks`` are the most memory that it had on an
    accelerator at once, for each combination of components that share one.
    """

    accelerators: int
    seconds: float | None
    parallel: Parallel
    peaks: tuple[Peak, ...] = ()


@frozen(slots=False)
class Run:
    """What a run tells about an iteration: ``after`` and ``batches`` as in `Costs`.

    ``memory`` is that of the smallest accelerator, in MiB; ``None``: unknown.
    ``unknown`` are the components whose roles are unknown, so that ``after`` does not have them.
    """

    after: Mapping[str, list[str]]
    unknown: tuple[str, ...]
    batches: int
    memory: int | None

    @classmethod
    def of(cls, plan: Plan, config: ReadConfig | None) -> Run:
        """Return what a plan and its config tell: the order of the roles, and the micro-batches of RLinf's configs."""
        by_stage: dict[int, list[str]] = {}
        unknown: list[str] = []
        for name in plan:
            stage = stage_of(name)
            if stage is None:
                unknown.append(name)
            else:
                by_stage.setdefault(stage, []).append(name)
        before: dict[str, list[str]] = {}
        for earlier, later in pairwise(sorted(by_stage)):
            before |= dict.fromkeys(by_stage[later], by_stage[earlier])
        after = {name: list(before[name]) for name in plan if name in before}
        if len(plan) == 1:
            unknown = []  # nothing comes before it, or after it
        batches = None
        if config is not None and config.cluster is not None:
            batches = batches_of(config.reader, plan)
        return cls(after, tuple(unknown), batches or 1, _least_memory(plan))


def _least_memory(plan: Plan) -> int | None:
    """Return the memory of the smallest accelerator of a plan's nodes, ``None`` unless all are known."""
    sizes: list[int] = []
    for _, record in plan.inventory.stretches():
        if len(record.devices) != record.num_accelerators:
            return None
        for device in record.devices:
            if device.memory is None:
                return None
            sizes.append(device.memory)
    return min(sizes, default=None)


class Use(Protocol):
    """What a rank has used of an accelerator; see `rankplan.runtime.rank.memory.MemoryUse`."""

    @property
    def allocated(self) -> int | None: ...
    @property
    def reserved(self) -> int | None: ...
    @property
    def kept(self) -> int | None: ...
    @property
    def used(self) -> int | None: ...
    @property
    def total(self) -> int | None: ...


class DriverPeak(NamedTuple):
    """The most bytes that a driver counted as used on an accelerator at once, of its ``total``."""

    used: int
    total: int


def peak(plan: Plan, name: str, call: str, uses: Sequence[Use | None]) -> Peak | None:
    """Return the most that the processes of a component had on an accelerator, given what each rank has used."""
    component = plan[name]
    on_device: dict[tuple[int, int], list[Use]] = {}
    for row, use in zip(component, uses, strict=True):
        if use is not None and use.reserved is not None:
            for device in row.devices:
                on_device.setdefault(device, []).append(use)
    if not on_device:
        return None
    reserved_on = {device: _sum(use.reserved for use in uses) or 0 for device, uses in on_device.items()}
    fullest = max(reserved_on, key=lambda device: reserved_on[device])
    on_fullest = on_device[fullest]
    total = max((use.total for use in on_fullest if use.total is not None), default=None)
    accelerators, sizes, memory = stated_of(component)
    return Peak(
        call,
        accelerators,
        reserved=reserved_on[fullest],
        allocated=_sum(use.allocated for use in on_fullest),
        used=_used_at_peak(on_fullest, reserved_on[fullest], total),
        of=total,
        parallel=sizes,
        memory=memory,
        length=None if component.memory is None else component.memory.length,
        beside=_others(_users(plan)[fullest], name),
    )


def _used_at_peak(uses: Sequence[Use], reserved: int, total: int | None) -> int | None:
    """Return what was in use of an accelerator when its processes had reserved the most, ``None`` if unknown.

    The driver counts what is in use now, with what these processes keep; at their peak, that was ``reserved``.
    """
    used = max((use.used for use in uses if use.used is not None), default=None)
    if used is None or total is None:
        return used
    kept = _sum(use.kept for use in uses)
    return None if kept is None else min(used + reserved - kept, total)


def _sum(sizes: Iterable[int | None]) -> int | None:
    """Return the sum, ``None`` if a size is unknown."""
    known = list(sizes)
    return None if None in known else sum(size or 0 for size in known)


def driver_peaks(plan: Plan, call: str, used: Mapping[tuple[int, int], DriverPeak]) -> dict[str, tuple[Peak, ...]]:
    """Return the peaks of the components of a plan, given what drivers counted on its accelerators in a whole run.

    A driver counts all processes of an accelerator together. Of one that components share, the number is an upper bound
    of each phase there, and belongs to none of them. A component has a peak for each combination of components that
    share an accelerator, if all of these accelerators are known.
    """
    users = _users(plan)
    peaks: dict[str, tuple[Peak, ...]] = {}
    for name, component in plan.items():
        by_company: dict[tuple[tuple[str, int], ...], list[DriverPeak | None]] = {}
        for device in dict.fromkeys(device for row in component for device in row.devices):
            company = tuple(sorted(_others(users[device], name).items()))
            by_company.setdefault(company, []).append(used.get(device))
        accelerators, sizes, memory = stated_of(component)
        length = None if component.memory is None else component.memory.length
        for company, counted in by_company.items():
            known = [driver_peak for driver_peak in counted if driver_peak is not None]
            if len(known) < len(counted):
                continue
            most = max(known, key=lambda driver_peak: driver_peak.used)
            peak = Peak(
                call,
                accelerators,
                used=most.used,
                of=most.total,
                parallel=sizes,
                memory=memory,
                length=length,
                beside=dict(company),
                whole_run=bool(company),
            )
            peaks[name] = (*peaks.get(name, ()), peak)
    return peaks


def _users(plan: Plan) -> dict[tuple[int, int], Counter[str]]:
    """Return how many processes of each component use each accelerator."""
    users: dict[tuple[int, int], Counter[str]] = {}
    for name, component in plan.items():
        for row in component:
            for device in set(row.devices):
                users.setdefault(device, Counter())[name] += 1
    return users


def _others(users: Mapping[str, int], name: str) -> dict[str, int]:
    """Return the users of an accelerator without a component."""
    return {other: count for other, count in users.items() if other != name}


def check_addable(path: Path) -> None:
    """Raise ``OSError`` or `PlacementError` now, not after a job, if measurements cannot be added to this file."""
    if path.exists():
        Costs.load(path)
    elif not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "No such directory", str(path.parent))


def add_measurements(path: Path, measured: Mapping[str, Measurement], run: Run) -> None:
    """Add measurements to a costs file, which is created if it does not exist; comments in it are lost.

    A number that was measured before is replaced; whatever else the file states about an iteration stays. Memory is in
    GiB. Raises `PlacementError` if the file has faults, ``OSError``.
    """
    content: dict[str, Any] = {"batches": run.batches, "after": {}}
    if run.memory is not None:
        content["memory"] = _rounded(run.memory / 2**10)
    if path.exists():
        Costs.load(path)
        content |= load_config(path).to_dict()
    components = content.setdefault("components", {})
    content["components"] = content.pop("components")  # last, as in the guide
    for name, measurement in measured.items():
        _add_component(components.setdefault(name, {}), measurement)
    if not content["after"]:
        content["after"] = _order_of(components, run)
    if not content["after"]:
        del content["after"]
    write_whole(path, yaml.safe_dump(content, sort_keys=False, default_flow_style=None))


def _add_component(entry: dict[str, Any], measurement: Measurement) -> None:
    """Add the measurement of a component to its entry."""
    accelerators = measurement.accelerators
    if measurement.seconds is not None:
        _add(entry, "seconds", accelerators, measurement.seconds)
    for peak in measurement.peaks:
        size = peak.reserved
        if not size and not peak.beside:
            size = peak.used  # nothing else is on the accelerator
        if size is not None:
            _add(entry, "memory", accelerators, size / 2**30)
        others = [other for other in entry.get("peak", ()) if not _same(other, peak.plain())]
        entry["peak"] = [*others, peak.plain()]
    if measurement.parallel.stated:
        sizes = measurement.parallel.plain()
        sizes.pop("dp", None)  # it changes with the accelerators
        entry.setdefault("parallel", sizes)


def _order_of(components: Collection[str], run: Run) -> dict[str, list[str]]:
    """Return what a run tells about the order of these components."""
    after: dict[str, list[str]] = {}
    for name, others in run.after.items():
        before = [other for other in others if other in components]
        if before and name in components:
            after[name] = before
    return after


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two peaks are of the same call and settings."""
    settings = (one.keys() | other.keys()) - {"reserved", "allocated", "used"}
    return all(one.get(key) == other.get(key) for key in settings)


def _add(entry: dict[str, Any], key: str, accelerators: int, value: float) -> None:
    """Add a number to the points of an entry; a number for all sizes makes way for measured ones."""
    before = entry.get(key)
    points: dict[int, float] = {}
    if isinstance(before, dict):
        points = {as_int(size) or int(size): number for size, number in before.items()}
    points[accelerators] = _rounded(value)
    entry[key] = dict(sorted(points.items()))


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
