"""What the driver shows to a process, from small libraries in place of libcuda and libEGL."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from rankplan.hardware.driver import Question, Shown, plain, written
from rankplan.hardware.egl import EglDevice, device_of, egl_devices
from support.drivers import CUDA, EGL, uuid
from support.libraries import compiled


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("drivers")
    compiled(folder, "libcuda.so.1", CUDA)
    return compiled(folder, "libEGL.so.1", EGL)


def shown(libraries: Path, **variables: str) -> Shown:
    given = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    return Question({**given, "LD_LIBRARY_PATH": str(libraries), **variables}).answer(60)


@pytest.mark.parametrize(
    ("variables", "cards"),
    [
        ({}, [0, 1, 2, 3]),
        ({"CUDA_VISIBLE_DEVICES": "2,0"}, [2, 0]),
        ({"CUDA_VISIBLE_DEVICES": "2,o,1"}, [2]),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, []),
        ({"CUDA_VISIBLE_DEVICES": "0,1", "FAKE_CARDS": "3210"}, [3, 2]),
        ({"CUDA_VISIBLE_DEVICES": "0,1,2", "FAKE_CARDS": "01"}, [0, 1]),
    ],
    ids=["no mask", "a mask", "a typo", "none", "another order", "fewer devices"],
)
def test_the_devices_of_a_process_in_order(libraries: Path, variables: dict[str, str], cards: list[int]) -> None:
    assert shown(libraries, **variables) == Shown(tuple(map(uuid, cards)))


def test_a_driver_that_does_not_answer(libraries: Path, tmp_path: Path) -> None:
    assert shown(libraries, FAKE_INIT="999").problem == "cuInit fails with error 999"
    assert shown(tmp_path).problem == "libcuda.so.1 cannot be loaded"
    compiled(tmp_path, "libcuda.so.1", '#include <stdio.h>\nint cuInit(unsigned f) { puts("loud"); return 100; }')
    assert shown(tmp_path) == Shown()
    compiled(tmp_path, "libcuda.so.1", "int cuIni(void) { return 0; }")
    assert "libcuda.so.1 is not a CUDA driver" in str(shown(tmp_path).problem)
    compiled(tmp_path, "libcuda.so.1", "#include <stdlib.h>\nint cuInit(unsigned f) { abort(); }")
    assert shown(tmp_path).problem == "the process that asked it ended with status -6"
    compiled(tmp_path, "libcuda.so.1", "#include <unistd.h>\nint cuInit(unsigned f) { sleep(600); return 0; }")
    slow = Question({**os.environ, "LD_LIBRARY_PATH": str(tmp_path)})
    assert slow.answer(0.5).problem == "it did not answer within 0.5 s"


def test_names_of_devices() -> None:
    assert plain("GPU-5C89e1a2-0000-1111-2222-333344445555") == "5c89e1a2000011112222333344445555"
    assert written("5c89e1a2000011112222333344445555", {}) == "GPU-5c89e1a2-0000-1111-2222-333344445555"
    assert written("ab", {"ab": "MIG-ab"}) == "MIG-ab"


def test_the_egl_device_of_a_card(libraries: Path) -> None:
    given = {**os.environ, "LD_LIBRARY_PATH": str(libraries), "CUDA_VISIBLE_DEVICES": "1"}
    devices = egl_devices(given, {"CUDA_VISIBLE_DEVICES"})
    assert devices == [EglDevice(1, ("/dev/dri/card7",)), EglDevice(0, ("/dev/dri/card7",)), EglDevice(None, ())]
    assert [device_of(devices, ordinal, None) for ordinal in (0, 1, 2, None)] == [1, 0, None, None]


def test_the_egl_device_at_a_pci_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os.path, "realpath", lambda path: f"/sys/devices/pci0000:17/{path.split('/')[-2]}")
    devices = [EglDevice(None, ("0000:1b:00.0",)), EglDevice(None, ("0000:1c:00.0",))]
    assert device_of(devices, None, "0000:1c:00.0") == 1
    assert device_of(devices, 3, "0000:1d:00.0") is None


def test_without_egl_there_are_no_devices(tmp_path: Path) -> None:
    given = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    compiled(tmp_path, "libEGL.so.1", "void *eglGetProcAddress(const char *name) { return 0; }")
    assert egl_devices(given, set()) == []
