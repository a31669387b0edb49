"""The memory of accelerators by type, in GiB, and sizes as text."""

from __future__ import annotations

import re
from functools import lru_cache
from numbers import Real
from typing import NamedTuple

from rankplan.errors import Diagnostic
from rankplan.words import shown

_GIB = 1 << 30

_TYPES: dict[str, tuple[float, float]] = {
    # A name that another one begins with comes after it.
    "H100 NVL": (93.5, 94.0),
    "H20 3E": (140.4, 141.0),
    "PRO 6000": (95.6, 95.6),
    "A100": (40.0, 80.0),
    "GH200": (95.5, 144.0),
    "GB200": (185.0, 185.0),
    "GB300": (277.6, 277.6),
    "B200": (180.0, 180.0),
    "B300": (268.6, 268.6),
    "H200": (141.0, 141.0),
    "H20": (96.0, 96.0),
    **dict.fromkeys(("H100", "H800", "A800"), (80.0, 80.0)),
    "L40S": (45.0, 45.0),
    **dict.fromkeys(("L40", "L20", "A40"), (45.0, 48.0)),
    **dict.fromkeys(("A6000", "RTX 6000 ADA"), (47.9, 48.0)),
    **dict.fromkeys(("L4", "A10", "A10G"), (22.2, 24.0)),
    **dict.fromkeys(("A30", "4090", "3090"), (23.9, 24.0)),
    "5090": (31.8, 32.0),
    "V100": (15.7, 32.0),
    "MI100": (31.9, 32.0),
    **dict.fromkeys(("MI210", "MI250", "MI250X"), (63.9, 64.0)),
    "MI300A": (127.9, 128.0),
    **dict.fromkeys(("MI300X", "MI308X"), (191.9, 192.0)),
    "MI325X": (255.9, 256.0),
    **dict.fromkeys(("MI350X", "MI355X"), (287.9, 288.0)),
    "910B4": (28.9, 32.0),
    "910B": (60.9, 64.0),
}
"""The least and the most memory of a type, as drivers and their makers show it: an A100 has 40 or 80 GiB.

Cards that check their memory for errors show up to a tenth less than their name: an L4 has 22.5 GiB.
"""
_ROUNDED = 1.1
"""A stated size is at most this much more than what a driver shows."""
_STATED = r"(?<![A-Z0-9.])([0-9]{2,3}) ?G(?:I?B)?(?![A-Z0-9])"
_OTHER_MEMORY = ("GH200", "GB200", "GB300")
"""Types whose names may state the memory of their CPU: ``GH200 480GB``."""
_SLICE = r"(?<![0-9])[0-9]G\.([0-9]{1,3})GB"
_LEAST_OF_SLICE = 0.88
"""Part of its name's size that a MIG slice has at least: 1g.18gb has 16 GiB (NVIDIA: MIG user guide)."""

_TWO_SIZES = {"A100": (40.0, 80.0)}
"""Types of two usual sizes."""


class KnownCard(NamedTuple):
    """A card of the table, and its bytes at least."""

    name: str
    size: float


def known_cards() -> list[KnownCard]:
    """Return the cards whose name tells their memory, from the smallest one."""
    cards = [KnownCard(name, least * _GIB) for name, (least, most) in _TYPES.items() if least * _ROUNDED >= most]
    cards += [KnownCard(f"{name} {size:g}GB", size * _GIB) for name, sizes in _TWO_SIZES.items() for size in sizes]
    return sorted(cards, key=lambda card: (card.size, card.name))


CARDS = tuple(_TYPES)
"""The accelerators whose memory is known."""

_UNITS = {"": 1, "B": 1} | {
    prefix + suffix: base**power
    for power, prefix in enumerate("KMGTP", 1)
    for suffix, base in (("IB", 1024), ("I", 1024), ("B", 1000))
}
_SIZE = r"\s*([0-9]{1,18}(?:\.[0-9]{1,9})?)\s*([A-Za-z]{0,3})\s*"
SMALLEST_SIZE, LARGEST_SIZE = 1 << 20, 1 << 60
"""No stated size is smaller or larger: 80 is a forgotten unit."""


@lru_cache(1024)
def card_of(model: str) -> tuple[float, float] | None:
    """Return the least and the most bytes of an accelerator model such as ``NVIDIA H100 80GB HBM3``, or of a size.

    ``None``: the memory of the model is unknown.
    """
    if (size := size_of(model)) is not None and SMALLEST_SIZE <= size <= LARGEST_SIZE:
        return size, size
    words = _words(model)
    part = re.search(_SLICE, words)
    if part is not None:
        return float(part[1]) * _LEAST_OF_SLICE * _GIB, float(part[1]) * _GIB
    name = _name_in(model)
    if name is None or re.search(r"(?<![A-Z])MIG(?![A-Z])", words):
        return None
    least, most = _TYPES[name]
    stated = None if name in _OTHER_MEMORY else re.search(_STATED, words)
    if stated is not None:
        most = float(stated[1])
        least = least if most / _ROUNDED <= least <= most else most
    return least * _GIB, most * _GIB


def _words(model: str) -> str:
    words = model.upper().replace("-", " ").replace("_", " ").replace("ASCEND", "ASCEND ")
    words = re.sub("RTX(?=[A-Z0-9])", "RTX ", words)
    return re.sub("910B[1-3](?![0-9])", "910B", words)


def _name_in(model: str) -> str | None:
    """Return the known accelerator that a model names, or ``None``."""
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
    if (found := re.fullmatch(_SIZE, text)) is None or found[2].upper() not in _UNITS:
        return None
    return int(float(found[1]) * _UNITS[found[2].upper()])


def size_text(size: float) -> str:
    """Return bytes as a text: ``22.9 GiB``."""
    return "-" if size == float("inf") else f"{size / _GIB:,.1f} GiB"


def size_in_bytes(size: float | str) -> float:
    """Return bytes, also of a text such as ``2 GiB``. Raises ``ValueError`` for anything else."""
    found = size_of(size) if isinstance(size, str) else size
    if isinstance(found, bool) or not isinstance(found, Real) or not 0 <= found <= LARGEST_SIZE:
        raise ValueError(f"{shown(size)} is not a size; write a number and a unit, such as 2 GiB")
    return float(found)


def unknown_card(model: str) -> Diagnostic:
    """Return the fault of an accelerator whose memory is unknown."""
    help = f"write one of {', '.join(CARDS)}, also with its memory (A100-40GB), or only the memory (80GiB)"
    return Diagnostic("invalid-value", f"unknown accelerator {shown(model)}", help)
