"""The memory of accelerators by type, in GiB, and sizes as text."""

from __future__ import annotations

import re
from numbers import Real

from rankplan.memory.settings import GIB
from rankplan.words import shown

_TYPES: dict[str, tuple[float, float]] = {
    name: (least, most)
    for names, least, most in (
        ("H100 H800 A800", 80.0, 80.0),
        ("A100", 40.0, 80.0),
        ("H200", 141.0, 141.0),
        ("H20", 96.0, 96.0),
        ("B200", 180.0, 180.0),
        ("GB200", 185.0, 185.0),
        ("B300", 268.6, 268.6),
        ("GB300", 277.6, 277.6),
        ("L40S", 45.0, 45.0),
        ("L4 A30", 24.0, 24.0),
        ("910B", 64.0, 64.0),
    )
    for name in names.split()
} | {"PRO 6000": (95.6, 95.6)}
"""The least and the most memory of a type: an A100 has 40 or 80 GiB."""

_UNITS = {"": 1, "B": 1} | {
    prefix + suffix: base**power
    for power, prefix in enumerate("KMGTP", 1)
    for suffix, base in (("IB", 1024), ("I", 1024), ("B", 1000))
}
_SIZE = re.compile(r"\s*([0-9]{1,18}(?:\.[0-9]{1,9})?)\s*([A-Za-z]{0,3})\s*")
SMALLEST_SIZE, LARGEST_SIZE = 1 << 20, 1 << 60
"""No stated size is smaller or larger: 80 is a forgotten unit."""


def card_of(model: str) -> tuple[float, float] | None:
    """Return the least and the most bytes of an accelerator model such as ``NVIDIA H100 80GB HBM3``."""
    words = model.upper().replace("-", " ").replace("_", " ")
    found = [name for name in _TYPES if re.search(rf"(?<![A-Z0-9]){name}(?![A-Z0-9])", words)]
    if not found:
        return None
    least, most = _TYPES[found[0]]
    stated = re.search(r"(?<![0-9.])([0-9]{2,3}) ?GB", words)
    if stated is not None and float(stated[1]) in (least, most):
        least = most = float(stated[1])
    return least * GIB, most * GIB


def size_of(text: str) -> int | None:
    """Return the bytes of a text such as ``80 GiB`` or ``1.5TB``, ``None`` for any other text."""
    if (found := _SIZE.fullmatch(text)) is None or found[2].upper() not in _UNITS:
        return None
    return int(float(found[1]) * _UNITS[found[2].upper()])


def size_text(size: float) -> str:
    """Return bytes as a text: ``22.9 GiB``."""
    return "-" if size == float("inf") else f"{size / GIB:,.1f} GiB"


def size_in_bytes(size: float | str) -> float:
    """Return bytes, also of a text such as ``2 GiB``. Raises ``ValueError`` for anything else."""
    found = size_of(size) if isinstance(size, str) else size
    if isinstance(found, bool) or not isinstance(found, Real) or not 0 <= found <= LARGEST_SIZE:
        raise ValueError(f"{shown(size)} is not a size; write a number and a unit, such as 2 GiB")
    return float(found)
