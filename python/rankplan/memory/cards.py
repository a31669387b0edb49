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

CARDS = tuple(_TYPES)
"""The accelerators whose memory is known."""

_UNITS = {"": 1, "B": 1} | {
    prefix + suffix: base**power
    for power, prefix in enumerate("KMGTP", 1)
    for suffix, base in (("IB", 1024), ("I", 1024), ("B", 1000))
}
_SIZE = re.compile(r"\s*([0-9]{1,18}(?:\.[0-9]{1,9})?)\s*([A-Za-z]{0,3})\s*")
SMALLEST_SIZE, LARGEST_SIZE = 1 << 20, 1 << 60
"""No stated size is smaller or larger: 80 is a forgotten unit."""


def card_of(model: str) -> tuple[float, float] | None:
    """Return the least and the most bytes of an accelerator model such as ``NVIDIA H100 80GB HBM3``, or of a size.

    ``None``: the memory of the model is unknown.
    """
    if (size := size_of(model)) is not None and SMALLEST_SIZE <= size <= LARGEST_SIZE:
        return size, size
    name = _name_in(model)
    if name is None:
        return None
    least, most = _TYPES[name]
    stated = re.search(r"(?<![0-9.])([0-9]{2,3}) ?GB", _words(model))
    if stated is not None and float(stated[1]) in (least, most):
        least = most = float(stated[1])
    return least * GIB, most * GIB


def _words(model: str) -> str:
    return model.upper().replace("-", " ").replace("_", " ")


def _name_in(model: str) -> str | None:
    """Return the name of a known accelerator in a model, ``None`` if it has none."""
    words = _words(model)
    return next((name for name in _TYPES if re.search(rf"(?<![A-Z0-9]){name}(?![A-Z0-9])", words)), None)


def may_be_same(one: str, other: str) -> bool:
    """Whether two models may be of one accelerator: an A100 of unknown size may be one of 40 and one of 80 GiB."""
    cards = card_of(one), card_of(other)
    if cards[0] is None or cards[1] is None:
        return True
    names = {name for name in (_name_in(one), _name_in(other)) if name is not None}
    return len(names) < 2 and cards[0][0] <= cards[1][1] and cards[1][0] <= cards[0][1]


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
