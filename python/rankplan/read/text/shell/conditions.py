"""The tests of a shell script, between ``[ ]`` or ``[[ ]]``."""

from __future__ import annotations

import fnmatch
import operator
from collections.abc import Callable, Sequence
from typing import NamedTuple

_NUMBERS: dict[str, Callable[[int, int], bool]] = {
    "-eq": operator.eq,
    "-ne": operator.ne,
    "-lt": operator.lt,
    "-le": operator.le,
    "-gt": operator.gt,
    "-ge": operator.ge,
}
_TEXTS = ("=", "==", "!=")


class Tested(NamedTuple):
    """A word between brackets: its text if that may be an operator, its value if known, and it as a pattern, if any."""

    operator: str | None
    text: str | None
    pattern: str | None = None


def holds(words: Sequence[Tested], is_here: Callable[[str], bool] = lambda name: False) -> bool | None:
    """Return whether a test holds, ``None`` if that is unknown. ``is_here`` tells whether a file exists here."""
    signs = [word.operator for word in words]
    for sign, decides in (("||", True), ("&&", False)):
        if sign in signs:
            place = signs.index(sign)
            both = holds(words[:place], is_here), holds(words[place + 1 :], is_here)
            return decides if decides in both else None if None in both else not decides
    match signs:
        case [_, str() as sign, _] if sign in _TEXTS or sign in _NUMBERS:
            return _compared(words[0].text, sign, words[2])
        case ["!", *_]:
            status = holds(words[1:], is_here)
            return None if status is None else not status
        case ["-n" | "-z" as sign, _] if words[1].text is not None:
            return bool(words[1].text) == (sign == "-n")
        case ["-f", _] if words[1].text:
            return True if is_here(words[1].text) else None
    return None


def _compared(first: str | None, sign: str, second: Tested) -> bool | None:
    if first is None or second.text is None:
        return None
    if sign in _TEXTS:
        same = first == second.text if second.pattern is None else fnmatch.fnmatchcase(first, second.pattern)
        return same == (sign != "!=")
    try:
        return _NUMBERS[sign](int(first), int(second.text))
    except ValueError:
        return None
