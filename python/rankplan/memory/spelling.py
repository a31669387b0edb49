"""How a trainer's config states the memory of a component."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from rankplan.errors import KeyPath


class Spelling(Protocol):
    """How a config states the memory of a component in keys of its own."""

    def place(self, setting: str) -> KeyPath | None:
        """Return the path of the key that states a setting, else that of the model."""

    def written(self, settings: Mapping[str, Any], sizes: Mapping[str, int]) -> str | None:
        """Return the keys to write for settings and parallel sizes, ``None`` if no keys state exactly them."""

    def named(self, setting: str) -> str | None:
        """Return the keys that are missing for a setting to be known, ``None`` if no key states it."""
