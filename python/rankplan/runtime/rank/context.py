"""The rank that this process is, if it is one."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from rankplan._core import Placement
from rankplan.plans.component import Coordinates
from rankplan.runtime.nodes.nodes import Nodes

_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class RankContext:
    """A rank: its component, its row of the plan, its coordinates, and the configs of its robots, if any.

    ``pickled_nodes`` are the nodes of the driver's cluster, loaded only if the rank uses a `Cluster` itself.
    """

    component: str
    placement: Placement
    coordinates: Coordinates | list[Coordinates]
    hardware: tuple[Any, ...]
    pickled_nodes: bytes

    def nodes(self) -> Nodes:
        """Return the nodes of the driver's cluster, with their node groups."""
        nodes = pickle.loads(self.pickled_nodes)
        if not isinstance(nodes, Nodes):
            raise TypeError(f"expected the nodes of a cluster, found {type(nodes).__name__}")
        return nodes


_current: RankContext | None = None


def enter(context: RankContext) -> None:
    """Make this process the rank of that context, for good."""
    global _current
    _current = context


def current() -> RankContext | None:
    """Return the context of this process, or ``None`` if it is not a rank of a group (but the driver, say)."""
    return _current


class OfRank(Generic[_Value]):
    """A fact of the rank that this process is, readable on the worker class and on the worker.

    A worker may have an attribute of its own by that name. Raises ``AttributeError`` outside a rank.
    """

    def __init__(self, read: Callable[[RankContext], _Value]) -> None:
        self._read = read
        self.__doc__ = read.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, worker: object, owner: type) -> _Value:
        if _current is None:
            raise AttributeError(f"{owner.__name__}.{self._name} is known only in the ranks of a group")
        return self._read(_current)
