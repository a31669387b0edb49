"""Modules with every name, in place of torch, engines and the like: trainers import them, and place without them.

A module that calls `become` on import replaces itself by a `Stub`.
"""

from __future__ import annotations

import sys
import typing
from abc import ABCMeta
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import typing_extensions

typing.TypedDict = typing_extensions.TypedDict  # type: ignore[misc]  # pydantic needs it before Python 3.12


class _Names(ABCMeta):
    """Classes that have every attribute, and are their own generic aliases."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Names(name, (Anything,), {})

    def __getitem__(cls, key: Any) -> Any:
        return cls


class _Numbers:
    """The few functions whose answers count: one device of NVIDIA, no cache."""

    @staticmethod
    def get_device_capability(*args: Any) -> tuple[int, int]:
        return 9, 0

    @staticmethod
    def device_count() -> int:
        return 1

    @staticmethod
    def get_cache_dir(*args: Any) -> str:
        return ""

    @staticmethod
    def is_torch_npu_available(*args: Any) -> bool:
        return False


class Anything(_Numbers, metaclass=_Names):
    """A class to derive from, a decorator, a context, a true value."""

    def __init__(self, *args: Any, **options: Any) -> None:
        pass

    def __init_subclass__(cls, **options: Any) -> None:
        pass

    def __call__(self, *args: Any, **options: Any) -> Any:
        return args[0] if len(args) == 1 and callable(args[0]) and not options else Anything()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()

    def __add__(self, other: Any) -> Any:
        return other

    def __getitem__(self, key: Any) -> Any:
        return Anything()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: object) -> None:
        pass


class Stub(_Numbers, ModuleType):
    """A module with every name."""

    __version__ = "99.0"
    __path__: Sequence[str] = ()
    __file__ = __file__

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "npu":  # there are no accelerators of Ascend
            raise AttributeError(name)
        found = _Names(name, (Anything,), {"__module__": self.__name__})
        setattr(self, name, found)
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        return import_module, (self.__name__,)


class _Finder:
    """Finds the modules below a stub."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        found = isinstance(sys.modules.get(name.rpartition(".")[0]), Stub)
        return ModuleSpec(name, _Finder, is_package=True) if found else None  # type: ignore[arg-type]

    @staticmethod
    def create_module(spec: ModuleSpec) -> ModuleType:
        return Stub(spec.name)

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        pass


def become(name: str) -> None:
    """Make the module of this name a stub."""
    if _Finder not in sys.meta_path:
        sys.meta_path.insert(0, _Finder)  # type: ignore[arg-type]
    stub = Stub(name)
    stub.__spec__ = ModuleSpec(name, _Finder, is_package=True)  # type: ignore[arg-type]
    sys.modules[name] = stub
