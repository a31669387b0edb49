"""The sizes that each component may have on a cluster, with their times."""

from __future__ import annotations

from dataclasses import dataclass

from rankplan.errors import Diagnostic, PlacementError
from rankplan.tuning.costs import ComponentCosts, Costs
from rankplan.words import counted

MOST_UNITS = 16_384
"""Units of a search; more take minutes."""


@dataclass(frozen=True)
class Size:
    """A number of accelerators with the seconds of an iteration on them, and their resident memory."""

    accelerators: int
    seconds: float
    memory: float


def possible(costs: Costs, accelerators: int, *, extrapolate: bool) -> dict[str, list[Size]]:
    """Return the sizes of each component, ascending.

    Raises `PlacementError` (``size-does-not-fit``) for each component that has none.
    """
    found: dict[str, list[Size]] = {}
    faults = []
    for name, component in costs.components.items():
        found[name] = [
            Size(size, seconds, component.resident(size))
            for size in range(costs.unit, accelerators + 1, costs.unit)
            if _allowed(component, size, costs, extrapolate=extrapolate)
            and (seconds := component.times.seconds(size)) is not None
        ]
        if not found[name]:
            fault = _fits_nowhere(name, component, costs, accelerators)
            faults.append(costs.located(("components", name), fault))
    if faults:
        raise PlacementError(faults)
    return found


def _allowed(component: ComponentCosts, size: int, costs: Costs, *, extrapolate: bool) -> bool:
    if not component.divides(size) or (component.sizes is not None and size not in component.sizes):
        return False
    if component.measured_only and not component.times.measured(size):
        return False
    if costs.capacity is not None and component.resident(size) > costs.capacity:
        return False
    return extrapolate or component.times.within(size)


def _fits_nowhere(name: str, component: ComponentCosts, costs: Costs, accelerators: int) -> Diagnostic:
    have = counted(accelerators, "accelerator")
    every = range(costs.unit, accelerators + 1, costs.unit)
    divided = [size for size in every if component.divides(size)]
    if not divided:
        sizes = f"{component.parallel}" + (f" and dp {_numbers(component.dp)}" if component.dp is not None else "")
        unit = f" in units of {costs.unit}" if costs.unit > 1 else ""
        message = f"`{name}` with {sizes} fits on no number of accelerators up to {accelerators}{unit}"
        return Diagnostic("size-does-not-fit", message, "change its parallel sizes or `dp`, or use more accelerators")
    listed = [size for size in divided if component.sizes is None or size in component.sizes]
    if not listed:
        message = f"`{name}` fits on none of its `sizes` ({_numbers(component.sizes)}) up to {have}"
        return Diagnostic("size-does-not-fit", message, "list a size that its parallel sizes divide")
    if costs.capacity is not None and all(component.resident(size) > costs.capacity for size in listed):
        least = min(component.resident(size) for size in listed)
        message = f"`{name}` needs {least:g} of the {costs.capacity:g} memory of an accelerator"
        return Diagnostic("size-does-not-fit", message, "lower its memory, or measure it on more accelerators")
    written = _numbers(component.written) or "none of these"
    message = f"`{name}` was measured on {written} accelerators, too far from any size on {have}"
    return Diagnostic(
        "size-does-not-fit", message, "measure it on the accelerators that you have, or use --extrapolate"
    )


def _numbers(numbers: object) -> str:
    return ", ".join(str(number) for number in sorted(numbers)) if isinstance(numbers, (frozenset, tuple)) else ""
