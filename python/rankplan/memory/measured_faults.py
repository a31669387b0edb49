"""The texts of faults about measured sizes that a user hands in."""

from __future__ import annotations

from collections.abc import Sequence

from rankplan.errors import Diagnostic
from rankplan.words import shown

_MEASURED = "write `actor.train=57GiB`, or the path of a log"


def no_measured_list(value: object) -> Diagnostic:
    """Return the fault of a value that must be a list of measured sizes."""
    return Diagnostic("invalid-value", f"measured is {shown(value)}; it must be a list of texts", _MEASURED)


def no_measured_size(text: object) -> Diagnostic:
    """Return the fault of a measured size that names no phase, or has no size."""
    message = f"{shown(text)} states no measured size of a phase"
    return Diagnostic("invalid-value", message, _MEASURED)


def no_log(path: str) -> Diagnostic:
    """Return the fault of a text that is neither the path of a log nor a measured size."""
    message = f"{shown(path)} is no file, and states no measured size of a phase"
    return Diagnostic("invalid-value", message, _MEASURED)


def no_peak_in_log(path: str, examples: Sequence[str]) -> Diagnostic:
    """Return the fault of a log without a peak; ``examples`` are what such a line has."""
    texts = ", ".join(f"`{example}`" for example in examples)
    message = f"{path} has no line with the memory of a step, as verl, NeMo-RL and slime print it: {texts}"
    return Diagnostic("invalid-value", message, "pass what the trainer prints, or write `actor.train=57GiB`")
