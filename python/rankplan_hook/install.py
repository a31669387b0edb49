"""Installs the wrappers when the program imports Ray. Imported in every Python of the command, so it imports little."""

from __future__ import annotations

import os
import sys

from rankplan_hook.names import WRAPPED, site

TYPE_CHECKING = False  # importing typing would take longer than all the rest
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any


def install() -> None:
    """Wrap what asks Ray for places, now if Ray has been imported, or when it is."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    for name in WRAPPED:
        if name in sys.modules:
            _wrap(sys.modules[name], loaded=True)


def __getattr__(name: str) -> Any:
    """Return ``run_ID``, the hook of the worker processes of a run (``worker_process_setup_hook``)."""
    if not name.startswith("run_"):
        raise AttributeError(name)

    def setup() -> None:
        """Install the hook here and in the Pythons that this process starts."""
        os.environ["RANKPLAN_PINS"] = name[len("run_") :]
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [site(), os.environ.get("PYTHONPATH")]))
        install()

    return setup


def _wrap(module: ModuleType, *, loaded: bool = False) -> None:
    from rankplan_hook import wrap

    wrap.wrap(module, loaded=loaded)
    wrap.print_refusals_alone()


class _Finder:
    """Finds the modules to wrap as the other finders do, and wraps them once they have run."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name not in WRAPPED:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Loader(spec.loader)  # type: ignore[assignment]
                return spec
        return None


class _Loader:
    """The loader of a module, which wraps it once it has run."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        found: ModuleType | None = self._loader.create_module(spec)
        return found

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        _wrap(module)
