"""The values of an entry of ``component_placement``, each read by a function that raises `Invalid`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rankplan._core import MAX_RANK, RankSet
from rankplan.errors import Diagnostic
from rankplan.parallel import Parallel
from rankplan.plans.memory_settings import MemorySettings
from rankplan.read.record import list_of
from rankplan.read.simple import label
from rankplan.read.text.invalid import RANKS, invalid
from rankplan.words import as_int, must_be


def node_group_labels(stated: Any) -> tuple[str, ...]:
    """Return the labels of the node groups of an entry: one, a list, or a text with commas. Raises `Invalid`."""
    if isinstance(stated, str) and "," in stated:
        return tuple(part.strip() for part in stated.split(","))
    labels = list(stated) if isinstance(stated, (list, tuple)) else [stated]
    if stated in (None, "") or not labels:
        raise invalid(_no_label())
    return _read_labels(labels)


def _no_label() -> Diagnostic:
    help = "write the label of a node group, or remove the key"
    return Diagnostic("invalid-value", "node_group is empty", help)


_read_labels = list_of(label)


def placement_text(stated: Any) -> str:
    """Return the text of a placement, which may be a number. Raises `Invalid`."""
    number = as_int(stated)
    if number is not None:
        return str(number)
    if isinstance(stated, str):
        return stated
    help = "write text such as 0-7, 0-1:0-3 or all"
    ranks = _listed(stated) if isinstance(stated, (list, tuple)) else None
    if ranks:
        help = f"write the placement as text, not as a list: {ranks}"
    raise invalid(must_be("placement", stated, "text", help))


def _listed(parts: Sequence[Any]) -> str | None:
    """Return a list of ranks or of ranges as one text, or ``None`` for a list of anything else."""
    if all(isinstance(part, str) and RANKS.fullmatch(part) for part in parts):
        return ",".join(parts)
    numbers = [as_int(part) for part in parts]
    ranks = [number for number in numbers if number is not None and 0 <= number <= MAX_RANK]
    return str(RankSet(ranks)) if len(ranks) == len(parts) else None


def read_parallel(stated: Any) -> Parallel:
    """Return the parallel sizes in a mapping or a text. Raises `Invalid`, or `PlacementError` for a faulty text."""
    from rankplan.read import parallel  # most entries have no sizes

    return parallel.read_parallel(stated)


def read_memory(stated: Any) -> MemorySettings:
    """Return what a component keeps in memory. Raises `Invalid`."""
    from rankplan.read import memory  # most entries say nothing about memory

    return memory.read_memory(stated)
