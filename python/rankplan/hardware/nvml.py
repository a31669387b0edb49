"""What NVML reports of NVIDIA devices. It is loaded only when asked, and none of its faults is fatal."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from rankplan.hardware.pci import address_of


@dataclass(frozen=True, slots=True)
class Gpu:
    """One device; ``memory`` is in MiB. ``problem`` tells why it should not be used."""

    uuid: str | None = None
    pci: str | None = None
    model: str | None = None
    memory: int | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """The devices, in the order of the ids that were asked for; or, in ``problem``, why NVML does not answer.

    ``missing``: there is no driver or no package, so nothing is wrong.
    """

    gpus: tuple[Gpu, ...] = ()
    problem: str | None = None
    missing: bool = False


def read(ids: Sequence[str]) -> Answer:
    """Return what NVML reports of these devices: indices, UUIDs or their beginnings, or MIG UUIDs."""
    try:
        nvml: Any = importlib.import_module("pynvml")
    except ImportError:
        return Answer(problem="nvidia-ml-py is not installed", missing=True)
    try:
        nvml.nvmlInit()
    except (nvml.NVMLError, OSError, AttributeError) as error:
        missing = isinstance(error, getattr(nvml, "NVMLError_LibraryNotFound", ()))
        return Answer(problem=f"NVML does not start: {_words(error)}", missing=missing)
    try:
        devices = _Devices(nvml)
        return Answer(tuple(devices.gpu(name) for name in ids))
    except (nvml.NVMLError, OSError, AttributeError) as error:
        return Answer(problem=f"NVML does not answer: {_words(error)}")
    finally:
        with suppress(nvml.NVMLError):
            nvml.nvmlShutdown()


class _Devices:
    """The devices of a started NVML, looked up by id."""

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._gpus = [self._at(index) for index in range(nvml.nvmlDeviceGetCount())]

    def gpu(self, name: str) -> Gpu:
        """Return the device with this id."""
        if name.isascii() and name.isdigit():
            if len(name) < 6 and int(name) < len(self._gpus):
                return self._gpus[int(name)]
            return Gpu(problem=f"the driver lists {len(self._gpus)} devices, but not this one")
        if name.startswith("MIG-"):
            return self._slice(name)
        near = [gpu for gpu in self._gpus if gpu.uuid is not None and gpu.uuid.startswith(name)]
        return near[0] if len(near) == 1 else Gpu(problem=f"the driver lists {len(near)} devices with this id")

    def _at(self, index: int) -> Gpu:
        handle, fault = self._ask(self._nvml.nvmlDeviceGetHandleByIndex, index)
        if handle is None:
            lost = getattr(self._nvml, "NVMLError_GpuIsLost", ())
            return Gpu(problem="it fell off the bus" if isinstance(fault, lost) else f"NVML reports: {_words(fault)}")
        return self._described(handle)

    def _slice(self, name: str) -> Gpu:
        """Return a MIG device, at the place of the device that it is part of."""
        handle, fault = self._ask(self._nvml.nvmlDeviceGetHandleByUUID, name)
        if handle is None:
            return Gpu(problem=f"NVML reports: {_words(fault)}")
        parent, _ = self._ask(self._nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle, handle)
        whole = self._described(handle if parent is None else parent)
        memory, _ = self._ask(self._nvml.nvmlDeviceGetMemoryInfo, handle)
        model, _ = self._ask(self._nvml.nvmlDeviceGetName, handle)
        return Gpu(name, whole.pci, model or whole.model, int(memory.total) >> 20 if memory else None, whole.problem)

    def _described(self, handle: Any) -> Gpu:
        uuid, fault = self._ask(self._nvml.nvmlDeviceGetUUID, handle)
        bus, _ = self._ask(self._nvml.nvmlDeviceGetPciInfo, handle)
        model, _ = self._ask(self._nvml.nvmlDeviceGetName, handle)
        memory, _ = self._ask(self._nvml.nvmlDeviceGetMemoryInfo, handle)
        if isinstance(fault, getattr(self._nvml, "NVMLError_GpuIsLost", ())):
            problem: str | None = "it fell off the bus"
        else:
            problem = self._damage(handle)
        address = getattr(bus, "busId", b"")
        address = address.decode("ascii", "replace") if isinstance(address, bytes) else str(address)
        return Gpu(uuid, address_of(address), model, int(memory.total) >> 20 if memory else None, problem)

    def _damage(self, handle: Any) -> str | None:
        """Return what is wrong with the memory of a device, as far as it can report it."""
        rows, _ = self._ask(self._nvml.nvmlDeviceGetRemappedRows, handle)
        if rows and rows[3]:
            return "remapping of damaged memory rows failed"
        pending, _ = self._ask(self._nvml.nvmlDeviceGetRetiredPagesPendingStatus, handle)
        return "damaged memory is not retired before the next reset" if pending or (rows and rows[2]) else None

    def _ask(self, question: Callable[..., Any], *given: Any) -> tuple[Any, Exception | None]:
        try:
            return question(*given), None
        except (self._nvml.NVMLError, AttributeError, ValueError) as fault:
            return None, fault


def _words(error: Exception | None) -> str:
    """Return the message of an error in one line."""
    return " ".join(str(error).split()) or type(error).__name__
