"""How long the calls on a rank took, by its wall clock."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

_MOST = 10_000
"""Calls of a rank that are remembered; older ones are dropped."""


@dataclass(frozen=True, slots=True)
class Timing:
    """A finished call on a rank: ``started`` is in seconds since 1970 by the clock of its node, ``seconds`` its length.

    The time includes what the method waits for, but not the time before the rank began it.
    """

    method: str
    rank: int
    started: float
    seconds: float


class Stopwatch:
    """The calls of one rank."""

    def __init__(self) -> None:
        self._calls: deque[tuple[str, float, float]] = deque(maxlen=_MOST)

    @contextmanager
    def timing(self, method: str) -> Iterator[None]:
        """Remember how long a call takes; a call that raises is not remembered."""
        started, before = time.time(), time.perf_counter()
        yield
        self._calls.append((method, started, time.perf_counter() - before))

    def calls(self) -> list[tuple[str, float, float]]:
        """Return method, start and length of each call, in the order in which they ended."""
        return list(self._calls)


def slowest_rank(timings: Iterable[Timing]) -> float:
    """Return the seconds of all calls of the rank with the longest, 0 without calls."""
    ranks: dict[int, float] = {}
    for timing in timings:
        ranks[timing.rank] = ranks.get(timing.rank, 0.0) + timing.seconds
    return max(ranks.values(), default=0.0)
