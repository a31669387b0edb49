"""Colors of components and of parallel groups under black text, distinct for readers with any kind of color vision."""

from __future__ import annotations

FILLS = ("#77aadd", "#ee8866", "#eedd88", "#ffaabb", "#99ddff", "#44bb99", "#bbcc33", "#aaaa00")
"""Paul Tol's "light" scheme, made for labelled cells, in his order; https://personal.sron.nl/~pault/."""
PLAIN = "#dddddd"
"""The scheme's grey, for bands without a color of their own."""
HATCHES = ("", "up", "down", "across")
"""Patterns that distinguish repeated colors."""


def fill(index: int | None) -> str:
    """Return the color with this index; grey without one."""
    return PLAIN if index is None else FILLS[index % len(FILLS)]


def hatch(index: int | None) -> str:
    """Return the pattern on the color: empty for its first use."""
    return "" if index is None else HATCHES[index // len(FILLS) % len(HATCHES)]
