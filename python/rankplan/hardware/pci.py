"""PCI devices: their place in the machine, and how far two of them are from each other."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rankplan._core import RankSet
from rankplan.hardware.sysfs import Sysfs

DISTANCES = ("PIX", "PXB", "PHB", "NODE", "SYS")
"""Nearest first, as in ``nvidia-smi topo``: one switch, several switches, a host bridge, a NUMA node, beyond."""

_ADDRESS = re.compile(r"([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.([0-7])", re.ASCII)


@dataclass(frozen=True, slots=True)
class PciDevice:
    """A device: its address, its NUMA node (``None``: unknown), nearby CPUs, and the bridges that lead to it.

    ``path`` has the host bridge first and the device last: ``pci0000:17``, ``0000:17:01.0``, ``0000:1b:00.0``.
    """

    address: str
    numa: int | None = None
    cpus: RankSet | None = None
    path: tuple[str, ...] = ()


def address_of(text: str) -> str | None:
    """Return a PCI address as the kernel writes it, with a domain of four digits, or ``None`` for any other text."""
    found = _ADDRESS.fullmatch(text.strip())
    if found is None:
        return None
    domain, bus, device, function = found.groups()
    return f"{int(domain, 16):04x}:{bus}:{device}.{function}".lower()


def device_at(sysfs: Sysfs, address: str) -> PciDevice | None:
    """Return the device with this address, ``None`` if the kernel shows none: it is hidden, or fell off the bus."""
    folder = f"sys/bus/pci/devices/{address}"
    return device_in(sysfs, folder) if sysfs.exists(folder) else None


def device_in(sysfs: Sysfs, folder: str) -> PciDevice | None:
    """Return the device that a folder or link of sysfs leads to, if it is a PCI device."""
    parts = (sysfs.real(folder) or "").strip("/").split("/")
    address = address_of(parts[-1])
    if address is None:
        return None
    start = next((index for index, part in enumerate(parts) if part.startswith("pci")), None)
    numa = sysfs.number(f"{folder}/numa_node")
    return PciDevice(
        address,
        numa if numa is not None and numa >= 0 else None,
        sysfs.cpus(f"{folder}/local_cpulist"),
        tuple(parts[start:]) if start is not None else (),
    )


def distance(one: PciDevice, other: PciDevice) -> str:
    """Return how far two devices are from each other, one of `DISTANCES`."""
    shared = 0
    for here, there in zip(one.path, other.path, strict=False):
        if here != there:
            break
        shared += 1
    if not shared:
        return "NODE" if one.numa is not None and one.numa == other.numa else "SYS"
    if shared == 1:
        return "PHB"
    # A switch is two bridges in the path: its upstream port is shared, its downstream ports are not.
    return "PIX" if shared >= max(len(one.path), len(other.path)) - 2 else "PXB"
