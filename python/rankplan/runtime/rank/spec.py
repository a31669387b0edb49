"""A rank: as its plan and its node describe it, as it reports itself, and the differences."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, fields
from typing import TYPE_CHECKING, Any

from rankplan._core import Placement, RankSet
from rankplan.accelerators import vendor
from rankplan.environment import planned_environment
from rankplan.frozen import frozen
from rankplan.hardware.policies import Bound

if TYPE_CHECKING:
    from rankplan.plans.component import Coordinates

DEVICES, ENVIRONMENT = PROOFS = ("devices", "environment")
"""How a rank proves that it sees its devices: by asking the driver, or by its environment variables alone."""


@frozen
class RankSpec:
    """A rank, as its plan and its node describe it. Its process gets no other description, and must report the same.

    ``node_id`` is Ray's id of its node. ``hardware`` are the configs of its robots, pickled because the modules of
    their models must be imported after the environment is set. ``env_vars`` are those of its node group. ``at_start``
    are the variables that the process must start with, with their final values, and ``interpreter`` runs it (``None``:
    Ray's interpreter).

    ``cpus`` and ``host_memory`` (MiB) are what its process reserves with Ray, unless it starts in a reservation.
    ``uuids`` are those of its visible devices, empty if unknown; ``proof`` says whether to ask the driver for them.
    ``nics`` are the network cards near it, and ``nic_variables`` make it use them. With ``egl``, it renders on the EGL
    device of its first accelerator: ``ordinal`` is the number of that accelerator on its node, ``pci`` its address.
    """

    component: str
    placement: Placement
    coordinates: list[Coordinates]
    node_id: str
    hardware: bytes = b""
    env_vars: Mapping[str, str] = field(default_factory=dict)
    at_start: Mapping[str, str] = field(default_factory=dict)
    interpreter: str | None = None
    bound: Bound = field(default_factory=Bound)
    proof: str = ENVIRONMENT
    uuids: tuple[str, ...] = ()
    nics: tuple[str, ...] = ()
    nic_variables: Mapping[str, str] = field(default_factory=dict)
    egl: bool = False
    ordinal: int | None = None
    pci: str | None = None
    cpus: float = 0
    host_memory: int = 0

    def runtime_env(self) -> dict[str, Any] | None:
        """Return the settings needed at process start; with ``None``, Ray starts the process in half the time."""
        python = None if self.interpreter is None else shlex.quote(self.interpreter)  # Ray passes it to a shell
        settings = {"env_vars": dict(self.at_start), "py_executable": python}
        return {name: value for name, value in settings.items() if value} or None

    def amounts(self) -> dict[str, float]:
        """Return the options with which Ray counts what its process reserves."""
        memory = {"memory": self.host_memory << 20} if self.host_memory else {}
        return {"num_cpus": self.cpus, **memory}

    def late(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Return the variables that the process sets itself, because it did not start with them."""
        return {name: value for name, value in variables.items() if name not in self.at_start}


@frozen
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


def differences(spec: RankSpec, report: RankReport, pid: int | None = None) -> Iterator[str]:
    """Yield a description of each difference; ``pid`` is the process that the rank was launched in, if known."""
    if report.node_id != spec.node_id:
        yield f"runs on Ray node {report.node_id}, expected {spec.node_id}"
    if pid not in (None, report.pid):
        yield f"is not the process that was launched, which had pid {pid}"
    for name, planned in planned_environment(spec.placement).items():
        value = report.environment.get(name)
        if value != planned:
            yield f"{name} is {'not set' if value is None else repr(value)}, expected {planned!r}"
    if (row := vendor(spec.placement.accelerator_type)) is not None:
        for name, value in row.disturbed(report.environment).items():
            yield f"{name} is {value!r}, which overrides {row.env_var}"
        mask = f"{row.env_var}={report.environment.get(row.env_var, '')}"
        yield from _driver_differences(spec.uuids, report, mask)


def _driver_differences(planned: tuple[str, ...], report: RankReport, mask: str) -> Iterator[str]:
    """Yield the difference between the devices that the driver shows under this mask and the planned ones."""
    found = report.uuids
    if report.driver_problem is not None:
        yield f"the driver does not tell its devices: {report.driver_problem}"
    elif report.proof != DEVICES or not planned or found == planned:
        return
    elif sorted(found) == sorted(planned):
        yield (
            f"the driver shows its devices in the order {', '.join(found)}, expected {', '.join(planned)}; "
            "set CUDA_DEVICE_ORDER to PCI_BUS_ID in the env_vars of its node group"
        )
    elif found == planned[: len(found)]:
        missing = ", ".join(planned[len(found) :])
        yield (
            f"the driver shows {len(found)} of {len(planned)} devices, without {missing}; CUDA ignores a mask from its "
            f"first invalid id on: {mask}"
        )
    else:
        yield (
            f"the driver shows {', '.join(found)}, expected {', '.join(planned)}; set CUDA_DEVICE_ORDER to "
            "PCI_BUS_ID in the env_vars of its node group, or probe the nodes again if cards were exchanged"
        )


def shared_devices(rows: Sequence[Placement], uuids: Sequence[tuple[str, ...]]) -> Iterator[tuple[int, int, str]]:
    """Yield the positions of two ranks that see only their own devices and have one in common, but not in the plan."""
    first: dict[str, list[int]] = {}
    for position, row in enumerate(rows):
        if row.visibility != "own":
            continue
        for uuid in uuids[position]:
            for other in first.get(uuid, ()):
                if not set(rows[other].devices) & set(row.devices):
                    yield position, other, uuid
                    break
            first.setdefault(uuid, []).append(position)
