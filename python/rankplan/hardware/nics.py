"""Network cards for RDMA, and the nearest one of each accelerator."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rankplan.hardware.pci import DISTANCES, PciDevice, device_in, distance
from rankplan.hardware.sysfs import Sysfs
from rankplan.words import natural

_CARDS = "sys/class/infiniband"


@dataclass(frozen=True, slots=True)
class Card:
    """A network card: its name, whether its first port is active, its rate in Gbit/s, and its place."""

    name: str
    active: bool
    rate: float | None
    bonded: bool
    device: PciDevice | None


@dataclass(frozen=True, slots=True)
class Near:
    """The card that an accelerator should use, and how far it is."""

    name: str
    distance: str


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
        ranked = [(DISTANCES.index(distance(accelerator, device)), used[name]) for name, device in usable]
        best = ranked.index(min(ranked))
        name = usable[best][0]
        used[name] += 1
        result.append(Near(name, DISTANCES[ranked[best][0]]))
    return result


def card_variables(names: Sequence[str]) -> dict[str, str]:
    """Return the variables that make NCCL, UCX and NVSHMEM use these cards."""
    ports = [f"{name}:1" for name in names]
    return {
        "NCCL_IB_HCA": "=" + ",".join(ports),
        "UCX_NET_DEVICES": ",".join(ports),
        "NVSHMEM_HCA_LIST": ",".join(ports),
    }


def _card(sysfs: Sysfs, name: str) -> Card:
    folder = f"{_CARDS}/{name}"
    port = f"{folder}/ports/1"
    rate = re.match(r"[0-9]{1,6}(\.[0-9]{1,3})?", sysfs.text(f"{port}/rate") or "", re.ASCII)
    state = sysfs.text(f"{port}/state") or ""
    nets = sysfs.names(f"{folder}/device/net")
    bonded = "bond" in name or any(sysfs.exists(f"{folder}/device/net/{net}/master") for net in nets)
    return Card(
        name, state.endswith("ACTIVE"), float(rate[0]) if rate else None, bonded, device_in(sysfs, f"{folder}/device")
    )
