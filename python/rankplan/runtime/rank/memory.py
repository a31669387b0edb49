"""The memory of accelerators that the process of a rank has used."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from rankplan.frozen import frozen
from rankplan.hardware import nvml

_DEVICE_MODULES = ("cuda", "npu", "xpu", "musa", "mlu", "hpu")
"""PyTorch's modules of devices; ``cuda`` is also that of ROCm."""


@frozen
class MemoryUse:
    """Bytes on the accelerator of which a rank has used the most; ``None``: unknown.

    PyTorch counts what this process had ``allocated`` and ``reserved`` at most, and has reserved now (``kept``). The
    driver counts what all processes have ``used`` of the accelerator now, and its ``total``.
    """

    allocated: int | None = None
    reserved: int | None = None
    kept: int | None = None
    used: int | None = None
    total: int | None = None


def memory_use(ids: Sequence[str]) -> MemoryUse | None:
    """Return what this process has used on its accelerators, which have these ids; ``None`` if nothing is known."""
    torch = sys.modules.get("torch")
    for name in _DEVICE_MODULES:
        module = getattr(torch, name, None)
        try:
            if module is not None and module.is_initialized():
                devices = range(module.device_count())
                return max(
                    (_counted(module, index) for index in devices), key=lambda one: one.reserved or 0, default=None
                )
        except (AttributeError, RuntimeError, TypeError, ValueError):
            continue  # a device module that does not count
    known = [one for one in nvml.memory(ids) if one is not None]
    return max(
        (MemoryUse(used=used, total=total) for used, total in known), key=lambda one: one.used or 0, default=None
    )


def _counted(module: Any, index: int) -> MemoryUse:
    reserved = int(module.max_memory_reserved(index))
    try:
        free, total = map(int, module.mem_get_info(index))
        allocated, kept = int(module.max_memory_allocated(index)), int(module.memory_reserved(index))
    except (AttributeError, RuntimeError, TypeError, ValueError):
        return MemoryUse(reserved=reserved)  # a device module that counts less
    return MemoryUse(allocated, reserved, kept, total - free, total)
