"""Text on a map: names without characters that pictures cannot hold, and ranks and names within a width."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rankplan._core import RankSet
from rankplan.words import listed

_MOST_TEXT = 160
_NUMBERED = re.compile(r"(.*?)([0-9]{1,9})")
_MOST_NAMES = 4


def short(text: str) -> str:
    """Return a user's text, cleaned, and cut if it is long."""
    return clean(text) if len(text) <= _MOST_TEXT else f"{clean(text[:_MOST_TEXT])}..."


def clean(text: str) -> str:
    """Return a user's text without control characters and lone surrogates, which terminals and XML cannot hold."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def ranks_text(ranks: RankSet, room: int) -> str:
    """Return ranks in at most ``room`` characters: all, the first few, or their number."""
    text = str(ranks)
    if len(text) <= room:
        return text
    kept = text[: max(room - 3, 0)].rpartition(",")[0]
    return f"{kept},..." if kept else f"{len(ranks)} ranks"[:room]


def names_text(names: Sequence[str]) -> str:
    """Return a few names, those that count on as a range: ``leaf1-leaf15, b and 3 more``."""
    pieces: list[tuple[str, str]] = []
    for name in names:
        if pieces and _follows(pieces[-1][1], name):
            pieces[-1] = pieces[-1][0], name
        else:
            pieces.append((name, name))
    texts = [first if first == last else f"{first}-{last}" for first, last in pieces]
    return listed(texts, _MOST_NAMES)


def _follows(before: str, name: str) -> bool:
    """Return whether a name is the one before with the next number at its end."""
    one, other = _NUMBERED.fullmatch(before), _NUMBERED.fullmatch(name)
    if one is None or other is None or one[1] != other[1]:
        return False
    return str(int(one[2]) + 1).zfill(len(one[2])) == other[2]
