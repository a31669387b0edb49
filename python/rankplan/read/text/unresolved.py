"""Values that a run resolves: texts with interpolations."""

from __future__ import annotations

from typing import Any

RESOLVE = "write the value, or pass the config after Hydra has resolved it"
"""The help for such a value where it must be known."""


def unresolved(value: Any) -> bool:
    """Return whether a value is text with an interpolation in it."""
    return isinstance(value, str) and "${" in value
