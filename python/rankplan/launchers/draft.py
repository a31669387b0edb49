"""A file that is being written, and one that was read."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from rankplan.errors import Diagnostic, refusal
from rankplan.frozen import frozen
from rankplan.launchers.options import Options
from rankplan.plans.node_amounts import NodeAmounts, node_amounts
from rankplan.plans.plan import Plan


@dataclass
class Draft:
    """A file that is being written: the plan, the options, every fault so far, and notes for the user."""

    plan: Plan
    options: Options
    faults: list[Diagnostic] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @cached_property
    def needed(self) -> dict[int, NodeAmounts]:
        """The CPUs and the memory that the job reserves on each node that it reserves any on."""
        return node_amounts(self.plan)

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
