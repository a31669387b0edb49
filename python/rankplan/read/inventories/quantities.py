"""Quantities of Kubernetes, as CPUs and MiB of memory.

Source: ``k8s.io/apimachinery``, ``resource.Quantity``; exponents, which nobody writes for nodes and pods, are not read.
"""

from __future__ import annotations

import re
from typing import Any

_UNITS = {"": 1.0, "m": 0.001, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_UNITS |= {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50}
_QUANTITY = re.compile(rf"(?P<number>[0-9]{{1,18}}(?:\.[0-9]{{1,9}})?)(?P<unit>{'|'.join(_UNITS)})", re.ASCII)


def quantity(value: Any) -> float | None:
    """Return the number of a quantity: ``96``, ``127610m``, ``1056270956Ki``; ``None`` for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    found = _QUANTITY.fullmatch(str(value))
    return None if found is None else float(found["number"]) * _UNITS[found["unit"]]


def reservable(cpu: Any, memory: Any) -> dict[str, Any]:
    """Return what can be reserved, by the keys of an inventory; a value that is no quantity is unknown."""
    entry: dict[str, Any] = {}
    cpus, size = quantity(cpu), quantity(memory)
    if cpus is not None:
        entry["cpus"] = int(cpus) if cpus.is_integer() else cpus
    if size is not None:
        entry["reservable_memory"] = int(size) >> 20
    return entry
