"""Megatron's keys of parallel sizes, which several trainers have in sections of their own."""

from __future__ import annotations

from rankplan.dialects.keys.key import Key, size
from rankplan.parallel import MEGATRON


def megatron_sizes(decides: str, *sections: str) -> dict[str, Key[int | None]]:
    """Return the keys of each size, by its kind (``tp``), in each of these sections."""
    return {kind: size(f"@.{name}", decides, at=sections) for kind, (name,) in MEGATRON.items()}
