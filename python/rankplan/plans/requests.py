"""The placement groups that a trainer asks Ray for, in order, and the nodes that a plan has for their bundles."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, TypeAlias

NodeOrder: TypeAlias = Literal["text", "number", "id", "topology", "topology-id", "rank"]
"""What a trainer sorts nodes by: addresses as text or as numbers, Ray node ids, ranks in the network, these or else Ray
node ids, or the variable ``NODE_RANK``."""


@dataclass(frozen=True, slots=True)
class Request:
    """A placement group that the trainer asks Ray for.

    ``component`` is the first component on it, empty if none is. ``name`` is a regular expression for the whole name of
    the group, ``None`` if it has none. ``accelerators`` has the number of each bundle, ``nodes`` its node rank.
    ``strategy`` is Ray's; it is ``None`` for actors without a group, one for each entry. An ``optional`` request may
    never come; it has no nodes. ``order`` is what the trainer then sorts the nodes of its pool by, if it does: see
    `Requests.pools`.
    """

    component: str
    name: str | None
    accelerators: tuple[int, ...]
    nodes: tuple[int, ...]
    strategy: str | None = "PACK"
    optional: bool = False
    order: NodeOrder | None = None


def repeated(text: str, times: int) -> str:
    """Return the pattern of a literal text that occurs so many times, in as few characters as possible."""
    short = f"(?:{re.escape(text)}){{{times}}}"
    return short if len(text) * times > len(short) else re.escape(text) * times
