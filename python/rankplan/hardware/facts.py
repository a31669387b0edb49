"""Everything that one machine reports about its hardware, as plain values of an inventory entry."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rankplan._core import groups_text
from rankplan.hardware import nvml
from rankplan.hardware.machine import Machine
from rankplan.hardware.nvml import Gpu
from rankplan.hardware.pci import Card, cards, device_at, nearest
from rankplan.hardware.sysfs import Sysfs

_KFD = "sys/class/kfd/kfd/topology/nodes"


def hardware_facts(accelerator_type: str, ids: Sequence[str], sysfs: Sysfs | None = None) -> dict[str, Any]:
    """Return the facts of this machine: its cores, its network cards, and its accelerators with these ids.

    ``accelerators`` is missing if nothing is known of any of them.
    """
    sysfs = sysfs or Sysfs()
    machine, found, gpus = Machine.read(sysfs), cards(sysfs), _gpus(accelerator_type, ids, sysfs)
    stated: dict[str, Any] = {
        "numa": {node: str(cpus) for node, cpus in machine.numa.items()},
        "memory": machine.memory,
        "sockets": [str(nodes) for nodes in machine.sockets],
        "cores": groups_text(machine.cores),
        "caches": groups_text(machine.caches),
        "nics": [_nic(card) for card in found],
    }
    facts = {name: value for name, value in stated.items() if value}
    places = [device_at(sysfs, gpu.pci) if gpu.pci is not None else None for gpu in gpus]
    entries: list[dict[str, Any]] = []
    for gpu, place, nic in zip(gpus, places, nearest(places, found), strict=True):
        entry = asdict(gpu) | {"numa": place.numa if place else None}
        entry |= {"nic": nic.name, "distance": nic.distance} if nic else {}
        entries.append({name: value for name, value in entry.items() if value is not None})
    if any(entries):
        facts["accelerators"] = [{"id": name, **entry} for name, entry in zip(ids, entries, strict=True)]
    return facts


def _gpus(accelerator_type: str, ids: Sequence[str], sysfs: Sysfs) -> list[Gpu]:
    """Return the known facts of each accelerator."""
    if accelerator_type == "NV_GPU":
        return nvml.read(ids)
    if accelerator_type == "AMD_GPU":
        found = amd_gpus(sysfs)
        return [found[int(name)] if name.isdigit() and int(name) < len(found) else Gpu() for name in ids]
    return [Gpu() for _ in ids]


def _nic(card: Card) -> dict[str, Any]:
    place = card.device
    facts = {
        "name": card.name,
        "active": None if card.active else False,
        "bonded": card.bonded or None,
        "rate": card.rate,
        "pci": place.address if place else None,
        "numa": place.numa if place else None,
    }
    return {name: value for name, value in facts.items() if value is not None}


def amd_gpus(sysfs: Sysfs) -> list[Gpu]:
    """Return AMD devices in HIP's order, from the files of their driver; its nodes without a GPU id are CPUs."""
    numbers = sorted(int(name) for name in sysfs.names(_KFD) if re.fullmatch("[0-9]{1,5}", name, re.ASCII))
    return [_amd_gpu(sysfs, number) for number in numbers if sysfs.number(f"{_KFD}/{number}/gpu_id")]


def _amd_gpu(sysfs: Sysfs, number: int) -> Gpu:
    text = sysfs.text(f"{_KFD}/{number}/properties") or ""
    facts = {name: int(value) for name, value in re.findall(r"^(\w+) ([0-9]{1,20})$", text, re.MULTILINE | re.ASCII)}
    place, domain, unique = facts.get("location_id"), facts.get("domain", 0), facts.get("unique_id")
    address = None
    if place is not None and place < 1 << 16 and domain < 1 << 32:
        address = f"{domain:04x}:{place >> 8:02x}:{place >> 3 & 0x1F:02x}.{place & 7}"
    return Gpu(f"GPU-{unique:016x}" if unique and unique < 1 << 64 else None, address)
