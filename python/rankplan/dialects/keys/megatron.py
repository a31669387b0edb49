"""Megatron's keys of parallel sizes, which several trainers have: at the top, or in sections of their own."""

from __future__ import annotations

from rankplan.dialects.keys.key import Key, size
from rankplan.parallel import MEGATRON


def megatron_sizes(decides: str, *sections: str, inherited_from: str | None = None) -> dict[str, Key[int | None]]:
    """Return Megatron's key of each parallel size, by its kind (``tp``): in each of these sections, else at the top.

    A size that is missing there may be inherited from another section. `Config.parallel` takes the keys.
    """
    sizes = {}
    for kind, (name,) in MEGATRON.items():
        path = f"@.{name}" if sections else name
        fallbacks = () if inherited_from is None else (f"{inherited_from}.{name}",)
        sizes[kind] = size(path, decides, at=sections, fallbacks=fallbacks)
    return sizes
