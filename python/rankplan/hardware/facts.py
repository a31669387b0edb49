"""Everything that one machine reports about its hardware, as plain values of an inventory entry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rankplan.hardware import kfd, nvml
from rankplan.hardware.machine import Machine, groups_text
from rankplan.hardware.nics import Card, cards, nearest
from rankplan.hardware.nvml import Gpu
from rankplan.hardware.pci import device_at
from rankplan.hardware.sysfs import Sysfs


def machine_facts(machine: Machine) -> dict[str, Any]:
    """Return the cores and the memory of a machine."""
    facts = {
        "numa": {node: str(cpus) for node, cpus in machine.numa.items()},
        "memory": machine.memory,
        "sockets": [str(nodes) for nodes in machine.sockets],
        "cores": groups_text(machine.cores),
        "caches": groups_text(machine.caches),
    }
    return {name: value for name, value in facts.items() if value}


def hardware_facts(accelerator_type: str, ids: Sequence[str], sysfs: Sysfs | None = None) -> dict[str, Any]:
    """Return the facts of this machine: its cores, its network cards, and its accelerators with these ids.

    ``accelerators`` is missing if nothing is known of any of them.
    """
    sysfs = sysfs or Sysfs()
    facts, found = machine_facts(Machine.read(sysfs)), cards(sysfs)
    if found:
        facts["nics"] = [_nic(card) for card in found]
    gpus = _gpus(accelerator_type, ids, sysfs)
    places = [device_at(sysfs, gpu.pci) if gpu.pci is not None else None for gpu in gpus]
    near = nearest(places, found)
    entries: list[dict[str, Any]] = []
    for gpu, place, nic in zip(gpus, places, near, strict=True):
        entry: dict[str, Any] = {name: getattr(gpu, name) for name in ("uuid", "pci", "model", "memory", "problem")}
        entry |= {"numa": place.numa if place else None}
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
        found = kfd.read(sysfs)
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
