"""What a process knows about itself when it is a rank of a group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rankplan.placement import Placement


@dataclass(frozen=True, slots=True)
class RankContext:
    """The place of this process: its component, its row of the plan, the configs of its robots (empty without)."""

    component: str
    placement: Placement
    hardware: tuple[Any, ...]


_current: RankContext | None = None


def enter(context: RankContext) -> None:
    """Make this process the rank of that context; it stays so for as long as the process lives."""
    global _current
    _current = context


def current() -> RankContext | None:
    """Return the context of this process, or ``None`` where it is no rank of a group (in the driver, say)."""
    return _current
