"""Differences between a rank as planned and as it reports itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rankplan._core import Placement
from rankplan.accelerators import vendor
from rankplan.environment import planned_environment
from rankplan.runtime.rank.report import RankReport
from rankplan.runtime.rank.spec import DEVICES, RankSpec


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
    """Yield the difference between the devices that the driver shows, if it was asked, and the planned ones.

    ``mask`` is the visibility variable with its value, for messages.
    """
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
