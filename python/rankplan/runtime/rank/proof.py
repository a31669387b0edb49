"""Comparing what the driver shows to ranks with the plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rankplan._core import Placement
from rankplan.hardware.driver import Shown, plain, written
from rankplan.runtime.rank.settings import RankSettings


def driver_differences(settings: RankSettings, shown: Shown | None, mask: str) -> Iterator[str]:
    """Yield each difference between the devices that the driver shows and those of the plan.

    ``mask`` is the visibility variable with its value, for messages.
    """
    if shown is None:
        return
    if shown.problem is not None:
        yield f"the driver does not tell its devices: {shown.problem}"
        return
    if not settings.uuids:
        return
    known = {plain(uuid): uuid for uuid in settings.uuids}
    planned, found = list(known), list(shown.uuids)
    names = [written(uuid, known) for uuid in found]
    if found == planned:
        return
    if sorted(found) == sorted(planned):
        yield (
            f"the driver shows its devices in the order {', '.join(names)}, expected {', '.join(settings.uuids)}; "
            "set CUDA_DEVICE_ORDER to PCI_BUS_ID in the env_vars of its node group"
        )
    elif found == planned[: len(found)]:
        missing = ", ".join(settings.uuids[len(found) :])
        yield (
            f"the driver shows {len(found)} of {len(planned)} devices, without {missing}; CUDA ignores a mask from its "
            f"first invalid id on: {mask}"
        )
    else:
        yield (
            f"the driver shows {', '.join(names)}, expected {', '.join(settings.uuids)}; set CUDA_DEVICE_ORDER to "
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
