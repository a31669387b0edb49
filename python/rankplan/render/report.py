"""The result of checking a config, as text and as plain values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rankplan.errors import Diagnostic, PlacementError, printable
from rankplan.frozen import frozen
from rankplan.plans.component import used_nodes
from rankplan.plans.plan import Plan
from rankplan.render.lines import group_lines
from rankplan.words import counted

if TYPE_CHECKING:
    from rankplan.memory.needs import Needs


@frozen
class Report:
    """The result of `check`: the plan, or ``None`` if the config has faults, and every fault and warning.

    ``file`` is the path of the config, or a word for a config that is not in a file. ``unreported`` counts the values
    that are known only at run time and decide no placement. ``needs``: the memory that each phase needs, if requested.
    ``unchecked`` says what could not be compared, because nothing states what nodes have.
    """

    file: str
    plan: Plan | None
    diagnostics: tuple[Diagnostic, ...]
    unreported: int = 0
    needs: Needs | None = None
    unchecked: str | None = None

    @property
    def faults(self) -> list[Diagnostic]:
        """The diagnostics that reject the config."""
        return [found for found in self.diagnostics if not found.warning]

    @property
    def warnings(self) -> list[Diagnostic]:
        """The diagnostics that do not reject the config."""
        return [found for found in self.diagnostics if found.warning]

    def __bool__(self) -> bool:
        return self.plan is not None

    @property
    def is_job(self) -> bool:
        """Whether the file is the config of a job, with or without faults."""
        return all(found.code != "no-components" for found in self.faults)

    def render(self, *, color: bool = False) -> str:
        """Return the report as the command prints it."""
        told = self._memory_lines()
        if self.plan is None:
            found = PlacementError([*self.faults, *self.warnings]).render(color=color)
            lines = [f"{found}\n\n{faults_line(self.faults)}"]
            return "\n".join([*lines, *(["", *told] if self.needs is not None and self.needs.evaluations else [])])
        counts = (
            counted(len(self.plan), "component"),
            counted(sum(len(rows) for rows in self.plan.values()), "process", "processes"),
            nodes_in_use(self.plan),
        )
        mode = "" if self.plan.mode is None else f", mode {self.plan.mode.name}"
        first = f"{printable(self.file)}: fine, {counts[0]}, {counts[1]} on {counts[2]}{mode}"
        warnings = [self._without_file(warning).render(color=color) for warning in self.warnings]
        lines = [first, *group_lines(self.plan), *told, *warnings]
        return "\n".join([*lines, *([self.unchecked] if self.unchecked else [])])

    def _without_file(self, warning: Diagnostic) -> Diagnostic:
        """Return a warning about the file as a whole without its name, which the first line of the report has."""
        return replace(warning, file=None) if warning.file == self.file and warning.line is None else warning

    def _memory_lines(self) -> list[str]:
        if self.needs is None:
            return []
        from rankplan.render.memory import memory_lines

        return memory_lines(self.needs)

    def _plain_memory(self) -> dict[str, Any]:
        if self.needs is None:
            return {}
        from rankplan.render.memory import plain_needs

        return {"memory": plain_needs(self.needs)}

    def plain(self) -> dict[str, Any]:
        """Return the report as plain values, for JSON."""
        plan = self.plan
        return {
            "file": self.file,
            "fine": plan is not None,
            "nodes": None if plan is None else plan.inventory.num_nodes,
            "nodes_in_use": None if plan is None else len(used_nodes(plan.values())),
            "components": None if plan is None else {name: len(rows) for name, rows in plan.items()},
            "mode": None if plan is None or plan.mode is None else plan.mode.name,
            "groups": [] if plan is None else group_lines(plan),
            "faults": [fault.plain() for fault in self.faults],
            "warnings": [warning.plain() for warning in self.warnings],
            "unreported": self.unreported,
            "unchecked": self.unchecked,
            "error": None,
            **self._plain_memory(),
        }


def nodes_in_use(plan: Plan) -> str:
    """Return the number of nodes that a plan uses, of those that its job may use if it uses fewer: ``4 of 8 nodes``."""
    total, used = plan.inventory.num_nodes, len(used_nodes(plan.values()))
    if plan.job is not None and plan.job.spares is not None:
        total += plan.job.spares.num_nodes
    return counted(total, "node") if used == total else f"{used:,} of {counted(total, 'node')}"


def faults_line(faults: Sequence[Diagnostic]) -> str:
    """Return the number of faults, and the files that have them."""
    files = dict.fromkeys(found.file for found in faults if found.file)
    where = f" in {' and '.join(map(printable, files))}" if files else ""
    return f"{counted(len(faults), 'fault')}{where}"
