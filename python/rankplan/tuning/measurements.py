"""Measurements of a run, and the costs file that they make."""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
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
        stages = {name: stage_of(name) for name in plan}
        known = sorted({stage for stage in stages.values() if stage is not None})
        after = {}
        for name, stage in stages.items():
            earlier = [one for one in known if stage is not None and one < stage]
            if earlier:
                after[name] = [other for other, its in stages.items() if its == earlier[-1]]
        unknown = tuple(name for name, stage in stages.items() if stage is None) if len(plan) > 1 else ()
        batches = None if config is None or config.cluster is None else batches_of(config.reader, plan)
        return cls(after, unknown, batches or 1, _smallest(plan))


def _smallest(plan: Plan) -> int | None:
    """Return the memory of the smallest accelerator of a plan's nodes, ``None`` unless all are known."""
    devices = [(record.devices, record.num_accelerators) for _, record in plan.inventory.stretches()]
    found = [device.memory for facts, _ in devices for device in facts]
    complete = len(found) == sum(count for _, count in devices)
    return min((size for size in found if size is not None), default=None) if complete and None not in found else None


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
    device, found = max(on_device.items(), key=lambda item: _sum(use.reserved for use in item[1]) or 0)
    reserved, kept = _sum(use.reserved for use in found) or 0, _sum(use.kept for use in found)
    used = max((use.used for use in found if use.used is not None), default=None)
    total = max((use.total for use in found if use.total is not None), default=None)
    if used is not None and total is not None:
        # As at the peak, with the other processes as they are now.
        used = None if kept is None else min(used + reserved - kept, total)
    accelerators, sizes, memory = stated_of(component)
    return Peak(
        call,
        accelerators,
        reserved,
        _sum(use.allocated for use in found),
        used,
        total,
        sizes,
        memory,
        None if component.memory is None else component.memory.length,
        _others(_users(plan)[device], name),
    )


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
            complete = [one for one in counted if one is not None]
            if len(complete) < len(counted):
                continue
            most = max(complete, key=lambda one: one.used)
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


def add_measurements(path: Path, found: Mapping[str, Measurement], run: Run) -> None:
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
    for name, one in found.items():
        entry = components.setdefault(name, {})
        if one.seconds is not None:
            _add(entry, "seconds", one.accelerators, one.seconds)
        for peak in one.peaks:
            own_bytes = peak.reserved if peak.beside else peak.reserved or peak.used
            if own_bytes is not None:
                _add(entry, "memory", one.accelerators, own_bytes / 2**30)
            others = [other for other in entry.get("peak", ()) if not _same(other, peak.plain())]
            entry["peak"] = [*others, peak.plain()]
        if one.parallel.stated:
            sizes = one.parallel.plain()
            entry.setdefault("parallel", {key: size for key, size in sizes.items() if key != "dp"})
    if not content["after"]:
        known = {name: [other for other in before if other in components] for name, before in run.after.items()}
        content["after"] = {name: before for name, before in known.items() if before and name in components}
    if not content["after"]:
        del content["after"]
    write_whole(path, yaml.safe_dump(content, sort_keys=False, default_flow_style=None))


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two peaks are of the same call and settings."""
    return all(
        one.get(key) == other.get(key) for key in (one.keys() | other.keys()) - {"reserved", "allocated", "used"}
    )


def _add(entry: dict[str, Any], key: str, accelerators: int, value: float) -> None:
    """Add a number to the points of an entry; a number for all sizes makes way for measured ones."""
    stated = entry.get(key)
    points = {as_int(size) or int(size): known for size, known in stated.items()} if isinstance(stated, dict) else {}
    entry[key] = dict(sorted({**points, accelerators: _rounded(value)}.items()))


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
