"""The report of a rank about itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from rankplan._core import RankSet
from rankplan.runtime.rank.spec import ENVIRONMENT


@dataclass(frozen=True, slots=True)
class RankReport:
    """The report of a rank about itself: where it runs, and the devices it sees, by the ids of its node.

    ``proof`` is ``devices`` if the driver confirmed the devices, which have these ``uuids``, else ``environment``.
    ``planned_cpus`` and ``cpus`` are the CPUs that it should and may run on; ``planned_memory`` and ``memory`` the same
    for memory, such as ``bind 0-1``. ``None``: not planned, or unknown. ``nics`` are the network cards near it, and
    ``egl_device`` the number of the EGL device that it renders on. ``node_id`` is Ray's id of its node,
    ``environment`` has the variables that the plan sets, and ``driver_problem`` says why the driver does not answer.
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
    node_id: str = field(default="", repr=False)
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    driver_problem: str | None = field(default=None, repr=False)

    @property
    def is_bound(self) -> bool:
        """Whether the rank runs on the planned CPUs, and has its memory where planned."""
        return self.planned_cpus in (None, self.cpus) and self.planned_memory in (None, self.memory)

    def to_dict(self) -> dict[str, Any]:
        """Return the facts that its repr shows, as ``rankplan run --format json`` prints them."""
        return {one.name: getattr(self, one.name) for one in fields(self) if one.repr}
