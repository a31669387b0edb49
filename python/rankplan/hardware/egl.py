"""The EGL device of an accelerator. EGL counts all cards of a node, whatever the mask, in an order of its own.

Run as a program with the standard library only, so that no display connection stays in the process.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_CUDA_DEVICE, _DRM_DEVICE_FILE, _DRM_RENDER_FILE = 0x323A, 0x3233, 0x3377
_MOST = 64

VARIABLES = ("EGL_DEVICE_ID", "MUJOCO_EGL_DEVICE_ID")
"""The variables from which renderers read the number of the EGL device."""


@dataclass(frozen=True, slots=True)
class EglDevice:
    """A device as EGL describes it: its CUDA ordinal among all devices of the node, and the files of its DRM device."""

    cuda: int | None
    files: tuple[str, ...]


def egl_devices(environment: Mapping[str, str], masks: set[str], timeout: float = 30.0) -> list[EglDevice]:
    """Return the devices in EGL's order, none if EGL does not answer.

    The child process has this environment without the variables in ``masks``, so that ordinals count all devices, in
    PCI order.
    """
    given = {name: value for name, value in environment.items() if name not in masks}
    given["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", __file__],
            env=given,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=timeout,
        )
        return [EglDevice(cuda, tuple(files)) for cuda, files in json.loads(done.stdout)]
    except (OSError, ValueError, TypeError, subprocess.TimeoutExpired):
        return []


def device_of(devices: list[EglDevice], ordinal: int | None, pci: str | None) -> int | None:
    """Return the number of the EGL device with this CUDA ordinal, or else at this PCI address."""
    found = [number for number, device in enumerate(devices) if ordinal is not None and device.cuda == ordinal]
    found += [number for number, device in enumerate(devices) if pci is not None and pci in map(_address, device.files)]
    return found[0] if found else None


def _address(file: str) -> str:
    """Return the PCI address of a DRM device file such as ``/dev/dri/card1``."""
    folder = f"/sys/class/drm/{os.path.basename(file)}/device"  # noqa: PTH119
    return os.path.basename(os.path.realpath(folder))  # noqa: PTH119


def _ask() -> list[tuple[int | None, list[str]]]:
    egl = ctypes.CDLL("libEGL.so.1")
    find = egl.eglGetProcAddress
    find.restype, find.argtypes = ctypes.c_void_p, [ctypes.c_char_p]
    query = _function(find, b"eglQueryDevicesEXT", ctypes.c_uint, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    number = _function(find, b"eglQueryDeviceAttribEXT", ctypes.c_uint, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
    text = _function(find, b"eglQueryDeviceStringEXT", ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int)
    handles, count = (ctypes.c_void_p * _MOST)(), ctypes.c_int()
    if not query(_MOST, ctypes.byref(handles), ctypes.byref(count)):
        return []
    found = []
    for handle in handles[: count.value]:
        ordinal = ctypes.c_ssize_t(-1)
        known = number(handle, _CUDA_DEVICE, ctypes.byref(ordinal)) and ordinal.value >= 0
        files = [text(handle, key) for key in (_DRM_DEVICE_FILE, _DRM_RENDER_FILE)]
        names = [file.decode("utf-8", "replace") for file in files if file]
        found.append((ordinal.value if known else None, names))
    return found


def _function(find: Any, name: bytes, result: Any, *arguments: Any) -> Any:
    address = find(name)
    if not address:
        raise AttributeError(name.decode())
    return ctypes.CFUNCTYPE(result, *arguments)(address)


if __name__ == "__main__":
    try:
        print(json.dumps(_ask()))
    except (OSError, AttributeError):
        print([])
