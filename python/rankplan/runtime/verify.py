"""Verification: each rank reports where it runs and what it sees, and that is compared with the plan."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import ray

from rankplan.accelerators import vendor
from rankplan.environment import RESERVED_VARIABLES
from rankplan.errors import LaunchError
from rankplan.placement import Placement


@dataclass(frozen=True, slots=True)
class Sighting:
    """What a rank reports about itself: Ray's id of its node, its process id, its environment."""

    node_id: str
    pid: int
    environment: dict[str, str]

    @classmethod
    def here(cls) -> Sighting:
        """Return the report of this process."""
        environment = {name: os.environ[name] for name in RESERVED_VARIABLES if name in os.environ}
        return cls(ray.get_runtime_context().get_node_id(), os.getpid(), environment)


@dataclass(frozen=True, slots=True)
class RankReport:
    """A rank that matches its plan: where it runs, and the devices it sees, by the ids of its node."""

    component: str
    rank: int
    node_rank: int
    pid: int
    accelerators: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Expectation:
    """What the plan says about a rank: Ray's id of its node, and its environment variables.

    ``pid`` is the process that the rank was launched in, ``None`` before the launch is complete.
    """

    placement: Placement
    node_id: str
    environment: Mapping[str, str]
    pid: int | None = None

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
        return differences


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
        row = vendor(placement.accelerator_type)
        accelerators = (row and row.shown(found.environment)) or ()
        reports.append(RankReport(component, placement.rank, placement.cluster_node_rank, found.pid, accelerators))
    if first is not None:
        more = f"\n  and {len(lines) - 10} more" if len(lines) > 10 else ""
        raise LaunchError(
            f"{component} differs from its plan:\n  " + "\n  ".join(lines[:10]) + more,
            component,
            first.rank,
            first.cluster_node_rank,
        )
    return reports
