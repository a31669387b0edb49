"""Megatron's keys of parallel sizes, which several trainers have in sections of their own."""

from __future__ import annotations

from rankplan.dialects.keys.key import Key, size
from rankplan.parallel import MEGATRON


def megatron_sizes(decides: str, *sections: str, inherited_from: str | None = None) -> dict[str, Key[int | None]]:
    """Return the keys of each size, by its kind (``tp``), in each of these sections.

    A size that is missing there may be inherited from another section.
    """
    sizes = {}
    for kind, (name,) in MEGATRON.items():
        fallbacks = () if inherited_from is None else (f"{inherited_from}.{name}",)
        sizes[kind] = size(f"@.{name}", decides, at=sections, fallbacks=fallbacks)
    return sizes
