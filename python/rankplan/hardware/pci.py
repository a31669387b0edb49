"""PCI devices: their place in the machine, how far two of them are apart, and the network card near an accelerator."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from rankplan._core import DISTANCES, RankSet, pci_address
from rankplan.frozen import frozen
from rankplan.hardware.sysfs import Sysfs
from rankplan.words import natural

_CARDS = "sys/class/infiniband"


@frozen
class PciDevice:
    """A device: its address, its NUMA node (``None``: unknown), nearby CPUs, and the bridges that lead to it.

    ``path`` has the host bridge first and the device last: ``pci0000:17``, ``0000:17:01.0``, ``0000:1b:00.0``.
    """

    address: str
    numa: int | None = None
    cpus: RankSet | None = None
    path: tuple[str, ...] = ()


@frozen
class Card:
    """A network card: its name, whether its first port is active, its rate in Gbit/s, and its place."""

    name: str
    active: bool
    rate: float | None
    bonded: bool
    device: PciDevice | None


@frozen
class Near:
    """The card that an accelerator should use, and how far it is."""

    name: str
    distance: str


def device_at(sysfs: Sysfs, address: str) -> PciDevice | None:
    """Return the device with this address, ``None`` if the kernel shows none: it is hidden, or fell off the bus."""
    folder = f"sys/bus/pci/devices/{address}"
    return device_in(sysfs, folder) if sysfs.exists(folder) else None


def device_in(sysfs: Sysfs, folder: str) -> PciDevice | None:
    """Return the device that a folder or link of sysfs leads to, if it is a PCI device."""
    parts = (sysfs.real(folder) or "").strip("/").split("/")
    address = pci_address(parts[-1])
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
    """Return how far two devices are from each other: one of `DISTANCES`, as in ``nvidia-smi topo``."""
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


def cards(sysfs: Sysfs) -> list[Card]:
    """Return the network cards of the machine in natural order of their names."""
    return [_card(sysfs, name) for name in sorted(sysfs.names(_CARDS), key=natural)]


def nearest(accelerators: Sequence[PciDevice | None], found: Sequence[Card]) -> list[Near | None]:
    """Return the nearest card of each accelerator, in their order; ``None`` if its place or every card's is unknown.

    Cards that are down or part of a bond do not count. Of equally near cards, the one with the fewest accelerators so
    far is chosen, then the first.
    """
    usable = [(card.name, card.device) for card in found if card.active and not card.bonded and card.device is not None]
    used: Counter[str] = Counter()
    result: list[Near | None] = []
    for accelerator in accelerators:
        if accelerator is None or not usable:
            result.append(None)
            continue
        far = [distance(accelerator, device) for _, device in usable]
        best = min(range(len(usable)), key=lambda card: (DISTANCES.index(far[card]), used[usable[card][0]]))
        used[usable[best][0]] += 1
        result.append(Near(usable[best][0], far[best]))
    return result


def card_variables(names: Sequence[str]) -> dict[str, str]:
    """Return the variables that make NCCL, UCX and NVSHMEM use these cards."""
    ports = ",".join(f"{name}:1" for name in names)
    return {"NCCL_IB_HCA": f"={ports}", "UCX_NET_DEVICES": ports, "NVSHMEM_HCA_LIST": ports}


def _card(sysfs: Sysfs, name: str) -> Card:
    port, device = f"{_CARDS}/{name}/ports/1", f"{_CARDS}/{name}/device"
    active = (sysfs.text(f"{port}/state") or "").endswith("ACTIVE")
    rate = re.match(r"[0-9]{1,6}(\.[0-9]{1,3})?", sysfs.text(f"{port}/rate") or "", re.ASCII)
    bonds = (sysfs.exists(f"{device}/net/{net}/master") for net in sysfs.names(f"{device}/net"))
    bonded = "bond" in name or any(bonds)
    return Card(name, active, float(rate[0]) if rate else None, bonded, device_in(sysfs, device))
