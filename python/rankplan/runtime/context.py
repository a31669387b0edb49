"""The rank that this process is, if it is one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rankplan.placement import Placement


@dataclass(frozen=True, slots=True)
class RankContext:
    """A rank: its component, its row of the plan, and the configs of its robots, if any."""

    component: str
    placement: Placement
    hardware: tuple[Any, ...]


_current: RankContext | None = None


def enter(context: RankContext) -> None:
    """Make this process the rank of that context, for good."""
    global _current
    _current = context


def current() -> RankContext | None:
    """Return the context of this process, or ``None`` if it is not a rank of a group (but the driver, say)."""
    return _current
