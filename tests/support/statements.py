"""Statements of the trainers' own documents: each in words of our own, with what rankplan answers to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from rankplan import PlacementError

from support.goldens import named


class Statement(NamedTuple):
    """A statement, a call of rankplan, and its answer.

    ``differs`` names a row of ``docs/differences.md`` if the trainer's code contradicts its document: the answer is
    then that of one of the two.
    """

    says: str
    call: Callable[[], Any]
    answer: Any
    differs: str = ""

    def result(self) -> Any:
        """Return what rankplan answers; the difference must be on its page."""
        if self.differs:
            named(self.differs)
        return self.call()


def refusal(call: Callable[..., Any], *arguments: Any, **keywords: Any) -> list[str]:
    """Return the codes of the faults with which a call is refused, none if it is not."""
    try:
        call(*arguments, **keywords)
    except PlacementError as error:
        return [fault.code for fault in error.diagnostics]
    return []
