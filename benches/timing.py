"""How the benchmarks measure, and print what they measured."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any


def best(work: Callable[[], Any], seconds: float = 1.0) -> float:
    """Return the shortest time of one call, in seconds, out of as many as fit in ``seconds`` (at least three)."""
    times: list[float] = []
    start = time.perf_counter()
    gc.disable()
    while len(times) < 3 or time.perf_counter() - start < seconds:
        before = time.perf_counter()
        work()
        times.append(time.perf_counter() - before)
    gc.enable()
    return min(times)


def line(name: str, seconds: float, reference: float | None = None, note: str = "") -> None:
    """Print a row: a time, and how many times longer the reference took in this same run."""
    ratio = f"{reference / seconds:>10,.0f}x" if reference else " " * 11
    print(f"{name:<46}{1000 * seconds:>12.3f} ms{ratio}  {note}")
