"""Verification: each rank reports where it runs and what it sees, and that is compared with the plan."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import ray

from rankplan._core import Placement, RankSet
from rankplan.accelerators import vendor
from rankplan.environment import RESERVED_VARIABLES
from rankplan.errors import LaunchError
from rankplan.hardware.driver import plain, written
from rankplan.runtime.rank.proof import driver_differences, shared_devices
from rankplan.runtime.rank.settings import ENVIRONMENT, RankSettings, Seen, seen_here


@dataclass(frozen=True, slots=True)
class Sighting:
    """What a rank reports about itself: Ray's id of its node, its process id, its environment."""

    node_id: str
    pid: int
    environment: dict[str, str]
    seen: Seen = field(default_factory=Seen)

    @classmethod
    def here(cls) -> Sighting:
        """Return the report of this process."""
        environment = {name: os.environ[name] for name in RESERVED_VARIABLES if name in os.environ}
        return cls(ray.get_runtime_context().get_node_id(), os.getpid(), environment, seen_here())


@dataclass(frozen=True, slots=True)
class RankReport:
    """A rank that matches its plan: where it runs, and the devices it sees, by the ids of its node.

    ``proof`` is ``devices`` if the driver confirmed the devices, which have these ``uuids``, else ``environment``.
    ``planned_cpus`` and ``cpus`` are the CPUs that it should and may run on; ``planned_memory`` and ``memory`` the same
    for memory, such as ``bind 0-1``. ``None``: not planned, or unknown. ``nics`` are the network cards near it, and
    ``egl_device`` the number of the EGL device that it renders on.
    """

    component: str
    rank: int
    node_rank: int
    pid: int
    accelerators: tuple[str, ...]
    proof: str = ENVIRONMENT
    uuids: tuple[str, ...] = ()
    planned_cpus: RankSet | None = None
    cpus: RankSet | None = None
    planned_memory: str | None = None
    memory: str | None = None
    nics: tuple[str, ...] = ()
    egl_device: int | None = None

    @property
    def bound(self) -> bool:
        """Whether the rank runs on the planned CPUs, and has its memory where planned."""
        return self.planned_cpus in (None, self.cpus) and self.planned_memory in (None, self.memory)


@dataclass(frozen=True, slots=True)
class Expectation:
    """What the plan says about a rank: Ray's id of its node, and its environment variables.

    ``pid`` is the process that the rank was launched in, ``None`` before the launch is complete.
    """

    placement: Placement
    node_id: str
    environment: Mapping[str, str]
    pid: int | None = None
    settings: RankSettings = field(default_factory=RankSettings)

    def differences(self, found: Sighting) -> list[str]:
        """Return a description of each difference between plan and process."""
        differences = []
        if found.node_id != self.node_id:
            differences.append(f"runs on Ray node {found.node_id}, expected {self.node_id}")
        if self.pid not in (None, found.pid):
            differences.append(f"is not the process that was launched, which had pid {self.pid}")
        for name, planned in self.environment.items():
            value = found.environment.get(name)
            if value != planned:
                differences.append(f"{name} is {'not set' if value is None else repr(value)}, expected {planned!r}")
        if (row := vendor(self.placement.accelerator_type)) is not None:
            others = row.disturbed(found.environment).items()
            differences += [f"{name} is {value!r}, which overrides {row.visibility}" for name, value in others]
            mask = f"{row.visibility}={found.environment.get(row.visibility, '')}"
            differences += driver_differences(self.settings, found.seen.shown, mask)
        return differences

    def report(self, component: str, found: Sighting) -> RankReport:
        """Return the report of a rank without differences."""
        row, bound, seen = vendor(self.placement.accelerator_type), self.settings.bound, found.seen
        return RankReport(
            component,
            self.placement.rank,
            self.placement.cluster_node_rank,
            found.pid,
            (row and row.shown(found.environment)) or (),
            self.settings.proof,
            _names(self.settings, seen),
            bound.cpus or None,
            seen.where.cpus,
            f"{bound.memory} {bound.memory_nodes}" if bound.memory_nodes else None,
            f"{seen.where.memory} {seen.where.memory_nodes}" if seen.where.memory_nodes else None,
            self.settings.nics,
            seen.egl_device,
        )


def unbound_text(reports: Sequence[RankReport]) -> str:
    """Return which ranks are not bound as planned, and how the first one is; empty if all are."""
    loose = [report for report in reports if not report.bound]
    if not loose:
        return ""
    first = loose[0]
    parts = []
    if first.planned_cpus not in (None, first.cpus):
        parts.append(f"CPUs {first.cpus}, planned {first.planned_cpus}")
    if first.planned_memory not in (None, first.memory):
        parts.append(f"memory {first.memory or 'none'}, planned {first.planned_memory}")
    ranks = RankSet(report.rank for report in loose)
    return f"ranks {ranks} are not bound as planned; rank {first.rank} has {' and '.join(parts)}"


def _names(settings: RankSettings, seen: Seen) -> tuple[str, ...]:
    """Return the uuids that the driver shows, written like those of the plan."""
    known = {plain(uuid): uuid for uuid in settings.uuids}
    return tuple(written(uuid, known) for uuid in (seen.shown.uuids if seen.shown else ()))


def check(component: str, expectations: Sequence[Expectation], sightings: Sequence[Sighting]) -> list[RankReport]:
    """Compare plan and processes, rank by rank, and return the reports.

    Raises ``LaunchError`` with the differences, the first ten in full.
    """
    reports, lines, first = [], [], None
    for expected, found in zip(expectations, sightings, strict=True):
        placement = expected.placement
        who = f"rank {placement.rank} (node {placement.cluster_node_rank}, pid {found.pid})"
        differences = expected.differences(found)
        if differences and first is None:
            first = placement
        lines += [f"{who}: {difference}" for difference in differences]
        reports.append(expected.report(component, found))
    rows = [expected.placement for expected in expectations]
    for one, other, uuid in shared_devices(rows, [report.uuids for report in reports]):
        first = first or rows[one]
        lines.append(f"ranks {rows[other].rank} and {rows[one].rank} both see {uuid}, but share no device in the plan")
    if first is not None:
        more = f"\n  and {len(lines) - 10} more" if len(lines) > 10 else ""
        raise LaunchError(
            f"{component} differs from its plan:\n  " + "\n  ".join(lines[:10]) + more,
            component,
            first.rank,
            first.cluster_node_rank,
        )
    return reports
