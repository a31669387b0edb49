"""The node rank that a launcher sets: a number, a sum of products that it fills in, a range, or ``none``.

A launcher often knows only the index of a pod or a task in its group. ``4+$(RANKPLAN_INDEX)`` reaches the node as
``4+2``.
"""

from __future__ import annotations

import re
from math import prod

from rankplan._core import MAX_RANK, RankSet
from rankplan.errors import Diagnostic, PlacementError
from rankplan.words import shown

OUTSIDE = "none"
"""The node rank of a node that no plan uses, such as the head of a Ray cluster without accelerators."""

_NUMBER = r"(?:0|[1-9][0-9]{0,9})"
_RANGE = re.compile(f"({_NUMBER})-({_NUMBER})")
_SUM = re.compile(rf"{_NUMBER}(?:[+*]{_NUMBER})*")
_EMPTY_PART = re.compile(r"^$|^[+*]|[+*]$|[+*][+*]")

_ALLOWED = "write a node rank (2), a sum of products (4+2*1), a range (0-3), or none"
_POD_INDEX = "KubeRay fills in the index of a pod from 1.6 on (1.5 with the feature gate RayMultiHostIndexing)"
_GROUP_INDEX = "LeaderWorkerSet fills in the index of a group and of a pod by the labels of its pods"


def node_ranks(text: str, name: str) -> RankSet:
    """Return the node ranks that one node may have: one, those of a range, or none for a node outside the plan.

    ``name`` is the variable, label or option with the text. Raises `PlacementError` (``bad-node-rank``).
    """
    if text == OUTSIDE:
        return RankSet()
    first = last = MAX_RANK + 1
    if found := _RANGE.fullmatch(text):
        first, last = int(found[1]), int(found[2])
    elif _SUM.fullmatch(text):
        first = last = sum(prod(map(int, term.split("*"))) for term in text.split("+"))
    if not first <= last <= MAX_RANK:
        raise PlacementError([_fault(text, name)])
    return RankSet(f"{first}-{last}")


def _fault(text: str, name: str) -> Diagnostic:
    found, help = "is not a node rank", _ALLOWED
    if _EMPTY_PART.search(text):
        found = "lacks a number" if text else "is empty"
        help = _GROUP_INDEX if "*" in text else _POD_INDEX if text else _ALLOWED
    elif unfilled := re.search(r"\$\(([^)]*)\)", text):
        found = f"still has {unfilled[0]}"
        help = f"define {unfilled[1]} before {name} in `env` of the container"
    elif _RANGE.fullmatch(text) or _SUM.fullmatch(text):
        help = f"node ranks go from 0 to {MAX_RANK}, and ranges ascend"
    return Diagnostic("bad-node-rank", f"{name} is {shown(text)}, which {found}", help)
