"""Measured needs that a user hands in: the bytes of a phase, or the log of a trainer that prints its peak."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from rankplan._core import likely_room
from rankplan.errors import PlacementError
from rankplan.hardware.cards import SMALLEST_SIZE, size_in_bytes
from rankplan.memory import measured_faults as faults
from rankplan.memory.need import Phase
from rankplan.memory.settings import GIB


class _LogForm(NamedTuple):
    """How a trainer prints what its allocator holds, in GiB, and of which phase.

    ``example`` is the text that a line has. ``is_reserved``: what was reserved after a step, which has the blocks that
    the allocator lost.
    """

    example: str
    pattern: re.Pattern[str]
    phase: Phase
    is_reserved: bool = False


_LARGEST_LOG = 1 << 28
_NUMBER = r"([0-9]+(?:\.[0-9]+)?)"
_FORMS = (
    # compute_data_metrics of the update of the actor: torch.cuda.max_memory_allocated() / 1024**3
    _LogForm(
        "perf/max_memory_allocated_gb",
        re.compile(rf"perf/max_memory_allocated_gb['\"]?\s*[:=]\s*(?:np\.float\d+\()?{_NUMBER}"),
        Phase("actor", "train"),
    ),
    # NeMo-RL 7ea279a, MegatronPolicyWorker with NRL_LOG_LEVEL=DEBUG: the peak since the last line
    _LogForm("[gpumem] max_alloc=", re.compile(rf"\[gpumem\] .*?\bmax_alloc={_NUMBER}"), Phase("policy", "train")),
    # NeMo-RL, offload_before_refit of all policy workers
    _LogForm(
        "GPU Memory before optimizer offload",
        re.compile(rf"GPU Memory before optimizer offload: [0-9.]+GB allocated, {_NUMBER}GB reserved"),
        Phase("policy", "train"),
        is_reserved=True,
    ),
    # slime 624b824, print_memory of MegatronTrainRayActor.sleep
    _LogForm(
        "Memory-Usage before offload model",
        re.compile(rf"Memory-Usage before offload model[^{{]*\{{[^}}]*'reserved_GB': {_NUMBER}"),
        Phase("actor", "train"),
        is_reserved=True,
    ),
)
"""The first form of which a log has a line counts."""
_WITH_LOST_BLOCKS = likely_room(1.0) - likely_room(0.0)
"""Bytes that an allocator reserves for one that it holds."""


def read_measured(texts: Iterable[str]) -> dict[Phase, float]:
    """Return the measured bytes of phases that ``actor.train=57GiB`` states, or that the log of a trainer has.

    Raises `PlacementError` (``invalid-value``) for a text that is neither, ``OSError`` for a log that cannot be read.
    """
    if isinstance(texts, str) or not isinstance(texts, Iterable):
        raise PlacementError([faults.no_measured_list(texts)])
    measured: dict[Phase, float] = {}
    for text in texts:
        if not isinstance(text, str):
            raise PlacementError([faults.no_measured_size(text)])
        name, equals, size = text.partition("=")
        if Path(text).is_file():
            measured |= _of_log(text)
        elif equals:
            measured[_phase(name, text)] = _bytes(size, text)
        else:
            raise PlacementError([faults.no_log(text)])
    return measured


def _phase(name: str, text: str) -> Phase:
    component, dot, phase = name.strip().rpartition(".")
    if not dot or not component or not phase:
        raise PlacementError([faults.no_measured_size(text)])
    return Phase(component, phase)


def _bytes(size: str, text: str) -> float:
    try:
        measured = float(size_in_bytes(size.strip()))
    except ValueError:
        measured = 0.0
    if measured < SMALLEST_SIZE:
        raise PlacementError([faults.no_measured_size(text)])
    return measured


def _of_log(path: str) -> dict[Phase, float]:
    """Return the largest peak of the trained model in a log, which also computes log-probabilities."""
    with Path(path).open(encoding="utf-8", errors="replace") as file:
        text = file.read(_LARGEST_LOG)
    for form in _FORMS:
        sizes = [float(number) for number in form.pattern.findall(text)]
        if sizes:
            peak = max(sizes) * GIB
            return {form.phase: peak / _WITH_LOST_BLOCKS if form.is_reserved else peak}
    raise PlacementError([faults.no_peak_in_log(path, [form.example for form in _FORMS])])
