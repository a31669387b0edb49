"""A file that is being written, and one that was read."""

from __future__ import annotations

from dataclasses import dataclass, field

from rankplan.errors import Diagnostic, refusal
from rankplan.frozen import frozen
from rankplan.launchers.options import Options
from rankplan.plans.plan import Plan


@dataclass(slots=True)
class Draft:
    """A file that is being written: the plan, the options, every fault so far, and notes for the user."""

    plan: Plan
    options: Options
    faults: list[Diagnostic] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def refuse(self, fault: Diagnostic) -> None:
        """Record a fact that the launcher cannot hold, once."""
        if fault not in self.faults:
            self.faults.append(fault)

    def finish(self) -> None:
        """Raise `PlacementError` with every fault, if there are any."""
        if self.faults:
            raise refusal(self.faults)


@frozen
class Emitted:
    """What a file that rankplan has written says: its plan, and the options that give the same file again."""

    plan: Plan
    options: Options
