"""The devices that CUDA shows to a process, in order. Run as a program, so that no context stays in the process.

It uses the standard library only: as a child, it starts in a fraction of the time that importing rankplan takes.
"""

from __future__ import annotations

import ctypes
import json
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass

_NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE: an answer, not a fault


@dataclass(frozen=True, slots=True)
class Shown:
    """The uuids of the devices that the driver shows, each 32 hexadecimal digits; or why it does not answer."""

    uuids: tuple[str, ...] = ()
    problem: str | None = None


class Question:
    """A child process that asks the driver, with this environment; it runs until `answer` is called."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        command = [sys.executable, "-I", "-S", __file__]
        self._child: subprocess.Popen[str] | None = None
        self._problem = ""
        try:
            self._child = subprocess.Popen(
                command,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        except OSError as error:
            self._problem = f"no process can be started: {error.strerror}"

    def answer(self, timeout: float) -> Shown:
        """Wait for the answer, at most ``timeout`` seconds."""
        if self._child is None:
            return Shown(problem=self._problem)
        try:
            text, _ = self._child.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.communicate()
            return Shown(problem=f"it did not answer within {timeout:g} s")
        return _read(text, self._child.returncode)


def plain(uuid: str) -> str:
    """Return the hexadecimal digits of ``GPU-5c89...`` or ``MIG-5c89...`` in lower case."""
    return re.sub(r"^(GPU|MIG)-|-", "", uuid).lower()


def written(uuid: str, known: Mapping[str, str]) -> str:
    """Return the name of a device as a message shows it: as the inventory names it, or like NVML."""
    if uuid in known:
        return known[uuid]
    parts = (uuid[:8], uuid[8:12], uuid[12:16], uuid[16:20], uuid[20:])
    return f"GPU-{'-'.join(parts)}"


def _read(text: str, status: int) -> Shown:
    try:
        found = json.loads(text)
        problem, uuids = found["problem"], found["uuids"]
    except (ValueError, KeyError, TypeError):
        return Shown(problem=f"the process that asked it ended with status {status}")
    if problem is not None:
        return Shown(problem=str(problem))
    return Shown(tuple(str(uuid) for uuid in uuids if re.fullmatch("[0-9a-f]{32}", str(uuid))))


def _ask() -> tuple[list[str], str | None]:
    """Return the uuids of the devices of this process, and why the driver does not answer."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return [], "libcuda.so.1 cannot be loaded"
    status = cuda.cuInit(0)
    if status == _NO_DEVICE:
        return [], None
    if status:
        return [], f"cuInit fails with error {status}"
    count = ctypes.c_int()
    if status := cuda.cuDeviceGetCount(ctypes.byref(count)):
        return [], f"cuDeviceGetCount fails with error {status}"
    # version 2 tells MIG devices apart
    uuid_of = getattr(cuda, "cuDeviceGetUuid_v2", None) or cuda.cuDeviceGetUuid
    uuids = []
    for ordinal in range(count.value):
        device, uuid = ctypes.c_int(), (ctypes.c_ubyte * 16)()
        status = cuda.cuDeviceGet(ctypes.byref(device), ordinal) or uuid_of(ctypes.byref(uuid), device)
        if status:
            return [], f"device {ordinal} cannot be queried: error {status}"
        uuids.append(bytes(uuid).hex())
    return uuids, None


def _main() -> None:
    try:
        uuids, problem = _ask()
    except AttributeError as missing:
        uuids, problem = [], f"libcuda.so.1 is not a CUDA driver: {missing}"
    print(json.dumps({"uuids": uuids, "problem": problem}))


if __name__ == "__main__":
    _main()
