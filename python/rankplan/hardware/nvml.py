"""Facts of NVIDIA devices from NVML, which is loaded on demand. Its faults never raise."""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from rankplan._core import pci_address
from rankplan.frozen import frozen


@frozen
class Gpu:
    """One device; ``memory`` is in MiB. ``problem`` tells why it should not be used."""

    uuid: str | None = None
    pci: str | None = None
    model: str | None = None
    memory: int | None = None
    problem: str | None = None


@frozen
class Fabric:
    """The fabric of one GPU; ``state`` 3 means that the GPU has joined it."""

    state: int
    cluster_uuid: bytes
    clique_id: int


def read(ids: Sequence[str]) -> list[Gpu]:
    """Return NVML's facts of these devices: indices, UUIDs or their beginnings, or MIG UUIDs.

    Without the driver or the package nothing is known of a device. If NVML is damaged, that is the problem of each.
    """
    try:
        with _started() as nvml:
            devices = _Devices(nvml)
            return [devices.gpu(name) for name in ids]
    except _Unavailable as why:
        return [Gpu(problem=why.problem) for _ in ids]


@frozen
class Use:
    """A process that computes on a device; ``memory`` is what it has there, in MiB, if the driver tells it."""

    pid: int
    memory: int | None


def uses(ids: Sequence[str]) -> list[list[Use]] | None:
    """Return the processes that compute on each of these devices; ``None`` if NVML does not answer."""
    try:
        with _started() as nvml:
            devices = _Devices(nvml)
            return [devices.uses(name) for name in ids]
    except _Unavailable:
        return None


@frozen
class Load:
    """What a device holds, in bytes: ``used`` by all processes, of ``total``; ``pids`` are those that compute on it."""

    used: int
    total: int
    pids: tuple[int, ...]


def loads(ids: Sequence[str]) -> Generator[list[Load | None]]:
    """Yield what these devices hold, read anew each time; ``None`` for a device of which NVML does not tell it.

    NVML stays started until the iterator is closed. It ends if NVML does not answer.
    """
    with suppress(_Unavailable), _started() as nvml:
        devices = _Devices(nvml)
        while True:
            yield [devices.load(name) for name in ids]


def memory(ids: Sequence[str]) -> list[tuple[int, int] | None]:
    """Return the used and all bytes of these devices, by UUID or index; ``None`` where NVML does not tell."""
    found: list[tuple[int, int] | None] = []
    with suppress(_Unavailable), _started() as nvml:
        for name in ids:
            by_index = name.isascii() and name.isdigit() and len(name) < 6
            handle = nvml.nvmlDeviceGetHandleByIndex(int(name)) if by_index else nvml.nvmlDeviceGetHandleByUUID(name)
            size = nvml.nvmlDeviceGetMemoryInfo(handle)
            found.append((int(size.used), int(size.total)))
    return found + [None] * (len(ids) - len(found))


def fabrics() -> list[Fabric]:
    """Return the fabric of each GPU of this machine; empty without NVML, or if a GPU has no fabric."""
    try:
        with _started() as nvml:
            return [_fabric(nvml, index) for index in range(nvml.nvmlDeviceGetCount())]
    except _Unavailable:
        return []


class _Unavailable(Exception):
    """NVML does not answer; ``problem`` says why, ``None`` if there is no driver or no package."""

    def __init__(self, problem: str | None = None) -> None:
        super().__init__(problem)
        self.problem = problem


@contextmanager
def _started() -> Iterator[Any]:
    """Yield the module of NVML while it is started; raise `_Unavailable` if it fails at any point."""
    try:
        nvml: Any = importlib.import_module("pynvml")
    except ImportError:
        raise _Unavailable from None
    try:
        nvml.nvmlInit()
    except (nvml.NVMLError, OSError, AttributeError) as error:
        missing = isinstance(error, getattr(nvml, "NVMLError_LibraryNotFound", ()))
        raise _Unavailable(None if missing else f"NVML does not start: {_words(error)}") from None
    try:
        yield nvml
    except (nvml.NVMLError, OSError, AttributeError) as error:
        raise _Unavailable(f"NVML does not answer: {_words(error)}") from None
    finally:
        with suppress(nvml.NVMLError):
            nvml.nvmlShutdown()


def _fabric(nvml: Any, index: int) -> Fabric:
    info = nvml.c_nvmlGpuFabricInfoV_t()
    info.version = _version(nvml, ctypes.sizeof(info))
    nvml.nvmlDeviceGetGpuFabricInfoV(nvml.nvmlDeviceGetHandleByIndex(index), ctypes.byref(info))
    field = type(info).clusterUuid  # as a C string, it would end at its first zero
    uuid = ctypes.string_at(ctypes.addressof(info) + field.offset, field.size)
    return Fabric(int(info.state), uuid, int(info.cliqueId))


def _version(nvml: Any, size: int) -> int:
    """Return the version of the structure of this size: NVML writes the size into the lower 24 bits."""
    known = (getattr(nvml, f"nvmlGpuFabricInfo_v{number}", 0) for number in (2, 3, 4))
    return next((version for version in known if version & 0xFFFFFF == size), int(nvml.nvmlGpuFabricInfo_v2))


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

    def uses(self, name: str) -> list[Use]:
        """Return the processes on the device with this id, none if the driver does not list it."""
        handle = self._handle(name)
        return [] if handle is None else self._uses(handle)

    def load(self, name: str) -> Load | None:
        """Return what the device with this id holds, ``None`` if the driver does not tell it."""
        handle = self._handle(name)
        if handle is None:
            return None
        size, _ = self._ask(self._nvml.nvmlDeviceGetMemoryInfo, handle)
        if size is None:
            return None
        return Load(int(size.used), int(size.total), tuple(use.pid for use in self._uses(handle)))

    def _handle(self, name: str) -> Any:
        """Return NVML's handle of the device with this id, ``None`` if the driver does not list it."""
        near = [index for index, gpu in enumerate(self._gpus) if gpu.uuid is not None and gpu.uuid.startswith(name)]
        if name.isascii() and name.isdigit():
            near = [index for index in range(len(self._gpus)) if str(index) == name]
        if len(near) == 1:
            handle, _ = self._ask(self._nvml.nvmlDeviceGetHandleByIndex, near[0])
        else:
            handle, _ = self._ask(self._nvml.nvmlDeviceGetHandleByUUID, name)  # of a MIG device
        return handle

    def _uses(self, handle: Any) -> list[Use]:
        processes, _ = self._ask(self._nvml.nvmlDeviceGetComputeRunningProcesses, handle)
        return [Use(int(one.pid), one.usedGpuMemory and int(one.usedGpuMemory) >> 20) for one in processes or ()]

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
        part = self._described(handle)
        return replace(part, uuid=name, pci=whole.pci, model=part.model or whole.model, problem=whole.problem)

    def _described(self, handle: Any) -> Gpu:
        uuid, fault = self._ask(self._nvml.nvmlDeviceGetUUID, handle)
        bus, _ = self._ask(self._nvml.nvmlDeviceGetPciInfo, handle)
        model, _ = self._ask(self._nvml.nvmlDeviceGetName, handle)
        memory, _ = self._ask(self._nvml.nvmlDeviceGetMemoryInfo, handle)
        lost = isinstance(fault, getattr(self._nvml, "NVMLError_GpuIsLost", ()))
        problem = "it fell off the bus" if lost else self._damage(handle)
        address = getattr(bus, "busId", b"")
        address = address.decode("ascii", "replace") if isinstance(address, bytes) else str(address)
        return Gpu(uuid, pci_address(address), model, int(memory.total) >> 20 if memory else None, problem)

    def _damage(self, handle: Any) -> str | None:
        """Return the damage to the memory of a device, as far as it can report it."""
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
