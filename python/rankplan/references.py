"""Values that are imported when they are used."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def resolved(reference: Any) -> Any:
    """Return what a reference ``"module:NAME"`` or ``"module"`` names; any other value is returned unchanged."""
    if not isinstance(reference, str):
        return reference
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name) if name else import_module(module)
