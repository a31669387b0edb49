"""Colors of components under black text, distinct for readers with any kind of color vision."""

from __future__ import annotations

FILLS = ("#77aadd", "#ee8866", "#eedd88", "#ffaabb", "#99ddff", "#44bb99", "#bbcc33", "#aaaa00")
"""Paul Tol's "light" scheme, made for labelled cells, in his order; https://personal.sron.nl/~pault/."""
HATCHES = ("", "up", "down", "across")
"""Patterns that distinguish repeated colors."""


def fill(index: int) -> str:
    """Return the color of the component with this index."""
    return FILLS[index % len(FILLS)]


def hatch(index: int) -> str:
    """Return the pattern on the color: empty for the first component that uses it."""
    return HATCHES[index // len(FILLS) % len(HATCHES)]
