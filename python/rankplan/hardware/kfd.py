"""AMD devices, in the order in which HIP counts them, from the files of their kernel driver."""

from __future__ import annotations

import re

from rankplan.hardware.nvml import Gpu
from rankplan.hardware.sysfs import Sysfs

_NODES = "sys/class/kfd/kfd/topology/nodes"


def read(sysfs: Sysfs) -> list[Gpu]:
    """Return the devices; nodes of the driver without a GPU id are CPUs."""
    numbers = sorted(int(name) for name in sysfs.names(_NODES) if re.fullmatch("[0-9]{1,5}", name, re.ASCII))
    return [_gpu(sysfs, number) for number in numbers if sysfs.number(f"{_NODES}/{number}/gpu_id")]


def _gpu(sysfs: Sysfs, number: int) -> Gpu:
    text = sysfs.text(f"{_NODES}/{number}/properties") or ""
    facts = {name: int(value) for name, value in re.findall(r"^(\w+) ([0-9]{1,20})$", text, re.MULTILINE | re.ASCII)}
    place, domain, unique = facts.get("location_id"), facts.get("domain", 0), facts.get("unique_id")
    address = None
    if place is not None and place < 1 << 16 and domain < 1 << 32:
        address = f"{domain:04x}:{place >> 8:02x}:{place >> 3 & 0x1F:02x}.{place & 7}"
    return Gpu(f"GPU-{unique:016x}" if unique and unique < 1 << 64 else None, address)
