"""The placement groups that a trainer asks Ray for, in order, and the nodes that a plan has for their bundles."""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

from rankplan._core import Request

__all__ = ["NodeOrder", "Request", "repeated"]

NodeOrder: TypeAlias = Literal["text", "number", "id", "topology", "topology-id", "rank"]
"""What a trainer sorts nodes by: addresses as text or as numbers, Ray node ids, ranks in the network, these or else Ray
node ids, or the variable ``NODE_RANK``."""


def repeated(text: str, times: int) -> str:
    """Return the pattern of a literal text that occurs so many times, in as few characters as possible."""
    short = f"(?:{re.escape(text)}){{{times}}}"
    return short if len(text) * times > len(short) else re.escape(text) * times
