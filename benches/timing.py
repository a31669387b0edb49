"""Time calls in this process or in new ones, and print rows."""

from __future__ import annotations

import gc
import multiprocessing
import time
from collections.abc import Callable
from typing import Any

_PROCESSES = multiprocessing.get_context("forkserver")


def best(work: Callable[[], Any], seconds: float = 1.0) -> float:
    """Return the shortest time of one call, in seconds, out of the calls that fit in ``seconds`` (at least three)."""
    times: list[float] = []
    start = time.perf_counter()
    gc.disable()
    while len(times) < 3 or time.perf_counter() - start < seconds:
        times.append(once(work))
    gc.enable()
    return min(times)


def first(prepare: Callable[..., Callable[[], Any]], *arguments: Any, samples: int = 3) -> float:
    """Return the shortest time of a first call, in seconds: each sample runs in a new process, page faults included.

    ``prepare(*arguments)`` runs in that process and returns the call. It must be a function of a module.
    """
    with _PROCESSES.Pool(1, maxtasksperchild=1) as pool:
        return min(pool.starmap(_prepared, [(prepare, arguments)] * samples, chunksize=1))


def _prepared(prepare: Callable[..., Callable[[], Any]], arguments: tuple[Any, ...]) -> float:
    return once(prepare(*arguments))


def once(work: Callable[[], Any]) -> float:
    """Return the time of one call, in seconds."""
    before = time.perf_counter()
    work()
    return time.perf_counter() - before


def line(name: str, seconds: float, reference: float | None = None, fresh: float | None = None) -> None:
    """Print a time, how many times longer the reference takes, and how many times longer a first call takes."""
    ratios = [f"{other / seconds:>12,.1f}x" if other else " " * 13 for other in (reference, fresh)]
    print(f"{name:<46}{1000 * seconds:>12.3f} ms{''.join(ratios)}".rstrip())
