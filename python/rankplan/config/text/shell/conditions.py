"""The tests of a shell script, between ``[ ]`` or ``[[ ]]``."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Sequence

from rankplan.config.text.shell.expand import Value, text_of


class Test:
    """The words between brackets: the text of each if it may be an operator, its value, and it as a pattern, if any."""

    def __init__(self, items: Sequence[tuple[str | None, Value, str | None]]) -> None:
        self.items = list(items)[::-1]

    def whole(self) -> bool | None:
        """Return whether the test holds, ``None`` if that is unknown."""
        status = self._or()
        return None if self.items else status

    def _take(self, *texts: str) -> bool:
        if self.items and self.items[-1][0] in texts:
            self.items.pop()
            return True
        return False

    def _or(self) -> bool | None:
        status = self._and()
        while self._take("||", "-o"):
            other = self._and()
            status = True if status or other else (None if None in (status, other) else False)
        return status

    def _and(self) -> bool | None:
        status = self._one()
        while self._take("&&", "-a"):
            other = self._one()
            status = False if False in (status, other) else (None if None in (status, other) else True)
        return status

    def _one(self) -> bool | None:
        if self._take("!"):
            status = self._one()
            return None if status is None else not status
        if self._take("("):
            status = self._or()
            self._take(")")
            return status
        if not self.items:
            return False
        operator, first, _ = self.items.pop()
        following = self.items[-1][0] if self.items else None
        if len(self.items) > 1 and following is not None and following in _COMPARED:
            self.items.pop()
            return self._compared(text_of(first), following, *self.items.pop()[1:])
        if operator in ("-n", "-z") and self.items:
            second = text_of(self.items.pop()[1])
            return None if second is None else bool(second) == (operator == "-n")
        if operator is not None and len(operator) == 2 and operator[0] == "-" and self.items:
            self.items.pop()  # a test of a file
            return None
        text = text_of(first)
        return None if text is None else bool(text)

    def _compared(self, first: str | None, operator: str, value: Value, pattern: str | None) -> bool | None:
        second = text_of(value)
        if first is None or second is None:
            return None
        if operator in ("=", "==", "!="):
            same = first == second if pattern is None else fnmatch.fnmatchcase(first, pattern)
            return same == (operator != "!=")
        compare = _NUMBERS.get(operator)
        if compare is None:
            return None
        try:
            return compare(int(first), int(second))
        except ValueError:
            return None


_NUMBERS: dict[str, Callable[[int, int], bool]] = {
    "-eq": int.__eq__,
    "-ne": int.__ne__,
    "-lt": int.__lt__,
    "-le": int.__le__,
    "-gt": int.__gt__,
    "-ge": int.__ge__,
}
_COMPARED = frozenset({"=", "==", "!=", "<", ">", "=~", *_NUMBERS})
