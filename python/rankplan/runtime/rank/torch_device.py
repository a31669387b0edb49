"""PyTorch's name for the accelerators of a rank. Only `torch_platform` imports PyTorch."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from rankplan.accelerators import vendor
from rankplan.runtime.rank.spec import RankSpec


def accelerator_type(here: RankSpec) -> str:
    """Return the type of the accelerators that the rank sees, such as ``NV_GPU``; ``NO_ACCEL`` without any."""
    return here.placement.accelerator_type


def torch_device_type(here: RankSpec) -> str:
    """Return the device type, such as ``cuda`` or ``cpu``. Raises ``AttributeError`` if PyTorch has no such type."""
    row = vendor(here.placement.accelerator_type)
    if row is None:
        return "cpu"
    if row.torch_device is None:
        raise AttributeError(f"no PyTorch device type is known for {row.accelerator_type}")
    return row.torch_device


def torch_platform(here: RankSpec) -> ModuleType:
    """Return the module of the device type, such as ``torch.cuda``.

    Raises ``ImportError`` without PyTorch, or the plugin of the vendor; ``AttributeError`` if there is no such module.
    """
    row, name = vendor(here.placement.accelerator_type), torch_device_type(here)
    torch = import_module("torch")
    if row is not None and row.torch_plugin is not None:
        import_module(row.torch_plugin)
    module = getattr(torch, name, None)
    if not isinstance(module, ModuleType):
        raise AttributeError(f"PyTorch has no module torch.{name} for {here.placement.accelerator_type}")
    return module
