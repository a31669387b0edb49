"""Checks without Ray: NVML and PCI beside `nvidia-smi`, what the CUDA driver shows under masks, EGL, processes."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import asdict

from gpu.machine import Card, affinity, holding, query, smi
from gpu.report import Report
from rankplan.accelerators import vendor
from rankplan.hardware import nvml
from rankplan.hardware.driver import Question, Shown, plain
from rankplan.hardware.egl import device_of, egl_devices
from rankplan.hardware.machine import Machine
from rankplan.hardware.pci import device_at
from rankplan.hardware.policies import home
from rankplan.hardware.sysfs import Sysfs

HELD = 512
"""MiB that a process of the checks holds on a card."""
TIMEOUT = 60.0


def check_cards(report: Report, cards: list[Card]) -> None:
    """Run every check of this file."""
    for part, check in (
        ("nvml", _nvml),
        ("pci", _pci),
        ("driver", _driver),
        ("egl", _egl),
        ("processes", _processes),
        ("mig", _mig),
        ("fabric", _fabric),
    ):
        with report.guarded(part):
            check(report, cards)


def _nvml(report: Report, cards: list[Card]) -> None:
    """Compare the facts of each card, by its index, its uuid and the beginning of its uuid."""
    ids = [str(card.index) for card in cards]
    gpus = nvml.read(ids)
    report.record("nvml", [asdict(gpu) for gpu in gpus])
    for card, gpu in zip(cards, gpus, strict=True):
        if gpu.problem is not None:
            report.wrong("nvml", f"card {card.index}", gpu.problem)
            continue
        ours = gpu.uuid, gpu.pci, gpu.model, gpu.memory
        report.compare("nvml", f"card {card.index}", ours, (card.uuid, card.pci, card.model, card.memory))
    for name, which in (("uuid", slice(None)), ("beginning of the uuid", slice(0, len("GPU-") + 8))):
        found = [gpu.uuid for gpu in nvml.read([card.uuid[which] for card in cards])]
        report.compare("nvml", f"cards by their {name}", found == [card.uuid for card in cards], True)


def _pci(report: Report, cards: list[Card]) -> None:
    """Compare the CPUs and the NUMA node beside each card."""
    sysfs = Sysfs()
    machine = Machine.read(sysfs)
    report.record("numa", {node: str(cpus) for node, cpus in machine.numa.items()})
    for card in cards:
        subject = f"card {card.index} at {card.pci}"
        place = device_at(sysfs, card.pci)
        if place is None:
            report.not_there("pci", subject, "the kernel does not show the device")
            continue
        report.record(f"pci {card.index}", {"numa": place.numa, "cpus": str(place.cpus), "path": place.path})
        told = affinity(card.index)
        if told is None:
            report.not_there(
                "pci", subject, f"nvidia-smi topo -m does not tell; sysfs: {place.cpus}, node {place.numa}"
            )
            continue
        cpus, numa = told
        report.compare("pci", f"{subject}, CPUs", str(place.cpus), cpus)
        # the kernel tells none on a machine with one NUMA node
        report.compare("pci", f"{subject}, NUMA node", str(home(machine, place.numa)), numa)


def _driver(report: Report, cards: list[Card]) -> None:
    """Ask the driver under masks, as each rank is proved."""
    own = [plain(card.uuid) for card in cards]
    last = cards[-1].index
    masks: list[tuple[str, Mapping[str, str], list[str]]] = [
        ("no mask", {}, own),
        ("the last card by its index", {"CUDA_VISIBLE_DEVICES": str(last)}, own[-1:]),
        ("the last card by its uuid", {"CUDA_VISIBLE_DEVICES": cards[-1].uuid}, own[-1:]),
        ("an index that does not exist, second", {"CUDA_VISIBLE_DEVICES": f"0,{len(cards)}"}, own[:1]),
        ("a typo, first", {"CUDA_VISIBLE_DEVICES": "l,0"}, []),
        ("an empty mask", {"CUDA_VISIBLE_DEVICES": ""}, []),
    ]
    if len(cards) > 1:
        reverse = ",".join(str(card.index) for card in reversed(cards))
        masks.append(("all cards, the last one first", {"CUDA_VISIBLE_DEVICES": reverse}, own[::-1]))
    else:
        report.not_there("driver", "several cards in another order", "the machine has one card")
    for subject, mask, expected in masks:
        shown = _shown(mask)
        report.record(f"driver, {subject}", {"mask": dict(mask), "uuids": shown.uuids, "problem": shown.problem})
        report.compare("driver", subject, shown.problem or list(shown.uuids), expected)


def _shown(mask: Mapping[str, str]) -> Shown:
    environment = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    return Question({**environment, "CUDA_DEVICE_ORDER": "PCI_BUS_ID", **mask}).answer(TIMEOUT)


def _egl(report: Report, cards: list[Card]) -> None:
    """Find the EGL device of each card, by its ordinal and by its address."""
    row = vendor("NV_GPU")
    masks = {row.env_var} if row is not None else set()
    devices = egl_devices(os.environ, masks)
    report.record("egl", [{"cuda": device.cuda, "files": device.files} for device in devices])
    if not devices:
        report.not_there("egl", "devices", "EGL does not answer")
        return
    if all(device.cuda is None for device in devices):
        report.not_there("egl", "devices of CUDA", f"EGL shows {len(devices)} devices, none with a CUDA ordinal")
        return
    for card in cards:
        by_ordinal = device_of(devices, card.index, None)
        by_address = device_of(devices, None, card.pci)
        report.compare("egl", f"card {card.index} by its CUDA ordinal", by_ordinal is not None, True)
        if by_address is None:
            report.not_there("egl", f"card {card.index} by its PCI address", "EGL names no DRM device there")
        else:
            report.compare("egl", f"card {card.index} by its PCI address", by_address, by_ordinal)


def _processes(report: Report, cards: list[Card]) -> None:
    """Compare the processes on each card while one holds memory there."""
    card = cards[-1]
    with holding(sys.executable, HELD, CUDA_VISIBLE_DEVICES=str(card.index), CUDA_DEVICE_ORDER="PCI_BUS_ID") as pid:
        answer = nvml.uses([card.uuid])
        rows = query("compute-apps", "gpu_uuid", "pid", "used_memory")
    ours = sorted((use.pid, use.memory) for use in (answer or [[]])[0])
    report.record("processes", {"nvml": ours, "nvidia-smi": rows})
    theirs = sorted((int(row["pid"]), _number(row["used_memory"])) for row in rows if row["gpu_uuid"] == card.uuid)
    report.compare("processes", f"on card {card.index}, with their MiB", ours, theirs)
    seen = dict(ours).get(pid)
    if pid not in dict(ours):
        report.wrong("processes", f"process {pid}, which holds {HELD} MiB", "the driver does not list it")
    elif seen is None:
        report.not_there("processes", f"memory of process {pid}", "the driver hides it")
    else:
        report.compare("processes", f"process {pid} holds at least {HELD} MiB", seen >= HELD, True)


def _number(text: str) -> int | None:
    return int(text) if text.isdigit() else None


def _mig(report: Report, cards: list[Card]) -> None:
    """Find each MIG device that `nvidia-smi -L` lists, at the place of its card."""
    slices: list[tuple[str, Card]] = []
    parent = None
    for line in smi("-L").splitlines():
        parent = next((card for card in cards if card.uuid in line), parent)
        if "MIG-" in line and parent is not None:
            slices.append((line[line.index("MIG-") :].rstrip(")\n "), parent))
    if not slices:
        report.not_there("mig", "slices", "no card is divided")
    for (uuid, card), gpu in zip(slices, nvml.read([uuid for uuid, _ in slices]), strict=True):
        report.compare("mig", f"{uuid} on card {card.index}", (gpu.uuid, gpu.pci, gpu.problem), (uuid, card.pci, None))
        is_smaller = gpu.memory is not None and gpu.memory < card.memory
        report.compare("mig", f"{uuid} has less memory than its card", is_smaller, True)


def _fabric(report: Report, cards: list[Card]) -> None:
    """Compare the NVLink domain of the cards."""
    fabrics = nvml.fabrics()
    report.record(
        "fabric", [{"state": one.state, "uuid": one.cluster_uuid.hex(), "clique": one.clique_id} for one in fabrics]
    )
    joined = [one for one in fabrics if one.state == 3 and any(one.cluster_uuid)]
    if not joined:
        report.not_there(
            "fabric", "an NVLink domain of several nodes", f"states of the cards: {[one.state for one in fabrics]}"
        )
        return
    text = smi("-q").replace(" ", "").lower()
    for one in joined:
        report.compare(
            "fabric", f"cluster {one.cluster_uuid.hex()}", one.cluster_uuid.hex() in text.replace("-", ""), True
        )
