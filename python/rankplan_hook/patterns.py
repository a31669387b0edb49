"""Names of placement groups as regular expressions, many of which differ only in the number at their end.

verl names the group of node 17 after the sizes of all nodes: ``global_poolverl_group_8_8_8:17``. A plan writes equal
sizes once: ``global_poolverl_group_8(?:_8){9999}:17``. Such a pattern is a template and a number. However many groups
have a template, it is compiled once.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator

_DIGITS = "0123456789"
_MOST_DIGITS = 9
_LONGEST = 60
"""Characters of a name that messages show in full."""

_REPEATED = re.compile(r"\(\?:((?:\\.|[^\\(){}\[\]|?*+.^$])+)\)\{([0-9]{1,9})\}")
"""A text that occurs several times in a row, as plans write the names of verl's groups: ``(?:_8){9999}``."""

_TOKEN = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(\?:?|[*+?}]\+|[()|^$]", re.DOTALL)
"""Escapes, sets of characters, and what has a meaning beyond its own place: the others are characters and repeats."""

_LOOKING_AHEAD = {r"\A", r"\b", r"\B", r"\Z", r"\z", "^", "$", "(?", "*+", "++", "?+", "}+"}
"""Tokens that depend on the text after the template, or may."""


def split(pattern: str) -> tuple[str, int | None]:
    """Return the template of a pattern, and its number; the pattern itself and ``None`` if it has no number.

    The pattern matches a name if the name ends with the number and the template matches the text before.
    """
    template = pattern.rstrip(_DIGITS)
    digits = pattern[len(template) :]
    if not digits or len(digits) > _MOST_DIGITS or (digits[0] == "0" and len(digits) > 1):
        return pattern, None
    return (template, int(digits)) if _is_whole(template) else (pattern, None)


@functools.lru_cache(maxsize=1024)
def _is_whole(template: str) -> bool:
    """Whether a template is a pattern by itself, which matches the same text whatever follows it."""
    try:
        re.compile(template)
    except re.error:
        return False  # such as "\x", whose digits are no number
    depth = 0
    for token in _TOKEN.findall(template):
        if token in _LOOKING_AHEAD or (token == "|" and depth == 0):
            return False
        depth += {"(": 1, "(?:": 1, ")": -1}.get(token, 0)
    return True


@functools.lru_cache(maxsize=1024)
def matcher(pattern: str) -> Callable[[str], object]:
    """Return the test of a name; most patterns without a number are names, and need not be compiled."""
    literal = _unescaped(pattern)
    return literal.__eq__ if re.escape(literal) == pattern else re.compile(pattern).fullmatch


def readable(pattern: str) -> str:
    """Return the only name that a pattern matches, with repetitions as ``8(_8){9999}`` if it is long.

    Return a pattern that matches several names unchanged.
    """
    parts = _REPEATED.split(pattern)
    literals = parts[::3]
    if any(re.escape(_unescaped(part)) != part for part in literals):
        return pattern
    repeats = [(_unescaped(text), int(times)) for text, times in zip(parts[1::3], parts[2::3])]
    length = sum(map(len, literals)) + sum(len(text) * times for text, times in repeats)
    name = _unescaped(literals[0])
    for (text, times), literal in zip(repeats, literals[1:]):
        name += text * times if length <= _LONGEST else f"({text}){{{times}}}"
        name += _unescaped(literal)
    return name


def _unescaped(literal: str) -> str:
    return re.sub(r"\\(.)", r"\1", literal, flags=re.DOTALL)


class Names:
    """The positions of requests by the names that they match. Those that differ in their number are one entry."""

    def __init__(self) -> None:
        self._unnamed: list[range] = []
        self._named: dict[str, list[range]] = {}
        self._numbered: dict[str, list[tuple[int, range]]] = {}

    def add(self, pattern: str | None, positions: range) -> None:
        """Add requests whose patterns differ in their number: that of the first one is given, others count upwards."""
        if pattern is None:
            _extend(self._unnamed, positions)
            return
        template, number = split(pattern)
        if number is None:
            _extend(self._named.setdefault(pattern, []), positions)
            return
        runs = self._numbered.setdefault(template, [])
        if runs:
            first, before = runs[-1]
            if before.stop == positions.start and first + len(before) == number:
                runs[-1] = first, range(before.start, positions.stop)
                return
        runs.append((number, positions))

    def first(self, name: str, is_taken: Callable[[int], bool]) -> int | None:
        """Return the first position that matches a name and is not taken."""
        free = (next((at for at in positions if not is_taken(at)), None) for positions in self._matching(name))
        return min((at for at in free if at is not None), default=None)

    def _matching(self, name: str) -> Iterator[range]:
        """Yield the positions that match a name."""
        yield from self._unnamed
        for pattern, ranges in self._named.items():
            if matcher(pattern)(name):
                yield from ranges
        for text, number in _endings(name):
            for template, runs in self._numbered.items():
                for first, positions in runs:
                    if first <= number < first + len(positions) and matcher(template)(text):
                        yield positions[number - first : number - first + 1]


def _extend(ranges: list[range], positions: range) -> None:
    if ranges and ranges[-1].stop == positions.start:
        ranges[-1] = range(ranges[-1].start, positions.stop)
    else:
        ranges.append(positions)


def _endings(name: str) -> Iterator[tuple[str, int]]:
    """Yield every number that a name ends with, and the text before it: 17 and 7 of ``node17``."""
    start = max(len(name.rstrip(_DIGITS)), len(name) - _MOST_DIGITS)
    for index in range(start, len(name)):
        if name[index] != "0" or index == len(name) - 1:
            yield name[:index], int(name[index:])


class Groups:
    """The planned groups, to find the one that a group of the program takes: of its sizes, then of its name.

    Optional groups come last.
    """

    def __init__(self) -> None:
        self._names: dict[tuple[float, ...], tuple[Names, Names]] = {}

    def add(self, sizes: tuple[float, ...], pattern: str | None, positions: range, *, optional: bool) -> None:
        """Add groups of the same sizes; see `Names.add`."""
        certain, last = self._names.setdefault(sizes, (Names(), Names()))
        (last if optional else certain).add(pattern, positions)

    def first(self, sizes: tuple[float, ...], name: str, is_taken: Callable[[int], bool]) -> int | None:
        """Return the first position of a group that suits and is not taken."""
        found = (names.first(name, is_taken) for names in self._names.get(sizes, ()))
        return next((at for at in found if at is not None), None)
