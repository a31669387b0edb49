"""The placement groups that a trainer asks Ray for, in order, and the nodes that a plan has for their bundles."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import chain, groupby, repeat
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field

from rankplan._core import MAX_PROCESSES, Request
from rankplan.config.base import Model
from rankplan.config.ranks import Count

__all__ = ["NodeOrder", "Request", "RequestEntry", "plain_requests", "repeated"]

NodeOrder: TypeAlias = Literal["text", "number", "id", "topology", "topology-id", "rank"]
"""What a trainer sorts nodes by: addresses as text or as numbers, Ray node ids, ranks in the network, these or else Ray
node ids, or the variable ``NODE_RANK``."""

_Times = Annotated[Count, Field(ge=1, le=MAX_PROCESSES)]
_Number = Annotated[Count, Field(ge=0, le=MAX_PROCESSES)]


def repeated(text: str, times: int) -> str:
    """Return the pattern of a literal text that occurs so many times, in as few characters as possible."""
    short = f"(?:{re.escape(text)}){{{times}}}"
    return short if len(text) * times > len(short) else re.escape(text) * times


class RequestEntry(Model):
    """A request in the file of a plan: ``bundles`` has [times, accelerators, node rank] of equal bundles in a row."""

    component: str
    name: str | None = None
    bundles: list[tuple[_Times, _Number, _Number | None]] = Field(min_length=1)
    strategy: str | None = "PACK"
    optional: bool = False
    order: NodeOrder | None = None

    def value(self) -> Request:
        """Return the request."""
        bundles = list(chain.from_iterable(repeat((size, node), times) for times, size, node in self.bundles))
        sizes = tuple(size for size, _ in bundles)
        nodes = tuple(node for _, node in bundles if node is not None)
        return Request(self.component, self.name, sizes, nodes, self.strategy, self.optional, self.order)


def plain_requests(requests: Iterable[Request]) -> list[dict[str, Any]]:
    """Return requests as plain values, for the file of a plan."""
    return [_plain(request) for request in requests]


def _plain(request: Request) -> dict[str, Any]:
    """Return a request as `RequestEntry` reads it, without what is usual."""
    nodes: Iterable[int | None] = request.nodes or repeat(None, len(request.accelerators))
    alike = groupby(zip(request.accelerators, nodes, strict=True))
    entry: dict[str, Any] = {"component": request.component}
    if request.name is not None:
        entry["name"] = request.name
    entry["bundles"] = [[len(list(run)), *bundle] for bundle, run in alike]
    if request.strategy != "PACK":
        entry["strategy"] = request.strategy
    if request.optional:
        entry["optional"] = True
    if request.order is not None:
        entry["order"] = request.order
    return entry
