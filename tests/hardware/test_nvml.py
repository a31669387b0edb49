"""Facts from NVML, from a small library in its place: devices, a lost one, MIG, no answer; and AMD's kernel driver."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rankplan.hardware import nvml
from rankplan.hardware.facts import amd_gpus, hardware_facts
from rankplan.hardware.nvml import Gpu
from rankplan.hardware.sysfs import Sysfs
from support.libraries import compiled, python
from support.machines import pci, tree, write

# Device 2 is lost and device 1 cannot remap its rows. Its MIG slice is found by UUID.
NVML = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
typedef long Device;                                        /* index + 1; 100 is the slice */
int nvmlInitWithFlags(unsigned flags) { return getenv("FAKE_INIT") ? atoi(getenv("FAKE_INIT")) : 0; }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int code) { return "Driver/library version mismatch"; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 3; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device *device) { *device = index + 1; return index == 2 ? 15 : 0; }
int nvmlDeviceGetHandleByUUID(const char *id, Device *device) { *device = 100; return strcmp(id, "MIG-5c") ? 6 : 0; }
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(Device slice, Device *device) { *device = 2; return 0; }
int nvmlDeviceGetUUID(Device device, char *text, unsigned size) { sprintf(text, "GPU-%ldabc", device - 1); return 0; }
int nvmlDeviceGetName(Device device, char *text, unsigned size) { strcpy(text, "NVIDIA H100"); return 0; }
int nvmlDeviceGetMemoryInfo(Device device, unsigned long long *sizes) { sizes[0] = 80ull << 30; return 0; }
int nvmlDeviceGetPciInfo_v3(Device device, char *info) {
    memset(info, 0, 68);
    sprintf(info + 36, "00000000:%02lX:00.0", 0x1a + device);
    return 0;
}
int nvmlDeviceGetRemappedRows(Device device, unsigned *a, unsigned *b, unsigned *pending, unsigned *failed) {
    *a = *b = *pending = 0; *failed = device == 2; return 0;
}
int nvmlDeviceGetRetiredPagesPendingStatus(Device device, unsigned *pending) { return 3; }
typedef struct { unsigned pid; unsigned long long memory; unsigned instance, part; } Process;
int nvmlDeviceGetComputeRunningProcesses_v3(Device device, unsigned *count, Process *found) {
    if (device == 2) { *count = 0; return 0; }
    if (*count < 2) { *count = 2; return 7; }
    *count = 2;
    found[0] = (Process){70 + device, 3ull << 30, 0, 0};
    found[1] = (Process){90 + device, -1ull, 0, 0};                                  /* the driver hides its memory */
    return 0;
}
"""
ASK = """
import dataclasses, json, sys
from rankplan.hardware import nvml
print(json.dumps([dataclasses.asdict(gpu) for gpu in nvml.read(json.loads({ids!r}))]))
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("nvml"), "libnvidia-ml.so.1", NVML)


def asked(library: Path, ids: list[str], **variables: str) -> list[dict[str, Any]]:
    gpus: list[dict[str, Any]] = json.loads(python(ASK.format(ids=json.dumps(ids)), library, **variables))
    return gpus


def test_devices_are_found_by_index_and_by_uuid(library: Path) -> None:
    gpus = asked(library, ["0", "GPU-1", "GPU-0abc"])
    assert gpus[0] == {
        "uuid": "GPU-0abc",
        "pci": "0000:1b:00.0",
        "model": "NVIDIA H100",
        "memory": 81920,
        "problem": None,
    }
    assert gpus[2] == gpus[0]
    assert (gpus[1]["pci"], gpus[1]["problem"]) == ("0000:1c:00.0", "remapping of damaged memory rows failed")


def test_processes_are_those_of_each_device(library: Path) -> None:
    ask = "import json; from rankplan.hardware import nvml; "
    ask += "print(json.dumps([[(one.pid, one.memory) for one in here] for here in nvml.uses(IDS)]))"
    first, part = [[71, 3072], [91, None]], [[170, 3072], [190, None]]
    found = json.loads(python(ask.replace("IDS", repr(["0", "GPU-0", "1", "MIG-5c", "7", "GPU-"])), library))
    assert found == [first, first, [], part, [], []]
    assert (
        python("from rankplan.hardware import nvml; print(nvml.uses(['0']))", library, FAKE_INIT="9").strip() == "None"
    )


def test_a_lost_device_is_named_and_the_others_are_known(library: Path) -> None:
    gpus = asked(library, ["0", "1", "2", "7", "GPU-", "MIG-77"])
    assert gpus[0]["uuid"] == "GPU-0abc"
    assert [gpu["problem"] for gpu in gpus[2:]] == [
        "it fell off the bus",
        "the driver lists 3 devices, but not this one",
        "the driver lists 2 devices with this id",
        "NVML reports: Not Found",
    ]


def test_a_slice_is_at_the_place_of_its_device(library: Path) -> None:
    (slice,) = asked(library, ["MIG-5c"])
    assert (slice["uuid"], slice["pci"], slice["memory"]) == ("MIG-5c", "0000:1c:00.0", 81920)


def test_a_driver_mismatch_is_not_fatal(library: Path) -> None:
    (gpu,) = asked(library, ["0"], FAKE_INIT="18")
    assert gpu["uuid"] is None and gpu["problem"].startswith("NVML does not start: ")


def test_a_driver_that_does_not_start_is_a_problem_of_its_devices(library: Path) -> None:
    program = "import json; from rankplan.hardware.facts import hardware_facts as facts\n"
    program += "print(json.dumps(facts('NV_GPU', ['4', '5']).get('accelerators')))"
    broken = json.loads(python(program, library, FAKE_INIT="18"))
    assert [one["id"] for one in broken] == ["4", "5"]
    assert all(one["problem"].startswith("NVML does not start") for one in broken)
    assert json.loads(python(program, library.parent)) is None  # no driver


def test_a_machine_without_a_driver_has_no_facts(tmp_path: Path) -> None:
    (gpu,) = asked(tmp_path, ["0"])
    assert set(gpu.values()) == {None}


def test_without_the_package_there_are_no_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pynvml", None)
    assert nvml.read(["0"]) == [Gpu()]


def test_amd_devices_are_counted_as_hip_does(tmp_path: Path) -> None:
    nodes = "sys/class/kfd/kfd/topology/nodes"
    files: dict[str, str | bytes] = {f"{nodes}/0/gpu_id": "0\n", f"{nodes}/0/properties": "cpu_cores_count 64\n"}
    for number, place in ((2, 0x8300), (10, 0x0301)):
        files[f"{nodes}/{number}/gpu_id"] = str(number * 100)
        files[f"{nodes}/{number}/properties"] = f"simd_count 400\nlocation_id {place}\ndomain 1\nunique_id 2571\n"
    sysfs = write(tmp_path, files)
    assert amd_gpus(sysfs) == [
        Gpu("GPU-0000000000000a0b", "0001:83:00.0"),
        Gpu("GPU-0000000000000a0b", "0001:03:00.1"),
    ]
    pci(tmp_path, "pci0001:80/0001:83:00.0", numa=1)
    tree(tmp_path, {0: "0-3", 1: "4-7"}, sockets=[[0], [1]])
    facts = hardware_facts("AMD_GPU", ["0", "1", "GPU-7"], sysfs)
    assert facts["accelerators"] == [
        {"id": "0", "uuid": "GPU-0000000000000a0b", "pci": "0001:83:00.0", "numa": 1},
        {"id": "1", "uuid": "GPU-0000000000000a0b", "pci": "0001:03:00.1"},
        {"id": "GPU-7"},
    ]
    assert facts["numa"] == {0: "0-3", 1: "4-7"}


def test_an_unknown_machine_has_no_facts(tmp_path: Path) -> None:
    assert hardware_facts("NPU", ["0", "1"], Sysfs(tmp_path)) == {}
