"""Colours of components, told apart by readers of any kind of sight, with black text on them."""

from __future__ import annotations

FILLS = ("#77aadd", "#ee8866", "#eedd88", "#ffaabb", "#99ddff", "#44bb99", "#bbcc33", "#aaaa00")
"""Paul Tol's "light" scheme, made for labelled cells, in his order; https://personal.sron.nl/~pault/."""
HATCHES = ("", "up", "down", "across")
"""How the colours are told apart when they come again."""


def fill(index: int) -> str:
    """Return the colour of the component of this index."""
    return FILLS[index % len(FILLS)]


def hatch(index: int) -> str:
    """Return the pattern over it: none for the first of its colour."""
    return HATCHES[index // len(FILLS) % len(HATCHES)]
