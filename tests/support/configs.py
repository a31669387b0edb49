"""Configs of other systems for the tests of dialects: from overrides, and on clusters of given sizes."""

from __future__ import annotations

from collections.abc import Sequence

from rankplan import Inventory
from rankplan.config.text.document import Section
from rankplan.config.text.overrides import overridden, parse_overrides
from rankplan.config.text.places import Places


def from_overrides(words: Sequence[str]) -> Section:
    """Return the config that words such as ``a.b=1`` make."""
    return overridden(Section(Places(None), ()), parse_overrides(words), strict=False)


def nodes(counts: Sequence[int]) -> Inventory:
    """Return an inventory of nodes with these numbers of accelerators."""
    return Inventory.from_dict({"nodes": [{"ranks": rank, "accelerators": count} for rank, count in enumerate(counts)]})
