"""Searches for a line of a file, whose result decides the way of a script: ``grep -q PATTERN FILE``."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rankplan.frozen import frozen

_OPTIONS = re.compile(r"-[qEis]+")
_PLAIN = re.compile(r"\^?(?:\\s\*|[\w :/-])+\$?", re.ASCII)
"""Patterns that grep and Python read alike: words, blanks and ``\\s*``, at the start or the end of a line or not."""
_LONGEST = 1_000
"""The characters of a line that are searched."""


@frozen
class QuietSearch:
    """``grep -q``: a pattern, a file, and whether upper and lower case are the same."""

    pattern: str
    file: str
    ignores_case: bool = False

    def matches(self, text: str) -> bool:
        """Return whether a line of a text matches."""
        pattern = re.compile(self.pattern, re.IGNORECASE if self.ignores_case else 0)
        return any(pattern.search(line[:_LONGEST]) for line in text.splitlines())


def quiet_search(arguments: Sequence[str]) -> QuietSearch | None:
    """Return what ``grep`` with these arguments looks for, ``None`` if that is not read."""
    options = "".join(text for text in arguments if _OPTIONS.fullmatch(text))
    others = [text for text in arguments if not _OPTIONS.fullmatch(text)]
    if "q" not in options or len(others) != 2 or not all(others) or _PLAIN.fullmatch(others[0]) is None:
        return None
    return QuietSearch(others[0], others[1], "i" in options)
